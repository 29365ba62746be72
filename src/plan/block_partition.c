// SPDX-License-Identifier: Apache-2.0
// Assigns blocks to stages. Candidates with the same partition share the result.
#include "describe/pipeline_rules.h"
#include "plan/framework.h"
#include "plan/pools.h"

// Chunks go down the stages and back up (V shape); all other schedules assign them round-robin.
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

// Pools of different rates get layers in proportion; otherwise the framework divides them.
static ot_status partition(ot_estimator *e, const ot_candidate *c, ot_stage_partition *cut) {
  ot_run_lists lists;
  ot_run run;
  bool equal = true;
  ot_candidate_run(&e->job, c, &lists, &run);
  const int chunks = c->pp * ot_pipeline_chunks(c->pipeline, c->pp, c->vpp);
  if (c->crosses == OT_CROSSES_PP && e->job.num_chunks != chunks) {
    OT_CHECK(chunks <= cut->blocks->num_blocks, OT_USAGE,
             "plan: pp=%d with %d chunks in total exceeds the model's %d blocks", c->pp, chunks,
             cut->blocks->num_blocks);
    cut->stages = (ot_stages){.num_ranks = c->pp,
                              .num_chunks = chunks,
                              .rank_of = ot_stages_assign(&run.parallel, chunks, e->arena)};
    OT_TRY(ot_pool_partition(e, c, cut->blocks, &cut->stages, &equal));
  }
  return equal ? e->framework->partition(e, c, &run, cut) : OT_OK;
}

static ot_status build(ot_estimator *e, const ot_candidate *c, ot_stage_partition *cut) {
  *cut = (ot_stage_partition){.blocks = ot_estimator_blocks(e, c)};
  OT_TRY(partition(e, c, cut));
  share_layers(e, cut);
  const int kinds = cut->blocks->num_kinds;
  cut->count = ot_arena_array(e->arena, (int64_t)cut->stages.num_chunks * kinds, sizeof(int));
  cut->chunk_of = ot_arena_array(e->arena, cut->blocks->num_blocks, sizeof(int));
  cut->stage_of = ot_arena_array(e->arena, cut->blocks->num_blocks, sizeof(int));
  for (int chunk = 0; chunk < cut->stages.num_chunks; chunk++) {
    for (int i = cut->stages.first_block[chunk]; i < cut->stages.first_block[chunk + 1]; i++) {
      cut->chunk_of[i] = chunk;
      cut->stage_of[i] = cut->stages.rank_of[chunk];
      cut->count[chunk * kinds + cut->blocks->kind_of[i]]++;
    }
  }
  return OT_OK;
}

// Packs every parameter of a partition into one number. Where stages cross pools, it depends on the
// prices of blocks, of which each has an index, and on the ranks of a stage.
static ot_status find_key(ot_estimator *e, const ot_candidate *c, uint64_t *key) {
  const bool apart = ot_estimator_blocks(e, c) == &e->apart;
  const uint64_t recompute = (uint64_t)c->modules << 2 | (uint64_t)c->recompute;
  const uint64_t which = (recompute * 2 + folded(c)) * 2 + apart;
  *key = ((uint64_t)c->pp << 32 | (uint64_t)c->vpp) << 11 | which;
  if (c->crosses != OT_CROSSES_PP) return OT_OK;
  const ot_prices *works;
  OT_TRY(ot_work_prices_find(e, c, &works));
  const uint64_t index = 1 + (uint64_t)ot_price_list_find(&e->works, &works->key);
  *key = (index << 24 | (uint64_t)c->pp << 12 | (uint64_t)c->vpp) << 11 | which;
  return OT_OK;
}

ot_status ot_stage_partition_find(ot_estimator *e, const ot_candidate *c,
                                  const ot_stage_partition **out) {
  uint64_t key;
  OT_TRY(find_key(e, c, &key));
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
