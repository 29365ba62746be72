// SPDX-License-Identifier: Apache-2.0
// Even cuts.
#include "schedule/stages.h"

ot_status ot_stages_build(const ot_graph *graph, const ot_run_parallel *parallel, ot_arena *arena,
                          ot_stages *out) {
  const int chunks = parallel->pp * parallel->vpp;
  int *const first = ot_arena_array(arena, chunks + 1, sizeof(int));
  int *const rank_of = ot_arena_array(arena, chunks, sizeof(int));
  for (int c = 0; c <= chunks; c++) first[c] = graph->num_blocks * c / chunks;
  const bool back_up = parallel->pipeline == OT_PIPELINE_ZB_V;
  for (int c = 0; c < chunks; c++) {
    rank_of[c] = back_up && c >= parallel->pp ? chunks - 1 - c : c % parallel->pp;
  }
  *out = (ot_stages){parallel->pp, chunks, first, rank_of};
  return OT_OK;
}

int ot_stages_chunk(const ot_stages *stages, int block) {
  int chunk = 0;
  while (stages->first_block[chunk + 1] <= block) chunk++;
  return chunk;
}
