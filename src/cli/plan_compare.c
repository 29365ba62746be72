// SPDX-License-Identifier: Apache-2.0
// Of each file only the parallel configuration is taken; the rest has to be that of the job, since
// a difference of steps would otherwise mix two jobs.
#include "cli/plan_compare.h"

#include "base/text.h"
#include "cli/installed.h"
#include "files/disk.h"
#include "files/tree_file.h"
#include "import/import.h"

typedef struct comparer {
  const char *path;
  ot_presets presets;
  ot_plan_request *request;
  ot_arena *arena;
} comparer;

// What a file says of its job; 0: nothing.
static ot_status check_same(const comparer *c, const char *what, int64_t theirs, int64_t ours) {
  OT_CHECK(theirs == 0 || theirs == ours, OT_USAGE,
           "--compare %s: %s %lld, but the job has %lld (give the job those of the file)", c->path,
           what, (long long)theirs, (long long)ours);
  return OT_OK;
}

static ot_status check_model(const comparer *c, const ot_model *model) {
  const ot_model *const ours = c->request->job.model;
  OT_TRY(check_same(c, "layers", model->num_layers, ours->num_layers));
  OT_TRY(check_same(c, "hidden size", model->hidden_size, ours->hidden_size));
  OT_TRY(check_same(c, "heads", model->num_heads, ours->num_heads));
  OT_TRY(check_same(c, "experts", model->moe.num_experts, ours->moe.num_experts));
  return check_same(c, "vocabulary", model->vocab_size, ours->vocab_size);
}

// Micro-batches and dp follow from the job.
static ot_status complete(const comparer *c, ot_candidate *out) {
  const ot_job *const job = &c->request->job;
  const int64_t fixed = (int64_t)out->tp * out->pp * out->cp;
  OT_CHECK(fixed >= 1 && job->devices % fixed == 0, OT_USAGE,
           "--compare %s: tp=%d x pp=%d x cp=%d do not divide %d devices", c->path, out->tp,
           out->pp, out->cp, job->devices);
  const int replicas = out->dp_shard;  // so far
  out->dp = (int)(job->devices / fixed);
  OT_CHECK(replicas >= 1 && out->dp % replicas == 0, OT_USAGE,
           "--compare %s: %d replicas do not divide dp=%d", c->path, replicas, out->dp);
  out->dp_shard = out->dp / replicas;
  out->micro_batches = ot_candidate_micro_batches(job, out);
  const ot_status status = ot_candidate_check(job, out);
  if (status != OT_USAGE) return status;
  const char *const why = ot_arena_format(c->arena, "%s", ot_fail_message());
  return ot_fail(OT_USAGE, "--compare %s: %s", c->path, why);
}

static int or_one(int degree) { return degree > 0 ? degree : 1; }

// ---- RUN.yaml ----

static ot_status read_run(const comparer *c, ot_candidate *out) {
  ot_config config;
  const ot_config_request request = {.path = c->path, .presets = c->presets};
  OT_TRY(ot_config_load(&request, c->arena, &config));
  const ot_run *const run = &config.run;
  const ot_run_parallel *const p = &run->parallel;
  const ot_job *const job = &c->request->job;
  OT_TRY(check_model(c, &run->model));
  OT_TRY(check_same(c, "sequence length", run->data.sequence_length, job->sequence_length));
  OT_TRY(check_same(c, "global batch", run->batch.global_batch_size, job->global_batch_size));
  for (int i = 0; i < (int)job->model->num_layers; i++) {
    OT_CHECK(ot_run_recompute(run, i) == ot_run_recompute(run, 0), OT_USAGE,
             "--compare %s: recompute differs from layer to layer (try orthant simulate)", c->path);
  }
  *out = (ot_candidate){.tp = p->tp,
                        .pp = p->pp,
                        .vpp = p->vpp,
                        .cp = p->cp,
                        .ep = p->ep,
                        .etp = p->etp,
                        .dp_shard = p->dp_replicate,
                        .zero = p->zero,
                        .micro_batch_size = run->batch.micro_batch_size,
                        .pipeline = p->pipeline,
                        .recompute = ot_run_recompute(run, 0)};
  return OT_OK;
}

// ---- other software ----

static ot_status read_import(const comparer *c, ot_candidate *out) {
  ot_imported i;
  const ot_job *const job = &c->request->job;
  OT_TRY(ot_import_read(c->path, &c->presets, c->arena, &i));
  if (i.has_model) OT_TRY(check_model(c, &i.model));
  OT_TRY(check_same(c, "sequence length", i.sequence_length, job->sequence_length));
  OT_TRY(check_same(c, "global batch", i.global_batch_size, job->global_batch_size));
  const bool orthant = job->engine == &ot_engine_orthant;
  *out = (ot_candidate){.tp = or_one(i.tp),
                        .pp = or_one(i.pp),
                        .vpp = or_one(i.vpp),
                        .cp = or_one(i.cp),
                        .ep = or_one(i.ep),
                        .etp = job->model->moe.num_experts > 0 ? or_one(i.etp) : 1,
                        .dp_shard = or_one(i.dp_replicate),
                        .zero = i.zero,
                        .micro_batch_size = i.micro_batch_size,
                        .pipeline = i.pipeline,
                        .recompute = i.recompute,
                        .no_sequence_parallel = i.no_sequence_parallel && !orthant};
  return OT_OK;
}

// A map with the section `parallel` or `batch` is a RUN.yaml.
static bool is_run(const comparer *c) {
  ot_node *tree;
  if (ot_text_ends_with(c->path, ".sh") || ot_text_ends_with(c->path, ".toml")) return false;
  if (ot_tree_load(c->path, c->arena, &tree) != OT_OK) return false;
  return ot_node_child(tree, "parallel") || ot_node_child(tree, "batch");
}

ot_status ot_plan_compare_read(const ot_options *options, ot_arena *arena,
                               ot_plan_request *request) {
  const int count = ot_options_count(options, "compare");
  comparer c = {.presets = ot_installed_presets(arena), .request = request, .arena = arena};
  request->compared = ot_arena_array(arena, count + 1, sizeof *request->compared);
  for (int i = 0; i < count; i++) {
    ot_plan_compared *const out = &request->compared[i];
    c.path = ot_options_values(options, "compare")[i];
    out->name = ot_disk_base_name(c.path);
    OT_TRY(is_run(&c) ? read_run(&c, &out->candidate) : read_import(&c, &out->candidate));
    OT_TRY(complete(&c, &out->candidate));
  }
  request->num_compared = count;
  return OT_OK;
}
