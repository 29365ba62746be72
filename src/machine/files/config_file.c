// SPDX-License-Identifier: Apache-2.0
// Builds one tree from the run file, the model file and --set, then parses it with the table. Also
// resolves names of clusters and engines.
#include "files/config_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/quote.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "describe/cluster_keys.h"
#include "describe/run_keys.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "files/tree_file.h"
#include "host/heap.h"
#include "software/engine_keys.h"

typedef struct loader {
  const ot_config_request *request;
  ot_arena *arena;
  ot_settings settings;   // of the run
  const char *directory;  // current directory
  const char *model_source;
  ot_config_notes *notes;
} loader;

// ---- --set ----

// One parsed --set.
typedef struct assignment {
  const char *path;
  const char *value;
  const char *source;  // "--set PATH"
} assignment;

static ot_status split_setting(const loader *l, const char *text, assignment *out) {
  const char *const equals = strchr(text, '=');
  OT_CHECK(equals && equals > text, OT_USAGE, "\"%s\" is not KEY=VALUE (--set)", text);
  out->path = ot_arena_text(l->arena, text, equals - text);
  out->value = equals + 1;
  out->source = ot_arena_format(l->arena, "--set %s", out->path);
  return OT_OK;
}

const char *ot_config_setting(ot_arena *arena, const char *key, const char *text) {
  ot_text_builder out = {.arena = arena};
  ot_text_put(&out, key);
  ot_text_put(&out, "=");
  ot_quote_yaml(&out, text);
  return ot_text_builder_text(&out);
}

static ot_status parse_value(const loader *l, const assignment *a, ot_node **value) {
  const ot_tree_origin origin = {.name = a->source, .directory = l->directory};
  if (a->value[0] == '\0') {
    *value = ot_node_text(l->arena, "");
  } else {
    OT_TRY(ot_tree_parse_yaml(&origin, a->value, ot_text_length(a->value), l->arena, value));
  }
  // For the file reader a null document is an empty map.
  const bool null = ot_text_equal(a->value, "null") || ot_text_equal(a->value, "~");
  if (null) *value = ot_node_create(l->arena, OT_NODE_NULL);
  ot_node_set_source(*value, a->source);
  return OT_OK;
}

static bool is_of_model(const assignment *a) { return strncmp(a->path, "model.", 6) == 0; }

static ot_status assign(loader *l, const assignment *a) {
  ot_node *const model = ot_node_child(l->settings.tree, "model");
  if (is_of_model(a) && strcmp(a->value, "ignore") == 0) {
    if (!model || model->kind != OT_NODE_MAP) return OT_OK;
    return ot_model_ignore_key(model, a->path + strlen("model."), a->source, l->arena);
  }
  ot_node *value;
  OT_TRY(parse_value(l, a, &value));
  return ot_settings_put(&l->settings, a->path, value);
}

// Applies the --set settings that replace the whole model, or all others.
static ot_status apply_sets(loader *l, bool whole_model) {
  for (int i = 0; i < l->request->num_sets; i++) {
    assignment a = {0};
    OT_TRY(split_setting(l, l->request->sets[i], &a));
    if ((strcmp(a.path, "model") == 0) != whole_model) continue;
    OT_TRY(assign(l, &a));
  }
  return OT_OK;
}

// Without a run, only model keys can be set.
static ot_status check_sets_of_model(const loader *l) {
  for (int i = 0; i < l->request->num_sets; i++) {
    assignment a = {0};
    OT_TRY(split_setting(l, l->request->sets[i], &a));
    OT_CHECK(is_of_model(&a), OT_USAGE,
             "only keys of the model can be set here: model.KEY=VALUE (%s)", a.source);
  }
  return OT_OK;
}

// ---- The model ----

static const char *absolute(const loader *l, const ot_node *node) {
  if (node->text[0] == '/') return node->text;
  return ot_disk_join(l->arena, node->directory ? node->directory : l->directory, node->text);
}

// Fails with a hint when no preset has this name.
static ot_status unknown_model(const loader *l, const ot_node *node) {
  ot_fail(OT_USAGE, "model: no preset and no file is called \"%s\" (%s)", node->text,
          ot_node_place(l->arena, node));
  if (ot_presets_suggest(&l->request->presets, OT_PRESET_MODEL, node->text, l->arena))
    return OT_USAGE;
  return ot_fail_hint(OT_USAGE, "`orthant presets` lists the presets");
}

// Finds the config.json of a model's name.
static ot_status find_model(const loader *l, const ot_node *node, const char **path) {
  *path = ot_presets_find(&l->request->presets, OT_PRESET_MODEL, node->text, l->arena);
  if (*path) return OT_OK;
  const char *const file = absolute(l, node);
  *path = file;
  if (ot_disk_is_directory(file)) {
    *path = ot_disk_join(l->arena, file, "config.json");
    OT_CHECK(ot_disk_is_file(*path), OT_ENVIRONMENT, "model: the directory has no config.json (%s)",
             file);
    return OT_OK;
  }
  if (ot_disk_is_file(file)) return OT_OK;
  if (!strchr(node->text, '/') && !ot_text_ends_with(node->text, ".json")) {
    return unknown_model(l, node);
  }
  return ot_fail(OT_ENVIRONMENT, "model: there is no file or directory %s (%s)", file,
                 ot_node_place(l->arena, node));
}

static void note_unread(const loader *l, ot_node *keys, const char *path) {
  const char *const unread = ot_model_drop_unread(keys, l->arena);
  if (!unread) return;
  char *const note = ot_arena_format(
      l->arena, "%s: keys that this model does not read are ignored: %s", path, unread);
  ot_text_make_printable(note);
  l->notes->text[l->notes->count++] = note;
}

static void note_types(const loader *l, const ot_model *model) {
  if (model->scale_block[0] == 0) return;
  l->notes->text[l->notes->count++] = ot_arena_format(
      l->arena,
      "%s: the weights are fp8 with a scale per block of %lld x %lld: they are dequantised "
      "when read, and trained in the dtypes of the run",
      l->model_source, (long long)model->scale_block[0], (long long)model->scale_block[1]);
}

// Replaces the model's name by the keys of its file.
static ot_status resolve_model(loader *l) {
  ot_node *const node = ot_node_child(l->settings.tree, "model");
  l->model_source = "";
  if (!node || node->kind != OT_NODE_SCALAR) return OT_OK;
  const char *path;
  ot_node *keys;
  OT_TRY(find_model(l, node, &path));
  OT_TRY(ot_tree_load(path, l->arena, &keys));
  OT_CHECK(keys->kind == OT_NODE_MAP, OT_USAGE, "model: not a map of HF keys (%s)", path);
  note_unread(l, keys, path);
  l->model_source = strcmp(path, absolute(l, node)) == 0 ? path : node->text;
  ot_node_replace(node, keys);
  return OT_OK;
}

// ---- Loading ----

static ot_status begin(loader *l, const ot_config_request *request, ot_arena *arena) {
  char directory[OT_PATH_BYTES];
  if (!getcwd(directory, sizeof directory)) return ot_disk_fail("find", ".", errno);
  *l = (loader){.request = request, .arena = arena};
  l->directory = ot_arena_text(arena, directory, ot_text_length(directory));
  l->settings = (ot_settings){.schema = &ot_run_schema, .arena = arena};
  return OT_OK;
}

// Model overrides of --set also apply to the files of initial weights.
static ot_status keep_sets_of_model(const loader *l, ot_run *run) {
  const char **const sets = ot_arena_array(l->arena, l->request->num_sets, sizeof *sets);
  run->num_sets = 0;
  for (int i = 0; i < l->request->num_sets; i++) {
    assignment a = {0};
    OT_TRY(split_setting(l, l->request->sets[i], &a));
    if (is_of_model(&a)) sets[run->num_sets++] = l->request->sets[i];
  }
  run->sets = sets;
  return OT_OK;
}

// runs/NAME next to NAME.yaml.
static void name_output(const loader *l, ot_run *run) {
  if (run->output[0] != '\0') return;
  const char *const path = l->request->path;
  const char *const file = path ? ot_disk_base_name(path) : "run";
  const char *const dot = strrchr(file, '.');
  const int64_t length = dot && dot > file ? dot - file : ot_text_length(file);
  const char *const name = ot_arena_text(l->arena, file, length);
  const char *const directory =
      l->settings.tree->directory ? l->settings.tree->directory : l->directory;
  run->output = ot_arena_format(l->arena, "%s/runs/%s", directory, name);
}

static void replace_text(const ot_node *settings, const char *key, const char *text) {
  ot_node *const node = ot_node_child(settings, key);
  node->kind = OT_NODE_SCALAR;
  node->quoted = true;
  node->text = text;
}

// Names of clusters and engines are presets unless they look like paths.
static bool is_path(const char *name) {
  return strchr(name, '/') || ot_text_ends_with(name, ".yaml");
}

static void resolve_cluster(const loader *l, ot_run *run) {
  const ot_node *const node = ot_node_child(l->settings.tree, "cluster");
  const bool file = is_path(run->cluster);
  if (node && file) run->cluster = absolute(l, node);
}

ot_status ot_config_load(const ot_config_request *request, ot_arena *arena, ot_config *out) {
  loader l;
  OT_TRY(begin(&l, request, arena));
  out->notes = (ot_config_notes){0};
  l.notes = &out->notes;
  if (request->text) {
    const ot_tree_origin origin = {.name = request->path, .directory = l.directory};
    OT_TRY(ot_tree_parse_json(&origin, request->text, ot_text_length(request->text), arena,
                              &l.settings.tree));
  } else if (request->path) {
    OT_TRY(ot_tree_load(request->path, arena, &l.settings.tree));
  } else {
    l.settings.tree = ot_node_create(arena, OT_NODE_MAP);
    l.settings.tree->source = "command line";
  }
  OT_CHECK(l.settings.tree->kind == OT_NODE_MAP, OT_USAGE,
           "the settings of a run are a map of keys (%s)", ot_node_place(arena, l.settings.tree));
  OT_TRY(apply_sets(&l, true));
  OT_TRY(resolve_model(&l));
  OT_TRY(apply_sets(&l, false));
  OT_TRY(ot_run_read(l.settings.tree, arena, &out->run, &out->settings));
  out->run.model_source = l.model_source;
  note_types(&l, &out->run.model);
  OT_TRY(keep_sets_of_model(&l, &out->run));
  name_output(&l, &out->run);
  replace_text(out->settings, "output", out->run.output);
  resolve_cluster(&l, &out->run);
  replace_text(out->settings, "cluster", out->run.cluster);
  return OT_OK;
}

ot_status ot_config_load_model(const char *source, const ot_config_request *request,
                               ot_arena *arena, ot_config_model *out) {
  loader l;
  OT_TRY(begin(&l, request, arena));
  out->notes = (ot_config_notes){0};
  l.notes = &out->notes;
  l.settings.tree = ot_node_create(arena, OT_NODE_MAP);
  ot_node *const name = ot_node_put(arena, l.settings.tree, "model", ot_node_text(arena, source));
  name->source = "--model";
  name->directory = l.directory;
  OT_TRY(check_sets_of_model(&l));
  OT_TRY(resolve_model(&l));
  OT_TRY(apply_sets(&l, false));
  out->keys = ot_node_child(l.settings.tree, "model");
  OT_TRY(ot_model_read(out->keys, arena, &out->model));
  note_types(&l, &out->model);
  return OT_OK;
}

// The tree of the preset or file called `name`, which `place` names; null: this machine, which was
// not measured.
static ot_status load_cluster_tree(const char *name, const char *place, const ot_presets *presets,
                                   ot_arena *arena, ot_node **tree) {
  const bool file = is_path(name);
  const char *const path = file ? name : ot_presets_find(presets, OT_PRESET_CLUSTER, name, arena);
  *tree = NULL;
  if (!path) {
    if (ot_text_equal(name, "this-machine")) return OT_OK;
    ot_fail(OT_USAGE, "cluster: no preset and no file is called \"%s\"%s", name, place);
    if (ot_presets_suggest(presets, OT_PRESET_CLUSTER, name, arena)) return OT_USAGE;
    return ot_fail_hint(OT_USAGE,
                        "`orthant presets` lists the presets, `orthant bench` measures "
                        "this machine");
  }
  return ot_tree_load(path, arena, tree);
}

// The file `name` that the file `from` names: relative to its folder.
static const char *next_to(const char *from, const char *name, ot_arena *arena) {
  const char *const slash = strrchr(from, '/');
  if (!is_path(name) || name[0] == '/' || !slash) return name;
  return ot_arena_format(arena, "%.*s%s", (int)(slash - from + 1), from, name);
}

// Maps of keys that name the cluster from which they derive.
typedef struct base_names {
  const ot_presets *presets;
  ot_arena *arena;
  const char *from;  // the file of the map
  int depth;         // of files that name each other
} base_names;

// Replaces the name at `key` of `map`, if there is one, by the keys of that cluster.
static ot_status load_base(const void *context, ot_node *map, const char *key) {
  enum { MOST_DEPTH = 8 };
  const base_names *const n = context;
  ot_node *const name = ot_node_child(map, key);
  ot_node *base;
  if (!name) return OT_OK;
  const char *const place = ot_node_place(n->arena, name);
  OT_CHECK(name->kind == OT_NODE_SCALAR, OT_USAGE, "%s: allowed: a preset or a file (%s)", key,
           place);
  if (n->depth >= MOST_DEPTH) {
    ot_fail(OT_USAGE, "%s: %d files derive from each other (%s)", key, MOST_DEPTH, place);
    return ot_fail_hint(OT_USAGE, "a preset, or a file without `base`");
  }
  const char *const file = next_to(n->from, name->text, n->arena);
  OT_TRY(load_cluster_tree(file, ot_arena_format(n->arena, " (%s)", place), n->presets, n->arena,
                           &base));
  OT_CHECK(ot_cluster_tree_is_alike(base), OT_USAGE,
           "%s: \"%s\" is no cluster of one kind of device (%s)", key, name->text, place);
  const base_names deeper = {n->presets, n->arena, is_path(file) ? file : "", n->depth + 1};
  OT_TRY(load_base(&deeper, base, "base"));
  ot_node_replace(name, base);
  return OT_OK;
}

ot_status ot_cluster_file_load(const char *name, const ot_presets *presets, ot_arena *arena,
                               ot_cluster *out, bool *found) {
  ot_node *tree;
  OT_TRY(load_cluster_tree(name, "", presets, arena, &tree));
  *found = tree != NULL;
  if (!tree) return OT_OK;
  const base_names names = {presets, arena, is_path(name) ? name : "", 0};
  OT_TRY(ot_cluster_each_base(tree, load_base, &names));
  return ot_cluster_read(tree, arena, out);
}

static ot_status save(const ot_cluster *cluster, const char *path, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "# Peak rates of one rank, and links between ranks.\n");
  ot_node_print_yaml(ot_cluster_write(cluster, arena), 0, &text);
  const char *const all = ot_text_builder_text(&text);
  return ot_output_file_replace(path, all, ot_text_length(all));
}

ot_status ot_cluster_file_save(const ot_cluster *cluster, const char *path) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = save(cluster, path, &arena);
  ot_heap_release(&heap);
  return status;
}

// ---- engines ----

static ot_status refuse_engine(const char *name, const ot_presets *presets, ot_arena *arena) {
  const ot_preset_names all = ot_presets_list(presets, OT_PRESET_ENGINE, arena);
  ot_text_builder names = {.arena = arena}, meant = {.arena = arena};
  ot_text_put(&names, ot_engine_orthant.name);
  for (int64_t i = 0; i < all.count; i++) {
    const bool near = ot_text_distance(name, all.name[i]) <= 2;
    ot_text_appendf(&names, ", %s", all.name[i]);
    if (near || (name[0] != '\0' && ot_text_starts_with(all.name[i], name)))
      ot_text_appendf(&meant, "%s%s", meant.length > 0 ? ", " : "", all.name[i]);
  }
  ot_fail(OT_USAGE, "--engine: there is no engine called \"%s\"", name);
  if (meant.length > 0)
    return ot_fail_hint(OT_USAGE, "did you mean %s?", ot_text_builder_text(&meant));
  return ot_fail_hint(OT_USAGE, "one of %s", ot_text_builder_text(&names));
}

ot_status ot_engine_file_load(const char *name, const ot_presets *presets, ot_arena *arena,
                              const ot_engine **out) {
  const bool file = is_path(name);
  const char *const path = file ? name : ot_presets_find(presets, OT_PRESET_ENGINE, name, arena);
  *out = &ot_engine_orthant;
  if (ot_text_equal(name, ot_engine_orthant.name)) return OT_OK;
  if (!path) return refuse_engine(name, presets, arena);
  ot_engine *const read = ot_arena_array(arena, 1, sizeof *read);
  ot_node *tree;
  OT_TRY(ot_tree_load(path, arena, &tree));
  *out = read;
  return ot_engine_read(tree, arena, read);
}
