// SPDX-License-Identifier: Apache-2.0
// Options to job. Defaults follow from what was given, and each is said.
#include "cli/plan_request.h"

#include <limits.h>
#include <stdlib.h>

#include "base/text.h"
#include "cli/installed.h"
#include "plan/figures.h"
#include "plan/limits.h"
#include "train/cluster_file.h"

// Hoffmann et al. 2022 (arXiv 2203.15556), table 3: about twenty tokens for each parameter.
static const double tokens_per_parameter = 20;

typedef struct reader {
  const ot_options *options;
  ot_arena *arena;
  ot_presets presets;
  ot_plan_request *out;
} reader;

static void note(reader *r, const char *text) {
  OT_ASSERT(r->out->num_notes < OT_PLAN_NOTES);
  r->out->notes[r->out->num_notes++] = text;
}

// ---- cluster ----

// Accelerators are as many as wanted, over the outermost links; a machine that was measured with
// ranks as threads shares its cores among as many.
static ot_status resize(const ot_cluster *cluster, int devices, ot_cluster *out) {
  const int threads = cluster->device.threads;
  if (threads > 0) {
    const int each = cluster->num_devices * threads / devices;
    return ot_cluster_share(cluster, devices, each > 1 ? each : 1, out);
  }
  return ot_cluster_resize(cluster, devices, out);
}

static ot_status read_cluster(reader *r) {
  const char *const name = ot_options_text(r->options, "cluster");
  bool found;
  OT_TRY(ot_cluster_file_load(name, &r->presets, r->arena, &r->out->cluster, &found));
  if (!found) {
    ot_fail(OT_ENVIRONMENT, "this machine was never measured (--cluster %s)", name);
    return ot_fail_hint(OT_ENVIRONMENT,
                        "`orthant bench` measures it; `orthant presets` lists clusters");
  }
  const int given = (int)ot_options_integer(r->options, "gpus");
  if (given > 0) OT_TRY(resize(&r->out->cluster, given, &r->out->cluster));
  r->out->job.cluster = &r->out->cluster;
  r->out->job.devices = r->out->cluster.num_devices;
  return OT_OK;
}

// ---- engine and precision ----

static ot_status read_engine(reader *r) {
  const char *const name = ot_options_text(r->options, "engine");
  r->out->job.engine = ot_engine_find(name);
  if (r->out->job.engine) return OT_OK;
  ot_fail(OT_USAGE, "--engine: there is no engine called \"%s\"", name);
  ot_text_builder names = {.arena = r->arena};
  const ot_engine *engine;
  for (int i = 0; (engine = ot_engine_at(i)) != NULL; i++) {
    ot_text_appendf(&names, "%s%s", i > 0 ? ", " : "", engine->name);
  }
  return ot_fail_hint(OT_USAGE, "one of %s", ot_text_builder_text(&names));
}

static const char *default_recipe(reader *r) {
  const ot_engine *const engine = r->out->job.engine;
  if (engine != &ot_engine_orthant) return engine->recipe;
  const bool narrow = r->out->cluster.device.flops[OT_BF16] > 0;
  if (!narrow) {
    note(r, ot_arena_format(r->arena, "precision fp32: %s has no rate of bf16 products",
                            r->out->cluster.name));
  }
  return narrow ? "bf16" : "fp32";
}

static ot_status read_recipe(reader *r) {
  const char *const given = ot_options_text(r->options, "precision");
  const char *const name = given ? given : default_recipe(r);
  const ot_recipe *const recipe = ot_recipe_find(name);
  OT_CHECK(recipe, OT_USAGE, "--precision: \"%s\" is not one of bf16|fp8|fp32", name);
  r->out->job.recipe = *recipe;
  return OT_OK;
}

// ---- run ----

static ot_dtype type_of(double bytes) {
  return bytes <= 2 ? OT_BF16 : bytes <= 4 ? OT_F32 : OT_F64;
}

// The precision section that keeps what the recipe keeps.
static ot_run_precision precision_of(const ot_recipe *recipe) {
  return (ot_run_precision){
      .compute = type_of(recipe->activation_bytes),
      .params = type_of(recipe->weight_bytes),
      .gradients = type_of(recipe->gradient_bytes),
      .master = type_of(recipe->master_bytes > 0 ? recipe->master_bytes : recipe->weight_bytes),
      .moments = type_of(recipe->moment_bytes / 2),
      .reduce = type_of(recipe->reduce_bytes),
      .sum = OT_SUM_WIDE,
  };
}

// How a run would name the model, wherever its file is: not at all where --set changed it.
static const char *source_of(const reader *r, const char *model) {
  for (int i = 0; i < ot_options_count(r->options, "set"); i++) {
    if (ot_text_starts_with(ot_options_values(r->options, "set")[i], "model.")) return NULL;
  }
  if (ot_presets_find(&r->presets, OT_PRESET_MODEL, model, r->arena)) return model;
  char path[PATH_MAX];
  return realpath(model, path) ? ot_arena_format(r->arena, "%s", path) : model;
}

// The run with the user's --set, its model first.
static ot_status read_run(reader *r) {
  const char *const model = ot_options_text(r->options, "model");
  OT_CHECK(model, OT_USAGE, "--model M is needed (orthant plan)");
  const int num_sets = ot_options_count(r->options, "set");
  const char **const sets = ot_arena_array(r->arena, num_sets + 1, sizeof *sets);
  sets[0] = ot_arena_format(r->arena, "model=%s", model);
  for (int i = 0; i < num_sets; i++) sets[i + 1] = ot_options_values(r->options, "set")[i];
  const ot_config_request request = {.sets = sets, .num_sets = num_sets + 1, .presets = r->presets};
  OT_TRY(ot_config_load(&request, r->arena, &r->out->config));
  r->out->model_name = model;
  r->out->model_source = source_of(r, model);
  r->out->config.run.precision = precision_of(&r->out->job.recipe);
  r->out->job.model = &r->out->config.run.model;
  return OT_OK;
}

static void read_given(reader *r) {
  const ot_options *const o = r->options;
  r->out->job.given = (ot_candidate){
      .tp = (int)ot_options_integer(o, "tp"),
      .pp = (int)ot_options_integer(o, "pp"),
      .vpp = (int)ot_options_integer(o, "vpp"),
      .cp = (int)ot_options_integer(o, "cp"),
      .ep = (int)ot_options_integer(o, "ep"),
      .dp = (int)ot_options_integer(o, "dp"),
      .zero = ot_options_given(o, "zero") ? ot_options_choice(o, "zero") : -1,
      .micro_batch_size = ot_options_integer(o, "micro-batch-size"),
      .pipeline = (ot_pipeline)ot_options_choice(o, "pipeline"),
      .recompute = (ot_recompute)ot_options_choice(o, "recompute"),
  };
}

// ---- how much ----

static void read_sequence(reader *r) {
  ot_job *const job = &r->out->job;
  job->sequence_length = ot_options_integer(r->options, "sequence-length");
  if (job->sequence_length > 0) return;
  job->sequence_length = r->out->config.run.data.sequence_length;
  note(r, ot_arena_format(r->arena, "sequence length %lld", (long long)job->sequence_length));
}

static void read_tokens(reader *r) {
  ot_job *const job = &r->out->job;
  job->tokens = (double)ot_options_integer(r->options, "tokens");
  if (job->tokens > 0) return;
  job->tokens = tokens_per_parameter * (double)r->out->bill.active_parameters;
  note(r, ot_arena_format(r->arena, "a run of %s tokens, %g a parameter",
                          ot_figure_count(r->arena, job->tokens), tokens_per_parameter));
}

// The most sequences within the critical batch that are a power of two times the odd part of the
// devices, so that they split evenly.
static int64_t batch_within(double sequences, int devices) {
  int64_t batch = devices;
  while (batch % 2 == 0) batch /= 2;
  while (2 * (double)batch <= sequences) batch *= 2;
  return batch;
}

static void read_batch(reader *r) {
  ot_job *const job = &r->out->job;
  job->global_batch_size = ot_options_integer(r->options, "global-batch-size");
  if (job->global_batch_size > 0) return;
  const double measured = (double)ot_options_integer(r->options, "critical-batch-tokens");
  const double critical = measured > 0 ? measured : ot_critical_batch_tokens(job->tokens);
  job->global_batch_size = batch_within(critical / (double)job->sequence_length, job->devices);
  note(r, ot_arena_format(r->arena,
                          "global batch %lld sequences, within the critical batch of %s tokens",
                          (long long)job->global_batch_size, ot_figure_count(r->arena, critical)));
}

static ot_status read_amounts(reader *r) {
  ot_plan_request *const out = r->out;
  read_sequence(r);
  ot_bill_build(&out->job, &out->bill);
  read_tokens(r);
  read_batch(r);
  out->config.run.data.sequence_length = out->job.sequence_length;
  out->config.run.batch =
      (ot_run_batch){.global_batch_size = out->job.global_batch_size, .micro_batch_size = 1};
  out->job.run = out->job.engine == &ot_engine_orthant ? &out->config.run : NULL;
  return ot_run_check(&out->config.run);
}

ot_status ot_plan_request_read(const ot_options *options, ot_arena *arena, ot_plan_request *out) {
  *out = (ot_plan_request){0};
  reader r = {options, arena, ot_installed_presets(arena), out};
  OT_TRY(read_cluster(&r));
  OT_TRY(read_engine(&r));
  OT_TRY(read_recipe(&r));
  OT_TRY(read_run(&r));
  read_given(&r);
  OT_TRY(read_amounts(&r));
  return ot_job_check(&out->job);
}
