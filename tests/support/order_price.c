// SPDX-License-Identifier: Apache-2.0
// The walk visits actions in dependency order.
#include "support/order_price.h"

#include "pipeline/pipeline_walk.h"

typedef struct replayer {
  const ot_pipeline_schedule *order;
  const ot_order_costs *costs;
  double *done[OT_WORKS];  // [num_chunks * micro_batches] completion time of each
  ot_rank_price *ranks;    // [num_ranks], `end`: time at which the rank is free
  bool *begun;             // [num_ranks]
  int *held;               // [num_ranks] live activations
  int *joined;             // [num_ranks] next actions that are part of a pair
} replayer;

static double *done_of(const replayer *p, const ot_action *action) {
  double *const done = p->done[ot_action_work(action->kind)];
  return &done[(int64_t)action->chunk * p->order->micro_batches + action->micro_batch];
}

static double cost_of(const ot_order_costs *costs, const ot_action *action) {
  switch (action->kind) {
    case OT_ACTION_FORWARD:
      return costs->forward[action->chunk];
    case OT_ACTION_INPUT:
      return costs->input[action->chunk];
    case OT_ACTION_WEIGHT:
      return costs->weight[action->chunk];
    case OT_ACTION_BACKWARD:
      return costs->input[action->chunk] + costs->weight[action->chunk];
    case OT_ACTIONS:
      break;
  }
  OT_UNREACHABLE();
}

// Time at which the inputs of `action` have arrived on its rank.
static double ready_at(const replayer *p, const ot_action *action) {
  const int *const rank_of = p->order->rank_of;
  ot_action needs[2];
  const int n = ot_action_needs(p->order, action, needs);
  double ready = 0;
  for (int i = 0; i < n; i++) {
    const bool crosses = rank_of[needs[i].chunk] != rank_of[action->chunk];
    const double comes = *done_of(p, &needs[i]) + (crosses ? p->costs->message : 0);
    if (comes > ready) ready = comes;
  }
  return ready;
}

// True if another rank needs the result of `action`.
static bool sends(const ot_pipeline_schedule *order, const ot_action *action) {
  if (action->kind == OT_ACTION_WEIGHT) return false;
  const int to = action->chunk + (action->kind == OT_ACTION_FORWARD ? 1 : -1);
  if (to < 0 || to >= order->num_chunks) return false;
  return order->rank_of[to] != order->rank_of[action->chunk];
}

static void hold(replayer *p, int rank, ot_action_kind kind) {
  if (kind == OT_ACTION_FORWARD) p->held[rank]++;
  if (p->held[rank] > p->ranks[rank].peak_chunks) p->ranks[rank].peak_chunks = p->held[rank];
  if (kind == OT_ACTION_WEIGHT || kind == OT_ACTION_BACKWARD) p->held[rank]--;
}

// F with the I and W, or the B, that follow it.
static void replay_pair(replayer *p, const ot_action *first) {
  const int rank = p->order->rank_of[first->chunk];
  ot_rank_price *const price = &p->ranks[rank];
  const int count = p->order->split ? 3 : 2;
  double start = price->end, cost = 0;
  for (int i = 0; i < count; i++) {
    const double ready = i < 2 ? ready_at(p, &first[i]) : 0;
    if (ready > start) start = ready;
    cost += p->costs->pair * cost_of(p->costs, &first[i]);
  }
  price->busy += cost;
  price->end = start + cost;
  for (int i = 0; i < count; i++) *done_of(p, &first[i]) = price->end;
  hold(p, rank, OT_ACTION_FORWARD);
  p->joined[rank] = count - 1;
}

static void replay(replayer *p, const ot_action *action) {
  const int rank = p->order->rank_of[action->chunk];
  ot_rank_price *const price = &p->ranks[rank];
  if (p->joined[rank] > 0) {
    p->joined[rank]--;
    hold(p, rank, action->kind);
    return;
  }
  if (action->paired && p->costs->pair > 0) {
    replay_pair(p, action);
    return;
  }
  const double ready = ready_at(p, action);
  const double start = ready > price->end ? ready : price->end;
  const double cost = cost_of(p->costs, action);
  if (!p->begun[rank]) price->start = start;
  p->begun[rank] = true;
  price->busy += cost;
  price->end = start + cost;
  *done_of(p, action) = price->end;
  if (p->costs->message_blocks && sends(p->order, action)) price->end += p->costs->message;
  hold(p, rank, action->kind);
}

void ot_order_price_build(const ot_pipeline_schedule *order, const ot_order_costs *costs,
                          ot_arena *arena, ot_order_price *out) {
  const int64_t cells = (int64_t)order->num_chunks * order->micro_batches;
  replayer p = {.order = order, .costs = costs};
  for (int i = 0; i < OT_COUNT(p.done); i++) {
    p.done[i] = ot_arena_array(arena, cells, sizeof *p.done[i]);
  }
  p.ranks = ot_arena_array(arena, order->num_ranks, sizeof *p.ranks);
  p.begun = ot_arena_array(arena, order->num_ranks, sizeof *p.begun);
  p.held = ot_arena_array(arena, order->num_ranks, sizeof *p.held);
  p.joined = ot_arena_array(arena, order->num_ranks, sizeof *p.joined);
  ot_pipeline_walk walk;
  ot_pipeline_walk_begin(order, arena, &walk);
  const ot_action *action;
  while ((action = ot_pipeline_walk_next(&walk))) replay(&p, action);
  *out = (ot_order_price){.ranks = p.ranks};
  for (int r = 0; r < order->num_ranks; r++) {
    OT_ASSERT(walk.position[r] == order->num_actions[r]);
    if (p.ranks[r].end > out->makespan) out->makespan = p.ranks[r].end;
  }
  for (int r = 0; r < order->num_ranks; r++) p.ranks[r].idle = out->makespan - p.ranks[r].busy;
}
