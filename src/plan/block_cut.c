// SPDX-License-Identifier: Apache-2.0
// Which blocks are on which stage: by cost as training cuts them, or evenly as other software does.
#include "describe/pipeline_rules.h"
#include "plan/estimator.h"

// Matrix FLOPs of each block of the whole model, not of a rank's part: all ranks cut alike.
static ot_status block_costs(ot_estimator *e, const ot_candidate *c, const ot_run *run,
                             double *cost) {
  const ot_block_list *const blocks = ot_estimator_blocks(e, c);
  ot_candidate one = *c;
  one.micro_batch_size = 1;  // costs are in proportion
  const ot_graph_request request = ot_prices_graph(e, &one, run, true);
  ot_graph *graph;
  OT_TRY(ot_graph_find(e, &request, &graph));
  double *const of_kind = ot_arena_array(e->arena, blocks->num_kinds, sizeof *of_kind);
  for (int k = 0; k < blocks->num_kinds; k++) {
    of_kind[k] = ot_stages_block_cost(graph, k, &run->parallel, e->arena);
  }
  for (int i = 0; i < blocks->num_blocks; i++) cost[i] = of_kind[blocks->kind_of[i]];
  return OT_OK;
}

// Other software gives each chunk as many layers, and the embedding and the head to the first and
// the last; where layers do not come out even, both count as one (Megatron-DeepSpeed;
// Megatron-core's account_for_embedding_in_pipeline_split), and what is left over goes to the first
// chunks.
static void cut_evenly(int layers, int chunks, int *first) {
  const bool even = layers % chunks == 0;
  const int whole = even ? layers : layers + 2;
  for (int c = 0; c <= chunks; c++) {
    const int before = whole / chunks * c + (c < whole % chunks ? c : whole % chunks);
    first[c] = even && c > 0 ? before + 1 : before;
  }
  first[chunks] = layers + 2;
}

// nanotron (models/base.py): a stage takes blocks until their cost is more than its even share of
// all; products of weights count, an embedding costs nothing. Each stage gets a block.
static void cut_by_cost(const ot_model *model, int stages, int *first) {
  const int layers = (int)model->num_layers;
  const double width = (double)model->hidden_size;
  const double layer = width * (4.0 * (double)(model->num_heads * model->head_dim) +
                                3.0 * (double)model->intermediate_size);
  const double all = layers * layer + width * (double)model->vocab_size;
  int block = 0;
  for (int stage = 0; stage < stages; stage++) {
    first[stage] = block;
    const int last = layers + 2 - (stages - stage - 1);
    do block++;
    while (block < last && (block - 1) * layer <= all * (stage + 1) / stages);
  }
  first[stages] = layers + 2;
}

static ot_status cut_stages(ot_estimator *e, const ot_candidate *c, const ot_run *run,
                            ot_stage_partition *cut) {
  const int num_blocks = cut->blocks->num_blocks;
  if (e->own) {
    double *const cost = ot_arena_array(e->arena, num_blocks, sizeof *cost);
    OT_TRY(block_costs(e, c, run, cost));
    return ot_stages_cut(num_blocks, cost, &run->parallel, e->arena, &cut->stages);
  }
  const int chunks = c->pp * ot_pipeline_chunks(c->pipeline, c->pp, c->vpp);
  OT_CHECK(chunks <= num_blocks, OT_USAGE,
           "plan: pp=%d with %d chunks in all is more than the "
           "model's %d blocks",
           c->pp, chunks, num_blocks);
  int *const first = ot_arena_array(e->arena, chunks + 1, sizeof *first);
  if (e->job.engine->cuts_by_cost && chunks == c->pp) {
    cut_by_cost(e->job.model, chunks, first);
  } else {
    cut_evenly(num_blocks - 2, chunks, first);
  }
  cut->stages = (ot_stages){.num_ranks = c->pp,
                            .num_chunks = chunks,
                            .first_block = first,
                            .rank_of = ot_stages_place(&run->parallel, chunks, e->arena)};
  return OT_OK;
}

// Chunks go down the stages and back up; of all other orders they go round.
static bool folded(const ot_candidate *c) { return ot_pipeline_rules_of(c->pipeline)->folded; }

static void share_layers(const ot_estimator *e, ot_stage_partition *cut) {
  const ot_stages *const stages = &cut->stages;
  const int head = cut->blocks->num_blocks - 1;
  cut->shares = ot_arena_array(e->arena, stages->num_ranks, sizeof *cut->shares);
  for (int c = stages->num_chunks - 1; c >= 0; c--) {
    ot_stage_share *const share = &cut->shares[stages->rank_of[c]];
    const int first = stages->first_block[c], end = stages->first_block[c + 1];
    const int layers = end - first - (first == 0) - (end > head);
    if (share->layers == 0 && share->last_chunk == 0) {
      share->last_chunk = c;
      share->last_layers = layers;
    }
    share->layers += layers;
    share->layers_before = first > 0 ? first - 1 : 0;
    share->first_chunk = c;
  }
}

static ot_status build(ot_estimator *e, const ot_candidate *c, ot_stage_partition *cut) {
  ot_run_lists lists;
  ot_run run;
  ot_candidate_run(&e->job, c, &lists, &run);
  if (e->own && c->pp == 1) run.parallel.vpp = 1;  // training has no stages then
  *cut = (ot_stage_partition){.blocks = ot_estimator_blocks(e, c)};
  OT_TRY(cut_stages(e, c, &run, cut));
  share_layers(e, cut);
  cut->chunk_of = ot_arena_array(e->arena, cut->blocks->num_blocks, sizeof(int));
  cut->stage_of = ot_arena_array(e->arena, cut->blocks->num_blocks, sizeof(int));
  for (int chunk = 0; chunk < cut->stages.num_chunks; chunk++) {
    for (int i = cut->stages.first_block[chunk]; i < cut->stages.first_block[chunk + 1]; i++) {
      cut->chunk_of[i] = chunk;
      cut->stage_of[i] = cut->stages.rank_of[chunk];
    }
  }
  return OT_OK;
}

// All that cuts differ in, in one number.
static uint64_t key_of(const ot_estimator *e, const ot_candidate *c) {
  const bool apart = ot_estimator_blocks(e, c) == &e->apart;
  const uint64_t which = ((uint64_t)c->recompute * 2 + folded(c)) * 2 + apart;
  return ((uint64_t)c->pp << 32 | (uint64_t)c->vpp) * 16 + which;
}

ot_status ot_stage_partition_find(ot_estimator *e, const ot_candidate *c,
                                  const ot_stage_partition **out) {
  const uint64_t key = key_of(e, c);
  const int64_t found = ot_lookup_find(&e->cut_lookup, key);
  if (found >= 0) {
    *out = e->cuts[found];
    return OT_OK;
  }
  ot_stage_partition *const made = ot_arena_array(e->arena, 1, sizeof *made);
  OT_TRY(build(e, c, made));
  e->cuts = ot_arena_grow(e->arena, e->cuts, e->num_cuts, &e->cuts_capacity,
                          sizeof(ot_stage_partition *));
  e->cut_lookup.arena = e->arena;
  ot_lookup_add(&e->cut_lookup, key, e->num_cuts);
  e->cuts[e->num_cuts++] = made;
  *out = made;
  return OT_OK;
}
