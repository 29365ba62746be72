// SPDX-License-Identifier: Apache-2.0
// Walks a pipeline order as its ranks would run it, each its own list, an action as soon as what it
// needs is done: for the check of orders.
#pragma once

#include "pipeline/pipeline_order.h"

typedef struct ot_order_walk {
  const ot_pipeline_order *order;
  int *position;        // [num_ranks] actions done
  int *done[OT_WORKS];  // [num_chunks] micro-batches done
  int rank;             // whose turn it is
} ot_order_walk;

// At the start of `order`, whose lists must be by micro-batch.
void ot_order_walk_begin(const ot_pipeline_order *order, ot_arena *arena, ot_order_walk *walk);

// Runs one more action and returns it, or null when no rank can go on: all lists are done, or the
// ranks wait for each other. What an action needs was returned before it.
const ot_action *ot_order_walk_next(ot_order_walk *walk);

// What `action` still waits for; false when nothing.
bool ot_order_walk_blocked(const ot_order_walk *walk, const ot_action *action, ot_action *by);
