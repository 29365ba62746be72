// SPDX-License-Identifier: Apache-2.0
// Lost, duplicated or swapped micro-batches, and stages that use stale data.
#include "ops/catalog.h"
#include "support/mutant.h"
#include "support/mutant_tasks.h"

// True for tasks that accumulate gradients.
static bool accumulates(const ot_task *task) {
  const ot_op_info *const info = ot_op_info_of(task->op);
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    const ot_base base = task->out[i].base;
    const bool gradient =
        base == OT_BASE_GRADIENT || base == OT_BASE_TIED_GRADIENT || base == OT_BASE_GRADIENT_PIECE;
    if (gradient && ((info->accumulated_outputs >> i) & 1u)) return true;
  }
  return false;
}

static void set_accumulate(ot_schedule *s, bool to) {
  for (int i = 0; i < s->num_segments; i++) {
    for (int t = 0; t < s->segments[i].num_tasks; t++) {
      ot_task *const task = &s->segments[i].tasks[t];
      if (accumulates(task)) task->attributes.accumulate = to;
    }
  }
}

static void only_the_last(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  set_accumulate(s, false);
}

static void never_cleared(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  set_accumulate(s, true);
}

// The instruction of micro-batch `other` that corresponds to `entry`.
static const ot_entry *sibling(const ot_order *order, const ot_entry *entry, int other) {
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const e = &order->entries[i];
    if (e->micro_batch == other && e->block == entry->block && e->phase == entry->phase) return e;
  }
  return NULL;
}

static bool is_backward(const ot_entry *e) { return (BACKWARD_PHASES >> e->phase) & 1; }

// The second micro-batch overwrites the gradients of the first.
static void first_is_lost(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  const ot_order *const order = tasks_step(s);
  for (int i = 0; i < order->num_entries; i++) {
    ot_entry *const e = &order->entries[i];
    const bool adds = is_backward(e) || e->phase == OT_PHASE_FORWARD;
    if (e->micro_batch != 1 || !adds) continue;
    const ot_entry *const first = sibling(order, e, 0);
    if (first) e->segment = first->segment;
  }
}

static void repeat_accumulations(ot_schedule *s, ot_arena *arena) {
  static const ot_op_kind ops[] = {OT_OP_LINEAR_DW, OT_OP_EMBEDDING_GRAD, OT_OP_POSITION_GRAD};
  for (int i = 0; i < OT_COUNT(ops); i++) {
    tasks_repeat(s, arena, (task_kind){BACKWARD_PHASES, ops[i], -1});
  }
}

// The backward of the second uses saved activations of the third or first.
static void activations_of_another(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  const ot_order *const order = tasks_step(s);
  for (int i = 0; i < order->num_entries; i++) {
    ot_entry *const e = &order->entries[i];
    if (e->micro_batch != 1 || !is_backward(e)) continue;
    for (int other = 0; other < 4; other++) {
      const ot_entry *const o = sibling(order, e, other);
      if (!o || o->base[OT_BASE_SLOT] == e->base[OT_BASE_SLOT]) continue;
      e->base[OT_BASE_SLOT] = o->base[OT_BASE_SLOT];
      e->base[OT_BASE_INPUT] = o->base[OT_BASE_INPUT];
      break;
    }
  }
}

// The second trains on the batch of the first.
static void batch_of_another(ot_schedule *s, ot_arena *arena) {
  (void)arena;
  const ot_order *const order = tasks_step(s);
  for (int i = 0; i < order->num_entries; i++) {
    ot_entry *const e = &order->entries[i];
    const ot_entry *const first = e->micro_batch == 1 ? sibling(order, e, 0) : NULL;
    if (first) e->base[OT_BASE_BATCH] = first->base[OT_BASE_BATCH];
  }
}

// Messages of the second micro-batch are neither sent nor received.
static void lose_messages(ot_schedule *s, ot_arena *arena, bool forward) {
  ot_segment *const segments = ot_arena_array(arena, s->num_segments + 1, sizeof *segments);
  for (int i = 0; i < s->num_segments; i++) segments[i] = s->segments[i];
  const ot_order *const order = tasks_step(s);
  int empty = -1;
  for (int i = 0; i < order->num_entries; i++) {
    ot_entry *const e = &order->entries[i];
    if (e->micro_batch != 1) continue;
    if (e->phase != OT_PHASE_SEND && e->phase != OT_PHASE_RECEIVE) continue;
    const ot_task *const message = &segments[e->segment].tasks[0];
    const ot_base base = e->phase == OT_PHASE_SEND ? message->in[0].base : message->out[0].base;
    if ((base == OT_BASE_OUTPUT || base == OT_BASE_INPUT) != forward) continue;
    if (empty < 0) {
      empty = s->num_segments++;
      segments[empty] = segments[e->segment];
      segments[empty].name = "nothing";
      segments[empty].num_tasks = 0;
    }
    e->segment = empty;
  }
  s->segments = segments;
}

static void activations_not_sent(ot_schedule *s, ot_arena *arena) { lose_messages(s, arena, true); }

static void gradients_not_sent(ot_schedule *s, ot_arena *arena) { lose_messages(s, arena, false); }

static const mutant table[] = {
    {"only_the_last_micro_batch", "NeMo Automodel 3530",
     "gradients are overwritten by each micro-batch", DENSE | EXPERTS, IN_SHARED_CODE, BY_RANKS,
     .amend = only_the_last},
    {"first_micro_batch_lost", "after NeMo Automodel 3530",
     "the second micro-batch overwrites the first", TENSOR | CONTEXT | BOTH | EXPERTS,
     IN_SHARED_CODE, BY_RANKS, .amend = first_is_lost},
    {"micro_batches_counted_twice", "after transformers 34191",
     "weight gradients are accumulated twice", TENSOR | CONTEXT | BOTH, IN_SHARED_CODE, BY_RANKS,
     .amend = repeat_accumulations},
    {"gradients_never_cleared", "after TrainCheck (arXiv 2506.14813)",
     "each step adds to the previous step's gradients", DENSE | EXPERTS, IN_SHARED_CODE, BY_RANKS,
     .amend = never_cleared},
    {"activations_of_another_micro_batch", "after TTrace (arXiv 2506.09280)",
     "a stage's backward reads another micro-batch's activations", STAGES | BOTH, IN_LAYOUT,
     BY_RANKS, .amend = activations_of_another},
    {"batch_of_another_micro_batch", "after TrainCheck (arXiv 2506.14813)",
     "the first micro-batch is trained twice, the second never", DENSE | EXPERTS, IN_LAYOUT,
     BY_RANKS, .amend = batch_of_another},
    {"activations_not_sent", "after TTrace (arXiv 2506.09280)",
     "the next stage uses activations of an earlier message", STAGES | BOTH, IN_LAYOUT, BY_RANKS,
     .amend = activations_not_sent},
    {"gradients_not_sent_back", "after TTrace (arXiv 2506.09280)",
     "the previous stage uses gradients of an earlier message", STAGES | BOTH, IN_LAYOUT, BY_RANKS,
     .amend = gradients_not_sent},
};

mutant_list mutants_of_micro_batches(void) { return (mutant_list){table, OT_COUNT(table)}; }
