// SPDX-License-Identifier: Apache-2.0
// Options and files as a question (answer/question.h), and what only the program finds of a plan:
// predictions and proofs from schedules.
#include "cli/plan_request.h"

#include <limits.h>
#include <stdlib.h>

#include "base/text.h"
#include "cli/installed.h"
#include "cli/output.h"
#include "describe/model_keys.h"
#include "files/config_file.h"
#include "host/heap.h"
#include "import/import.h"
#include "train/loop_start.h"

typedef struct reader {
  const ot_options *options;
  ot_arena *arena;
  ot_presets presets;
  ot_question question;
  ot_imported *imported;  // null without --from
  ot_plan_request *out;
} reader;

// ---- import ----

// Its notes, and the keys that it ignores, are the first assumptions.
static void take_notes(reader *r) {
  const ot_imported *const i = r->imported;
  const char **const notes = ot_arena_array(r->arena, i->num_notes + 1, sizeof *notes);
  int count = 0;
  for (; count < i->num_notes; count++) notes[count] = i->notes[count];
  ot_text_builder text = {.arena = r->arena};
  for (int n = 0; n < i->num_ignored; n++) {
    ot_text_appendf(&text, "%s %s", n > 0 ? "," : "ignored:", i->ignored[n]);
  }
  if (i->num_ignored > 0) notes[count++] = ot_text_builder_text(&text);
  r->question.notes = notes;
  r->question.num_notes = count;
}

static ot_status read_import(reader *r) {
  const char *const path = ot_options_text(r->options, "from");
  const bool given = ot_options_given(r->options, "model");
  if (!path) return OT_OK;
  r->imported = ot_arena_take(r->arena, sizeof *r->imported);
  OT_TRY(ot_import_read(path, &r->presets, r->arena, r->imported));
  OT_CHECK(!r->imported->has_model || !given, OT_USAGE,
           "--model and --from both say which model (use one of them)");
  OT_CHECK(r->imported->has_model || given, OT_USAGE,
           "--from %s: %s does not say which model (add --model M)", path, r->imported->format);
  take_notes(r);
  return OT_OK;
}

static int or_one(int degree) { return degree > 0 ? degree : 1; }

ot_status ot_plan_take_import(const ot_imported *i, const ot_plan_request *request, ot_arena *arena,
                              ot_plan_compared *out) {
  const ot_job *const job = &request->job;
  const bool orthant = job->engine == &ot_engine_orthant;
  out->candidate =
      (ot_candidate){.tp = or_one(i->tp),
                     .pp = or_one(i->pp),
                     .vpp = or_one(i->vpp),
                     .cp = or_one(i->cp),
                     .ep = or_one(i->ep),
                     .etp = request->run.model.moe.num_experts > 0 ? or_one(i->etp) : 1,
                     .dp = i->dp,
                     .dp_shard = i->zero == 0 ? 1 : i->dp / or_one(i->dp_replicate),
                     .zero = i->zero,
                     .micro_batch_size = i->micro_batch_size,
                     .pipeline = i->pipeline,
                     .recompute = i->recompute,
                     .no_sequence_parallel = i->no_sequence_parallel && !orthant};
  out->layers = i->chunk_layers;
  out->num_chunks = i->num_chunks;
  if (!ot_text_equal(job->engine->name, i->engine)) return OT_OK;
  const ot_presets presets = ot_installed_presets(arena);
  const ot_engine *base;
  ot_engine *const switched = ot_arena_take(arena, sizeof *switched);
  OT_TRY(ot_engine_file_load(i->engine, &presets, arena, &base));
  *switched = *base;
  ot_engine_apply(&i->options, switched);
  out->engine = switched;
  return OT_OK;
}

// The configuration of the file on the devices of the job.
static ot_status fit_import(reader *r) {
  ot_imported *const i = r->imported;
  if (!i) return OT_OK;
  if (ot_imported_fit(i, r->out->job.devices) != OT_OK) {
    return ot_fail_hint(OT_USAGE, "--gpus: as many devices as the file is meant for");
  }
  ot_question *const q = &r->out->question;
  if (q->global_batch_size == 0) q->global_batch_size = i->global_batch_size;
  if (q->sequence_length == 0) q->sequence_length = i->sequence_length;
  if (r->out->job.engine == &ot_engine_orthant && i->no_sequence_parallel)
    ot_plan_request_note(r->out, "tp with sequence parallelism, as Orthant has it");
  r->out->own = ot_arena_take(r->arena, sizeof *r->out->own);
  *r->out->own = (ot_plan_compared){0};
  OT_TRY(ot_plan_take_import(i, r->out, r->arena, r->out->own));
  r->out->own->engine = NULL;  // the plans have the same switches (read_engine)
  return OT_OK;
}

// ---- cluster ----

static ot_status read_cluster(reader *r) {
  const char *const name = ot_options_text(r->options, "cluster");
  ot_cluster *const cluster = ot_arena_take(r->arena, sizeof *cluster);
  bool found;
  OT_TRY(ot_cluster_file_load(name, &r->presets, r->arena, cluster, &found));
  if (!found) {
    ot_fail(OT_ENVIRONMENT, "this machine was never measured (--cluster %s)", name);
    return ot_fail_hint(OT_ENVIRONMENT,
                        "`orthant bench` measures it; `orthant presets` lists clusters");
  }
  r->question.cluster = cluster;
  r->question.devices = (int)ot_options_integer(r->options, "gpus");
  if (r->question.devices == 0 && r->imported) r->question.devices = r->imported->devices;
  return OT_OK;
}

// The switches of a file hold for its own software, for its row and for the plans next to it.
static ot_status read_engine(reader *r) {
  const ot_imported *const i = r->imported;
  const bool asked = ot_options_given(r->options, "engine") || !i;
  const char *const name = asked ? ot_options_text(r->options, "engine") : i->engine;
  OT_TRY(ot_engine_file_load(name, &r->presets, r->arena, &r->question.engine));
  if (!i || !ot_text_equal(name, i->engine)) return OT_OK;
  ot_engine *const engine = ot_arena_take(r->arena, sizeof *engine);
  *engine = *r->question.engine;
  ot_engine_apply(&i->options, engine);
  r->question.engine = engine;
  return OT_OK;
}

// The file with the model of the job, or null.
static const ot_imported *model_file(const reader *r) {
  return r->imported && r->imported->has_model ? r->imported : NULL;
}

// ---- run ----

// The recipe of the job as a setting, which the user's --set may change.
static const char *precision_setting(const reader *r) {
  ot_json_writer w = ot_json_begin(r->arena, 0);
  ot_node_write_json(ot_plan_request_precision(r->out, r->arena), NULL, &w);
  return ot_arena_format(r->arena, "precision=%s", w.text);
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
  if (model_file(r)) return NULL;
  return realpath(model, path) ? ot_arena_format(r->arena, "%s", path) : model;
}

// Loads the model, from --model or from the keys of the imported file, and the run settings of
// --set.
static ot_status load_run(reader *r, const char *model) {
  const int num_sets = ot_options_count(r->options, "set");
  const char **const sets = ot_arena_array(r->arena, num_sets + 2, sizeof *sets);
  ot_config_request request = {.sets = sets, .presets = r->presets};
  if (model_file(r)) {
    const ot_node *const keys = ot_model_write_config(&r->imported->model, r->arena);
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
  ot_config config;
  OT_TRY(ot_config_load(&request, r->arena, &config));
  ot_output_notes(&config.notes);
  r->out->run = config.run;
  r->out->settings = config.settings;
  r->out->has_run = true;
  return OT_OK;
}

static ot_status read_run(reader *r) {
  ot_plan_request *const out = r->out;
  const ot_imported *const i = model_file(r);
  const char *const model = ot_options_text(r->options, "model");
  out->model_name = i ? i->model_name : model;
  if (!i || i->model_keys) {
    OT_CHECK(out->model_name, OT_USAGE, "--model M is needed, or --from FILE (orthant plan)");
    OT_TRY(load_run(r, model));
    out->model_source = source_of(r);
  } else {
    out->run.model = i->model;
  }
  return OT_OK;
}

static void read_given(reader *r) {
  const ot_options *const o = r->options;
  r->question.given = (ot_candidate){
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
      .crosses = (ot_crossing)(1 + ot_options_choice(o, "crosses")),
  };
}

static void read_amounts(reader *r) {
  const ot_options *const o = r->options;
  ot_question *const q = &r->question;
  const char *const precision = ot_options_text(o, "precision");
  q->precision = precision || !r->imported ? precision : r->imported->precision;
  q->gather_bytes = precision || !r->imported ? 0 : r->imported->gather_bytes;
  q->global_batch_size = ot_options_integer(o, "global-batch-size");
  q->sequence_length = ot_options_integer(o, "sequence-length");
  q->tokens = ot_options_integer(o, "tokens");
  q->critical_batch_tokens = ot_options_integer(o, "critical-batch-tokens");
  q->expert_imbalance = ot_options_real(o, "expert-imbalance");
}

// ---- memory ----

static ot_status read_margin(reader *r) {
  enum { MOST = 100 };
  if (!ot_options_given(r->options, "memory-margin")) return OT_OK;
  const double percent = ot_options_real(r->options, "memory-margin");
  OT_CHECK(percent >= 0 && percent <= MOST, OT_USAGE,
           "--memory-margin: %g; allowed: 0 to %d percent of a plan's memory", percent, MOST);
  r->question.memory_margin = percent > 0 ? percent / 100 : -1;
  return OT_OK;
}

ot_status ot_plan_request_read(const ot_options *options, ot_arena *arena, ot_plan_request *out) {
  reader r = {
      .options = options, .arena = arena, .presets = ot_installed_presets(arena), .out = out};
  OT_TRY(read_import(&r));
  OT_TRY(read_cluster(&r));
  OT_TRY(read_engine(&r));
  read_given(&r);
  read_amounts(&r);
  OT_TRY(read_margin(&r));
  OT_TRY(ot_plan_request_begin(&r.question, arena, out));
  OT_TRY(read_run(&r));
  OT_TRY(fit_import(&r));
  OT_TRY(ot_plan_request_end(arena, out));
  if (!out->own) return OT_OK;
  ot_candidate *const own = &out->own->candidate;
  ot_candidate_cross(&out->job, own);
  own->micro_batches = ot_candidate_micro_batches(&out->job, own);
  return OT_OK;
}

// ---- schedules of a plan ----

// The run of a candidate, and its ranks.
typedef struct candidate_run {
  ot_run run;
  ot_run_lists lists;
  ot_mesh mesh;
} candidate_run;

static ot_status run_of(const ot_job *job, const ot_candidate *candidate, ot_arena *arena,
                        candidate_run **out) {
  candidate_run *const own = ot_arena_take(arena, sizeof *own);
  *out = own;
  ot_candidate_run(job, candidate, &own->lists, &own->run);
  return ot_mesh_build(&own->run.parallel, job->devices, &own->mesh);
}

ot_status ot_plan_predict(const ot_job *job, const ot_candidate *candidate, ot_arena *arena,
                          ot_prediction *out) {
  candidate_run *own;
  OT_TRY(run_of(job, candidate, arena, &own));
  const ot_prediction_request request = {
      .run = &own->run,
      .mesh = &own->mesh,
      .cluster = job->cluster,
      .threads = ot_cluster_threads(job->cluster, job->devices, own->run.threads),
      .expert_imbalance = job->expert_imbalance};
  return ot_prediction_build(&request, arena, out);
}

ot_status ot_plan_prove(const ot_job *job, const ot_candidate *candidate, ot_arena *arena) {
  candidate_run *own;
  OT_TRY(run_of(job, candidate, arena, &own));
  return ot_loop_check_schedules(&own->run, &own->mesh,
                                 ot_device_kind_backend(&job->cluster->device));
}

ot_status ot_plan_stretch(const ot_job *job, const ot_candidate *candidate, double *stretch) {
  ot_prediction predicted;
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  const ot_status status = ot_plan_predict(job, candidate, &scratch, &predicted);
  if (status == OT_OK) *stretch = predicted.steps[0].stretch;
  ot_heap_release(&heap);
  return status;
}
