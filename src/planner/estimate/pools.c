// SPDX-License-Identifier: Apache-2.0
// Estimators of all pools: each sees the cluster as the ranks of its pool do.
#include "estimate/pools.h"

#include "base/extremes.h"
#include "estimate/crossing_estimate.h"
#include "estimate/estimate.h"
#include "estimate/job_check.h"
#include "estimate/part_estimate.h"

ot_status ot_estimator_build(const ot_job *job, ot_arena *arena, ot_estimator **out) {
  OT_TRY(ot_job_check(job));
  ot_pools *const pools = ot_arena_array(arena, 1, sizeof *pools);
  pools->num = ot_cluster_pools(job->cluster);
  for (int i = 0; i < pools->num; i++) {
    ot_cluster seen;
    ot_cluster_pool(job->cluster, i, &seen);
    OT_TRY(ot_estimator_create(job, &seen, arena, &pools->estimator[i]));
    pools->estimator[i]->pools = pools;
    pools->estimator[i]->pool = i;
  }
  *out = pools->estimator[0];
  return OT_OK;
}

// ---- groups of ranks ----

int ot_crossing_near(const ot_estimator *e, const ot_candidate *c, const int *ranks, int size) {
  const int of_stage = c->tp * c->cp * c->dp;
  const int replicas = c->tp * c->cp * ot_pool_replicas(&e->job, c, e->pool);
  const int stages = ot_pool_stages(&e->job, c, e->pool);
  int count = 0;
  for (int i = 0; i < size && c->crosses; i++) {
    count += ranks[i] / of_stage < stages && ranks[i] % of_stage < replicas;
  }
  return count;
}

ot_group_shape ot_crossing_shape(const ot_estimator *e, const ot_candidate *c,
                                 ot_group_shape shape) {
  const int apart = c->tp * c->cp * ot_pool_replicas(&e->job, c, e->pool);
  if (c->crosses != OT_CROSSES_DP || shape.size <= 1) return shape;
  const int reach = (apart - shape.first % apart + shape.stride - 1) / shape.stride;
  shape.near = (int)ot_smaller_whole(reach, shape.size);
  return shape;
}

// ---- rates ----

double ot_pool_block_s(const ot_prices *prices, int kind) {
  double s = 0;
  for (int w = 0; w < OT_WORKS; w++) s += prices->kind[kind].work[w][1].total_s;
  return s;
}

double ot_pool_model_s(const ot_prices *prices) {
  double s = 0;
  for (int i = 0; i < prices->blocks->num_blocks; i++) {
    s += ot_pool_block_s(prices, prices->blocks->kind_of[i]);
  }
  return s;
}

ot_status ot_pools_find_works(const ot_pools *pools, const ot_candidate *c, const ot_prices **out) {
  for (int i = 0; i < pools->num; i++) {
    OT_TRY(ot_work_prices_find(pools->estimator[i], c, &out[i]));
  }
  return OT_OK;
}

// ---- parts and places ----

ot_status ot_crossing_parts(ot_estimator *e, const ot_candidate *c, ot_replay_part *out,
                            int *num_parts) {
  int64_t micro_batches[OT_MAX_POOLS];
  *num_parts = 1;
  out[0] = (ot_replay_part){e, *c};
  if (c->crosses != OT_CROSSES_DP) return OT_OK;
  OT_TRY(ot_pool_micro_batches(e, c, micro_batches));
  *num_parts = e->pools->num;
  for (int i = 0; i < e->pools->num; i++) {
    out[i] = (ot_replay_part){e->pools->estimator[i], *c};
    out[i].candidate.micro_batches = micro_batches[i];
  }
  return OT_OK;
}

ot_status ot_crossing_places(ot_replay_request *r, bool works, ot_arena *arena) {
  const ot_pools *const pools = r->estimator->pools;
  const ot_candidate *const c = r->candidate;
  if (c->crosses == OT_CROSSES_NOTHING) return OT_OK;
  ot_stage_place *const places = ot_arena_array(arena, c->pp, sizeof *places);
  int stage = 0;
  for (int pool = 0; stage < c->pp; pool++) {
    ot_estimator *const e =
        pools->estimator[c->crosses == OT_CROSSES_PP ? pool : r->estimator->pool];
    const int ranks = c->tp * c->cp * ot_pool_replicas(&e->job, c, e->pool);
    const ot_prices *prices = NULL;
    ot_prices *whole = NULL;
    if (works) OT_TRY(ot_work_prices_find(e, c, &prices));
    if (!works) OT_TRY(ot_prices_find(e, c, &whole));
    for (int i = 0; i < ot_pool_stages(&e->job, c, pool); i++) {
      places[stage++] = (ot_stage_place){e, works ? prices : whole, i * ranks};
    }
  }
  r->places = places;
  return OT_OK;
}

void ot_crossing_report(const ot_part_estimate *parts, ot_estimate *out) {
  const ot_estimator *const e = parts->part.estimator;
  const ot_candidate *const c = &out->candidate;
  const bool apart = c->crosses == OT_CROSSES_DP;
  int stage = 0;
  for (int i = 0; i < e->pools->num && c->crosses; i++) {
    const ot_part_estimate *const p = apart ? &parts[i] : parts;
    const int first = apart ? 0 : stage;
    ot_pool_estimate *const pool = &out->pools[i];
    *pool = (ot_pool_estimate){.stages = ot_pool_stages(&e->job, c, i),
                               .replicas = ot_pool_replicas(&e->job, c, i),
                               .micro_batches = p->part.candidate.micro_batches,
                               .memory = p->memory[first]};
    for (int r = first; r < first + pool->stages; r++) {
      pool->layers += p->request.cut->shares[r].layers;
      if (ot_memory_is_fuller(&p->memory[r], &pool->memory)) pool->memory = p->memory[r];
    }
    stage += pool->stages;
  }
}

// ---- all devices ----

static double peak_of(const ot_estimator *e) {
  const ot_device_kind *const device = &e->cluster.device;
  const double peak = device->flops[e->job.recipe.products];
  return peak > 0 ? peak : device->flops[OT_F32];
}

double ot_crossing_peak_flops(const ot_estimator *e) {
  const int num = e->pools->num;
  double sum = 0;
  if (num == 1) return peak_of(e) * ot_job_all_devices(&e->job);
  for (int i = 0; i < num; i++) {
    sum += peak_of(e->pools->estimator[i]) * ot_cluster_pool_devices(e->job.cluster, i);
  }
  return sum;
}

bool ot_crossing_has_room(const ot_estimator *e, int64_t reserved) {
  for (int i = 0; i < e->pools->num; i++) {
    const ot_estimator *const pool = e->pools->estimator[i];
    const int64_t context = ot_engine_context_bytes(e->job.engine, &pool->cluster.device);
    if (reserved + context <= ot_estimator_memory(pool)) return true;
  }
  return false;
}

double ot_crossing_step_s(const ot_estimator *e, double work_s) {
  double least_s = 1e300;
  for (int i = 0; i < e->pools->num; i++) {
    const ot_simulation *const pool = &e->pools->estimator[i]->simulation;
    least_s = ot_smaller(least_s, ot_price_step_s(pool, e->job.devices, work_s));
  }
  return least_s;
}
