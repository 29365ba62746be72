// SPDX-License-Identifier: Apache-2.0
// What is asked for is what a trainer asks for.
#include "train/planned_rank.h"

#include "runtime/training_request.h"

ot_status ot_planned_rank_build(ot_planned_rank *planned, ot_arena *arena) {
  ot_rank_request request;
  OT_TRY(ot_training_request(planned->run, planned->mesh, planned->rank, arena, &request));
  if (request.graph.threads == 0) request.graph.threads = planned->threads;
  request.graph.backend = planned->backend;
  return ot_runtime_plan(&request, arena, planned->graphs, &planned->schedule);
}
