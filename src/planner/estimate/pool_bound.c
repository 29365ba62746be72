// SPDX-License-Identifier: Apache-2.0
// Lower bounds of a step where an axis crosses pools, by the work of its blocks.
#include "base/extremes.h"
#include "describe/pipeline_rules.h"
#include "estimate/crossing_estimate.h"
#include "estimate/pools.h"

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
  for (int i = 0; i < e->pools->num; i++) {
    groups += ot_cluster_pool_devices(e->job.cluster, i) / (slowness(works, i) * c->tp * c->cp);
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
  for (int i = 0; i < e->pools->num; i++) share = ot_smaller(share, waited_share(works[i], c));
  for (int i = 0; i < e->pools->num; i++) {
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
  for (int i = 0; i < e->pools->num; i++) {
    const double m = (double)micro_batches[i], share = waited_share(works[i], c);
    double power = 1, weights = 0;
    for (int r = 0; r < c->pp; r++, power *= 1 - share / m) weights += power;
    *seconds = ot_larger(*seconds, filled_s(sum_of_blocks(works[i]), m, weights));
  }
  return OT_OK;
}

ot_status ot_crossing_bound(ot_estimator *e, const ot_candidate *c, const ot_candidate *priced,
                            double scale, double *seconds) {
  const ot_prices *works[OT_MAX_POOLS] = {NULL};
  OT_TRY(ot_pools_find_works(e->pools, priced, works));
  if (priced->micro_batch_size == c->micro_batch_size && priced->recompute == c->recompute &&
      priced->modules == c->modules && priced->cp == c->cp) {
    if (c->crosses == OT_CROSSES_DP) return replicas_s(e, c, works, seconds);
    *seconds = stages_s(e, c, works);
    return OT_OK;
  }
  *seconds = scale * divided_s(e, c, works);
  return OT_OK;
}
