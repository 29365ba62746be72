// SPDX-License-Identifier: Apache-2.0
// Replays a pipeline schedule: each rank runs its own list, an action as soon as its dependencies
// are complete. Used to check schedules.
#pragma once

#include "pipeline/pipeline_schedule.h"

typedef struct ot_pipeline_walk {
  const ot_pipeline_schedule *order;
  int *position;        // [num_ranks] actions completed
  int *done[OT_WORKS];  // [num_chunks] micro-batches completed
  int rank;             // current rank
} ot_pipeline_walk;

// Starts at the beginning of `order`, whose lists must be sorted by micro-batch.
void ot_pipeline_walk_begin(const ot_pipeline_schedule *order, ot_arena *arena,
                            ot_pipeline_walk *walk);

// Runs one more action and returns it, or null if no rank can continue: all lists are complete, or
// there is a deadlock. The dependencies of an action are returned before it.
const ot_action *ot_pipeline_walk_next(ot_pipeline_walk *walk);

// The action that `action`, of its list, still waits for; false if none. A pair waits for the
// inputs of both.
bool ot_pipeline_walk_blocked(const ot_pipeline_walk *walk, const ot_action *action, ot_action *by);
