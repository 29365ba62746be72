// SPDX-License-Identifier: Apache-2.0
// The micro-batches of a chunk complete in order, so one count identifies them.
#include "pipeline/pipeline_walk.h"

void ot_pipeline_walk_begin(const ot_pipeline_schedule *order, ot_arena *arena,
                            ot_pipeline_walk *walk) {
  *walk = (ot_pipeline_walk){.order = order};
  walk->position = ot_arena_array(arena, order->num_ranks, sizeof *walk->position);
  for (int i = 0; i < OT_COUNT(walk->done); i++) {
    walk->done[i] = ot_arena_array(arena, order->num_chunks, sizeof *walk->done[i]);
  }
}

static int *done_of(const ot_pipeline_walk *walk, const ot_action *action) {
  return &walk->done[ot_action_work(action->kind)][action->chunk];
}

bool ot_pipeline_walk_blocked(const ot_pipeline_walk *walk, const ot_action *action,
                              ot_action *by) {
  ot_action needs[2];
  const int n = ot_action_needs(walk->order, action, needs);
  for (int i = 0; i < n; i++) {
    *by = needs[i];
    if (*done_of(walk, &needs[i]) <= needs[i].micro_batch) return true;
  }
  return action->paired && ot_pipeline_walk_blocked(walk, action + 1, by);
}

const ot_action *ot_pipeline_walk_next(ot_pipeline_walk *walk) {
  const ot_pipeline_schedule *const order = walk->order;
  for (int tried = 0; tried < order->num_ranks; tried++) {
    const int rank = walk->rank;
    const ot_action *const action = &order->actions[rank][walk->position[rank]];
    ot_action by;
    const bool runs = walk->position[rank] < order->num_actions[rank] &&
                      !ot_pipeline_walk_blocked(walk, action, &by);
    if (runs) {
      walk->position[rank]++;
      ++*done_of(walk, action);
      return action;
    }
    walk->rank = (rank + 1) % order->num_ranks;
  }
  return NULL;
}
