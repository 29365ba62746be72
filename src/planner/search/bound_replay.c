// SPDX-License-Identifier: Apache-2.0
// The bound of the pipeline itself: its actions replayed without collectives of data parallelism.
#include "base/extremes.h"
#include "estimate/crossing_estimate.h"
#include "search/bound.h"

static ot_status replay_work(ot_estimator *e, const ot_candidate *candidate, double *work_s) {
  ot_replay_request request = {.estimator = e, .candidate = candidate};
  OT_TRY(ot_work_prices_find(e, candidate, &request.prices));
  OT_TRY(ot_stage_partition_find(e, candidate, &request.cut));
  request.stages = &request.cut->stages;
  OT_TRY(ot_flow_find(e, candidate, request.stages, &request.flow));
  ot_arena scratch = ot_arena_pool_begin(&e->scratch);
  OT_TRY(ot_crossing_places(&request, true, &scratch));
  ot_replay_outline(&request, &scratch);
  request.outlines = NULL;
  return ot_step_replay_work(&request, &scratch, work_s);
}

ot_status ot_bound_replay(ot_estimator *e, const ot_candidate *candidate, double *work_s) {
  ot_replay_part parts[OT_MOST_PARTS];
  int num_parts;
  OT_TRY(ot_crossing_parts(e, candidate, parts, &num_parts));
  *work_s = 0;
  for (int i = 0; i < num_parts; i++) {
    double s;
    OT_TRY(replay_work(parts[i].estimator, &parts[i].candidate, &s));
    *work_s = ot_larger(*work_s, s);
  }
  return OT_OK;
}
