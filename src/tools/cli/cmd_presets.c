// SPDX-License-Identifier: Apache-2.0
// `orthant presets`: lists the built-in models, clusters and engines, or prints one in full.
#include <stdio.h>

#include "base/json_writer.h"
#include "base/quote.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "cli/installed.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "describe/cluster_keys.h"
#include "describe/model_keys.h"
#include "files/config_file.h"
#include "software/engine_keys.h"

static ot_status load(const char *name, const ot_config_request *request, ot_arena *arena,
                      ot_model *model) {
  ot_config_model *const read = ot_arena_take(arena, sizeof *read);
  OT_TRY(ot_config_load_model(name, request, arena, read));
  ot_output_notes(&read->notes);
  *model = read->model;
  return OT_OK;
}

static void write_model(const char *name, const ot_model *model, ot_json_writer *w) {
  ot_json_object(w, NULL);
  ot_json_text(w, "name", name);
  ot_json_text(w, "model_type", model->model_type);
  ot_json_integer(w, "parameters", ot_model_parameters(model));
  ot_json_integer(w, "active_parameters", ot_model_active_parameters(model));
  ot_json_integer(w, "layers", model->num_layers);
  ot_json_integer(w, "hidden_size", model->hidden_size);
  ot_json_integer(w, "heads", model->num_heads);
  ot_json_integer(w, "kv_heads", model->num_kv_heads);
  ot_json_integer(w, "vocab_size", model->vocab_size);
  ot_json_integer(w, "max_positions", model->max_positions);
  ot_json_end(w);
}

// ---- clusters ----

static ot_status load_cluster(const char *name, const ot_config_request *request, ot_arena *arena,
                              ot_cluster *out) {
  bool found;
  return ot_cluster_file_load(name, &request->presets, arena, out, &found);
}

static void write_cluster(const ot_cluster *c, ot_json_writer *w) {
  ot_json_object(w, NULL);
  ot_json_text(w, "name", c->name);
  ot_json_integer(w, "num_devices", c->num_devices);
  ot_json_integer(w, "memory_bytes", c->device.memory_bytes);
  ot_json_integer(w, "usable_memory_bytes", ot_device_capacity(&c->device));
  if (c->device.power_w > 0) ot_json_real(w, "power_w", c->device.power_w);
  ot_json_real(w, "memory_bytes_per_s", c->device.memory_bytes_per_s);
  ot_json_object(w, "flops_per_s");
  for (int i = 0; i < OT_DTYPE_COUNT; i++) {
    const double flops = c->device.flops[i];
    if (flops > 0) ot_json_real(w, ot_dtype_name((ot_dtype)i), flops);
  }
  ot_json_end(w);
  ot_json_array(w, "levels");
  for (int i = 0; i < c->num_levels; i++) {
    ot_json_object(w, NULL);
    ot_json_text(w, "name", c->level[i].name);
    ot_json_integer(w, "size", c->level[i].size);
    ot_json_real(w, "bytes_per_s", c->level[i].bytes_per_s);
    ot_json_real(w, "latency_s", c->level[i].latency_s);
    ot_json_end(w);
  }
  ot_json_end(w);
  ot_json_text(w, "basis", ot_cluster_basis_name(c->basis));
  ot_json_end(w);
}

// "989.5 bf16", or the rate of the first supported type.
static const char *rate_of(const ot_cluster *c, ot_arena *arena) {
  static const ot_dtype types[] = {OT_BF16, OT_F16, OT_F32};
  for (int i = 0; i < OT_COUNT(types); i++) {
    const double flops = c->device.flops[types[i]];
    if (flops == 0) continue;
    const char *const type = ot_dtype_name(types[i]);
    return ot_arena_format(arena, "%.4g %s", flops / 1e12, type);
  }
  return "";
}

static void print_cluster(const ot_cluster *c, ot_arena *arena) {
  printf("%-14s %7d %7.4g GB %12s  %-12s ", c->name, c->num_devices,
         (double)c->device.memory_bytes / 1e9, rate_of(c, arena), ot_cluster_basis_name(c->basis));
  for (int i = 0; i < c->num_levels; i++) {
    const ot_link_level *const level = &c->level[i];
    printf("%s%s of %d: %.4g", i > 0 ? ", " : "", level->name, level->size,
           level->bytes_per_s / 1e9);
  }
  printf("\n");
}

static ot_status list_clusters(const ot_config_request *request, ot_arena *arena) {
  const ot_preset_names names = ot_presets_list(&request->presets, OT_PRESET_CLUSTER, arena);
  if (names.count == 0) return OT_OK;
  printf("\n%-14s %7s %10s %12s  %-12s %s\n", "cluster", "devices", "memory", "TFLOP/s", "basis",
         "links of a device, GB/s one way");
  for (int64_t i = 0; i < names.count; i++) {
    ot_cluster cluster;
    OT_TRY(load_cluster(names.name[i], request, arena, &cluster));
    print_cluster(&cluster, arena);
  }
  printf(
      "basis: origin of the constants of a cluster (docs/pricing.md): fitted to published runs on "
      "it,\nextrapolated from devices of its generation, guessed, or measured by `orthant "
      "bench`\n");
  return OT_OK;
}

// ---- engines ----

// The keys of the cluster or engine called `name`; null if there is none.
static ot_status find_keys(const char *name, const ot_config_request *request, ot_arena *arena,
                           const ot_node **out) {
  const ot_presets *const presets = &request->presets;
  *out = NULL;
  if (ot_presets_find(presets, OT_PRESET_CLUSTER, name, arena)) {
    ot_cluster *const cluster = ot_arena_take(arena, sizeof *cluster);
    OT_TRY(load_cluster(name, request, arena, cluster));
    *out = ot_cluster_write(cluster, arena);
  } else if (ot_text_equal(name, ot_engine_orthant.name) ||
             ot_presets_find(presets, OT_PRESET_ENGINE, name, arena)) {
    const ot_engine *engine;
    OT_TRY(ot_engine_file_load(name, presets, arena, &engine));
    *out = ot_engine_write(engine, arena);
  }
  return OT_OK;
}

// Orthant first, then the presets; each as a tree of its keys.
typedef struct engine_list {
  int64_t count;
  const ot_node **keys;  // [count]
} engine_list;

static ot_status load_engines(const ot_config_request *request, ot_arena *arena, engine_list *out) {
  const ot_preset_names names = ot_presets_list(&request->presets, OT_PRESET_ENGINE, arena);
  *out = (engine_list){names.count + 1, ot_arena_array(arena, names.count + 1, sizeof *out->keys)};
  for (int64_t i = 0; i < out->count; i++) {
    const char *const name = i == 0 ? ot_engine_orthant.name : names.name[i - 1];
    OT_TRY(find_keys(name, request, arena, &out->keys[i]));
  }
  return OT_OK;
}

static const char *text_of(const ot_node *map, const char *key) {
  return ot_node_child(map, key)->text;
}

// Prints the communication that overlaps with compute: the keys that begin with overlap_.
static void print_overlaps(const ot_node *keys) {
  static const char prefix[] = "overlap_";
  const char *before = "";
  for (const ot_node *key = keys->first; key; key = key->next) {
    if (!ot_text_starts_with(key->key, prefix) || ot_text_equal(key->text, "false")) continue;
    if (ot_text_equal(key->text, "none")) continue;
    printf("%s%s", before, key->key + sizeof prefix - 1);
    before = ", ";
  }
  printf("\n");
}

static ot_status list_engines(const ot_config_request *request, ot_arena *arena) {
  engine_list list;
  OT_TRY(load_engines(request, arena, &list));
  printf("\n%-27s  %-19s  %-9s  %s\n", "engine", "precision", "attention",
         "runs concurrently with compute");
  for (int64_t i = 0; i < list.count; i++) {
    const ot_node *const keys = list.keys[i];
    printf("%-27s  %-19s  %-9s  ", text_of(keys, "name"), text_of(keys, "recipe"),
           text_of(ot_node_child(keys, "kernels"), "attention"));
    print_overlaps(keys);
  }
  return OT_OK;
}

// ---- the list ----

static ot_status list_json(const ot_config_request *request, ot_arena *arena) {
  const ot_preset_names models = ot_presets_list(&request->presets, OT_PRESET_MODEL, arena);
  const ot_preset_names clusters = ot_presets_list(&request->presets, OT_PRESET_CLUSTER, arena);
  engine_list engines;
  OT_TRY(load_engines(request, arena, &engines));
  ot_json_writer w = ot_json_begin(arena, 2);
  ot_json_object(&w, NULL);
  ot_json_array(&w, "models");
  for (int64_t i = 0; i < models.count; i++) {
    ot_model model;
    OT_TRY(load(models.name[i], request, arena, &model));
    write_model(models.name[i], &model, &w);
  }
  ot_json_end(&w);
  ot_json_array(&w, "clusters");
  for (int64_t i = 0; i < clusters.count; i++) ot_json_text(&w, NULL, clusters.name[i]);
  ot_json_end(&w);
  ot_json_array(&w, "cluster_details");
  for (int64_t i = 0; i < clusters.count; i++) {
    ot_cluster cluster;
    OT_TRY(load_cluster(clusters.name[i], request, arena, &cluster));
    write_cluster(&cluster, &w);
  }
  ot_json_end(&w);
  ot_json_array(&w, "engines");
  for (int64_t i = 0; i < engines.count; i++) {
    ot_json_text(&w, NULL, text_of(engines.keys[i], "name"));
  }
  ot_json_end(&w);
  ot_json_array(&w, "engine_details");
  for (int64_t i = 0; i < engines.count; i++) ot_node_write_json(engines.keys[i], NULL, &w);
  ot_json_end(&w);
  ot_json_end(&w);
  puts(w.text);
  return OT_OK;
}

static ot_status list_text(const ot_config_request *request, ot_arena *arena) {
  const ot_preset_names models = ot_presets_list(&request->presets, OT_PRESET_MODEL, arena);
  printf("%-16s %-12s %15s %7s %7s %6s %9s %8s %9s\n", "model", "type", "parameters", "layers",
         "hidden", "heads", "kv heads", "vocab", "positions");
  for (int64_t i = 0; i < models.count; i++) {
    ot_model m;
    OT_TRY(load(models.name[i], request, arena, &m));
    printf("%-16s %-12s %15lld %7lld %7lld %6lld %9lld %8lld %9lld\n", models.name[i], m.model_type,
           (long long)ot_model_parameters(&m), (long long)m.num_layers, (long long)m.hidden_size,
           (long long)m.num_heads, (long long)m.num_kv_heads, (long long)m.vocab_size,
           (long long)m.max_positions);
  }
  OT_TRY(list_clusters(request, arena));
  return list_engines(request, arena);
}

// Prints a model with all keys, including defaults.
static ot_status show_model(const char *name, const ot_config_request *request, bool json,
                            ot_arena *arena) {
  ot_model model;
  OT_TRY(load(name, request, arena, &model));
  const ot_node *const keys = ot_model_write_config(&model, arena);
  if (json) {
    ot_json_writer w = ot_json_begin(arena, 2);
    ot_json_object(&w, NULL);
    ot_json_text(&w, "name", name);
    ot_json_integer(&w, "parameters", ot_model_parameters(&model));
    ot_node_write_json(keys, "config", &w);
    ot_json_end(&w);
    puts(w.text);
    return OT_OK;
  }
  ot_text_builder text = {.arena = arena};
  ot_text_put(&text, "# ");
  ot_quote_comment(&text, name);
  ot_text_appendf(&text, ": %lld parameters\n", (long long)ot_model_parameters(&model));
  ot_node_print_yaml(keys, 0, &text);
  fputs(text.text, stdout);
  return OT_OK;
}

static void print_keys(const ot_node *keys, bool json, ot_arena *arena) {
  if (json) {
    ot_json_writer w = ot_json_begin(arena, 2);
    ot_node_write_json(keys, NULL, &w);
    puts(w.text);
    return;
  }
  ot_text_builder text = {.arena = arena};
  ot_node_print_yaml(keys, 0, &text);
  fputs(text.text, stdout);
}

static ot_status show(const char *name, const ot_config_request *request, bool json,
                      ot_arena *arena) {
  const ot_node *keys;
  OT_TRY(find_keys(name, request, arena, &keys));
  if (!keys) return show_model(name, request, json, arena);
  print_keys(keys, json, arena);
  return OT_OK;
}

static void print_cluster_keys(ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_cluster_keys_table(&text);
  fputs(text.text, stdout);
}

static ot_status choose(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  const ot_config_request request = {
      .sets = ot_options_values(options, "set"),
      .num_sets = ot_options_count(options, "set"),
      .presets = ot_installed_presets(arena),
  };
  const char *const name = ot_options_argument(options, 0);
  const bool json = ot_options_json(options);
  if (ot_options_flag(options, "keys")) {
    OT_CHECK(!name && !json, OT_USAGE,
             "--keys prints a table of text of its own; it goes with "
             "neither NAME nor --json");
    print_cluster_keys(arena);
    return OT_OK;
  }
  if (name) return show(name, &request, json, arena);
  return json ? list_json(&request, arena) : list_text(&request, arena);
}

static const ot_option rows[] = {
    {"set", OT_OPTION_SETTING, "model.KEY=VALUE", .help = "override a key of the model"},
    {"keys", OT_OPTION_FLAG, .help = "print a table of the keys of a cluster file"},
};

const ot_verb ot_verb_presets = {
    .name = "presets",
    .summary = "built-in models, clusters and engines",
    .arguments = "[NAME]",
    .max_arguments = 1,
    .details =
        "Without NAME: the list. With the name of a model (a preset, an HF config.json or a\n"
        "directory that holds one): all of its keys in HF's spelling; of a cluster or an\n"
        "engine: its keys, as in a file for --cluster or --engine. --keys explains the keys of\n"
        "a cluster file.",
    .examples =
        "  orthant presets\n  orthant presets llama3-8b --json\n"
        "  orthant presets megatron-core >my-engine.yaml\n"
        "  orthant presets --keys",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = choose,
};
