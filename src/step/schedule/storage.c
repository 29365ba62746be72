// SPDX-License-Identifier: Apache-2.0
// Instances of values, their lifetimes over the op runs of F, R, I and W, in-place sharing, and the
// two layouts: saved activations in sequence, scratch by best fit. A live-in value of a loop body
// stays live to the end of the body, since the next iteration reads it, too.
#include "schedule/storage.h"

#include "graph/body.h"
#include "ops/catalog.h"
#include "ops/collective.h"
#include "schedule/layout.h"
#include "workspace/workspace.h"

// Lifetime of one instance; instances that share storage are chained to a root.
typedef struct lifetime {
  bool used;
  int root;         // instance whose storage this one shares, else itself
  int first, last;  // indices of runs
  unsigned groups;  // bit mask of ot_scratch_group
  int64_t bytes;
} lifetime;

typedef struct storage_builder {
  ot_storage *storage;
  const ot_program *program;
  ot_arena *arena;
  int64_t guard_bytes;
  ot_storage_run *runs;
  int num_runs;
  lifetime *lives;  // [2 * num_values]
} storage_builder;

// ---- runs ----

static void add_run(storage_builder *b, int op, ot_phase phase, ot_scratch_group group) {
  const ot_side side = phase == OT_PHASE_FORWARD ? OT_SIDE_FORWARD : OT_SIDE_BACKWARD;
  b->runs[b->num_runs] = (ot_storage_run){op, phase, side, group, b->num_runs};
  b->num_runs++;
}

// Reads or accumulates into it.
static bool touches_output_of(const ot_program *program, int later, int writer) {
  const ot_op *const l = &program->ops[later];
  const ot_op *const w = &program->ops[writer];
  for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
    for (int i = 0; w->out[k] >= 0 && i < OT_MAX_INPUTS; i++) {
      if (l->in[i] == w->out[k]) return true;
    }
    for (int i = 0; w->out[k] >= 0 && i < OT_MAX_OUTPUTS; i++) {
      if (l->out[i] == w->out[k] && ot_program_updates(program, later, i)) return true;
    }
  }
  return false;
}

// The runs of the loop body that contains run `run`; first is `run` and last is -1 outside bodies.
typedef struct body {
  int first, last;
} body;

static body body_of(const storage_builder *b, int run) {
  const int op = b->runs[run].op;
  const int repeat = ot_program_repeat_of(b->program, op);
  if (repeat < 0) return (body){run, -1};
  const int first = run - (op - repeat - 1);
  return (body){first, first + b->program->ops[repeat].attributes.repeated - 1};
}

static bool is_in_body(const storage_builder *b, int run) { return body_of(b, run).last >= 0; }

// Moves the collectives among the runs from `first` on up, directly after the producers of their
// operands and after other collectives: all ranks start them in one order. Loop bodies stay
// unchanged and in place.
static void hoist(storage_builder *b, int first) {
  const ot_program *const program = b->program;
  for (int i = first; i < b->num_runs; i++) {
    const ot_storage_run moved = b->runs[i];
    if (!ot_op_communicates(program->ops[moved.op].kind) || is_in_body(b, i)) continue;
    int at = i;
    while (at > first && !touches_output_of(program, moved.op, b->runs[at - 1].op) &&
           !ot_op_communicates(program->ops[b->runs[at - 1].op].kind) && !is_in_body(b, at - 1)) {
      b->runs[at] = b->runs[at - 1];
      at--;
    }
    b->runs[at] = moved;
  }
}

// A collective ends where its first reader starts, at the latest with its loop body and its
// segment.
static void find_ends(storage_builder *b, int first) {
  for (int i = first; i < b->num_runs; i++) {
    b->runs[i].end = i;
    if (!ot_op_communicates(b->program->ops[b->runs[i].op].kind)) continue;
    const int body_last = body_of(b, i).last;
    const int last = body_last >= 0 ? body_last : b->num_runs - 1;
    int end = i + 1;
    while (end < last && !touches_output_of(b->program, b->runs[end].op, b->runs[i].op)) end++;
    b->runs[i].end = end < last ? end : last;
  }
}

static bool is_in(const storage_builder *b, int op, ot_phase phase) {
  const ot_part part = b->program->ops[op].part;
  switch (phase) {
    case OT_PHASE_FORWARD:
      return part == OT_PART_FORWARD;
    case OT_PHASE_RECOMPUTE:
      return b->storage->set.emitted[op];
    case OT_PHASE_INPUT:
      return part == OT_PART_INPUT;
    case OT_PHASE_WEIGHT:
      return part == OT_PART_WEIGHT;
    default:
      return part != OT_PART_FORWARD;
  }
}

static void list_phase(storage_builder *b, ot_phase phase, ot_scratch_group group) {
  const int first = b->num_runs;
  for (int i = 0; i < b->program->num_ops; i++) {
    if (is_in(b, i, phase)) add_run(b, i, phase, group);
  }
  hoist(b, first);
  find_ends(b, first);
}

static void list_runs(storage_builder *b) {
  const bool split = b->storage->split;
  b->runs = ot_arena_array(b->arena, 2 * b->program->num_ops + 1, sizeof *b->runs);
  list_phase(b, OT_PHASE_FORWARD, OT_SCRATCH_FORWARD);
  list_phase(b, OT_PHASE_RECOMPUTE, OT_SCRATCH_BACKWARD);
  list_phase(b, split ? OT_PHASE_INPUT : OT_PHASE_BACKWARD, OT_SCRATCH_BACKWARD);
  if (split) list_phase(b, OT_PHASE_WEIGHT, OT_SCRATCH_WEIGHT);
  b->storage->runs = b->runs;
  b->storage->num_runs = b->num_runs;
}

// ---- instances ----

static bool is_boundary(const ot_program *program, int value) {
  return value == program->output || value == program->d_output || value == program->d_input ||
         ot_program_stack_index(program, value) >= 0;
}

// True if this file assigns the value's storage.
static bool is_internal(const ot_program *program, int value) {
  const ot_value_kind kind = program->values[value].kind;
  return (kind == OT_VALUE_ACTIVATION || kind == OT_VALUE_GRADIENT) && !is_boundary(program, value);
}

// Made in the backward, by an op that runs again or by a gradient.
static bool is_recomputed(const ot_storage *storage, int value) {
  for (int i = 0; i < storage->program->num_ops; i++) {
    const bool backward = storage->program->ops[i].part != OT_PART_FORWARD;
    if (!backward && !storage->set.emitted[i]) continue;
    for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
      if (storage->program->ops[i].out[k] == value) return true;
    }
  }
  return false;
}

// A saved value has one instance, F's, even if its producer runs again for another output.
static int instance_of(const ot_storage *storage, int value, ot_side side) {
  const bool gradient = storage->program->values[value].kind == OT_VALUE_GRADIENT;
  if (gradient) return 2 * value + 1;
  if (side == OT_SIDE_FORWARD || !is_recomputed(storage, value)) return 2 * value;
  return 2 * value + 1;
}

static void touch(storage_builder *b, int value, const ot_storage_run *r, int time) {
  if (value < 0 || !is_internal(b->program, value)) return;
  const int instance = instance_of(b->storage, value, r->side);
  lifetime *const l = &b->lives[instance];
  if (!l->used) {
    *l = (lifetime){.used = true,
                    .root = instance,
                    .first = time,
                    .bytes = ot_type_bytes(&b->program->values[value].type)};
  }
  const body around = body_of(b, time);
  const int last = l->first < around.first && around.last > r->end ? around.last : r->end;
  if (last > l->last) l->last = last;
  l->groups |= 1u << r->group;
}

static void find_lives(storage_builder *b) {
  b->lives = ot_arena_array(b->arena, 2 * b->program->num_values + 1, sizeof(lifetime));
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

// True if an op after run `time`, up to run `end`, accesses the storage of `root`.
static bool is_touched(const storage_builder *b, int root, int time, int end) {
  for (int t = time + 1; t <= end; t++) {
    const ot_storage_run *const r = &b->runs[t];
    const ot_op *const op = &b->program->ops[r->op];
    for (int i = 0; i < OT_MAX_INPUTS + OT_MAX_OUTPUTS; i++) {
      const int value = i < OT_MAX_INPUTS ? op->in[i] : op->out[i - OT_MAX_INPUTS];
      if (value < 0 || !is_internal(b->program, value)) continue;
      if (root_of(b, instance_of(b->storage, value, r->side)) == root) return true;
    }
  }
  return false;
}

// Lets output `i` of an in-place op reuse the storage of its input if that input has no later
// reader, no reader while the op (a collective) is in flight, and none in the next iteration of a
// loop body.
static void share(storage_builder *b, int time, int i) {
  const ot_storage_run *const r = &b->runs[time];
  const ot_op *const op = &b->program->ops[r->op];
  const int input = ot_op_shared_input(ot_op_info_of(op->kind), i);
  if (input < 0 || op->in[input] < 0 || op->out[i] < 0) return;
  if (!is_internal(b->program, op->in[input]) || !is_internal(b->program, op->out[i])) return;
  const int in = root_of(b, instance_of(b->storage, op->in[input], r->side));
  const int out = instance_of(b->storage, op->out[i], r->side);
  lifetime *const from = &b->lives[in];
  lifetime *const to = &b->lives[out];
  if (in == out || from->last != r->end || to->first != time || from->bytes != to->bytes) return;
  if (is_touched(b, in, time, r->end)) return;
  if (is_in_body(b, time) && from->first < body_of(b, time).first) return;
  to->root = in;
  from->last = to->last;
  from->groups |= to->groups;
}

// ---- layouts ----

static bool in_one_group(unsigned groups) { return (groups & (groups - 1)) == 0; }

static ot_slot_class class_of(unsigned groups) {
  if ((groups >> OT_SCRATCH_WEIGHT & 1u) == 0) return OT_SLOT_SHORT;
  return groups >> OT_SCRATCH_FORWARD & 1u ? OT_SLOT_LONG : OT_SLOT_WEIGHT;
}

static void place_slots(storage_builder *b, ot_place *places) {
  static const ot_base bases[] = {
      [OT_SLOT_SHORT] = OT_BASE_SLOT,
      [OT_SLOT_LONG] = OT_BASE_SLOT_LONG,
      [OT_SLOT_WEIGHT] = OT_BASE_SLOT_WEIGHT,
  };
  for (int i = 0; i < 2 * b->program->num_values; i++) {
    const lifetime *const l = &b->lives[i];
    if (!l->used || l->root != i || in_one_group(l->groups)) continue;
    const ot_slot_class class = class_of(l->groups);
    int64_t *const top = &b->storage->slot_bytes[class];
    places[i] = (ot_place){bases[class], *top};
    *top += ot_align(l->bytes) + ot_align(b->guard_bytes);
  }
}

static int64_t workspace_of(const storage_builder *b, int op) {
  ot_op_types types;
  ot_program_types(b->program, &b->program->ops[op], &types);
  return ot_op_workspace(b->program->ops[op].kind, &b->program->ops[op].attributes, &types);
}

static void place_scratch(storage_builder *b, ot_scratch_group group, ot_place *places) {
  const int num_instances = 2 * b->program->num_values;
  ot_live_range *const intervals =
      ot_arena_array(b->arena, num_instances + b->num_runs + 1, sizeof *intervals);
  int *const owner = ot_arena_array(b->arena, num_instances + b->num_runs + 1, sizeof(int));
  int count = 0;
  for (int i = 0; i < num_instances; i++) {
    const lifetime *const l = &b->lives[i];
    if (!l->used || l->root != i || l->groups != 1u << group) continue;
    owner[count] = i;
    intervals[count++] = (ot_live_range){.bytes = l->bytes, .first = l->first, .last = l->last};
  }
  const int num_values = count;
  for (int t = 0; t < b->num_runs; t++) {
    if (b->runs[t].group != group) continue;
    owner[count] = t;
    intervals[count++] = (ot_live_range){
        .bytes = workspace_of(b, b->runs[t].op), .first = t, .last = b->runs[t].end};
  }
  b->storage->scratch_bytes[group] = ot_layout_best_fit(intervals, count, b->guard_bytes, b->arena);
  for (int i = 0; i < num_values; i++) {
    places[owner[i]] = (ot_place){OT_BASE_SCRATCH, intervals[i].offset};
  }
  for (int i = num_values; i < count; i++) {
    const ot_storage_run *const r = &b->runs[owner[i]];
    b->storage->workspace[r->side][r->op] = intervals[i].offset;
  }
}

// Versions of the stack's gradient share one location.
static ot_place boundary_place(const ot_program *program, int value) {
  const ot_value *const v = &program->values[value];
  const int64_t place = ot_program_stack_index(program, value);
  if (place >= 0) {
    return (ot_place){v->kind == OT_VALUE_GRADIENT ? OT_BASE_D_STACK : OT_BASE_STACK,
                      place > 0 ? place * ot_type_bytes(&v->type) : 0};
  }
  if (value == program->output) return (ot_place){OT_BASE_OUTPUT, 0};
  if (value == program->d_output) return (ot_place){OT_BASE_D_OUTPUT, 0};
  return (ot_place){OT_BASE_D_INPUT, 0};
}

void ot_storage_build(const ot_storage_request *request, ot_arena *arena, ot_storage *storage) {
  *storage = (ot_storage){.split = request->split};
  ot_recompute_build(request->program, request->recompute, arena, &storage->set);
  const ot_program *const program = storage->program = storage->set.program;
  storage_builder b = {
      .storage = storage, .program = program, .arena = arena, .guard_bytes = request->guard_bytes};
  list_runs(&b);
  find_lives(&b);
  for (int t = 0; t < b.num_runs; t++) {
    for (int i = 0; i < OT_MAX_OUTPUTS; i++) share(&b, t, i);
  }

  ot_place *const places = ot_arena_array(arena, 2 * program->num_values + 1, sizeof *places);
  for (int side = 0; side < OT_SIDES; side++) {
    storage->place[side] = ot_arena_array(arena, program->num_values + 1, sizeof(ot_place));
    storage->workspace[side] = ot_arena_array(arena, program->num_ops + 1, sizeof(int64_t));
  }
  place_slots(&b, places);
  for (int group = 0; group < OT_SCRATCH_GROUPS; group++) place_scratch(&b, group, places);
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
