// SPDX-License-Identifier: Apache-2.0
// A job is complete and its fixed degrees are compatible; a candidate is valid if the rules of
// training (describe/parallel_check.h) allow the run that would train it.
#include "estimate/job_check.h"

#include "describe/pipeline_rules.h"
#include "estimate/crossing.h"
#include "estimate/framework.h"

// ---- a job ----

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
  OT_TRY(ot_crossing_check_given(job));
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

// ---- a candidate ----

static ot_status check_ranges(const ot_candidate *c) {
  OT_CHECK(c->tp >= 1 && c->pp >= 1 && c->vpp >= 1 && c->cp >= 1 && c->ep >= 1 && c->etp >= 1 &&
               c->dp >= 1 && c->micro_batch_size >= 1,
           OT_USAGE, "plan: a degree or micro_batch_size is below 1");
  OT_CHECK(c->zero >= 0 && c->zero <= 3, OT_USAGE, "plan: zero=%d; allowed: 0 to 3", c->zero);
  OT_CHECK(c->zero == 0 || (c->dp_shard >= 1 && c->dp % c->dp_shard == 0), OT_USAGE,
           "plan: dp_shard=%d does not divide dp=%d", c->dp_shard, c->dp);
  OT_CHECK((int)c->pipeline >= 0 && c->pipeline < OT_PIPELINES, OT_USAGE,
           "plan: unknown pipeline schedule %d", (int)c->pipeline);
  OT_CHECK((int)c->recompute >= 0 && c->recompute < OT_RECOMPUTES, OT_USAGE,
           "plan: unknown recompute %d", (int)c->recompute);
  return OT_OK;
}

static ot_status check_batch(const ot_job *job, const ot_candidate *c) {
  const int64_t whole = ot_candidate_micro_batches(job, c);
  OT_CHECK(whole > 0, OT_USAGE,
           "plan: global_batch_size=%lld is not a multiple of micro_batch_size=%lld x dp=%d",
           (long long)job->global_batch_size, (long long)c->micro_batch_size, c->dp);
  OT_CHECK(c->micro_batches == whole, OT_USAGE, "plan: micro_batches=%lld; allowed: %lld",
           (long long)c->micro_batches, (long long)whole);
  const int chunks = ot_pipeline_chunks(c->pipeline, c->pp, c->vpp);
  OT_CHECK(whole <= OT_MOST_PASSES / chunks, OT_USAGE,
           "plan: micro_batches=%lld x chunks=%d; a plan follows at most %d: larger micro-batches, "
           "fewer chunks or more devices need fewer",
           (long long)whole, chunks, OT_MOST_PASSES);
  return OT_OK;
}

ot_status ot_candidate_check(const ot_job *job, const ot_candidate *candidate) {
  OT_TRY(check_ranges(candidate));
  const int64_t devices = (int64_t)candidate->tp * candidate->pp * candidate->cp * candidate->dp;
  OT_CHECK(devices == job->devices, OT_USAGE,
           "plan: tp=%d x pp=%d x cp=%d x dp=%d is not %d devices", candidate->tp, candidate->pp,
           candidate->cp, candidate->dp, job->devices);
  OT_TRY(check_batch(job, candidate));
  OT_TRY(ot_crossing_check(job, candidate));
  ot_run_lists lists;
  ot_run run;
  ot_candidate_run(job, candidate, &lists, &run);
  // The rules are those of a run whose replicas all have the mean number of micro-batches.
  if (candidate->crosses == OT_CROSSES_DP) {
    run.batch.global_batch_size =
        candidate->micro_batches * candidate->micro_batch_size * candidate->dp;
  }
  return ot_framework_of(job->engine)->check_run(job, candidate, &run);
}
