// SPDX-License-Identifier: Apache-2.0
// Assigns blocks to stages. Candidates with the same partition share the result.
#include <string.h>

#include "describe/pipeline_rules.h"
#include "estimate/crossing_estimate.h"
#include "estimate/framework.h"

// Chunks go down the stages and back up (V shape); all other schedules assign them round-robin.
static bool folded(const ot_candidate *c) { return ot_pipeline_rules_of(c->pipeline)->folded; }

static void count_blocks(const ot_estimator *e, ot_stage_partition *cut) {
  const ot_block_list *const blocks = cut->blocks;
  const ot_stages *const stages = &cut->stages;
  const int kinds = blocks->num_kinds;
  cut->count = ot_arena_array(e->arena, (int64_t)stages->num_chunks * kinds, sizeof(int));
  cut->passed = ot_arena_array(e->arena, (int64_t)stages->num_chunks * kinds, sizeof(int));
  cut->chunk_of = ot_arena_array(e->arena, blocks->num_blocks, sizeof(int));
  cut->stage_of = ot_arena_array(e->arena, blocks->num_blocks, sizeof(int));
  for (int chunk = 0; chunk < stages->num_chunks; chunk++) {
    int *const count = &cut->count[chunk * kinds], *const passed = &cut->passed[chunk * kinds];
    for (int i = stages->first_block[chunk]; i < stages->first_block[chunk + 1]; i++) {
      cut->chunk_of[i] = chunk;
      cut->stage_of[i] = stages->rank_of[chunk];
      count[blocks->kind_of[i]]++;
    }
    for (int k = 0; k < kinds && chunk > 0; k++) passed[k] = passed[k - kinds] + count[k - kinds];
  }
}

static void share_blocks(const ot_estimator *e, ot_stage_partition *cut) {
  const ot_stages *const stages = &cut->stages;
  const int kinds = cut->blocks->num_kinds;
  cut->shares = ot_arena_array(e->arena, stages->num_ranks, sizeof *cut->shares);
  for (int c = stages->num_chunks - 1; c >= 0; c--) {
    ot_stage_share *const share = &cut->shares[stages->rank_of[c]];
    const int *const count = &cut->count[c * kinds];
    bool experts = false;
    if (!share->count) {
      share->last_chunk = c;
      share->count = ot_arena_array(e->arena, kinds, sizeof *share->count);
    }
    share->first_chunk = c;
    for (int k = 0; k < kinds; k++) {
      share->count[k] += count[k];
      share->layers += k > 0 && k < kinds - 1 ? count[k] : 0;
      experts = experts || (count[k] > 0 && cut->blocks->experts[k]);
    }
    share->expert_chunks += experts;
  }
}

// ---- stages and chunks with the same blocks ----

static bool same_counts(const ot_stage_partition *cut, const int *a, const int *b) {
  return memcmp(a, b, (size_t)cut->blocks->num_kinds * sizeof *a) == 0;
}

static bool same_chunks(const ot_stage_partition *cut, int a, int b) {
  const int kinds = cut->blocks->num_kinds;
  return same_counts(cut, &cut->count[a * kinds], &cut->count[b * kinds]);
}

static bool same_stages(const ot_stage_partition *cut, int first, int second) {
  const ot_stage_share *const a = &cut->shares[first], *const b = &cut->shares[second];
  return a->expert_chunks == b->expert_chunks && same_counts(cut, a->count, b->count) &&
         same_chunks(cut, a->last_chunk, b->last_chunk);
}

static void find_alike(const ot_estimator *e, ot_stage_partition *cut) {
  const ot_stages *const stages = &cut->stages;
  cut->alike = ot_arena_array(e->arena, stages->num_ranks, sizeof *cut->alike);
  for (int r = stages->num_ranks - 1; r >= 0; r--) {
    int i = 0;
    while (i < cut->num_alike && !same_stages(cut, cut->alike[i].last, r)) i++;
    if (i == cut->num_alike) cut->alike[cut->num_alike++].last = r;
    cut->alike[i].first = r;
  }
  cut->ends = ot_arena_array(e->arena, stages->num_chunks, sizeof *cut->ends);
  for (int c = stages->num_chunks - 1; c >= 0; c--) {
    int i = 0;
    while (i < cut->num_ends && !same_chunks(cut, cut->ends[i], c)) i++;
    if (i == cut->num_ends) cut->ends[cut->num_ends++] = c;
  }
}

// Stages on devices of different rates get layers in proportion; otherwise the framework divides
// them.
static ot_status partition(ot_estimator *e, const ot_candidate *c, ot_stage_partition *cut) {
  ot_run_lists lists;
  ot_run run;
  bool divided = false;
  ot_candidate_run(&e->job, c, &lists, &run);
  if (c->crosses == OT_CROSSES_PP) {
    OT_TRY(ot_crossing_partition(e, c, &run.parallel, cut, &divided));
  }
  return divided ? OT_OK : e->framework->partition(e, c, &run, cut);
}

static ot_status build(ot_estimator *e, const ot_candidate *c, ot_stage_partition *cut) {
  *cut = (ot_stage_partition){.blocks = ot_estimator_blocks(e, c)};
  OT_TRY(partition(e, c, cut));
  count_blocks(e, cut);
  share_blocks(e, cut);
  find_alike(e, cut);
  return OT_OK;
}

// Packs every parameter of a partition into one number. Where stages are on different devices, it
// depends on the prices of blocks, of which each has an index, and on the ranks of a stage.
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
