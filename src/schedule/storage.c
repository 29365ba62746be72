// SPDX-License-Identifier: Apache-2.0
// Instances of values, their lifetimes over the op runs of F, R, I and W, in-place sharing, and the
// two layouts: slots one after the other, scratch by best fit.
#include "schedule/storage.h"

#include "ops/catalog.h"
#include "schedule/layout.h"

// One op of one segment, in the order in which they run.
typedef struct run {
  int op;
  ot_side side;
  ot_scratch_group group;
} run;

// Life of one instance; those that share storage are chained to a root.
typedef struct life {
  bool used;
  int root;         // instance whose storage this one shares, itself when none
  int first, last;  // runs
  unsigned groups;  // bit mask of ot_scratch_group
  int64_t bytes;
} life;

typedef struct storage_builder {
  ot_storage *storage;
  const ot_program *program;
  ot_arena *arena;
  int64_t guard_bytes;
  run *runs;
  int num_runs;
  life *lives;  // [2 * num_values]
} storage_builder;

// ---- runs ----

static void add_run(storage_builder *b, int op, ot_side side, ot_scratch_group group) {
  b->runs[b->num_runs++] = (run){op, side, group};
}

static void list_runs(storage_builder *b) {
  const ot_program *const program = b->program;
  const bool split = b->storage->split;
  b->runs = ot_arena_array(b->arena, 2 * program->num_ops + 1, sizeof(run));
  for (int i = 0; i < program->num_ops; i++) {
    if (program->ops[i].part == OT_PART_FORWARD) add_run(b, i, OT_SIDE_FORWARD, OT_GROUP_FORWARD);
  }
  for (int i = 0; i < program->num_ops; i++) {
    if (b->storage->set.emitted[i]) add_run(b, i, OT_SIDE_BACKWARD, OT_GROUP_BACKWARD);
  }
  for (int i = 0; i < program->num_ops; i++) {
    const ot_part part = program->ops[i].part;
    if (part == OT_PART_FORWARD || (split && part == OT_PART_WEIGHT)) continue;
    add_run(b, i, OT_SIDE_BACKWARD, OT_GROUP_BACKWARD);
  }
  for (int i = 0; split && i < program->num_ops; i++) {
    if (program->ops[i].part == OT_PART_WEIGHT) add_run(b, i, OT_SIDE_BACKWARD, OT_GROUP_WEIGHT);
  }
}

// ---- instances ----

static bool is_boundary(const ot_program *program, int value) {
  return value == program->output || value == program->d_output || value == program->d_input;
}

// True when the value's storage is decided here.
static bool is_internal(const ot_program *program, int value) {
  const ot_value_kind kind = program->values[value].kind;
  return (kind == OT_VALUE_ACTIVATION || kind == OT_VALUE_GRADIENT) && !is_boundary(program, value);
}

static bool is_emitted_again(const ot_storage *storage, int value) {
  for (int i = 0; i < storage->program->num_ops; i++) {
    if (!storage->set.emitted[i]) continue;
    for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
      if (storage->program->ops[i].out[k] == value) return true;
    }
  }
  return false;
}

// A kept value has one instance, F's, even if its producer runs again for another output.
static int instance_of(const ot_storage *storage, int value, ot_side side) {
  const bool gradient = storage->program->values[value].kind == OT_VALUE_GRADIENT;
  if (gradient) return 2 * value + 1;
  if (side == OT_SIDE_FORWARD || !is_emitted_again(storage, value)) return 2 * value;
  return 2 * value + 1;
}

static void touch(storage_builder *b, int value, const run *r, int time) {
  if (value < 0 || !is_internal(b->program, value)) return;
  const int instance = instance_of(b->storage, value, r->side);
  life *const l = &b->lives[instance];
  if (!l->used) {
    *l = (life){.used = true,
                .root = instance,
                .first = time,
                .bytes = ot_type_bytes(&b->program->values[value].type)};
  }
  l->last = time;
  l->groups |= 1u << r->group;
}

static void find_lives(storage_builder *b) {
  b->lives = ot_arena_array(b->arena, 2 * b->program->num_values + 1, sizeof(life));
  for (int t = 0; t < b->num_runs; t++) {
    const ot_op *const op = &b->program->ops[b->runs[t].op];
    for (int i = 0; i < OT_MAX_INPUTS; i++) touch(b, op->in[i], &b->runs[t], t);
    for (int i = 0; i < OT_MAX_OUTPUTS; i++) touch(b, op->out[i], &b->runs[t], t);
  }
}

// ---- in-place sharing ----

static int root_of(const storage_builder *b, int instance) {
  while (b->lives[instance].root != instance) instance = b->lives[instance].root;
  return instance;
}

// Lets output 0 of an in-place op take the storage of input 0 when nobody reads that input later.
static void share(storage_builder *b, int time) {
  const run *const r = &b->runs[time];
  const ot_op *const op = &b->program->ops[r->op];
  if (!ot_op_info_of(op->kind)->in_place || op->in[0] < 0 || op->out[0] < 0) return;
  if (!is_internal(b->program, op->in[0]) || !is_internal(b->program, op->out[0])) return;
  const int in = root_of(b, instance_of(b->storage, op->in[0], r->side));
  const int out = instance_of(b->storage, op->out[0], r->side);
  life *const from = &b->lives[in];
  life *const to = &b->lives[out];
  if (in == out || from->last != time || to->first != time || from->bytes != to->bytes) return;
  to->root = in;
  from->last = to->last;
  from->groups |= to->groups;
}

// ---- layouts ----

static bool in_one_group(unsigned groups) { return (groups & (groups - 1)) == 0; }

static void place_slots(storage_builder *b, ot_place *places) {
  int64_t top = 0;
  for (int i = 0; i < 2 * b->program->num_values; i++) {
    const life *const l = &b->lives[i];
    if (!l->used || l->root != i || in_one_group(l->groups)) continue;
    places[i] = (ot_place){OT_BASE_SLOT, top};
    top += ot_align(l->bytes) + ot_align(b->guard_bytes);
  }
  b->storage->slot_bytes = top;
}

static int64_t workspace_of(const storage_builder *b, int op) {
  ot_op_types types;
  ot_program_types(b->program, &b->program->ops[op], &types);
  return ot_op_workspace(b->program->ops[op].kind, &b->program->ops[op].attributes, &types);
}

static void place_scratch(storage_builder *b, ot_scratch_group group, ot_place *places) {
  const int num_instances = 2 * b->program->num_values;
  ot_interval *const intervals =
      ot_arena_array(b->arena, num_instances + b->num_runs + 1, sizeof *intervals);
  int *const owner = ot_arena_array(b->arena, num_instances + b->num_runs + 1, sizeof(int));
  int count = 0;
  for (int i = 0; i < num_instances; i++) {
    const life *const l = &b->lives[i];
    if (!l->used || l->root != i || l->groups != 1u << group) continue;
    owner[count] = i;
    intervals[count++] = (ot_interval){.bytes = l->bytes, .first = l->first, .last = l->last};
  }
  const int num_values = count;
  for (int t = 0; t < b->num_runs; t++) {
    if (b->runs[t].group != group) continue;
    owner[count] = t;
    intervals[count++] =
        (ot_interval){.bytes = workspace_of(b, b->runs[t].op), .first = t, .last = t};
  }
  b->storage->scratch_bytes[group] = ot_layout_best_fit(intervals, count, b->guard_bytes, b->arena);
  for (int i = 0; i < num_values; i++) {
    places[owner[i]] = (ot_place){OT_BASE_SCRATCH, intervals[i].offset};
  }
  for (int i = num_values; i < count; i++) {
    const run *const r = &b->runs[owner[i]];
    b->storage->workspace[r->side][r->op] = intervals[i].offset;
  }
}

static ot_place boundary_place(const ot_program *program, int value) {
  if (value == program->output) return (ot_place){OT_BASE_OUTPUT, 0};
  if (value == program->d_output) return (ot_place){OT_BASE_D_OUTPUT, 0};
  return (ot_place){OT_BASE_D_INPUT, 0};
}

void ot_storage_build(const ot_storage_request *request, ot_arena *arena, ot_storage *storage) {
  const ot_program *const program = request->program;
  *storage = (ot_storage){.program = program, .split = request->split};
  ot_recompute_build(program, request->recompute, arena, &storage->set);
  storage_builder b = {
      .storage = storage, .program = program, .arena = arena, .guard_bytes = request->guard_bytes};
  list_runs(&b);
  find_lives(&b);
  for (int t = 0; t < b.num_runs; t++) share(&b, t);

  ot_place *const places = ot_arena_array(arena, 2 * program->num_values + 1, sizeof *places);
  for (int side = 0; side < OT_SIDES; side++) {
    storage->place[side] = ot_arena_array(arena, program->num_values + 1, sizeof(ot_place));
    storage->workspace[side] = ot_arena_array(arena, program->num_ops + 1, sizeof(int64_t));
  }
  place_slots(&b, places);
  for (int group = 0; group < OT_GROUPS; group++) place_scratch(&b, group, places);
  for (int v = 0; v < program->num_values; v++) {
    for (int side = 0; side < OT_SIDES; side++) {
      const int instance = instance_of(storage, v, side);
      storage->place[side][v] = is_boundary(program, v)  ? boundary_place(program, v)
                                : b.lives[instance].used ? places[root_of(&b, instance)]
                                                         : (ot_place){OT_BASE_NONE, 0};
    }
  }
}

ot_place ot_storage_place(const ot_storage *storage, int value, ot_side side) {
  return storage->place[side][value];
}
