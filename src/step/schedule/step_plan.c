// SPDX-License-Identifier: Apache-2.0
// Pipeline schedule, with the backward split if requested, and assignment of saved-activation
// buffers.
#include "schedule/step_plan.h"

int ot_step_local_chunk(const ot_build *b, int chunk) {
  int local = 0;
  for (int c = 0; c < chunk; c++) local += b->stages.rank_of[c] == b->stage;
  return local;
}

const ot_flow_action *ot_step_action(const ot_build *b, const ot_step_plan *plan,
                                     const ot_step_item *item) {
  return &plan->flow.actions[plan->flow.of_rank[b->stage][item->action]];
}

// ---- pipeline schedule ----

// Replaces B by I and W, one after the other.
static void split_actions(ot_build *b, int rank, ot_pipeline_schedule *order) {
  const ot_action *const whole = order->actions[rank];
  ot_action *const actions =
      ot_arena_array(b->arena, 2 * (int64_t)order->num_actions[rank] + 1, sizeof *actions);
  int count = 0;
  for (int i = 0; i < order->num_actions[rank]; i++) {
    actions[count++] = whole[i];
    if (whole[i].kind != OT_ACTION_BACKWARD) continue;
    actions[count - 1].kind = OT_ACTION_INPUT;
    actions[count] = whole[i];
    actions[count++].kind = OT_ACTION_WEIGHT;
  }
  order->actions[rank] = actions;
  order->num_actions[rank] = count;
}

static ot_status build_flow(ot_build *b, int micro_batches, ot_pipeline_flow *flow) {
  const ot_stages *const stages = &b->stages;
  const ot_pipeline_request request = {.kind = b->request->run->parallel.pipeline,
                                       .num_ranks = stages->num_ranks,
                                       .num_chunks = stages->num_chunks,
                                       .micro_batches = micro_batches,
                                       .rank_of = stages->rank_of,
                                       .csv = b->request->order_csv};
  ot_pipeline_schedule order;
  OT_TRY(ot_pipeline_schedule_build(&request, b->arena, &order));
  if (b->request->split_backward && !order.split) {
    for (int rank = 0; rank < order.num_ranks; rank++) split_actions(b, rank, &order);
    order.split = true;
  }
  ot_pipeline_flow_build(&order, b->arena, b->arena, flow);
  return OT_OK;
}

// ---- saved activations of a chunk ----

static void assign_kept(ot_build *b, ot_step_plan *plan, ot_saved_kind kind, int chunk) {
  const int micro_batches = plan->flow.micro_batches;
  ot_pool_use *const uses = &plan->kept[kind][ot_step_local_chunk(b, chunk) * micro_batches];
  for (int m = 0; m < micro_batches; m++) {
    const ot_saved_span span = ot_pipeline_flow_saved(&plan->flow, kind, chunk, m);
    uses[m] = (ot_pool_use){.first = span.first, .last = span.last};
  }
  const int buffers = ot_pool_assign(uses, micro_batches, 1, b->arena);
  OT_ASSERT(buffers == plan->flow.most[kind][chunk]);
}

ot_status ot_step_plan_build(ot_build *b, int micro_batches, ot_step_plan *plan) {
  const int chunks = ot_step_local_chunk(b, b->stages.num_chunks);
  *plan = (ot_step_plan){0};
  OT_TRY(build_flow(b, micro_batches, &plan->flow));
  for (int kind = 0; kind < OT_SAVED_KINDS; kind++) {
    plan->kept[kind] =
        ot_arena_array(b->arena, (int64_t)chunks * micro_batches + 1, sizeof(ot_pool_use));
    for (int chunk = 0; chunk < b->stages.num_chunks; chunk++) {
      if (b->stages.rank_of[chunk] == b->stage) assign_kept(b, plan, (ot_saved_kind)kind, chunk);
    }
  }
  return OT_OK;
}

// ---- buckets ----

// parallel.reshard has one value per embedding, layer and head.
static bool reshards(const ot_build *b, int block) {
  const int layer = b->shape->blocks[block].layer;
  const int layers = (int)b->shape->request.model->num_layers;
  const int place = layer >= 0 ? layer + 1 : block == 0 ? 0 : layers + 1;
  return ot_run_reshard(b->request->run, place);
}

ot_outline_request ot_step_outline_request(const ot_build *b, const ot_block_buckets *buckets,
                                           int num_blocks) {
  const ot_block_buckets **const of_block = ot_arena_array(b->arena, num_blocks, sizeof *of_block);
  bool *const released = ot_arena_array(b->arena, num_blocks, sizeof(bool));
  for (int i = 0; i < num_blocks; i++) {
    of_block[i] = &buckets[i];
    released[i] = ot_build_shards_weights(b, i) && reshards(b, i);
  }
  return (ot_outline_request){
      .stages = &b->stages,
      .stage = b->stage,
      .buckets = of_block,
      .reshards = released,
      .num_blocks = num_blocks,
      .prefetch = b->shards_any_states ? b->request->run->parallel.prefetch : 0,
      .tied_block = b->tied_block,
      .tied_user = b->tied_user};
}
