// SPDX-License-Identifier: Apache-2.0
// The question of a request: one table for its controls; model, cluster, engine and settings by the
// tables of their files.
#include <stddef.h>

#include "base/text.h"
#include "describe/cluster_keys.h"
#include "describe/engine_keys.h"
#include "describe/model_keys.h"
#include "describe/pipeline_rules.h"
#include "describe/run_keys.h"
#include "script/megatron.h"
#include "web/web_parts.h"

// The values of the controls.
typedef struct controls {
  ot_question question;
  int zero, pipeline, recompute;
  const char *modules, *precision, *model_name, *model_source;
  double price, memory_margin;
  int top;
  bool variants, simple;
} controls;

enum { MOST_DEGREE = 1 << 24 };

static const char *const zero_names[] = {"0", "1", "2", "3", NULL};

#define GIVEN(member) offsetof(controls, question.given.member)
// clang-format off
static const ot_key control_keys[] = {
    {"model_name", OT_KEY_TEXT, offsetof(controls, model_name), "",
     .help = "name of the model; with a script, that of its file"},
    {"model_source", OT_KEY_TEXT, offsetof(controls, model_source), "",
     .help = "how a run names the model; empty: by its keys"},
    {"gpus", OT_KEY_INT, offsetof(controls, question.devices), "0", 0, MOST_DEGREE,
     .help = "devices; 0: as many as the cluster has"},
    {"global_batch_size", OT_KEY_INTEGER, offsetof(controls, question.global_batch_size), "0",
     0, MOST_DEGREE, .help = "sequences per step; 0: the most within the critical batch"},
    {"sequence_length", OT_KEY_INTEGER, offsetof(controls, question.sequence_length), "0",
     0, MOST_DEGREE, .help = "tokens per sequence; 0: 4096 or the model's maximum"},
    {"tokens", OT_KEY_INTEGER, offsetof(controls, question.tokens), "0", 0, OT_NO_MAXIMUM,
     .help = "tokens of the whole run; 0: 20 per parameter"},
    {"critical_batch_tokens", OT_KEY_INTEGER, offsetof(controls, question.critical_batch_tokens),
     "0", 0, OT_NO_MAXIMUM, .help = "measured value; 0: scaling law in the run's tokens"},
    {"tp", OT_KEY_INT, GIVEN(tp), "0", 0, MOST_DEGREE, .help = "tensor parallel; 0: searched"},
    {"pp", OT_KEY_INT, GIVEN(pp), "0", 0, MOST_DEGREE, .help = "pipeline stages; 0: searched"},
    {"vpp", OT_KEY_INT, GIVEN(vpp), "0", 0, MOST_DEGREE, .help = "chunks per stage; 0: searched"},
    {"cp", OT_KEY_INT, GIVEN(cp), "0", 0, MOST_DEGREE, .help = "context parallel; 0: searched"},
    {"ep", OT_KEY_INT, GIVEN(ep), "0", 0, MOST_DEGREE, .help = "expert parallel; 0: searched"},
    {"etp", OT_KEY_INT, GIVEN(etp), "1", 1, MOST_DEGREE,
     .help = "ranks that share the columns of an expert"},
    {"dp", OT_KEY_INT, GIVEN(dp), "0", 0, MOST_DEGREE, .help = "data parallel; 0: searched"},
    {"zero", OT_KEY_CHOICE, offsetof(controls, zero), "auto", .choices = zero_names,
     .help = "what dp shards: 1 optimizer states, 2 gradients, 3 weights"},
    {"micro_batch_size", OT_KEY_INTEGER, GIVEN(micro_batch_size), "0", 0, MOST_DEGREE,
     .help = "sequences of one forward and backward; 0: searched"},
    {"pipeline", OT_KEY_CHOICE, offsetof(controls, pipeline), "auto",
     .choices = ot_pipeline_names, .help = "pipeline schedule"},
    {"recompute", OT_KEY_CHOICE, offsetof(controls, recompute), "auto",
     .choices = ot_recompute_names, .help = "activations recomputed in the backward"},
    {"recompute_modules", OT_KEY_TEXT, offsetof(controls, modules), "",
     .help = "parts of layers that selective recompute is limited to; empty: searched"},
    {"precision", OT_KEY_TEXT, offsetof(controls, precision), "",
     .help = "recipe of data types; empty: the engine's, or bf16"},
    {"expert_imbalance", OT_KEY_REAL, offsetof(controls, question.expert_imbalance), "1",
     1, 1024, .help = "load of the busiest rank of ep over the mean"},
    {"price", OT_KEY_REAL, offsetof(controls, price), "0", 0, 1e6,
     .help = "dollars of a device hour; 0: no costs"},
    {"memory_margin", OT_KEY_REAL, offsetof(controls, memory_margin), "-1", -1, 100,
     .unit = "percent", .help = "of a plan's memory that must stay free; -1: from its interval"},
    {"top", OT_KEY_INT, offsetof(controls, top), "5", 1, 1000, .help = "plans shown"},
    {"variants", OT_KEY_BOOL, offsetof(controls, variants), "false",
     .help = "also slower plans with the same degrees and ZeRO stage"},
    {"simple", OT_KEY_BOOL, offsetof(controls, simple), "false",
     .help = "the simplest plan that cannot be told from the fastest"},
};
// clang-format on
static const ot_schema control_schema = {"question", control_keys, OT_COUNT(control_keys),
                                         .size = sizeof(controls)};

static ot_status read_controls(const ot_node *tree, ot_arena *arena, controls *out) {
  OT_TRY(ot_schema_read(&control_schema, tree, arena, out));
  out->question.given.zero = out->zero;
  out->question.given.pipeline = (ot_pipeline)out->pipeline;
  out->question.given.recompute = (ot_recompute)out->recompute;
  OT_TRY(ot_module_set_read("recompute_modules", out->modules, &out->question.given.modules));
  const double margin = out->memory_margin;
  out->question.memory_margin = margin < 0 ? 0 : margin > 0 ? margin / 100 : -1;
  out->question.precision = out->precision[0] != '\0' ? out->precision : NULL;
  return OT_OK;
}

// ---- cluster and engine ----

static ot_status read_engine(const ot_node *tree, ot_arena *arena, const ot_engine **out) {
  *out = &ot_engine_orthant;
  if (!tree || (tree->text && ot_text_equal(tree->text, ot_engine_orthant.name))) return OT_OK;
  ot_engine *const read = ot_arena_take(arena, sizeof *read);
  *out = read;
  return ot_engine_read(tree, arena, read);
}

// A launch script, dropped on the page; null: none.
static ot_status read_script(const ot_node *script, ot_arena *arena, ot_imported **out) {
  *out = NULL;
  if (!script) return OT_OK;
  const ot_node *const name = ot_node_child(script, "name"), *text = ot_node_child(script, "text");
  OT_CHECK(name && name->text && text && text->text, OT_USAGE, "script: no name or no text");
  *out = ot_arena_take(arena, sizeof **out);
  return ot_megatron_script_import(name->text, text->text, arena, *out);
}

// The engine of a script, of the map `engines`.
static ot_status read_own_engine(const ot_node *request, const ot_imported *script, ot_arena *arena,
                                 const ot_engine **out) {
  const ot_node *const engines = ot_node_child(request, "engines");
  const ot_node *const engine = engines ? ot_node_child(engines, script->engine) : NULL;
  OT_CHECK(engine, OT_USAGE, "engines: there is no %s", script->engine);
  return read_engine(engine, arena, out);
}

static ot_status read_machine(const ot_node *request, const ot_imported *script, ot_arena *arena,
                              ot_question *out) {
  const ot_node *const engine = ot_node_child(request, "engine");
  ot_cluster *const cluster = ot_arena_take(arena, sizeof *cluster);
  OT_TRY(ot_cluster_read(ot_node_child(request, "cluster"), arena, cluster));
  out->cluster = cluster;
  if (script && !engine) return read_own_engine(request, script, arena, &out->engine);
  return read_engine(engine, arena, &out->engine);
}

// ---- run ----

static ot_status put(ot_settings *to, const char *path, ot_node *value) {
  ot_node_set_source(value, ot_arena_format(to->arena, "--set %s", path));
  return ot_settings_put(to, path, value);
}

// The HF keys of the model.
static ot_status read_model(const ot_node *request, const ot_imported *script, ot_arena *arena,
                            ot_node **out) {
  *out = script ? ot_model_write_config(&script->model, arena) : ot_node_child(request, "model");
  OT_CHECK(*out && (*out)->kind == OT_NODE_MAP, OT_USAGE, "model: not a map of HF keys");
  if (!script) ot_model_drop_unread(*out, arena);
  return OT_OK;
}

static ot_status read_run(const ot_node *request, const ot_imported *script, ot_arena *arena,
                          ot_plan_request *out) {
  ot_settings to = {&ot_run_schema, arena, ot_node_create(arena, OT_NODE_MAP)};
  ot_node *model;
  if (script && !script->model_keys) {
    out->run.model = script->model;
    return OT_OK;
  }
  OT_TRY(read_model(request, script, arena, &model));
  ot_node *const keys = ot_node_create(arena, OT_NODE_MAP);
  ot_node_replace(keys, model);
  ot_node_set_source(keys, out->model_name);
  ot_node_put(arena, to.tree, "model", keys);
  OT_TRY(put(&to, "precision", ot_plan_request_precision(out, arena)));
  const ot_node *const settings = ot_node_child(request, "settings");
  for (ot_node *s = settings ? settings->first : NULL; s; s = s->next) {
    ot_node *const value = ot_node_create(arena, OT_NODE_NULL);
    ot_node_replace(value, s);
    if (ot_text_starts_with(s->key, "model.")) out->model_source = NULL;
    OT_TRY(put(&to, s->key, value));
  }
  ot_node *read;
  OT_TRY(ot_run_read(to.tree, arena, &out->run, &read));
  out->settings = read;
  out->has_run = true;
  return OT_OK;
}

// ---- what is compared ----

// {name, run} or {name, text} of a script.
static ot_status read_compared(const ot_node *request, ot_node *file, ot_arena *arena,
                               ot_plan_request *out) {
  ot_node *const run = ot_node_child(file, "run"), *const name = ot_node_child(file, "name");
  OT_CHECK(name && name->text, OT_USAGE, "compare: a file without a name");
  if (!run) {
    ot_imported *script;
    const ot_engine *engine;
    OT_TRY(read_script(file, arena, &script));
    OT_TRY(read_own_engine(request, script, arena, &engine));
    return ot_plan_compare_import(out, name->text, script, engine, arena);
  }
  ot_run *const read = ot_arena_take(arena, sizeof *read);
  ot_node *const model = ot_node_child(run, "model"), *settings;
  if (model && model->kind == OT_NODE_MAP) ot_model_drop_unread(model, arena);
  ot_node_set_source(run, name->text);
  OT_TRY(ot_run_read(run, arena, read, &settings));
  return ot_plan_compare_run(out, name->text, read, arena);
}

static ot_status read_comparison(const ot_node *request, ot_arena *arena, ot_plan_request *out) {
  const ot_node *const list = ot_node_child(request, "compare");
  if (!list) return OT_OK;
  out->compared = ot_arena_array(arena, ot_node_count(list) + 1, sizeof *out->compared);
  for (ot_node *file = list->first; file; file = file->next) {
    OT_TRY(read_compared(request, file, arena, out));
    out->compared[out->num_compared - 1].name = ot_node_child(file, "name")->text;
  }
  return OT_OK;
}

ot_status ot_web_ask(ot_web *web, ot_node *request) {
  ot_arena *const arena = &web->plan;
  ot_plan_request *const r = &web->request;
  controls asked;
  ot_imported *script;
  OT_TRY(read_script(ot_node_child(request, "script"), arena, &script));
  OT_TRY(read_controls(ot_node_child(request, "question"), arena, &asked));
  OT_TRY(read_machine(request, script, arena, &asked.question));
  if (script) ot_question_take_import(script, arena, &asked.question);
  OT_TRY(ot_plan_request_begin(&asked.question, arena, r));
  r->model_name = script ? script->model_name : asked.model_name;
  r->model_source = !script && asked.model_source[0] != '\0' ? asked.model_source : NULL;
  OT_TRY(read_run(request, script, arena, r));
  if (script) OT_TRY(ot_plan_request_fit_import(script, arena, r));
  OT_TRY(ot_plan_request_end(arena, r));
  OT_TRY(read_comparison(request, arena, r));
  const ot_plan_build build = {.request = r,
                               .top = asked.top,
                               .variants = asked.variants,
                               .simple = asked.simple,
                               .price = asked.price};
  OT_TRY(ot_plan_page_build(&build, arena, &web->page));
  web->asked = true;
  return OT_OK;
}
