// SPDX-License-Identifier: Apache-2.0
// Assigns blocks to stages. Candidates with the same partition share the result.
#include "describe/pipeline_rules.h"
#include "plan/framework.h"

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

static ot_status build(ot_estimator *e, const ot_candidate *c, ot_stage_partition *cut) {
  ot_run_lists lists;
  ot_run run;
  ot_candidate_run(&e->job, c, &lists, &run);
  *cut = (ot_stage_partition){.blocks = ot_estimator_blocks(e, c)};
  OT_TRY(e->framework->partition(e, c, &run, cut));
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

// Packs every parameter of a partition into one number.
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
