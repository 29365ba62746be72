// SPDX-License-Identifier: Apache-2.0
// Which ranks of a candidate are in which pool, and whether they can be.
#include "estimate/crossing.h"

#include "estimate/pools.h"

static const ot_crossing axes[OT_MOST_CROSSINGS] = {OT_CROSSES_PP, OT_CROSSES_DP};

int ot_crossings_list(const ot_job *job, ot_crossing *out) {
  const ot_crossing given = job->given.crosses;
  int num = 0;
  if (!ot_cluster_is_mixed(job->cluster)) {
    out[0] = OT_CROSSES_NOTHING;
    return 1;
  }
  for (int i = 0; i < OT_COUNT(axes); i++) {
    if (given == OT_CROSSES_NOTHING || given == axes[i]) out[num++] = axes[i];
  }
  return num;
}

ot_status ot_crossing_check_given(const ot_job *job) {
  const ot_crossing crosses = job->given.crosses;
  OT_CHECK(!crosses || ot_cluster_is_mixed(job->cluster), OT_USAGE,
           "plan: crosses=%s, but cluster %s has no pools", ot_crossing_names[crosses],
           job->cluster->name);
  return OT_OK;
}

// ---- which ranks ----

static int devices_of(const ot_job *job, int pool) {
  return ot_cluster_pool_devices(job->cluster, pool);
}

int ot_pool_stages(const ot_job *job, const ot_candidate *c, int pool) {
  return c->crosses == OT_CROSSES_PP ? devices_of(job, pool) / (c->tp * c->cp * c->dp) : c->pp;
}

int ot_pool_replicas(const ot_job *job, const ot_candidate *c, int pool) {
  return c->crosses == OT_CROSSES_DP ? devices_of(job, pool) / (c->tp * c->cp * c->pp) : c->dp;
}

static ot_status check_whole(const ot_job *job, const char *part, int ranks) {
  for (int i = 0; i < job->cluster->num_pools; i++) {
    OT_CHECK(devices_of(job, i) % ranks == 0, OT_USAGE,
             "plan: %s of %d devices do not fill pool %s of %d", part, ranks,
             job->cluster->pools[i].name, devices_of(job, i));
  }
  return OT_OK;
}

// Replicas of different pools may have different numbers of micro-batches, so what is exchanged in
// each of them stays in one pool.
static ot_status check_replicas(const ot_job *job, const ot_candidate *c) {
  OT_TRY(check_whole(job, "replicas", c->tp * c->cp * c->pp));
  const int shard = c->zero > 0 ? c->dp_shard : 1;
  for (int i = 0; i < job->cluster->num_pools; i++) {
    const int replicas = ot_pool_replicas(job, c, i);
    const char *const name = job->cluster->pools[i].name;
    OT_CHECK(replicas * c->tp * c->cp % (c->ep * c->etp) == 0, OT_USAGE,
             "plan: ep=%d crosses pools: the %d replicas in pool %s are not whole groups of it",
             c->ep, replicas, name);
    OT_CHECK(replicas % shard == 0 || (shard == c->dp && c->zero == 1), OT_USAGE,
             "plan: zero %d over dp_shard=%d crosses pools: it does not divide the %d replicas in "
             "pool %s",
             c->zero, shard, replicas, name);
  }
  return OT_OK;
}

ot_status ot_crossing_check(const ot_job *job, const ot_candidate *c) {
  switch (c->crosses) {
    case OT_CROSSES_PP:
      return check_whole(job, "stages", c->tp * c->cp * c->dp);
    case OT_CROSSES_DP:
      return check_replicas(job, c);
    case OT_CROSSES_NOTHING:
      OT_CHECK(!ot_cluster_is_mixed(job->cluster), OT_USAGE,
               "plan: neither pp nor dp crosses the pools of cluster %s", job->cluster->name);
      return OT_OK;
  }
  OT_UNREACHABLE();
}

void ot_candidate_cross(const ot_job *job, ot_candidate *candidate) {
  if (ot_crossing_check(job, candidate) == OT_OK) return;
  for (int i = 0; i < OT_COUNT(axes) && ot_cluster_is_mixed(job->cluster); i++) {
    candidate->crosses = axes[i];
    if (ot_crossing_check(job, candidate) == OT_OK) return;
  }
}
