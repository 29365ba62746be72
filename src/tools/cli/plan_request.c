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
#include "files/import_file.h"
#include "forecast/teacher_forecast.h"
#include "host/heap.h"
#include "schedule/planned_run.h"

typedef struct reader {
  const ot_options *options;
  ot_arena *arena;
  ot_presets presets;
  ot_question question;
  ot_imported *imported;  // null without --from
  ot_plan_request *out;
} reader;

// ---- import ----

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
  return OT_OK;
}

static ot_status read_engine(reader *r) {
  const ot_imported *const i = r->imported;
  const bool asked = ot_options_given(r->options, "engine") || !i;
  const char *const name = asked ? ot_options_text(r->options, "engine") : i->engine;
  return ot_engine_file_load(name, &r->presets, r->arena, &r->question.engine);
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
    sets[request.num_sets++] = ot_config_setting(r->arena, "model", model);
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
  r->out->teacher = ot_teacher_pricer_create(r->arena);
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

// ---- options ----

ot_node *ot_plan_question(const ot_options *options, ot_arena *arena) {
  ot_node *const out = ot_node_create(arena, OT_NODE_MAP);
  for (int i = 0; i < ot_question_schema.num_keys; i++) {
    const ot_key *const key = &ot_question_schema.keys[i];
    const char *const source = ot_question_option(key->name, arena), *const option = source + 2;
    if (!ot_options_given(options, option)) continue;
    const bool flag = key->type == OT_KEY_BOOL;
    ot_node *const word = ot_node_word(arena, flag ? "true" : ot_options_text(options, option));
    ot_node_set_source(word, source);
    ot_node_put(arena, out, key->name, word);
  }
  return out;
}

ot_status ot_plan_request_read(const ot_options *options, ot_arena *arena, ot_plan_request *out) {
  reader r = {
      .options = options, .arena = arena, .presets = ot_installed_presets(arena), .out = out};
  OT_TRY(ot_question_read(ot_plan_question(options, arena), arena, &r.question));
  OT_TRY(read_import(&r));
  OT_TRY(read_cluster(&r));
  OT_TRY(read_engine(&r));
  if (r.imported) ot_question_take_import(r.imported, arena, &r.question);
  OT_TRY(ot_plan_request_begin(&r.question, arena, out));
  OT_TRY(read_run(&r));
  if (r.imported) OT_TRY(ot_plan_request_fit_import(r.imported, arena, out));
  return ot_plan_request_end(arena, out);
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
      .threads = ot_cluster_threads(job->cluster, ot_job_all_devices(job), own->run.threads),
      .expert_imbalance = job->expert_imbalance};
  return ot_prediction_build(&request, arena, out);
}

ot_status ot_plan_prove(const ot_job *job, const ot_candidate *candidate, ot_arena *arena) {
  candidate_run *own;
  OT_TRY(run_of(job, candidate, arena, &own));
  const ot_planned_run planned = {.run = &own->run,
                                  .mesh = &own->mesh,
                                  .threads = 1,
                                  .backend = ot_device_kind_backend(&job->cluster->device)};
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  const ot_status status = ot_planned_run_prove(&planned, &scratch);
  ot_heap_release(&heap);
  return status;
}
