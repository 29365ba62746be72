// SPDX-License-Identifier: Apache-2.0
// Where replicas are in different pools, micro-batches are divided by the time that one takes.
#include "base/extremes.h"
#include "estimate/pools.h"

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

ot_status ot_pool_micro_batches(const ot_estimator *e, const ot_candidate *c, int64_t *out) {
  const ot_prices *works[OT_MAX_POOLS] = {NULL};
  const int64_t all = e->job.global_batch_size / c->micro_batch_size;
  const int num = e->pools->num;
  shares s = {.num_pools = num, .fill = c->pp - 1, .least_s = 1e300};
  OT_TRY(ot_pools_find_works(e->pools, c, works));
  for (int i = 0; i < num; i++) {
    s.replicas[i] = ot_pool_replicas(&e->job, c, i);
    s.seconds[i] = ot_pool_model_s(works[i]) / c->pp;
  }
  divide(&s, 0, all, 0);
  OT_CHECK(s.best[0] > 0, OT_USAGE,
           "plan: %lld micro-batches of %lld cannot be divided over the replicas of the pools",
           (long long)all, (long long)c->micro_batch_size);
  for (int i = 0; i < num; i++) out[i] = s.best[i];
  return OT_OK;
}
