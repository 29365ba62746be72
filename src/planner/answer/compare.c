// SPDX-License-Identifier: Apache-2.0
// Each file gives a parallel configuration and settings of the step; model, batch and sequence
// length must be those of the job, since a difference of steps would otherwise mix two causes.
#include "answer/question.h"
#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "estimate/crossing.h"
#include "estimate/job_check.h"
#include "pipeline/stage_layout.h"

typedef struct comparer {
  const char *name;  // of the file, for messages
  ot_plan_request *request;
  ot_arena *arena;
} comparer;

// `theirs`: the value in a file; 0: the file has none.
static ot_status check_same(const comparer *c, const char *what, int64_t theirs, int64_t ours) {
  OT_CHECK(theirs == 0 || theirs == ours, OT_USAGE,
           "--compare %s: %s %lld, but the job has %lld (give the job those of the file)", c->name,
           what, (long long)theirs, (long long)ours);
  return OT_OK;
}

static ot_status check_model(const comparer *c, const ot_model *model) {
  const ot_model *const ours = c->request->job.model;
  OT_TRY(check_same(c, "layers", model->num_layers, ours->num_layers));
  OT_TRY(check_same(c, "hidden size", model->hidden_size, ours->hidden_size));
  OT_TRY(check_same(c, "heads", model->num_heads, ours->num_heads));
  OT_TRY(check_same(c, "experts", model->moe.num_experts, ours->moe.num_experts));
  const int64_t theirs = model->vocab_size;
  if (theirs == 0 || theirs == ours->vocab_size) return OT_OK;
  ot_fail(OT_USAGE, "--compare %s: vocabulary %lld, but the job has %lld", c->name,
          (long long)theirs, (long long)ours->vocab_size);
  return ot_fail_hint(OT_USAGE, "--set model.vocab_size=%lld gives the job that of the file",
                      (long long)theirs);
}

static ot_status complete(const comparer *c, ot_candidate *out) {
  ot_job job = c->request->job;
  job.devices = out->tp * out->pp * out->cp * out->dp;
  ot_candidate_cross(&job, out);
  out->micro_batches = ot_candidate_micro_batches(&job, out);
  const ot_status status = ot_candidate_check(&job, out);
  if (status != OT_USAGE) return status;
  const char *const why = ot_arena_format(c->arena, "%s", ot_fail_message());
  return ot_fail(OT_USAGE, "--compare %s: %s", c->name, why);
}

// ---- RUN.yaml ----

// Whether its step is one that candidates have: by degrees, one recompute, and layers by layout.
static ot_status check_step(const comparer *c, const ot_run *run) {
  const ot_run_parallel *const p = &run->parallel;
  const bool sharded = p->zero >= 2;
  for (int i = 0; i < (int)run->model.num_layers; i++) {
    OT_CHECK(ot_run_recompute(p, i) == ot_run_recompute(p, 0), OT_USAGE,
             "--compare %s: recompute differs from layer to layer (try orthant simulate)", c->name);
  }
  OT_CHECK(p->order_csv[0] == '\0', OT_USAGE,
           "--compare %s: parallel.order_csv is no schedule of plans (try orthant simulate)",
           c->name);
  OT_CHECK((p->accumulate == OT_ACCUMULATE_SHARDED) == sharded, OT_USAGE,
           "--compare %s: plans accumulate %s with zero %d (try orthant simulate)", c->name,
           sharded ? "sharded" : "whole", p->zero);
  return OT_OK;
}

// parallel.layout as layers of each chunk.
static ot_status read_layout(const comparer *c, const ot_run *run, ot_plan_compared *out) {
  const ot_run_parallel *const p = &run->parallel;
  const int chunks = p->pp * ot_pipeline_chunks(p->pipeline, p->pp, p->vpp);
  const int layers = (int)run->model.num_layers;
  if (p->layout[0] == '\0' || p->pp == 1) return OT_OK;
  int *const first = ot_arena_array(c->arena, chunks + 1, sizeof *first);
  int *const count = ot_arena_array(c->arena, chunks, sizeof *count);
  OT_TRY(ot_stage_layout_read(p->layout, layers, chunks, first));
  OT_CHECK(first[1] > 0 && first[chunks - 1] <= layers + 1, OT_USAGE,
           "--compare %s: parallel.layout %s has an empty chunk", c->name, p->layout);
  for (int i = 0; i < chunks; i++) {
    count[i] = first[i + 1] - first[i] - (i == 0) - (i + 1 == chunks);
  }
  out->layers = count;
  out->num_chunks = chunks;
  return OT_OK;
}

static ot_status read_run(const comparer *c, const ot_run *run, ot_plan_compared *out) {
  const ot_run_parallel *const p = &run->parallel;
  const ot_job *const job = &c->request->job;
  const int fixed = p->tp * p->pp * p->cp;
  const int devices = ot_job_all_devices(job) - ot_run_teacher_ranks(run);
  OT_TRY(check_model(c, &run->model));
  OT_TRY(check_same(c, "sequence length", run->data.sequence_length, job->sequence_length));
  OT_TRY(check_same(c, "global batch", run->batch.global_batch_size, job->global_batch_size));
  OT_TRY(check_step(c, run));
  OT_TRY(read_layout(c, run, out));
  OT_CHECK(devices > 0 && devices % fixed == 0, OT_USAGE,
           "--compare %s: tp=%d x pp=%d x cp=%d do not divide %d devices", c->name, p->tp, p->pp,
           p->cp, devices);
  const int dp = devices / fixed;
  OT_CHECK(dp % p->dp_replicate == 0, OT_USAGE, "--compare %s: %d replicas do not divide dp=%d",
           c->name, p->dp_replicate, dp);
  if (job->engine == &ot_engine_orthant) out->run = run;
  out->candidate = (ot_candidate){.tp = p->tp,
                                  .pp = p->pp,
                                  .vpp = p->vpp,
                                  .cp = p->cp,
                                  .ep = p->ep,
                                  .etp = p->etp,
                                  .dp = dp,
                                  .dp_shard = dp / p->dp_replicate,
                                  .zero = p->zero,
                                  .micro_batch_size = run->batch.micro_batch_size,
                                  .pipeline = p->pipeline,
                                  .recompute = ot_run_recompute(p, 0),
                                  .modules = ot_run_modules(p)};
  return OT_OK;
}

// ---- other software ----

static ot_status read_import(const comparer *c, ot_imported *i, ot_plan_compared *out) {
  const ot_job *const job = &c->request->job;
  if (i->has_model) OT_TRY(check_model(c, &i->model));
  if (ot_imported_fit(i, job->devices) != OT_OK) {
    const char *const why = ot_arena_format(c->arena, "%s", ot_fail_message());
    return ot_fail(OT_USAGE, "--compare %s: %s", c->name, why);
  }
  OT_TRY(check_same(c, "sequence length", i->sequence_length, job->sequence_length));
  OT_TRY(check_same(c, "global batch", i->global_batch_size, job->global_batch_size));
  ot_plan_take_import(i, c->request, out);
  return OT_OK;
}

// The switches of the file, if the job is planned for its software.
static void read_switches(const comparer *c, const ot_imported *i, const ot_engine *engine,
                          ot_plan_compared *out) {
  if (!ot_text_equal(c->request->job.engine->name, i->engine)) return;
  ot_engine *const switched = ot_arena_take(c->arena, sizeof *switched);
  *switched = *engine;
  ot_engine_apply(&i->options, switched);
  out->engine = switched;
}

// ---- the list ----

ot_status ot_plan_compare_run(ot_plan_request *request, const char *name, const ot_run *run,
                              ot_arena *arena) {
  const comparer c = {name, request, arena};
  ot_plan_compared *const out = &request->compared[request->num_compared];
  *out = (ot_plan_compared){0};
  OT_TRY(read_run(&c, run, out));
  request->num_compared++;
  return complete(&c, &out->candidate);
}

ot_status ot_plan_compare_import(ot_plan_request *request, const char *name, ot_imported *imported,
                                 const ot_engine *engine, ot_arena *arena) {
  const comparer c = {name, request, arena};
  ot_plan_compared *const out = &request->compared[request->num_compared];
  *out = (ot_plan_compared){0};
  OT_TRY(read_import(&c, imported, out));
  read_switches(&c, imported, engine, out);
  request->num_compared++;
  return complete(&c, &out->candidate);
}
