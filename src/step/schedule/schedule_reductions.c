// SPDX-License-Identifier: Apache-2.0
// Identifies reductions by the arena bytes of their results, so that the bucket of a tied use is
// not confused with its owner's.
#include "schedule/schedule_reductions.h"

#include "base/text.h"
#include "ops/collective.h"

typedef struct made_sum {
  ot_group_kind group;
  int64_t begin, end;  // bytes of the arena
} made_sum;

typedef struct sums {
  const ot_schedule *schedule;
  const ot_order *order;
  ot_arena *arena;
  made_sum *made;
  int64_t count, capacity;
} sums;

static void note_entry(sums *s, const ot_entry *entry) {
  const ot_segment *const segment = &s->schedule->segments[entry->segment];
  for (int t = 0; t < segment->num_tasks; t++) {
    const ot_task *const task = &segment->tasks[t];
    if (task->op != OT_OP_REDUCE_SCATTER && task->op != OT_OP_ALL_REDUCE) continue;
    const int64_t begin = entry->base[task->out[0].base] + task->out[0].offset;
    s->made = ot_arena_grow(s->arena, s->made, s->count, &s->capacity, sizeof *s->made);
    s->made[s->count++] = (made_sum){(ot_group_kind)task->attributes.group, begin,
                                     begin + ot_type_bytes(&task->out[0].type)};
  }
}

static ot_status check_range(const sums *s, int block, const ot_bucket_reduction *needed,
                             const made_sum *bytes) {
  const int wanted = needed->each_micro_batch ? s->order->micro_batches : 1;
  int times = 0;
  for (int64_t i = 0; i < s->count; i++) {
    const made_sum *const made = &s->made[i];
    times += made->group == needed->group && made->begin <= bytes->begin && made->end >= bytes->end;
  }
  OT_CHECK(times == wanted, OT_BUG,
           "schedule: elements [%lld, %lld) of the gradient of block %d are reduced %d times over "
           "the %s group, not %d",
           (long long)needed->first, (long long)(needed->first + needed->count), block, times,
           ot_group_name(needed->group), wanted);
  return OT_OK;
}

// `base`: offset of the rank's gradient shard.
static ot_status check_bucket(const sums *s, int block, int64_t base) {
  const ot_bucket *const bucket = &s->schedule->buckets[block];
  const int64_t size = ot_dtype_bytes(s->schedule->gradients);
  for (int i = 0; i < bucket->num_sums; i++) {
    const ot_bucket_reduction *const needed = &bucket->sums[i];
    const int64_t limit = bucket->shard_first + bucket->shard_elements;
    const int64_t end = needed->first + needed->count;
    const int64_t from = needed->first > bucket->shard_first ? needed->first : bucket->shard_first;
    const int64_t to = end < limit ? end : limit;
    if (from >= to) continue;
    const made_sum bytes = {needed->group, base + (from - bucket->shard_first) * size,
                            base + (to - bucket->shard_first) * size};
    OT_TRY(check_range(s, block, needed, &bytes));
  }
  return OT_OK;
}

ot_status ot_schedule_check_reductions(const ot_schedule *schedule, int order, ot_arena *arena) {
  sums s = {.schedule = schedule, .order = &schedule->orders[order], .arena = arena};
  if (s.order->kind != OT_ORDER_STEP) return OT_OK;
  for (int i = 0; i < s.order->num_entries; i++) {
    const ot_entry *const entry = &s.order->entries[i];
    if (entry->phase == OT_PHASE_REDUCE) note_entry(&s, entry);
    if (entry->phase != OT_PHASE_UPDATE) continue;
    const ot_bucket *const bucket = &schedule->buckets[entry->block];
    const bool piece = bucket->copy[OT_BUCKET_GRADIENT].count < bucket->elements;
    const int64_t whole = piece ? 0 : bucket->shard_first * ot_dtype_bytes(schedule->gradients);
    OT_TRY(check_bucket(&s, entry->block, entry->base[OT_BASE_GRADIENT_PIECE] + whole));
  }
  return OT_OK;
}
