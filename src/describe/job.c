// SPDX-License-Identifier: Apache-2.0
// Checks that a job is complete and that its fixed degrees are compatible.
#include "describe/job.h"

#include "estimate/framework.h"

static ot_status check_recipe(const ot_recipe *recipe) {
  OT_CHECK(recipe->name != NULL, OT_USAGE, "plan: the job has no precision recipe");
  OT_CHECK(recipe->weight_bytes > 0 && recipe->gradient_bytes >= 0 && recipe->master_bytes >= 0 &&
               recipe->moment_bytes >= 0 && recipe->gather_bytes > 0 && recipe->reduce_bytes > 0 &&
               recipe->activation_bytes > 0,
           OT_USAGE,
           "plan: recipe %s: negative bytes, or no bytes for weights, activations or messages",
           recipe->name);
  return OT_OK;
}

static ot_status check_degree(const char *name, int64_t value, int64_t devices) {
  OT_CHECK(value >= 0 && value <= devices, OT_USAGE, "plan: %s=%lld; allowed: 0 (searched) to %lld",
           name, (long long)value, (long long)devices);
  OT_CHECK(value == 0 || devices % value == 0, OT_USAGE,
           "plan: %s=%lld does not divide the %lld devices", name, (long long)value,
           (long long)devices);
  return OT_OK;
}

static int64_t or_one(int64_t degree) { return degree > 0 ? degree : 1; }

// The product of the fixed degrees must divide the devices.
static ot_status check_given(const ot_job *job) {
  const ot_candidate *const g = &job->given;
  OT_TRY(check_degree("tp", g->tp, job->devices));
  OT_TRY(check_degree("pp", g->pp, job->devices));
  OT_TRY(check_degree("cp", g->cp, job->devices));
  OT_TRY(check_degree("dp", g->dp, job->devices));
  const int64_t fixed = or_one(g->tp) * or_one(g->pp) * or_one(g->cp) * or_one(g->dp);
  const bool all = g->tp > 0 && g->pp > 0 && g->cp > 0 && g->dp > 0;
  OT_CHECK(all ? fixed == job->devices : job->devices % fixed == 0, OT_USAGE,
           "plan: tp=%lld x pp=%lld x cp=%lld x dp=%lld do not make %d devices",
           (long long)or_one(g->tp), (long long)or_one(g->pp), (long long)or_one(g->cp),
           (long long)or_one(g->dp), job->devices);
  OT_CHECK(g->zero >= -1 && g->zero <= 3, OT_USAGE, "plan: zero=%d; allowed: 0 to 3", g->zero);
  OT_CHECK(g->micro_batch_size >= 0 && g->micro_batch_size <= job->global_batch_size, OT_USAGE,
           "plan: micro_batch_size=%lld; allowed: 1 to global_batch_size=%lld",
           (long long)g->micro_batch_size, (long long)job->global_batch_size);
  OT_CHECK(!g->crosses || job->cluster->num_pools > 0, OT_USAGE,
           "plan: crosses=%s, but cluster %s has no pools", ot_crossing_names[g->crosses],
           job->cluster->name);
  OT_CHECK(g->vpp >= 0 && g->ep >= 0 && g->etp >= 0 && g->dp_shard >= 0, OT_USAGE,
           "plan: vpp, ep, etp and dp_shard must not be negative");
  return OT_OK;
}

ot_status ot_job_check(const ot_job *job) {
  OT_CHECK(job->model && job->cluster && job->engine, OT_USAGE,
           "plan: a job needs a model, a cluster and an engine");
  OT_TRY(ot_model_check(job->model));
  OT_TRY(ot_cluster_check(job->cluster));
  OT_TRY(ot_engine_check(job->engine));
  OT_TRY(check_recipe(&job->recipe));
  OT_CHECK(job->devices >= 1 && ot_job_all_devices(job) <= job->cluster->num_devices, OT_USAGE,
           "plan: %d devices; cluster %s has %d", ot_job_all_devices(job), job->cluster->name,
           job->cluster->num_devices);
  OT_CHECK(job->global_batch_size >= 1, OT_USAGE,
           "plan: global_batch_size=%lld; allowed: at least 1", (long long)job->global_batch_size);
  OT_CHECK(job->sequence_length >= 1, OT_USAGE, "plan: sequence_length=%lld; allowed: at least 1",
           (long long)job->sequence_length);
  OT_CHECK(job->tokens >= 0, OT_USAGE, "plan: tokens=%g; allowed: 0 (unknown) or more",
           job->tokens);
  OT_CHECK(job->expert_imbalance == 0 || job->expert_imbalance >= 1, OT_USAGE,
           "plan: expert_imbalance=%g; allowed: 1 (even) or more", job->expert_imbalance);
  OT_CHECK(job->memory_margin >= 0 && job->memory_margin <= 1, OT_USAGE,
           "plan: memory_margin=%g; allowed: 0 to 1", job->memory_margin);
  OT_TRY(ot_framework_of(job->engine)->check_job(job));
  return check_given(job);
}

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
