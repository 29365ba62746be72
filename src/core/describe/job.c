// SPDX-License-Identifier: Apache-2.0
// Values that follow from those of a job.
#include "describe/job.h"

bool ot_job_has_teacher(const ot_job *job) {
  return job->teacher != NULL && ot_run_has_live_teacher(job->run);
}

int ot_job_all_devices(const ot_job *job) { return job->devices + ot_run_teacher_ranks(job->run); }

int64_t ot_candidate_micro_batches(const ot_job *job, const ot_candidate *candidate) {
  const int64_t round = candidate->micro_batch_size * candidate->dp;
  if (round > 0 && candidate->crosses == OT_CROSSES_DP) {
    const int64_t all = job->global_batch_size / candidate->micro_batch_size;
    const bool whole = job->global_batch_size % candidate->micro_batch_size == 0;
    return whole && all >= candidate->dp ? (all + candidate->dp - 1) / candidate->dp : 0;
  }
  if (round <= 0 || job->global_batch_size % round != 0) return 0;
  return job->global_batch_size / round;
}

int ot_job_moments(const ot_job *job) { return ot_run_moments(job->run, true); }
