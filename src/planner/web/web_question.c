// SPDX-License-Identifier: Apache-2.0
// The question of a request: its options by the table of answer/question_keys.c; model, cluster,
// engine and settings by the tables of their files.
#include "base/text.h"
#include "describe/cluster_keys.h"
#include "describe/model_keys.h"
#include "describe/run_keys.h"
#include "software/engine_keys.h"
#include "software/megatron.h"
#include "web/web_parts.h"

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

// A text of the request, or null.
static const char *text_of(const ot_node *request, const char *key) {
  const ot_node *const node = ot_node_child(request, key);
  return node && node->text && node->text[0] != '\0' ? node->text : NULL;
}

// The options of the question, with the place that a message names.
static ot_node *options_of(const ot_node *request, ot_arena *arena) {
  ot_node *const question = ot_node_child(request, "question");
  for (ot_node *option = question ? question->first : NULL; option; option = option->next)
    ot_node_set_source(option, ot_question_option(option->key, arena));
  return question;
}

ot_status ot_web_ask(ot_web *web, ot_node *request, bool brief) {
  ot_arena *const arena = &web->plan;
  ot_plan_request *const r = &web->request;
  ot_question asked;
  ot_imported *script;
  *r = (ot_plan_request){0};
  OT_TRY(read_script(ot_node_child(request, "script"), arena, &script));
  OT_TRY(ot_question_read(options_of(request, arena), arena, &asked));
  OT_TRY(read_machine(request, script, arena, &asked));
  if (script) ot_question_take_import(script, arena, &asked);
  OT_TRY(ot_plan_request_begin(&asked, arena, r));
  r->model_name = script ? script->model_name : text_of(request, "model_name");
  r->model_source = script ? NULL : text_of(request, "model_source");
  OT_CHECK(r->model_name, OT_USAGE, "model_name: it is missing");
  OT_TRY(read_run(request, script, arena, r));
  if (script) OT_TRY(ot_plan_request_fit_import(script, arena, r));
  OT_TRY(ot_plan_request_end(arena, r));
  OT_TRY(read_comparison(request, arena, r));
  const ot_plan_build build = {.request = r, .brief = brief};
  OT_TRY(ot_plan_page_build(&build, arena, &web->page));
  web->asked = true;
  return OT_OK;
}
