// SPDX-License-Identifier: Apache-2.0
// 1F1B, one chunk a rank.
#include "schedule/pipeline_order.h"

// Warm-up forwards, then one of each in turn, then the backwards that are left.
static int list_rank(int warm_up, int micro_batches, int chunk, ot_action *actions) {
  int count = 0;
  for (int i = 0; i < micro_batches; i++) {
    actions[count++] = (ot_action){OT_ACTION_FORWARD, chunk, i};
    if (i >= warm_up) actions[count++] = (ot_action){OT_ACTION_BACKWARD, chunk, i - warm_up};
  }
  for (int i = micro_batches - warm_up; i < micro_batches; i++) {
    actions[count++] = (ot_action){OT_ACTION_BACKWARD, chunk, i};
  }
  return count;
}

ot_status ot_pipeline_order_build(const ot_pipeline_request *request, ot_arena *arena,
                                  ot_pipeline_order *out) {
  const int p = request->num_ranks;
  const int m = request->micro_batches;
  OT_CHECK(request->num_chunks == p, OT_USAGE, "pipeline: %d chunks on %d stages",
           request->num_chunks, p);
  *out = (ot_pipeline_order){.num_ranks = p,
                             .num_chunks = p,
                             .micro_batches = m,
                             .rank_of = request->rank_of,
                             .num_actions = ot_arena_array(arena, p, sizeof(int)),
                             .actions = ot_arena_array(arena, p, sizeof(ot_action *))};
  for (int rank = 0; rank < p; rank++) {
    const int warm_up = p - 1 - rank < m ? p - 1 - rank : m;
    out->actions[rank] = ot_arena_array(arena, 2 * m, sizeof(ot_action));
    out->num_actions[rank] = list_rank(warm_up, m, rank, out->actions[rank]);
  }
  return OT_OK;
}
