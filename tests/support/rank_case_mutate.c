// SPDX-License-Identifier: Apache-2.0
// Calls are found by their index in a group; the instruction that issues one gets its own segment.
#include "support/rank_case_mutate.h"

#include <string.h>

#include "base/text.h"
#include "ops/catalog.h"
#include "ops/collective.h"
#include "ops/operands.h"
#include "schedule/tasks.h"

enum { LINE_BYTES = 64 };

const char *rank_fault_name(rank_fault fault) {
  static const char *const names[] = {"delete",     "delete on one", "shorten", "other group",
                                      "accumulate", "twice",         "scale"};
  return names[fault];
}

// ---- calls ----

// A call of a rank.
typedef struct place {
  int entry, task;
  const ot_task *what;  // null: no such call
} place;

static const ot_order *step_of(const ot_schedule *schedule) {
  return &schedule->orders[ot_schedule_find_order(schedule, OT_ORDER_STEP, 0)];
}

static place find_call(const ot_schedule *schedule, ot_group_kind kind, int number) {
  const ot_order *const order = step_of(schedule);
  for (int i = 0; i < order->num_entries; i++) {
    const ot_segment *const segment = &schedule->segments[order->entries[i].segment];
    for (int t = 0; t < segment->num_tasks; t++) {
      const ot_task *const task = &segment->tasks[t];
      if (!ot_op_communicates(task->op) || task->attributes.group != kind) continue;
      if (number-- == 0) return (place){i, t, task};
    }
  }
  return (place){0};
}

static bool is_message(const ot_task *task) {
  return task->op == OT_OP_SEND || task->op == OT_OP_RECEIVE;
}

static bool reduces(const ot_task *task) {
  return task->op == OT_OP_REDUCE_SCATTER || task->op == OT_OP_ALL_REDUCE;
}

// ---- faults ----

static int64_t line_rows(const ot_tensor_type *type) {
  int64_t row = ot_dtype_bytes(type->dtype);
  for (int i = 1; i < type->rank; i++) row *= type->dim[i];
  return row >= LINE_BYTES ? 1 : LINE_BYTES / row;
}

// Rows of the smallest block of the call.
static int64_t block_rows(const ot_task *task) {
  const ot_tensor_type *const in = &task->in[0].type, *const out = &task->out[0].type;
  if (task->op == OT_OP_RECEIVE) return out->dim[0];
  if (task->op == OT_OP_REDUCE_SCATTER) return out->dim[0];
  return task->op == OT_OP_ALL_TO_ALL ? in->dim[0] / task->attributes.group_size : in->dim[0];
}

static bool can_shorten(const ot_task *task) {
  const ot_tensor_type *const type =
      task->op == OT_OP_RECEIVE ? &task->out[0].type : &task->in[0].type;
  return block_rows(task) > line_rows(type);
}

static void shorten(ot_task *task) {
  ot_tensor_type *const in = &task->in[0].type, *const out = &task->out[0].type;
  const int64_t rows = line_rows(task->op == OT_OP_RECEIVE ? out : in);
  const int size = task->attributes.group_size;
  const bool many_in = task->op == OT_OP_REDUCE_SCATTER || task->op == OT_OP_ALL_TO_ALL;
  const bool many_out = task->op == OT_OP_ALL_GATHER || task->op == OT_OP_ALL_TO_ALL;
  if (ot_type_present(in)) in->dim[0] -= many_in ? rows * size : rows;
  if (ot_type_present(out)) out->dim[0] -= many_out ? rows * size : rows;
}

// Makes room for one more task; waits for tasks from `from` on are renumbered.
static void open_gap(ot_segment *segment, int at, int from) {
  for (int i = segment->num_tasks; i > at; i--) segment->tasks[i] = segment->tasks[i - 1];
  segment->num_tasks++;
  for (int i = at + 1; i < segment->num_tasks; i++) {
    if (segment->tasks[i].wait >= from) segment->tasks[i].wait++;
  }
}

static void delete_task(ot_segment *segment, int at) {
  segment->num_tasks--;
  for (int i = at; i < segment->num_tasks; i++) {
    ot_task *const task = &segment->tasks[i];
    *task = segment->tasks[i + 1];
    if (task->wait >= at) task->wait = task->wait == at ? -1 : task->wait - 1;
  }
}

static void repeat_task(ot_segment *segment, int at) {
  open_gap(segment, at + 1, at);
  segment->tasks[at + 1] = segment->tasks[at];
}

static ot_task task_like(const ot_task *sum, ot_op_kind op, int wait) {
  ot_task task = {
      .kind = OT_TASK_COMPUTE,
      .op = op,
      .attributes = {.threads = sum->attributes.threads, .compute = sum->out[0].type.dtype},
      .wait = wait};
  for (int i = 0; i < OT_MAX_INPUTS; i++) task.in[i].value = -1;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) task.out[i].value = -1;
  return task;
}

// Copies the reduction result to OT_BASE_RESULT and adds the copy to it.
static void double_sum(ot_segment *segment, int at) {
  open_gap(segment, at + 1, at + 1);
  open_gap(segment, at + 1, at + 1);
  const ot_task *const sum = &segment->tasks[at];
  ot_task copy = task_like(sum, OT_OP_CAST, at), add = task_like(sum, OT_OP_ADD, at);
  copy.in[0] = add.in[0] = add.out[0] = sum->out[0];
  copy.out[0] = add.in[1] = ot_operand_at(OT_BASE_RESULT, 0, sum->out[0].type);
  segment->tasks[at + 1] = copy;
  segment->tasks[at + 2] = add;
}

// Gives OT_BASE_RESULT of an instruction separate memory at the end of the arena.
static void bind_result(ot_schedule *schedule, ot_entry *entry, int64_t bytes, ot_arena *arena) {
  const int n = schedule->num_regions;
  ot_region *const regions = ot_arena_array(arena, n + 1, sizeof *regions);
  memcpy(regions, schedule->regions, (size_t)n * sizeof *regions);
  const int64_t offset = (schedule->arena_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
  regions[n] = (ot_region){.name = "mutant",
                           .class = OT_MEMORY_BUFFERS,
                           .persistent = true,
                           .offset = offset,
                           .bytes = bytes};
  schedule->regions = regions;
  schedule->num_regions++;
  schedule->arena_bytes = offset + bytes;
  entry->base[OT_BASE_RESULT] = offset;
}

static void misgroup(ot_task *task, const ot_schedule *schedule, ot_group_kind other) {
  task->attributes.group = other;
  task->attributes.group_size = schedule->group[other].size;
  task->attributes.group_index = schedule->group[other].index;
}

static void apply(const rank_mutant *m, const ot_schedule *schedule, ot_segment *segment, int at) {
  ot_task *const task = &segment->tasks[at];
  switch (m->fault) {
    case RANK_DELETE:
    case RANK_DELETE_ONE:
      delete_task(segment, at);
      return;
    case RANK_SHORTEN:
      shorten(task);
      return;
    case RANK_MISGROUP:
      misgroup(task, schedule, m->other);
      return;
    case RANK_ACCUMULATE:
      task->attributes.accumulate = !task->attributes.accumulate;
      return;
    case RANK_TWICE:
      repeat_task(segment, at);
      return;
    case RANK_SCALE:
      double_sum(segment, at);
      return;
    case RANK_FAULTS:
      break;
  }
  OT_UNREACHABLE();
}

// Gives an instruction a private copy of its segment.
static ot_segment *own_segment(ot_schedule *schedule, ot_entry *entry, ot_arena *arena) {
  const int n = schedule->num_segments;
  ot_segment *const segments = ot_arena_array(arena, n + 1, sizeof *segments);
  memcpy(segments, schedule->segments, (size_t)n * sizeof *segments);
  ot_segment *const made = &segments[n];
  *made = segments[entry->segment];
  made->tasks = ot_arena_array(arena, made->num_tasks + 3, sizeof *made->tasks);
  memcpy(made->tasks, segments[entry->segment].tasks, (size_t)made->num_tasks * sizeof(ot_task));
  schedule->segments = segments;
  schedule->num_segments++;
  entry->segment = n;
  return made;
}

void rank_mutate(ot_schedule *schedule, ot_arena *arena, void *mutant) {
  const rank_mutant *const m = mutant;
  for (int i = 0; i < m->size; i++) {
    if (m->ranks[i] != schedule->rank) continue;
    if (m->fault == RANK_DELETE_ONE && i < m->size - 1) continue;
    const place at = find_call(schedule, m->kind, m->calls[i]);
    OT_ASSERT(at.what != NULL);
    // Instructions belong to the schedule: this changes its own, not those of another schedule.
    ot_order *const order = (ot_order *)step_of(schedule);
    ot_entry *const entry = &order->entries[at.entry];
    if (m->fault == RANK_SCALE) {
      bind_result(schedule, entry, ot_type_bytes(&at.what->out[0].type), arena);
    }
    apply(m, schedule, own_segment(schedule, entry, arena), at.task);
  }
}

// ---- the list of mutants ----

typedef struct listing {
  const ot_schedule *schedules;
  int ranks;
  ot_arena *arena;
  rank_mutant *mutants;
  int count;
  int64_t capacity;
} listing;

static void add(listing *l, const rank_mutant *mutant) {
  l->mutants = ot_arena_grow(l->arena, l->mutants, l->count, &l->capacity, sizeof *mutant);
  l->mutants[l->count++] = *mutant;
}

// ---- equivalent mutants ----

// Bytes [begin, end) of the arena.
typedef struct range {
  int64_t begin, end;
} range;

static range range_of(const ot_entry *entry, const ot_operand *operand) {
  const int64_t begin = entry->base[operand->base] + operand->offset;
  return (range){begin, begin + ot_type_bytes(&operand->type)};
}

static bool overlap(range a, range b) { return a.begin < b.end && b.begin < a.end; }

// True if the end of the step reads a gradient in `bytes`: tied uses, norms, the optimizer. Bytes
// that are never read are padding, or parameters of another stage in the bucket of a tied
// embedding.
static bool is_used(const ot_schedule *schedule, range bytes) {
  const ot_order *const order = step_of(schedule);
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    const ot_segment *const segment = &schedule->segments[entry->segment];
    const bool reads = entry->phase == OT_PHASE_TIE || entry->phase == OT_PHASE_NORM ||
                       entry->phase == OT_PHASE_UPDATE;
    for (int t = 0; reads && t < segment->num_tasks; t++) {
      const ot_task *const task = &segment->tasks[t];
      for (int k = 0; k < OT_MAX_INPUTS; k++) {
        const bool gradient =
            task->in[k].base == OT_BASE_GRADIENT_PIECE || task->in[k].base == OT_BASE_TIED_GRADIENT;
        if (gradient && overlap(bytes, range_of(entry, &task->in[k]))) return true;
      }
    }
  }
  return false;
}

// Bytes that a fault in a gradient reduction corrupts on one rank.
static range spoilt(const ot_schedule *schedule, const place *at, rank_fault fault) {
  const ot_task *const task = at->what;
  range bytes = range_of(&step_of(schedule)->entries[at->entry], &task->out[0]);
  const bool shifts = task->op == OT_OP_REDUCE_SCATTER && task->attributes.group_index > 0;
  if (fault == RANK_SHORTEN && !shifts) {
    bytes.begin =
        bytes.end - line_rows(&task->out[0].type) * ot_dtype_bytes(task->out[0].type.dtype);
  }
  return bytes;
}

static bool spoils_nothing(const listing *l, const rank_mutant *m) {
  for (int i = 0; i < m->size; i++) {
    const ot_schedule *const schedule = &l->schedules[m->ranks[i]];
    const place at = find_call(schedule, m->kind, m->calls[i]);
    if (step_of(schedule)->entries[at.entry].phase != OT_PHASE_REDUCE || !reduces(at.what)) {
      return false;
    }
    if (is_used(schedule, spoilt(schedule, &at, m->fault))) return false;
  }
  return true;
}

// True if the gathered weights are still in their buffer from an earlier gather: weights change at
// the end of the step, and no other gather wrote to that buffer.
static bool is_still_there(const ot_schedule *schedule, const place *at) {
  const ot_order *const order = step_of(schedule);
  const ot_entry *const entry = &order->entries[at->entry];
  if (entry->phase != OT_PHASE_GATHER) return false;
  const range here = range_of(entry, &at->what->out[0]);
  for (int i = at->entry - 1; i >= 0; i--) {
    const ot_entry *const before = &order->entries[i];
    if (before->phase == OT_PHASE_UPDATE) return false;
    if (before->phase != OT_PHASE_GATHER) continue;
    const range other = range_of(before, &schedule->segments[before->segment].tasks[0].out[0]);
    if (overlap(here, other)) return before->block == entry->block && here.begin == other.begin;
  }
  return false;
}

static bool is_equivalent(const listing *l, const rank_mutant *m) {
  if (m->fault == RANK_DELETE_ONE) return false;
  const place at = find_call(&l->schedules[m->first], m->kind, m->call);
  if (m->fault == RANK_DELETE && is_still_there(&l->schedules[m->first], &at)) return true;
  return spoils_nothing(l, m);
}

static void add_fault(listing *l, const rank_mutant *site, rank_fault fault) {
  rank_mutant mutant = *site;
  mutant.fault = fault;
  if (!is_equivalent(l, &mutant)) add(l, &mutant);
}

// The lane of the calls of a group, -1 if there are none.
static int lane_of(const ot_schedule *schedule, ot_group_kind kind) {
  const place first = find_call(schedule, kind, 0);
  return first.what ? (int)step_of(schedule)->entries[first.entry].lane : -1;
}

static bool same_members(const ot_group *a, const ot_group *b) {
  return a->size == b->size && memcmp(a->ranks, b->ranks, (size_t)a->size * sizeof(int)) == 0;
}

// True if the input of the call overlaps its output.
static bool reads_what_it_writes(const ot_schedule *schedule, const place *at) {
  const ot_entry *const entry = &step_of(schedule)->entries[at->entry];
  return overlap(range_of(entry, &at->what->in[0]), range_of(entry, &at->what->out[0]));
}

// All groups of a kind change together: the members of one belong to several groups of the other.
static void add_misgroups(listing *l, const rank_mutant *site) {
  const ot_schedule *const schedule = &l->schedules[site->first];
  const ot_group *const group = &schedule->group[site->kind];
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
    const ot_group *const other = &schedule->group[kind];
    if (kind == (int)site->kind || other->size != group->size) continue;
    const int lane = lane_of(schedule, (ot_group_kind)kind);
    const bool same_lane = lane < 0 || lane == lane_of(schedule, site->kind);
    if (same_members(group, other) && same_lane) continue;
    rank_mutant mutant = *site;
    mutant.fault = RANK_MISGROUP;
    mutant.other = (ot_group_kind)kind;
    mutant.size = 0;
    for (int rank = 0; rank < l->ranks; rank++) {
      const place at = find_call(&l->schedules[rank], site->kind, site->call);
      if (!at.what || l->schedules[rank].group[kind].size != group->size) continue;
      mutant.ranks[mutant.size] = rank;
      mutant.calls[mutant.size++] = site->call;
    }
    // Another group of the kind already lists this mutant.
    if (mutant.ranks[0] != site->first) continue;
    if (!is_equivalent(l, &mutant)) add(l, &mutant);
  }
}

static void add_collective(listing *l, const rank_mutant *site, const place *at) {
  const ot_task *const task = at->what;
  const ot_schedule *const schedule = &l->schedules[site->first];
  add_fault(l, site, RANK_DELETE);
  add_fault(l, site, RANK_DELETE_ONE);
  if (can_shorten(task)) add_fault(l, site, RANK_SHORTEN);
  add_misgroups(l, site);
  if (!reduces(task)) return;
  if (task->op == OT_OP_REDUCE_SCATTER) add_fault(l, site, RANK_ACCUMULATE);
  if (task->attributes.accumulate || reads_what_it_writes(schedule, at)) {
    add_fault(l, site, RANK_TWICE);
  }
  add_fault(l, site, RANK_SCALE);
}

// The receive of message number `number` with the tag of a send.
static int find_receive(const ot_schedule *schedule, const ot_task *send, int number) {
  for (int call = 0;; call++) {
    const place at = find_call(schedule, send->attributes.group, call);
    if (!at.what) return -1;
    const bool fits = at.what->op == OT_OP_RECEIVE &&
                      at.what->attributes.tag == send->attributes.tag &&
                      at.what->attributes.peer == send->attributes.group_index;
    if (fits && number-- == 0) return call;
  }
}

// Number of sends before call `call` with its tag and receiver.
static int sends_before(const ot_schedule *schedule, const ot_task *send, int call) {
  int count = 0;
  for (int i = 0; i < call; i++) {
    const ot_task *const other = find_call(schedule, send->attributes.group, i).what;
    count += other->op == OT_OP_SEND && other->attributes.tag == send->attributes.tag &&
             other->attributes.peer == send->attributes.peer;
  }
  return count;
}

static void add_message(listing *l, rank_mutant *site, const place *at) {
  if (at->what->op != OT_OP_SEND) return;
  const ot_schedule *const sender = &l->schedules[site->first];
  const int receiver = sender->group[site->kind].ranks[at->what->attributes.peer];
  const int number = sends_before(sender, at->what, site->call);
  site->size = 2;
  site->ranks[0] = site->first;
  site->calls[0] = site->call;
  site->ranks[1] = receiver;
  site->calls[1] = find_receive(&l->schedules[receiver], at->what, number);
  OT_ASSERT(site->calls[1] >= 0);
  add_fault(l, site, RANK_DELETE);
  add_fault(l, site, RANK_DELETE_ONE);
  if (can_shorten(at->what)) add_fault(l, site, RANK_SHORTEN);
}

static void add_group(listing *l, int rank, ot_group_kind kind) {
  const ot_group *const group = &l->schedules[rank].group[kind];
  for (int call = 0;; call++) {
    const place at = find_call(&l->schedules[rank], kind, call);
    if (!at.what) return;
    rank_mutant site = {.kind = kind, .first = rank, .call = call, .size = group->size};
    if (is_message(at.what)) {
      add_message(l, &site, &at);
      continue;
    }
    if (group->index > 0) continue;
    for (int i = 0; i < group->size; i++) {
      site.ranks[i] = group->ranks[i];
      site.calls[i] = call;
    }
    add_collective(l, &site, &at);
  }
}

int rank_mutants(const ot_schedule *schedules, int ranks, ot_arena *arena, rank_mutant **mutants) {
  listing l = {.schedules = schedules, .ranks = ranks, .arena = arena};
  for (int rank = 0; rank < ranks; rank++) {
    for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
      if (schedules[rank].group[kind].size > 0) add_group(&l, rank, (ot_group_kind)kind);
    }
  }
  *mutants = l.mutants;
  return l.count;
}

const char *rank_describe_mutant(const rank_mutant *mutant, const ot_schedule *schedules,
                                 char *text) {
  const ot_schedule *const schedule = &schedules[mutant->first];
  const place at = find_call(schedule, mutant->kind, mutant->call);
  const ot_entry *const entry = &step_of(schedule)->entries[at.entry];
  const bool other = mutant->fault == RANK_MISGROUP;
  ot_text_format(text, RANK_TEXT,
                 "%s%s%s: %s, call %d of group %s from rank %d, %s, block %d, "
                 "micro-batch %d",
                 rank_fault_name(mutant->fault), other ? " " : "",
                 other ? ot_group_name(mutant->other) : "", ot_op_info_of(at.what->op)->name,
                 mutant->call, ot_group_name(mutant->kind), mutant->first,
                 schedule->segments[entry->segment].name, entry->block, entry->micro_batch);
  return text;
}
