// SPDX-License-Identifier: Apache-2.0
// What is asked for is what a trainer asks for.
#include "train/planned_rank.h"

#include "train/trainer.h"

ot_status ot_planned_rank_build(ot_planned_rank *planned, ot_arena *arena) {
  ot_runtime_request request = {
      .mesh = planned->mesh, .rank = planned->rank, .backend = planned->backend};
  OT_TRY(ot_trainer_request(planned->run, arena, &request));
  if (request.threads == 0) request.threads = planned->threads;
  return ot_runtime_plan(&request, arena, planned->graphs, &planned->schedule);
}
