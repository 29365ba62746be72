// SPDX-License-Identifier: Apache-2.0
// torchtitan: keys of 2024 are moved to where they are today, then read by torchtitan_keys.c. Its
// models are named, not described: the ones that are presets here are known.
#include "base/text.h"
#include "files/tree_file.h"
#include "import/import_parts.h"
#include "import/torchtitan_keys.h"

// torchtitan/models/*/__init__.py
static const struct {
  const char *name, *flavor, *preset;
} models[] = {
    {"llama3", "8B", "llama3.1-8b"},
    {"llama3", "70B", "llama3.1-70b"},
    {"llama3", "405B", "llama3.1-405b"},
    {"qwen3", "0.6B", "qwen3-0.6b"},
    {"qwen3", "1.7B", "qwen3-1.7b"},
    {"qwen3", "4B", "qwen3-4b"},
    {"qwen3", "8B", "qwen3-8b"},
    {"qwen3", "14B", "qwen3-14b"},
    {"qwen3", "32B", "qwen3-32b"},
    {"qwen3", "30B-A3B", "qwen3-30b-a3b"},
    {"qwen3", "235B-A22B", "qwen3-235b-a22b"},
    {"deepseek_v3", "671B", "deepseek-v3"},
};

bool ot_torchtitan_is(const ot_import *import) {
  return ot_import_has_line(import, "[model]") && ot_import_has_line(import, "[training]");
}

// ---- keys of 2024 ----

static ot_node *section_of(const ot_import *import, ot_node *tree, const char *name) {
  ot_node *const found = ot_node_child(tree, name);
  if (found) return found;
  ot_node *const made = ot_node_create(import->arena, OT_NODE_MAP);
  made->source = import->path;
  return ot_node_put(import->arena, tree, name, made);
}

static bool is_degree(const char *key) {
  const ot_key *const section = ot_schema_find(&ot_torchtitan_schema, 0, "parallelism");
  return ot_schema_find(section->object, 0, key) != NULL;
}

// Degrees from `from` to [parallelism]; with `all`, other keys too.
static void move_degrees(const ot_import *import, ot_node *tree, const char *from, bool all) {
  ot_node *const section = ot_node_child(tree, from);
  ot_node *next = NULL;
  if (!section || section->kind != OT_NODE_MAP) return;
  ot_node *const degrees = section_of(import, tree, "parallelism");
  for (ot_node *child = section->first; child; child = next) {
    next = child->next;
    if (!all && !is_degree(child->key)) continue;
    ot_node_remove(section, child);
    ot_node_append(degrees, child);
  }
  if (all) ot_node_remove(tree, section);
}

// ---- what they mean ----

// "8B_flex" is an "8B" with other kernels.
static bool is_flavor(const char *known, const char *given) {
  const int64_t length = ot_text_length(known);
  return ot_text_starts_with(given, known) && (given[length] == '\0' || given[length] == '_');
}

static ot_status build_model(ot_import *import, const ot_torchtitan_config *config) {
  ot_imported *const out = import->out;
  for (int i = 0; i < OT_COUNT(models); i++) {
    if (!ot_text_equal(models[i].name, config->model.name)) continue;
    if (!is_flavor(models[i].flavor, config->model.flavor)) continue;
    const ot_config_request request = {.presets = *import->presets};
    out->model_name = models[i].preset;
    ot_config_model *const read = ot_arena_take(import->arena, sizeof *read);
    OT_TRY(ot_config_load_model(models[i].preset, &request, import->arena, read));
    out->model = read->model;
    out->model_keys = read->keys;
    return OT_OK;
  }
  ot_text_builder known = {.arena = import->arena};
  for (int i = 0; i < OT_COUNT(models); i++) {
    ot_text_appendf(&known, "%s%s %s", i > 0 ? ", " : "", models[i].name, models[i].flavor);
  }
  ot_fail(OT_USAGE, "model.flavor: %s %s is not known (%s)", config->model.name,
          config->model.flavor, import->path);
  return ot_fail_hint(OT_USAGE, "known are %s", known.text);
}

static ot_pipeline pipeline_of(ot_import *import, const ot_torchtitan_degrees *d) {
  if (d->pp == 1) return OT_PIPELINE_1F1B;
  if (d->schedule == OT_TORCHTITAN_GPIPE) return OT_PIPELINE_GPIPE;
  if (d->schedule == OT_TORCHTITAN_ZB_V) return OT_PIPELINE_ZB_V;
  if (d->schedule == OT_TORCHTITAN_1F1B) return OT_PIPELINE_1F1B;
  if (d->schedule == OT_TORCHTITAN_INTERLEAVED_ZB) {
    ot_import_note(import, "InterleavedZeroBubble is priced as Interleaved1F1B");
  }
  return OT_PIPELINE_INTERLEAVED;
}

// torchtitan/distributed/pipeline_parallel.py: embedding and head count as a layer each; without a
// number of layers, looped orders have two chunks.
static int chunks_of(const ot_imported *out, const ot_torchtitan_degrees *d) {
  if (out->pipeline != OT_PIPELINE_INTERLEAVED) return out->pipeline == OT_PIPELINE_ZB_V ? 2 : 1;
  if (d->layers_per_stage == 0) return 2;
  const int64_t stages =
      (out->model.num_layers + 2 + d->layers_per_stage - 1) / d->layers_per_stage;
  return stages > d->pp ? (int)(stages / d->pp) : 1;
}

// By default, weights are let go after their forward but in pipelines.
static int zero_of(const ot_torchtitan_degrees *d) {
  if (d->shard == 1) return 0;
  const bool resharded = d->reshard == 1 || (d->reshard == 0 && d->pp == 1);
  return resharded ? 3 : 2;
}

static const char *precision_of(const ot_import *import, const ot_torchtitan_config *config) {
  if (config->training.products == 1) return "fp32";
  for (int64_t i = 0; i < config->model.num_converters; i++) {
    if (ot_text_find(config->model.converters[i], "float8")) return "fp8";
  }
  return ot_import_has_line(import, "[quantize") ? "fp8" : NULL;
}

static ot_status build_step(ot_import *import, const ot_torchtitan_config *config) {
  static const ot_recompute modes[] = {OT_RECOMPUTE_NONE, OT_RECOMPUTE_SELECTIVE,
                                       OT_RECOMPUTE_FULL};
  const ot_torchtitan_degrees *const d = &config->degrees;
  const ot_torchtitan_training *const t = &config->training;
  ot_imported *const out = import->out;
  OT_CHECK(d->shard != 0, OT_USAGE,
           "parallelism.data_parallel_shard_degree: 0 is out of range; allowed: -1, or 1 and more "
           "(%s)",
           import->path);
  OT_CHECK(t->global_batch != 0, OT_USAGE,
           "training.global_batch_size: 0 is out of range; allowed: -1, or 1 and more (%s)",
           import->path);
  out->engine = "torchtitan";
  out->precision = precision_of(import, config);
  out->tp = d->tp;
  out->pp = d->pp;
  out->cp = d->cp;
  out->ep = d->ep;
  out->etp = d->etp;
  out->dp_replicate = d->replicate;
  out->dp = d->shard > 0 ? d->replicate * d->shard : 0;
  out->zero = zero_of(d);
  out->pipeline = pipeline_of(import, d);
  out->vpp = chunks_of(out, d);
  out->recompute = modes[config->checkpointing.mode];
  out->micro_batch_size = d->pp > 1 ? d->pipeline_micro_batch : t->local_batch;
  out->global_batch_size = t->global_batch > 0 ? t->global_batch : 0;
  out->local_batch_size = t->global_batch > 0 ? 0 : t->local_batch;
  out->sequence_length = t->sequence;
  return OT_OK;
}

ot_status ot_torchtitan_import(ot_import *import) {
  const ot_tree_origin origin = {.name = import->path};
  ot_torchtitan_config config;
  ot_node *tree;
  OT_TRY(ot_tree_parse_toml(&origin, import->text, import->bytes, import->arena, &tree));
  move_degrees(import, tree, "training", false);
  move_degrees(import, tree, "experimental", true);
  OT_TRY(ot_schema_read(&ot_torchtitan_schema, tree, import->arena, &config));
  ot_import_ignored(import, &ot_torchtitan_schema, tree, "");
  OT_TRY(build_model(import, &config));
  return build_step(import, &config);
}
