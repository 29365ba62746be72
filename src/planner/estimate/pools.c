// SPDX-License-Identifier: Apache-2.0
// Work is divided by prices: each pool's estimator prices the same blocks on its own devices.
#include "estimate/pools.h"

#include "base/extremes.h"
#include "describe/pipeline_rules.h"

// ---- which ranks ----

static int devices_of(const ot_job *job, int pool) {
  return ot_cluster_pool_devices(job->cluster, pool);
}

ot_group_shape ot_pool_shape(const ot_estimator *e, const ot_candidate *c, ot_group_shape shape) {
  const int apart = c->tp * c->cp * ot_pool_replicas(&e->job, c, e->pool);
  if (c->crosses != OT_CROSSES_DP || shape.size <= 1) return shape;
  const int reach = (apart - shape.first % apart + shape.stride - 1) / shape.stride;
  shape.near = (int)ot_smaller_whole(reach, shape.size);
  return shape;
}

// ---- rates ----

// Seconds of a micro-batch in block `kind`, forward and backward.
static double block_s(const ot_prices *prices, int kind) {
  double s = 0;
  for (int w = 0; w < OT_WORKS; w++) s += prices->kind[kind].work[w][1].total_s;
  return s;
}

static double model_s(const ot_prices *prices) {
  double s = 0;
  for (int i = 0; i < prices->blocks->num_blocks; i++)
    s += block_s(prices, prices->blocks->kind_of[i]);
  return s;
}

static ot_status find_works(ot_estimator *e, const ot_candidate *c, const ot_prices **out) {
  for (int i = 0; i < e->num_pools; i++) OT_TRY(ot_work_prices_find(e->pools[i], c, &out[i]));
  return OT_OK;
}

// ---- micro-batches of replicas ----

typedef struct shares {
  int num_pools;
  int64_t replicas[OT_MAX_POOLS];
  double seconds[OT_MAX_POOLS];  // of one micro-batch of a stage
  int64_t fill;                  // micro-batches' time to fill and drain the pipeline
  int64_t now[OT_MAX_POOLS], best[OT_MAX_POOLS];
  double least_s;
} shares;

static double time_of(const shares *s, int pool, int64_t micro_batches) {
  return (double)(micro_batches + s->fill) * s->seconds[pool];
}

// The most micro-batches that pools from `pool` on can take in less than the best time.
static double most_of(const shares *s, int pool) {
  double most = 0;
  for (int i = pool; i < s->num_pools; i++) {
    most += (double)s->replicas[i] * (s->least_s / s->seconds[i] - (double)s->fill);
  }
  return most;
}

// Tries every division of `left` micro-batches over pools from `pool` on that may beat the best.
static void divide(shares *s, int pool, int64_t left, double slowest_s) {
  const int64_t each = s->replicas[pool];
  if (pool + 1 >= s->num_pools || pool + 1 >= OT_MAX_POOLS) {
    s->now[pool] = left / each;
    const double s_all = ot_larger(slowest_s, time_of(s, pool, left / each));
    if (left % each != 0 || left < each || s_all >= s->least_s) return;
    s->least_s = s_all;
    for (int i = 0; i < s->num_pools; i++) s->best[i] = s->now[i];
    return;
  }
  for (int64_t n = left / each; n >= 1; n--) {
    const double now_s = ot_larger(slowest_s, time_of(s, pool, n));
    if (now_s >= s->least_s) continue;
    if ((double)(left - n * each) > most_of(s, pool + 1)) return;
    s->now[pool] = n;
    divide(s, pool + 1, left - n * each, now_s);
  }
}

ot_status ot_pool_micro_batches(ot_estimator *e, const ot_candidate *c, int64_t *out) {
  const ot_prices *works[OT_MAX_POOLS] = {NULL};
  const int64_t all = e->job.global_batch_size / c->micro_batch_size;
  shares s = {.num_pools = e->num_pools, .fill = c->pp - 1, .least_s = 1e300};
  OT_TRY(find_works(e, c, works));
  for (int i = 0; i < e->num_pools; i++) {
    s.replicas[i] = ot_pool_replicas(&e->job, c, i);
    s.seconds[i] = model_s(works[i]) / c->pp;
  }
  divide(&s, 0, all, 0);
  OT_CHECK(s.best[0] > 0, OT_USAGE,
           "plan: %lld micro-batches of %lld cannot be divided over the replicas of the pools",
           (long long)all, (long long)c->micro_batch_size);
  for (int i = 0; i < e->num_pools; i++) out[i] = s.best[i];
  return OT_OK;
}

// ---- layers of stages ----

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
  return block_s(d->works[d->pool_of[chunk]], d->blocks->kind_of[block]);
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
  const double unit_s = model_s(d->works[0]);
  for (int i = block; i < d->blocks->num_blocks; i++) {
    work_s += block_s(d->works[0], d->blocks->kind_of[i]);
  }
  for (int c = chunk; c < d->num_chunks; c++) chunks += unit_s / model_s(d->works[d->pool_of[c]]);
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

static bool same_rates(const divider *d, int num_pools) {
  for (int i = 1; i < num_pools; i++) {
    for (int k = 0; k < d->blocks->num_kinds; k++) {
      if (block_s(d->works[i], k) != block_s(d->works[0], k)) return false;
    }
  }
  return true;
}

ot_status ot_pool_partition(ot_estimator *e, const ot_candidate *c, const ot_block_list *blocks,
                            ot_stages *stages, bool *equal) {
  enum { HALVINGS = 60 };
  const ot_prices *works[OT_MAX_POOLS] = {NULL};
  const int chunks = stages->num_chunks;
  int *const pool_of = ot_arena_array(e->arena, chunks, sizeof *pool_of);
  int *const first = ot_arena_array(e->arena, chunks + 1, sizeof *first);
  const divider d = {blocks, works, pool_of, chunks};
  OT_TRY(find_works(e, c, works));
  *equal = same_rates(&d, e->num_pools);
  if (*equal) return OT_OK;
  double low_s = 0, high_s = 0;
  for (int i = 0; i < e->num_pools; i++) high_s += model_s(works[i]);
  for (int i = 0; i < chunks; i++) pool_of[i] = pool_of_stage(&e->job, c, stages->rank_of[i]);
  for (int i = 0; i < HALVINGS; i++) {
    const double middle_s = (low_s + high_s) / 2;
    *(fill_back(&d, middle_s, first) ? &high_s : &low_s) = middle_s;
  }
  OT_ASSERT(fill_back(&d, high_s, first));
  even_out(&d, high_s, first);
  stages->first_block = first;
  return OT_OK;
}

// ---- the bound ----

static double least_s(const ot_prices *prices, int kind) {
  double s = 0;
  for (int w = 0; w < OT_WORKS; w++) {
    const ot_phase_price *const work = prices->kind[kind].work[w];
    s += ot_smaller(work[0].total_s, work[1].total_s);
  }
  return s;
}

// How much slower pool `pool` is than the first, at least: the ratio of the block that is least so.
static double slowness(const ot_prices *const *works, int pool) {
  double least = 1e300;
  for (int k = 0; k < works[0]->blocks->num_kinds; k++) {
    least = ot_smaller(least, least_s(works[pool], k) / least_s(works[0], k));
  }
  return least;
}

static double sum_of_blocks(const ot_prices *prices) {
  double s = 0;
  for (int b = 0; b < prices->blocks->num_blocks; b++) {
    s += least_s(prices, prices->blocks->kind_of[b]);
  }
  return s;
}

// A pool with g groups of tp x cp devices, on which any block takes at least r times as long as in
// the first pool, does the work of at most g / r groups of that one.
static double divided_s(const ot_estimator *e, const ot_candidate *c,
                        const ot_prices *const *works) {
  double groups = 0;
  for (int i = 0; i < e->num_pools; i++) {
    groups += devices_of(&e->job, i) / (slowness(works, i) * c->tp * c->cp);
  }
  const double micro_batches = (double)e->job.global_batch_size / (double)c->micro_batch_size;
  return micro_batches * sum_of_blocks(works[0]) / groups;
}

// The least share of the time of a micro-batch in earlier stages that a stage with one chunk waits
// for (search/bound.h): its forward before the first one, and, unless W may fill the wait, its
// backward without recompute after the last.
static double waited_share(const ot_prices *prices, const ot_candidate *c) {
  double least = 1;
  if (ot_pipeline_chunks(c->pipeline, c->pp, c->vpp) > 1) return 0;
  for (int k = 0; k < prices->blocks->num_kinds; k++) {
    const ot_block_price *const block = &prices->kind[k];
    double all_s = 0, waited_s = 0;
    for (int w = 0; w < OT_WORKS; w++) {
      const double first_s = block->work[w][0].total_s, later_s = block->work[w][1].total_s;
      all_s += ot_larger(first_s, later_s);
      if (w == OT_WORK_FORWARD || (w == OT_WORK_BACKWARD && !prices->split)) {
        waited_s += ot_smaller(first_s, later_s);
      }
    }
    if (!prices->split) waited_s -= block->recompute_total_s;
    if (all_s > 0) least = ot_smaller(least, waited_s / all_s);
  }
  return ot_larger(least, 0);
}

// T >= m x_r + f (x_0 + ... + x_r-1) for every stage r, whose work of a micro-batch takes x_r, so
// x_r <= T / m (1 - f / m)^r: `weights` sums these powers, divided by the slowness of the stage.
static double filled_s(double work_s, double micro_batches, double weights) {
  return work_s * micro_batches / weights;
}

static double stages_s(const ot_estimator *e, const ot_candidate *c,
                       const ot_prices *const *works) {
  const double m = (double)c->micro_batches;
  double share = 1, power = 1, weights = 0;
  for (int i = 0; i < e->num_pools; i++) share = ot_smaller(share, waited_share(works[i], c));
  for (int i = 0; i < e->num_pools; i++) {
    const double slower = slowness(works, i);
    for (int r = 0; r < ot_pool_stages(&e->job, c, i); r++, power *= 1 - share / m) {
      weights += power / slower;
    }
  }
  return filled_s(sum_of_blocks(works[0]), m, weights);
}

static ot_status replicas_s(ot_estimator *e, const ot_candidate *c, const ot_prices *const *works,
                            double *seconds) {
  int64_t micro_batches[OT_MAX_POOLS];
  OT_TRY(ot_pool_micro_batches(e, c, micro_batches));
  *seconds = 0;
  for (int i = 0; i < e->num_pools; i++) {
    const double m = (double)micro_batches[i], share = waited_share(works[i], c);
    double power = 1, weights = 0;
    for (int r = 0; r < c->pp; r++, power *= 1 - share / m) weights += power;
    *seconds = ot_larger(*seconds, filled_s(sum_of_blocks(works[i]), m, weights));
  }
  return OT_OK;
}

ot_status ot_pools_bound(ot_estimator *e, const ot_candidate *c, const ot_candidate *priced,
                         double scale, double *seconds) {
  const ot_prices *works[OT_MAX_POOLS] = {NULL};
  OT_TRY(find_works(e, priced, works));
  if (priced->micro_batch_size == c->micro_batch_size && priced->recompute == c->recompute &&
      priced->modules == c->modules && priced->cp == c->cp) {
    if (c->crosses == OT_CROSSES_DP) return replicas_s(e, c, works, seconds);
    *seconds = stages_s(e, c, works);
    return OT_OK;
  }
  *seconds = scale * divided_s(e, c, works);
  return OT_OK;
}
