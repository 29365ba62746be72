// SPDX-License-Identifier: Apache-2.0
// Pipeline orders by what they depend on, each built once.
#include "pipeline/pipeline_flow.h"
#include "plan/estimator.h"

static void count_pairs(ot_arena *arena, ot_arena *scratch, ot_walk *walk) {
  const ot_pipeline_flow *const flow = &walk->flow;
  const ot_flow_action **const before =
      ot_arena_array(scratch, flow->num_ranks, sizeof(ot_flow_action *));
  walk->turns = ot_arena_array(arena, flow->num_chunks, sizeof(int));
  walk->repeats = ot_arena_array(arena, flow->num_chunks, sizeof(int));
  for (int64_t i = 0; i < flow->num_actions; i++) {
    const ot_flow_action *const a = &flow->actions[i], *const last = before[a->rank];
    before[a->rank] = a;
    if (!last || last->chunk != a->chunk) continue;
    if (a->work == OT_WORK_WEIGHT || last->work == OT_WORK_WEIGHT) continue;
    (a->work == last->work ? walk->repeats : walk->turns)[a->chunk]++;
  }
}

// ---- the whole ----

static ot_status build(const ot_pipeline_request *request, ot_arena *arena, ot_arena *scratch,
                       ot_walk *walk) {
  ot_pipeline_order order;
  OT_TRY(ot_pipeline_order_build(request, scratch, &order));
  *walk = (ot_walk){.kind = request->kind};
  ot_pipeline_flow_build(&order, arena, scratch, &walk->flow);
  count_pairs(arena, scratch, walk);
  return OT_OK;
}

ot_status ot_walk_find(ot_estimator *e, const ot_candidate *candidate, const ot_stages *stages,
                       const ot_walk **out) {
  for (int64_t i = 0; i < e->num_walks; i++) {
    const ot_walk *const made = e->walks[i];
    *out = made;
    if (made->kind == candidate->pipeline && made->flow.num_ranks == stages->num_ranks &&
        made->flow.num_chunks == stages->num_chunks &&
        made->flow.micro_batches == candidate->micro_batches) {
      return OT_OK;
    }
  }
  ot_walk *const made = ot_arena_array(e->arena, 1, sizeof *made);
  const ot_pipeline_request request = {.kind = candidate->pipeline,
                                       .num_ranks = stages->num_ranks,
                                       .num_chunks = stages->num_chunks,
                                       .micro_batches = (int)candidate->micro_batches,
                                       .rank_of = stages->rank_of};
  ot_arena scratch = ot_arena_pool_begin(&e->pool);
  OT_TRY(build(&request, e->arena, &scratch, made));
  e->walks = ot_arena_grow(e->arena, e->walks, e->num_walks, &e->walks_capacity, sizeof(ot_walk *));
  e->walks[e->num_walks++] = made;
  *out = made;
  return OT_OK;
}
