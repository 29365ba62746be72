// SPDX-License-Identifier: Apache-2.0
// Cache of pipeline flows by their keys; each is built once.
#include "plan/estimator.h"

struct ot_cached_flow {
  ot_pipeline kind;
  ot_pipeline_flow flow;
};

static bool is_of(const ot_cached_flow *known, const ot_candidate *candidate,
                  const ot_stages *stages) {
  return known->kind == candidate->pipeline && known->flow.num_ranks == stages->num_ranks &&
         known->flow.num_chunks == stages->num_chunks &&
         known->flow.micro_batches == candidate->micro_batches;
}

ot_status ot_flow_find(ot_estimator *e, const ot_candidate *candidate, const ot_stages *stages,
                       const ot_pipeline_flow **out) {
  for (int64_t i = 0; i < e->num_flows; i++) {
    *out = &e->flows[i]->flow;
    if (is_of(e->flows[i], candidate, stages)) return OT_OK;
  }
  const ot_pipeline_request request = {.kind = candidate->pipeline,
                                       .num_ranks = stages->num_ranks,
                                       .num_chunks = stages->num_chunks,
                                       .micro_batches = (int)candidate->micro_batches,
                                       .rank_of = stages->rank_of};
  ot_cached_flow *const made = ot_arena_array(e->arena, 1, sizeof *made);
  ot_arena scratch = ot_arena_pool_begin(&e->scratch);
  ot_pipeline_schedule order;
  OT_TRY(ot_pipeline_schedule_build(&request, &scratch, &order));
  made->kind = candidate->pipeline;
  ot_pipeline_flow_build(&order, e->arena, &scratch, &made->flow);
  e->flows =
      ot_arena_grow(e->arena, e->flows, e->num_flows, &e->flows_capacity, sizeof(ot_cached_flow *));
  e->flows[e->num_flows++] = made;
  *out = &made->flow;
  return OT_OK;
}
