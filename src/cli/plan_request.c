// SPDX-License-Identifier: Apache-2.0
// From options to a job. Defaults derive from the given options, and a note states each of them.
#include "cli/plan_request.h"

#include <limits.h>
#include <stdlib.h>

#include "base/quantity.h"
#include "base/text.h"
#include "cli/installed.h"
#include "cli/output.h"
#include "describe/measured_keys.h"
#include "describe/model_keys.h"
#include "files/config_file.h"
#include "plan/limits.h"

// Hoffmann et al. 2022 (arXiv 2203.15556), table 3: about twenty tokens for each parameter.
static const double tokens_per_parameter = 20;

typedef struct reader {
  const ot_options *options;
  ot_arena *arena;
  ot_presets presets;
  ot_plan_request *out;
} reader;

enum { MOST_NOTES = 8 };  // in addition to those of an imported file

static void note(reader *r, const char *text) { r->out->notes[r->out->num_notes++] = text; }

// ---- import ----

static ot_status read_import(reader *r) {
  const char *const path = ot_options_text(r->options, "from");
  ot_imported *const i = &r->out->imported;
  r->out->is_imported = path != NULL;
  if (path) {
    OT_CHECK(!ot_options_given(r->options, "model"), OT_USAGE,
             "--model and --from both say which model (use one of them)");
    OT_TRY(ot_import_read(path, &r->presets, r->arena, i));
  }
  r->out->notes = ot_arena_array(r->arena, MOST_NOTES + i->num_notes, sizeof *r->out->notes);
  for (int n = 0; n < i->num_notes; n++) note(r, i->notes[n]);
  if (i->num_ignored == 0) return OT_OK;
  ot_text_builder text = {.arena = r->arena};
  for (int n = 0; n < i->num_ignored; n++) {
    ot_text_appendf(&text, "%s %s", n > 0 ? "," : "ignored:", i->ignored[n]);
  }
  note(r, ot_text_builder_text(&text));
  return OT_OK;
}

static int or_one(int degree) { return degree > 0 ? degree : 1; }

// The configuration of the file on the devices of the job.
static ot_status fit_import(reader *r) {
  ot_imported *const i = &r->out->imported;
  if (!r->out->is_imported) return OT_OK;
  if (ot_imported_fit(i, r->out->job.devices) != OT_OK) {
    return ot_fail_hint(OT_USAGE, "--gpus: as many devices as the file is meant for");
  }
  const bool orthant = r->out->job.engine == &ot_engine_orthant;
  if (orthant && i->no_sequence_parallel)
    note(r, "tp with sequence parallelism, as Orthant has it");
  r->out->own = (ot_candidate){.tp = or_one(i->tp),
                               .pp = or_one(i->pp),
                               .vpp = or_one(i->vpp),
                               .cp = or_one(i->cp),
                               .ep = or_one(i->ep),
                               .etp = i->model.moe.num_experts > 0 ? or_one(i->etp) : 1,
                               .dp = i->dp,
                               .dp_shard = i->dp / or_one(i->dp_replicate),
                               .zero = i->zero,
                               .micro_batch_size = i->micro_batch_size,
                               .pipeline = i->pipeline,
                               .recompute = i->recompute,
                               .no_sequence_parallel = i->no_sequence_parallel && !orthant};
  return OT_OK;
}

// ---- cluster ----

// Adds or removes accelerators over the outermost links; a measured machine, whose ranks are
// threads, shares its cores among `devices` ranks.
static ot_status resize(const ot_cluster *cluster, int devices, ot_cluster *out) {
  const int threads = cluster->device.threads;
  if (ot_cluster_has_hosts(cluster)) return ot_cluster_share(cluster, devices, threads, out);
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
  const char *const doubt = ot_measured_warning(&r->out->cluster, r->arena);
  if (doubt) note(r, doubt);
  int given = (int)ot_options_integer(r->options, "gpus");
  if (given == 0) given = r->out->imported.devices;
  const int described = r->out->cluster.num_devices;
  if (given > 0) OT_TRY(resize(&r->out->cluster, given, &r->out->cluster));
  if (given > described) {
    note(r,
         ot_arena_format(r->arena, "cluster %s describes %d devices; %d are priced as more of them",
                         r->out->cluster.name, described, given));
  }
  r->out->job.cluster = &r->out->cluster;
  r->out->job.devices = r->out->cluster.num_devices;
  return OT_OK;
}

// ---- engine and precision ----

static ot_status read_engine(reader *r) {
  const bool asked = ot_options_given(r->options, "engine") || !r->out->is_imported;
  const char *const name = asked ? ot_options_text(r->options, "engine") : r->out->imported.engine;
  return ot_engine_file_load(name, &r->presets, r->arena, &r->out->job.engine);
}

static const char *default_recipe(reader *r) {
  const ot_engine *const engine = r->out->job.engine;
  if (r->out->imported.precision) return r->out->imported.precision;
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
  OT_CHECK(recipe, OT_USAGE, "engine %s: there is no recipe called \"%s\"; one of %s",
           r->out->job.engine->name, name, OT_RECIPE_NAMES);
  r->out->job.recipe = *recipe;
  return OT_OK;
}

// ---- run ----

// The recipe of the job as settings, which the user's --set may change.
static const char *precision_setting(const reader *r) {
  const ot_run_precision p = ot_recipe_precision(&r->out->job.recipe);
  return ot_arena_format(
      r->arena,
      "precision={compute: %s, params: %s, gradients: %s, master: %s, moments: %s, reduce: %s}",
      ot_dtype_name(p.compute), ot_dtype_name(p.params), ot_dtype_name(p.gradients),
      ot_dtype_name(p.master), ot_dtype_name(p.moments), ot_dtype_name(p.reduce));
}

// How a RUN.yaml in any folder would name the model; null if --set changed the model, or if another
// framework's file describes it.
static const char *source_of(const reader *r) {
  const char *const model = r->out->model_name;
  for (int i = 0; i < ot_options_count(r->options, "set"); i++) {
    if (ot_text_starts_with(ot_options_values(r->options, "set")[i], "model.")) return NULL;
  }
  if (ot_presets_find(&r->presets, OT_PRESET_MODEL, model, r->arena)) return model;
  char path[PATH_MAX];
  if (r->out->is_imported) return NULL;
  return realpath(model, path) ? ot_arena_format(r->arena, "%s", path) : model;
}

// Loads the model, from --model or from the keys of the imported file, and the run settings of
// --set.
static ot_status load_run(reader *r, const char *model) {
  const int num_sets = ot_options_count(r->options, "set");
  const char **const sets = ot_arena_array(r->arena, num_sets + 2, sizeof *sets);
  ot_config_request request = {.sets = sets, .presets = r->presets};
  if (r->out->is_imported) {
    const ot_node *const keys = ot_model_write_config(&r->out->imported.model, r->arena);
    ot_json_writer w = ot_json_begin(r->arena, 0);
    ot_json_object(&w, NULL);
    ot_node_write_json(keys, "model", &w);
    ot_json_end(&w);
    request.path = ot_options_text(r->options, "from");
    request.text = w.text;
  } else {
    sets[request.num_sets++] = ot_arena_format(r->arena, "model=%s", model);
  }
  sets[request.num_sets++] = precision_setting(r);
  for (int i = 0; i < num_sets; i++) {
    sets[request.num_sets++] = ot_options_values(r->options, "set")[i];
  }
  OT_TRY(ot_config_load(&request, r->arena, &r->out->config));
  ot_output_notes(&r->out->config.notes);
  r->out->has_run = true;
  return OT_OK;
}

static ot_status read_run(reader *r) {
  ot_plan_request *const out = r->out;
  const ot_imported *const i = &out->imported;
  const char *const model = ot_options_text(r->options, "model");
  out->model_name = out->is_imported ? i->model_name : model;
  if (!out->is_imported || i->model_keys) {
    OT_CHECK(out->model_name, OT_USAGE, "--model M is needed, or --from FILE (orthant plan)");
    OT_TRY(load_run(r, model));
    out->model_source = source_of(r);
  } else {
    out->config.run.model = i->model;
  }
  out->job.model = &out->config.run.model;
  if (!out->has_run) out->config.run.precision = ot_recipe_precision(&out->job.recipe);
  if (out->job.engine == &ot_engine_orthant) {
    out->job.recipe = ot_recipe_of_run(&out->config.run.precision);
  }
  return OT_OK;
}

static void read_imbalance(reader *r) {
  ot_job *const job = &r->out->job;
  job->expert_imbalance = ot_options_real(r->options, "expert-imbalance");
  if (job->expert_imbalance <= 1 || job->model->moe.num_experts == 0) return;
  note(r, ot_arena_format(r->arena, "the busiest rank of ep has %g times the mean of rows",
                          job->expert_imbalance));
}

static void read_given(reader *r) {
  const ot_options *const o = r->options;
  r->out->job.given = (ot_candidate){
      .tp = (int)ot_options_integer(o, "tp"),
      .pp = (int)ot_options_integer(o, "pp"),
      .vpp = (int)ot_options_integer(o, "vpp"),
      .cp = (int)ot_options_integer(o, "cp"),
      .ep = (int)ot_options_integer(o, "ep"),
      .etp = (int)ot_options_integer(o, "etp"),
      .dp = (int)ot_options_integer(o, "dp"),
      .zero = ot_options_given(o, "zero") ? ot_options_choice(o, "zero") : -1,
      .micro_batch_size = ot_options_integer(o, "micro-batch-size"),
      .pipeline = (ot_pipeline)ot_options_choice(o, "pipeline"),
      .recompute = (ot_recompute)ot_options_choice(o, "recompute"),
  };
}

// ---- sequence length, tokens, batch ----

static void read_sequence(reader *r) {
  ot_job *const job = &r->out->job;
  job->sequence_length = ot_options_integer(r->options, "sequence-length");
  if (job->sequence_length == 0) job->sequence_length = r->out->imported.sequence_length;
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
  if (job->global_batch_size == 0) job->global_batch_size = r->out->imported.global_batch_size;
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
  ot_run *const run = &out->config.run;
  read_sequence(r);
  ot_model_totals_build(&out->job, &out->bill);
  read_tokens(r);
  read_batch(r);
  out->own.micro_batches = ot_candidate_micro_batches(&out->job, &out->own);
  if (!out->has_run) return OT_OK;
  run->data.sequence_length = out->job.sequence_length;
  run->batch =
      (ot_run_batch){.global_batch_size = out->job.global_batch_size, .micro_batch_size = 1};
  if (out->job.engine == &ot_engine_orthant) out->job.run = run;
  return ot_run_check(run);
}

ot_status ot_plan_request_read(const ot_options *options, ot_arena *arena, ot_plan_request *out) {
  *out = (ot_plan_request){0};
  reader r = {options, arena, ot_installed_presets(arena), out};
  OT_TRY(read_import(&r));
  OT_TRY(read_cluster(&r));
  OT_TRY(read_engine(&r));
  OT_TRY(read_recipe(&r));
  OT_TRY(read_run(&r));
  OT_TRY(fit_import(&r));
  read_given(&r);
  read_imbalance(&r);
  OT_TRY(read_amounts(&r));
  return ot_job_check(&out->job);
}
