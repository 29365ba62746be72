// SPDX-License-Identifier: Apache-2.0
// Tries each number of devices separately, smallest first; leaves out those that cannot run.
#include "advise/scaling_curve.h"

#include "estimate/job_check.h"

enum { DEVICES_MAX = 1 << 22, PASSES_MAX = 1 << 14 };

// Sets data parallelism of `candidate` to `dp`; false if that is impossible.
static bool stretch(const ot_job *job, const ot_candidate *candidate, int64_t dp,
                    ot_candidate *out) {
  *out = *candidate;
  out->dp = (int)dp;
  const bool whole = candidate->dp_shard >= candidate->dp || dp % candidate->dp_shard != 0;
  if (whole) out->dp_shard = (int)dp;
  if (candidate->zero == 0) out->dp_shard = 1;
  while (out->micro_batch_size > 1 && job->global_batch_size % (dp * out->micro_batch_size) != 0) {
    out->micro_batch_size--;
  }
  out->micro_batches = ot_candidate_micro_batches(job, out);
  const int64_t passes = (int64_t)out->pp * out->vpp * out->micro_batches;
  if (out->micro_batches == 0 || (passes > PASSES_MAX && dp < candidate->dp)) return false;
  if (ot_candidate_check(job, out) == OT_OK) return true;
  out->pipeline = OT_PIPELINE_1F1B;
  out->vpp = 1;
  return ot_candidate_check(job, out) == OT_OK;
}

static ot_status add_point(const ot_job *job, const ot_candidate *candidate, int64_t dp,
                           ot_arena *scratch, ot_scaling *out) {
  const int64_t devices = (int64_t)candidate->tp * candidate->pp * candidate->cp * dp;
  if (devices > DEVICES_MAX || out->num == OT_SCALING_POINTS) return OT_OK;
  ot_cluster *const cluster = ot_arena_array(scratch, 1, sizeof *cluster);
  if (ot_cluster_resize(job->cluster, (int)devices, cluster) != OT_OK) return OT_OK;
  ot_job *const stretched = ot_arena_array(scratch, 1, sizeof *stretched);
  *stretched = *job;
  stretched->cluster = cluster;
  stretched->devices = (int)devices;
  ot_candidate c;
  if (!stretch(stretched, candidate, dp, &c)) return OT_OK;
  ot_estimator *estimator;
  OT_TRY(ot_estimator_build(stretched, scratch, &estimator));
  OT_TRY(ot_estimate_build(estimator, &c, &out->estimate[out->num]));
  out->devices[out->num++] = (int)devices;
  return OT_OK;
}

ot_status ot_scaling_build(const ot_job *job, const ot_candidate *candidate, ot_arena_pool *scratch,
                           ot_scaling *out) {
  out->num = 0;
  int64_t dp = candidate->dp;
  while (dp % 2 == 0) dp /= 2;
  for (; dp <= job->global_batch_size; dp *= 2) {
    ot_arena arena = ot_arena_pool_begin(scratch);
    OT_TRY(add_point(job, candidate, dp, &arena, out));
  }
  return OT_OK;
}
