// SPDX-License-Identifier: Apache-2.0
// Reads the files; answer/compare.c takes from them what is compared.
#include "cli/plan_compare.h"

#include "base/text.h"
#include "cli/installed.h"
#include "describe/run_keys.h"
#include "files/disk.h"
#include "files/tree_file.h"
#include "software/megatron.h"

typedef struct comparer {
  const char *path;
  ot_presets presets;
  ot_plan_request *request;
  ot_arena *arena;
} comparer;

static ot_status read_run(const comparer *c) {
  ot_config *const config = ot_arena_take(c->arena, sizeof *config);
  const ot_config_request request = {.path = c->path, .presets = c->presets};
  OT_TRY(ot_config_load(&request, c->arena, config));
  return ot_plan_compare_run(c->request, c->path, &config->run, c->arena);
}

static ot_status read_import(const comparer *c) {
  ot_imported i;
  const ot_engine *engine;
  OT_TRY(ot_import_read(c->path, &c->presets, c->arena, &i));
  OT_TRY(ot_engine_file_load(i.engine, &c->presets, c->arena, &engine));
  return ot_plan_compare_import(c->request, c->path, &i, engine, c->arena);
}

// A map with the section `parallel` or `batch` is a RUN.yaml.
static bool is_run(const char *path, ot_arena *arena) {
  ot_node *tree;
  if (ot_text_ends_with(path, ".sh") || ot_text_ends_with(path, ".toml")) return false;
  if (ot_tree_load(path, arena, &tree) != OT_OK) return false;
  return ot_node_child(tree, "parallel") || ot_node_child(tree, "batch");
}

ot_status ot_plan_compare_read(const ot_options *options, ot_arena *arena,
                               ot_plan_request *request) {
  const int count = ot_options_count(options, "compare");
  comparer c = {.presets = ot_installed_presets(arena), .request = request, .arena = arena};
  request->compared = ot_arena_array(arena, count + 1, sizeof *request->compared);
  for (int i = 0; i < count; i++) {
    c.path = ot_options_values(options, "compare")[i];
    OT_TRY(is_run(c.path, arena) ? read_run(&c) : read_import(&c));
    request->compared[i].name = ot_disk_base_name(c.path);
  }
  return OT_OK;
}

// ---- the page ----

static bool is_local(const char *name) {
  const ot_key *const key = ot_schema_find(&ot_run_schema, 0, name);
  return key && key->local;
}

static const char *run_text(const ot_config *config, ot_arena *arena) {
  ot_json_writer w = ot_json_begin(arena, 0);
  ot_json_object(&w, NULL);
  for (const ot_node *n = config->settings->first; n; n = n->next) {
    if (!is_local(n->key)) ot_node_write_json(n, n->key, &w);
  }
  ot_json_object(&w, "data");
  ot_json_integer(&w, "sequence_length", config->run.data.sequence_length);
  ot_json_end(&w);
  ot_json_end(&w);
  return w.text;
}

ot_status ot_plan_page_script(const char *path, ot_arena *arena, const char **out) {
  enum { BYTES_MAX = 1 << 20 };
  ot_imported read;
  char *text;
  int64_t bytes;
  OT_TRY(ot_disk_read(arena, path, BYTES_MAX, &text, &bytes));
  const char *const name = ot_disk_base_name(path);
  *out = ot_megatron_script_import(name, text, arena, &read) == OT_OK ? text : NULL;
  return OT_OK;
}

ot_status ot_plan_page_text(const char *path, ot_arena *arena, const char **out) {
  ot_config *const config = ot_arena_take(arena, sizeof *config);
  const ot_config_request request = {.path = path, .presets = ot_installed_presets(arena)};
  if (!is_run(path, arena)) return ot_plan_page_script(path, arena, out);
  OT_TRY(ot_config_load(&request, arena, config));
  *out = run_text(config, arena);
  return OT_OK;
}
