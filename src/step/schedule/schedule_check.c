// SPDX-License-Identifier: Apache-2.0
// Replays an order over a map of the tensor that owns each byte. A read must find its own tensor
// completely: no read of memory never written, overwritten, or overlapped by mistake. A write
// inside a task must not overlap the task's reads, except in place if the op allows it. A loop body
// is run twice; its results are dead after it.
#include "base/text.h"
#include "ops/catalog.h"
#include "schedule/access.h"
#include "schedule/bodies.h"
#include "schedule/joined.h"
#include "schedule/schedule.h"
#include "schedule/schedule_races.h"
#include "schedule/schedule_reductions.h"

// Bytes [begin, end) hold `tensor`; ranges are sorted and do not overlap.
typedef struct owned {
  int64_t begin, end;
  uint64_t tensor;
  int micro_batch;  // of the last write
} owned;

typedef struct checker {
  const ot_schedule *schedule;
  const ot_order *order;
  ot_arena *arena;
  owned *ranges;
  int64_t count, capacity;
} checker;

static const char *describe(const checker *c, const ot_access *access) {
  const ot_entry *const entry = &c->order->entries[access->entry];
  const ot_segment *const segment = &c->schedule->segments[entry->segment];
  return ot_arena_format(
      c->arena, "entry %d (%s), task %d (%s), %s bytes [%lld, %lld)", access->entry, segment->name,
      access->task, ot_op_info_of(segment->tasks[access->task].op)->name,
      ot_base_name(access->base), (long long)access->begin, (long long)access->end);
}

// Index of the first range that ends after `begin`.
static int64_t first_behind(const checker *c, int64_t begin) {
  int64_t low = 0, high = c->count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (c->ranges[middle].end > begin) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

static void insert_range(checker *c, int64_t at, owned range) {
  c->ranges = ot_arena_grow(c->arena, c->ranges, c->count, &c->capacity, sizeof *c->ranges);
  for (int64_t i = c->count; i > at; i--) c->ranges[i] = c->ranges[i - 1];
  c->ranges[at] = range;
  c->count++;
}

static void remove_ranges(checker *c, int64_t at, int64_t number) {
  for (int64_t i = at; i + number < c->count; i++) c->ranges[i] = c->ranges[i + number];
  c->count -= number;
}

// Clears the ownership of [begin, end).
static int64_t clear(checker *c, int64_t begin, int64_t end) {
  int64_t at = first_behind(c, begin);
  if (at < c->count && c->ranges[at].begin < begin) {
    owned rest = c->ranges[at];
    c->ranges[at].end = begin;
    rest.begin = begin;
    insert_range(c, ++at, rest);
  }
  int64_t covered = 0;
  while (at + covered < c->count && c->ranges[at + covered].end <= end) covered++;
  remove_ranges(c, at, covered);
  if (at < c->count && c->ranges[at].begin < end) c->ranges[at].begin = end;
  return at;
}

static void check_write(checker *c, const ot_access *access) {
  if (access->begin == access->end) return;
  const int64_t at = clear(c, access->begin, access->end);
  insert_range(c, at, (owned){access->begin, access->end, access->tensor, access->micro_batch});
}

static ot_status check_read(checker *c, const ot_access *access) {
  // The padding between parameters in gradient buckets is never written.
  const ot_phase phase = c->order->entries[access->entry].phase;
  const bool gradient = access->base == OT_BASE_GRADIENT || access->base == OT_BASE_GRADIENT_PIECE;
  const bool padded = gradient && phase == OT_PHASE_REDUCE;
  const bool defined = padded || ot_base_is_defined(access->base);
  int64_t reached = access->begin;
  for (int64_t i = first_behind(c, access->begin); reached < access->end; i++) {
    if (i >= c->count || c->ranges[i].begin > reached) {
      OT_CHECK(defined, OT_BUG, "schedule: %s: read before it is written", describe(c, access));
      if (i >= c->count) return OT_OK;
      reached = c->ranges[i].begin;
      if (reached >= access->end) return OT_OK;
    }
    OT_CHECK(c->ranges[i].tensor == access->tensor, OT_BUG,
             "schedule: %s: overwritten by another tensor", describe(c, access));
    OT_CHECK(access->kind != OT_ACCESS_UPDATE || access->micro_batch < 0 ||
                 c->ranges[i].micro_batch <= access->micro_batch,
             OT_BUG, "schedule: %s: micro-batch %d accumulates after %d", describe(c, access),
             access->micro_batch, c->ranges[i].micro_batch);
    reached = c->ranges[i].end;
  }
  return OT_OK;
}

// Values written in a loop body are dead after it, since it may not have run; accumulated ones stay
// live.
//   end  of the accesses of the last iteration
static void forget_body(checker *c, const ot_access_list *list, int64_t end) {
  const ot_access last = list->accesses[end - 1];
  for (int64_t i = end - 1; i >= 0; i--) {
    const ot_access *const access = &list->accesses[i];
    if (access->entry != last.entry || access->task < last.repeat) return;
    if (access->repeat != last.repeat || access->kind != OT_ACCESS_WRITE) continue;
    if (access->begin < access->end) clear(c, access->begin, access->end);
  }
}

static bool overlaps(const ot_access *a, const ot_access *b) {
  return a->begin < b->end && b->begin < a->end;
}

// True if one access is this rank's shard of the other: a gather or a reduction in place.
static bool is_own_block(const ot_task *task, const ot_access *a, const ot_access *b) {
  if (task->op != OT_OP_ALL_GATHER && task->op != OT_OP_REDUCE_SCATTER) return false;
  const bool first = b->end - b->begin > a->end - a->begin;
  const ot_access *const part = first ? a : b;
  const ot_access *const whole = first ? b : a;
  const int64_t bytes = part->end - part->begin;
  return bytes * task->attributes.group_size == whole->end - whole->begin &&
         part->begin == whole->begin + task->attributes.group_index * bytes;
}

// True for an output at the offset where its op allows it in place.
static bool is_in_place(const ot_task *task, const ot_access *output, const ot_access *input) {
  if (input->kind != OT_ACCESS_READ || output->kind == OT_ACCESS_READ) return false;
  if (input->operand != ot_op_shared_input(ot_op_info_of(task->op), output->operand)) return false;
  return input->begin == output->begin && input->end == output->end;
}

// Within one task, outputs and workspace must not overlap the inputs or each other; an in-place op
// may write an output exactly over one input (ot_op_shared_input).
static ot_status check_task(checker *c, const ot_access *accesses, int64_t count) {
  const ot_entry *const entry = &c->order->entries[accesses[0].entry];
  const ot_task *const task = &c->schedule->segments[entry->segment].tasks[accesses[0].task];
  for (int64_t i = 0; i < count; i++) {
    for (int64_t k = 0; k < i; k++) {
      const ot_access *const a = &accesses[i];
      const ot_access *const b = &accesses[k];
      const bool both_read = a->kind == OT_ACCESS_READ && b->kind == OT_ACCESS_READ;
      if (both_read || !overlaps(a, b)) continue;
      if (is_in_place(task, a, b) || is_own_block(task, a, b)) continue;
      const bool scalars = a->base == OT_BASE_SCALAR && b->base == OT_BASE_SCALAR;
      OT_CHECK(scalars, OT_BUG, "schedule: %s overlaps %s", describe(c, a), describe(c, b));
    }
  }
  return OT_OK;
}

// The tasks of a launch run at once: what one writes, no other one touches, unless both add to it.
//   first, next  range of the accesses of a task
static ot_status check_joined(checker *c, const ot_access_list *list, int64_t first, int64_t next) {
  const ot_access *const begin = &list->accesses[first];
  const ot_entry *const entry = &c->order->entries[begin->entry];
  const ot_task *const tasks = c->schedule->segments[entry->segment].tasks;
  const bool adds = tasks[begin->task].attributes.accumulate;
  int task = begin->task;
  if (!tasks[task].joins) return OT_OK;
  while (tasks[task].joins) task--;
  for (int64_t i = first - 1; i >= 0; i--) {
    const ot_access *const a = &list->accesses[i];
    if (a->entry != begin->entry || a->task < task) return OT_OK;
    for (const ot_access *b = begin; b < &list->accesses[next]; b++) {
      const bool alike = a->kind == b->kind;
      const bool harmless = a->kind == OT_ACCESS_READ || (a->kind == OT_ACCESS_UPDATE && adds);
      OT_CHECK((alike && harmless) || !overlaps(a, b), OT_BUG,
               "schedule: %s overlaps %s of the same launch", describe(c, b), describe(c, a));
    }
  }
  return OT_OK;
}

static ot_status check_range(checker *c, const ot_access *access) {
  const ot_entry *const entry = &c->order->entries[access->entry];
  OT_CHECK(entry->base[access->base] >= 0, OT_BUG, "schedule: %s: the base is not bound",
           describe(c, access));
  OT_CHECK(access->begin >= 0 && access->end <= c->schedule->arena_bytes, OT_BUG,
           "schedule: %s: outside the arena of %lld bytes", describe(c, access),
           (long long)c->schedule->arena_bytes);
  const bool counts = access->task == access->repeat;
  const bool writes = access->repeat >= 0 && !counts && access->kind == OT_ACCESS_WRITE;
  OT_CHECK(!writes || access->base == OT_BASE_SCRATCH, OT_BUG,
           "schedule: %s: a loop body overwrites memory other than scratch", describe(c, access));
  return OT_OK;
}

// An entry may wait only for earlier ones, and its segment and lane must exist.
static ot_status check_entries(const ot_schedule *schedule, const ot_order *order) {
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    for (int lane = 0; lane < OT_LANES; lane++) {
      OT_CHECK(entry->wait[lane] < i, OT_BUG,
               "schedule: entry %d waits for entry %d, which comes later", i, entry->wait[lane]);
    }
    OT_CHECK(entry->segment >= 0 && entry->segment < schedule->num_segments, OT_BUG,
             "schedule: entry %d runs segment %d of %d", i, entry->segment, schedule->num_segments);
  }
  return OT_OK;
}

// True if the accesses before `next` end a body.
static bool ends_body(const ot_access_list *list, int64_t next) {
  const ot_access *const last = &list->accesses[next - 1];
  if (last->repeat < 0 || last->task == last->repeat) return false;
  if (next == list->count) return true;
  const ot_access *const behind = &list->accesses[next];
  return behind->entry != last->entry || behind->repeat != last->repeat;
}

// Each bucket is published once, and all that this rank holds of it.
static ot_status check_published(const ot_schedule *schedule, const ot_order *order) {
  int before = -1;
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    const ot_segment *const segment = &schedule->segments[entry->segment];
    const bool publishes = segment->num_tasks == 1 && segment->tasks[0].kind == OT_TASK_PUBLISH;
    OT_CHECK(publishes == (order->kind == OT_ORDER_PUBLISH), OT_BUG,
             "schedule: entry %d (%s) of order %s", i, segment->name, ot_order_name(order->kind));
    if (!publishes) continue;
    const ot_operand *const share = &segment->tasks[0].in[0];
    OT_CHECK(entry->block > before && entry->block < schedule->num_blocks, OT_BUG,
             "schedule: entry %d publishes block %d after block %d", i, entry->block, before);
    before = entry->block;
    const ot_bucket_range *const held = &schedule->buckets[before].copy[OT_BUCKET_WEIGHT];
    if (share->base == OT_BASE_NONE) continue;
    OT_CHECK(entry->base[share->base] + share->offset == held->offset &&
                 ot_type_elements(&share->type) == held->count,
             OT_BUG, "schedule: entry %d publishes %lld elements of block %d, this rank has %lld",
             i, (long long)ot_type_elements(&share->type), before, (long long)held->count);
  }
  return OT_OK;
}

static ot_status check_order(const ot_schedule *schedule, int order, ot_arena *arena) {
  checker c = {.schedule = schedule, .order = &schedule->orders[order], .arena = arena};
  ot_access_list list;
  OT_TRY(check_entries(schedule, c.order));
  OT_TRY(check_published(schedule, c.order));
  ot_access_list_build(schedule, order, arena, &list);
  int64_t next = 0;
  for (int64_t i = 0; i < list.count; i = next) {
    const ot_access *const first = &list.accesses[i];
    for (next = i; next < list.count; next++) {
      const ot_access *const access = &list.accesses[next];
      if (access->entry != first->entry || access->task != first->task) break;
      OT_TRY(check_range(&c, access));
    }
    OT_TRY(check_task(&c, first, next - i));
    OT_TRY(check_joined(&c, &list, i, next));
    for (int64_t k = i; k < next; k++) {
      if (list.accesses[k].kind != OT_ACCESS_WRITE) OT_TRY(check_read(&c, &list.accesses[k]));
    }
    for (int64_t k = i; k < next; k++) {
      if (list.accesses[k].kind != OT_ACCESS_READ) check_write(&c, &list.accesses[k]);
    }
    if (ends_body(&list, next)) forget_body(&c, &list, next);
  }
  OT_TRY(ot_schedule_check_reductions(schedule, order, arena));
  return ot_schedule_check_races(schedule, order, &list, arena);
}

ot_status ot_schedule_check(const ot_schedule *schedule, ot_arena *arena) {
  int64_t highest = 0;
  for (int i = 0; i < schedule->num_regions; i++) {
    const int64_t end = schedule->regions[i].offset + schedule->regions[i].bytes;
    if (end > highest) highest = end;
  }
  OT_CHECK(highest == schedule->arena_bytes, OT_BUG,
           "schedule: regions end at byte %lld, the arena at %lld", (long long)highest,
           (long long)schedule->arena_bytes);
  for (int i = 0; i < schedule->num_segments; i++) {
    OT_TRY(ot_segment_check_bodies(&schedule->segments[i]));
    OT_TRY(ot_segment_check_joined(&schedule->segments[i]));
  }
  for (int i = 0; i < schedule->num_orders; i++) OT_TRY(check_order(schedule, i, arena));
  return OT_OK;
}
