// SPDX-License-Identifier: Apache-2.0
// Where stages are in different pools, blocks are divided by the time that each takes.
#include "base/extremes.h"
#include "describe/pipeline_rules.h"
#include "estimate/crossing_estimate.h"
#include "estimate/pools.h"

static int pool_of_stage(const ot_job *job, const ot_candidate *c, int stage) {
  int pool = 0;
  for (int end = 0; (end += ot_pool_stages(job, c, pool)) <= stage;) pool++;
  return pool;
}

typedef struct divider {
  const ot_block_list *blocks;
  const ot_prices **works;  // [num_pools]
  const int *pool_of;       // [num_chunks]
  int num_chunks;
} divider;

static double time_in(const divider *d, int block, int chunk) {
  return ot_pool_block_s(d->works[d->pool_of[chunk]], d->blocks->kind_of[block]);
}

// The first block of each chunk [num_chunks + 1] if chunks are filled from the last one back, each
// within `most_s` and with a block left for each before it; false if that does not take all.
static bool fill_back(const divider *d, double most_s, int *first) {
  int block = d->blocks->num_blocks;
  first[d->num_chunks] = block;
  for (int c = d->num_chunks - 1; c >= 0; c--) {
    for (double s = 0; block > c && (s += time_in(d, block - 1, c)) <= most_s;) block--;
    if (block == first[c + 1]) return false;
    first[c] = block;
  }
  return block == 0;
}

// Seconds of each of the chunks from `chunk` on if they divided the blocks from `block` on evenly.
static double even_s(const divider *d, int block, int chunk) {
  double work_s = 0, chunks = 0;
  const double unit_s = ot_pool_model_s(d->works[0]);
  for (int i = block; i < d->blocks->num_blocks; i++) {
    work_s += ot_pool_block_s(d->works[0], d->blocks->kind_of[i]);
  }
  for (int c = chunk; c < d->num_chunks; c++)
    chunks += unit_s / ot_pool_model_s(d->works[d->pool_of[c]]);
  return work_s / chunks;
}

// Moves work from full chunks to later ones: `first` [num_chunks + 1], as fill_back left it, has
// the earliest blocks with which the chunks after can still end within `most_s`.
static void even_out(const divider *d, double most_s, int *first) {
  for (int c = 0; c + 1 < d->num_chunks; c++) {
    const double wanted_s = even_s(d, first[c], c);
    const int least = ot_larger_whole(first[c + 1], first[c] + 1);
    const int most = d->blocks->num_blocks - (d->num_chunks - c - 1);
    int end = first[c];
    double s = 0;
    while (end < most) {
      const double next_s = time_in(d, end, c);
      if (s + next_s > most_s || (end >= least && s + next_s / 2 > wanted_s)) break;
      s += next_s;
      end++;
    }
    first[c + 1] = end;
  }
}

static bool same_rates(const ot_prices *const *works, int num_pools, int num_kinds) {
  for (int i = 1; i < num_pools; i++) {
    for (int k = 0; k < num_kinds; k++) {
      if (ot_pool_block_s(works[i], k) != ot_pool_block_s(works[0], k)) return false;
    }
  }
  return true;
}

// The first block of each chunk [num_chunks + 1], if all blocks take `most_s` in one chunk at most.
static int *divide(const divider *d, double most_s, ot_arena *arena) {
  enum { HALVINGS = 60 };
  int *const first = ot_arena_array(arena, d->num_chunks + 1, sizeof *first);
  double low_s = 0, high_s = most_s;
  for (int i = 0; i < HALVINGS; i++) {
    const double middle_s = (low_s + high_s) / 2;
    *(fill_back(d, middle_s, first) ? &high_s : &low_s) = middle_s;
  }
  OT_ASSERT(fill_back(d, high_s, first));
  even_out(d, high_s, first);
  return first;
}

ot_status ot_crossing_partition(ot_estimator *e, const ot_candidate *c,
                                const ot_run_parallel *parallel, ot_stage_partition *cut,
                                bool *divided) {
  const int chunks = c->pp * ot_pipeline_chunks(c->pipeline, c->pp, c->vpp);
  const int num_pools = e->pools->num;
  const ot_prices *works[OT_MAX_POOLS] = {NULL};
  double all_s = 0;
  *divided = false;
  if (e->job.num_chunks == chunks) return OT_OK;
  OT_CHECK(chunks <= cut->blocks->num_blocks, OT_USAGE,
           "plan: pp=%d with %d chunks in total exceeds the model's %d blocks", c->pp, chunks,
           cut->blocks->num_blocks);
  OT_TRY(ot_pools_find_works(e->pools, c, works));
  if (same_rates(works, num_pools, cut->blocks->num_kinds)) return OT_OK;
  const int *const rank_of = ot_stages_assign(parallel, chunks, e->arena);
  int *const pool_of = ot_arena_array(e->arena, chunks, sizeof *pool_of);
  for (int i = 0; i < chunks; i++) pool_of[i] = pool_of_stage(&e->job, c, rank_of[i]);
  for (int i = 0; i < num_pools; i++) all_s += ot_pool_model_s(works[i]);
  const divider d = {cut->blocks, works, pool_of, chunks};
  cut->stages = (ot_stages){.num_ranks = c->pp,
                            .num_chunks = chunks,
                            .rank_of = rank_of,
                            .first_block = divide(&d, all_s, e->arena)};
  *divided = true;
  return OT_OK;
}
