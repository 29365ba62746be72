// SPDX-License-Identifier: Apache-2.0
// Computes the costs of blocks from their programs; chain_partition.h and stage_layout.h partition
// them.
#include "pipeline/stages.h"

#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "graph/body.h"
#include "graph/recompute.h"
#include "ops/catalog.h"
#include "pipeline/chain_partition.h"
#include "pipeline/stage_layout.h"

// ---- costs ----

static double op_flops(const ot_program *program, int op) {
  ot_op_types types;
  ot_program_types(program, &program->ops[op], &types);
  return ot_op_cost(program->ops[op].kind, &program->ops[op].attributes, &types).matrix_flops;
}

double ot_stages_block_cost(const ot_graph *graph, int block, const ot_run_parallel *parallel,
                            ot_arena *arena) {
  const ot_program *const program = &graph->programs[graph->blocks[block].program];
  ot_recompute_set set;
  const ot_recompute_policy policy = {
      .mode = ot_run_recompute(parallel, graph->blocks[block].layer),
      .modules = ot_run_modules(parallel)};
  ot_recompute_build(program, policy, arena, &set);
  double flops = 0;
  for (int i = 0; i < program->num_ops; i++) {
    if (ot_program_repeat_of(program, i) >= 0) continue;  // as ot_order_flops
    flops += op_flops(program, i) * (set.emitted[i] ? 2 : 1);
  }
  return flops;
}

// ---- stages ----

const int *ot_stages_assign(const ot_run_parallel *parallel, int chunks, ot_arena *arena) {
  const int p = parallel->pp;
  int *const rank_of = ot_arena_array(arena, chunks, sizeof *rank_of);
  for (int c = 0; c < chunks; c++) {
    rank_of[c] = ot_pipeline_stage(parallel->pipeline, p, c);
  }
  return rank_of;
}

ot_status ot_stages_partition(int num_blocks, const double *cost, const ot_run_parallel *parallel,
                              ot_arena *arena, ot_stages *out) {
  const int per_stage = ot_pipeline_chunks(parallel->pipeline, parallel->pp, parallel->vpp);
  const int64_t chunks = (int64_t)parallel->pp * per_stage;
  OT_CHECK(chunks <= num_blocks, OT_USAGE,
           "parallel: pp=%d with %d chunks per stage exceeds the model's %d blocks (its layers, "
           "the embedding and the head)",
           parallel->pp, per_stage, num_blocks);
  int *const first = ot_arena_array(arena, chunks + 1, sizeof *first);
  *out = (ot_stages){.num_ranks = parallel->pp,
                     .num_chunks = (int)chunks,
                     .first_block = first,
                     .rank_of = ot_stages_assign(parallel, (int)chunks, arena)};
  if (parallel->layout && parallel->layout[0] != '\0') {
    return ot_stage_layout_read(parallel->layout, num_blocks - 2, (int)chunks, first);
  }
  const ot_chain_request request = {.num_blocks = num_blocks,
                                    .cost = cost,
                                    .num_ranks = out->num_ranks,
                                    .num_chunks = out->num_chunks,
                                    .rank_of = out->rank_of};
  ot_chain_partition(&request, arena, first);
  return OT_OK;
}

// Converts a partition of embedding, layers and head to the blocks of `graph`, where a layer may be
// two blocks.
static void count_blocks(const ot_graph *graph, ot_arena *arena, ot_stages *out) {
  const int layers = (int)graph->request.model->num_layers;
  int *const first = ot_arena_array(arena, out->num_chunks + 1, sizeof *first);
  for (int i = 0; i <= out->num_chunks; i++) {
    const int place = out->first_block[i];
    const bool behind = place > layers;
    first[i] = behind       ? graph->num_blocks - (layers + 2 - place)
               : place == 0 ? 0
                            : ot_graph_block_of_layer(graph, place - 1);
  }
  out->first_block = first;
}

ot_status ot_stages_build(const ot_graph *graph, const ot_run_parallel *parallel, ot_arena *arena,
                          ot_stages *out) {
  if (parallel->layout && parallel->layout[0] != '\0') {
    const int places = (int)graph->request.model->num_layers + 2;
    OT_TRY(ot_stages_partition(places, NULL, parallel, arena, out));
    count_blocks(graph, arena, out);
    return OT_OK;
  }
  double *const cost = ot_arena_array(arena, graph->num_blocks, sizeof *cost);
  for (int i = 0; i < graph->num_blocks; i++) {
    cost[i] = ot_stages_block_cost(graph, i, parallel, arena);
  }
  return ot_stages_partition(graph->num_blocks, cost, parallel, arena, out);
}

int ot_stages_chunk(const ot_stages *stages, int block) {
  int chunk = 0;
  while (stages->first_block[chunk + 1] <= block) chunk++;
  return chunk;
}

bool ot_stages_chunk_sends(const ot_stages *stages, int chunk, int rank, bool backward) {
  const int to = backward ? chunk - 1 : chunk + 1;
  if (stages->rank_of[chunk] != rank || to < 0 || to >= stages->num_chunks) return false;
  return stages->rank_of[to] != rank;
}

int ot_stages_ping_pong(int block) { return (block + 1) % 2; }

bool ot_stages_uses_ping_pong(const ot_stages *stages, int rank, int hand, const bool *gives) {
  for (int c = 0; c < stages->num_chunks; c++) {
    for (int b = stages->first_block[c]; b < stages->first_block[c + 1] - 1; b++) {
      if (stages->rank_of[c] == rank && ot_stages_ping_pong(b) == hand && gives[b]) return true;
    }
  }
  return false;
}
