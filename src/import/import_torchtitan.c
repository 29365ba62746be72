// SPDX-License-Identifier: Apache-2.0
// torchtitan: its TOML as torchtitan/config/job_config.py of 2025 spells and defaults it. Spellings
// of 2024 ([experimental], degrees in [training], batch_size) are converted. Its models are named,
// not described: those that are presets here are known.
#include "base/text.h"
#include "files/tree_file.h"
#include "import/import_parts.h"

// ---- keys ----

typedef struct model {
  const char *name, *flavor;
  const char **converters;  // [num_converters]
  int64_t num_converters;
} model;

typedef struct training {
  int64_t local_batch, global_batch, sequence;
  int products;  // 0 bfloat16, 1 float32
} training;

// Pipeline schedules, as in the table.
enum {
  ORDER_1F1B,
  ORDER_GPIPE,
  ORDER_INTERLEAVED,
  ORDER_INTERLEAVED_ZB,
  ORDER_ZB_V,
};

typedef struct parallelism {
  int replicate, shard, tp, pp, cp, ep, etp;
  int schedule;
  int64_t layers_per_stage, pipeline_micro_batch;
  int reshard;  // 0 default, 1 always, 2 never
} parallelism;

typedef struct checkpointing {
  int mode;  // 0 none, 1 selective, 2 full
} checkpointing;

typedef struct settings {
  model model;
  training training;
  parallelism degrees;
  checkpointing checkpointing;
} settings;

static const char *const schedules[] = {
    "1F1B|1f1b",     "GPipe|gpipe", "Interleaved1F1B|interleaved_1f1b", "InterleavedZeroBubble",
    "ZBVZeroBubble", NULL};
static const char *const reshards[] = {"default", "always", "never", NULL};
static const char *const products[] = {"bfloat16", "float32", NULL};
static const char *const checkpoint_modes[] = {"none", "selective", "full", NULL};
static const char *const only_false[] = {"false", NULL};
static const char *const only_empty[] = {"[]", "", "null", NULL};

// clang-format off
static const ot_key model_keys[] = {
    {"name", OT_KEY_TEXT, offsetof(model, name), "llama3", .help = "kind of model"},
    {"flavor", OT_KEY_TEXT, offsetof(model, flavor), "debugmodel", .help = "size of the model"},
    {"converters", OT_KEY_TEXT, offsetof(model, converters), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(model, num_converters), .help = "float8 or none"},
};

static const ot_schema model_schema = {
    "model of torchtitan", model_keys, OT_COUNT(model_keys), .size = sizeof(model),
    .inert = "tokenizer_path|hf_assets_path|print_after_conversion|norm_type"};

static const ot_key training_keys[] = {
    {"local_batch_size", OT_KEY_INTEGER, offsetof(training, local_batch), "8", 1, 1 << 30,
     .also = "batch_size", .help = "sequences per step on each data parallel rank"},
    {"global_batch_size", OT_KEY_INTEGER, offsetof(training, global_batch), "-1", -1, 1 << 30,
     .help = "sequences per step; -1: local_batch_size on each rank"},
    {"seq_len", OT_KEY_INTEGER, offsetof(training, sequence), "2048", 1, INT32_MAX,
     .help = "tokens per sequence"},
    {"mixed_precision_param", OT_KEY_CHOICE, offsetof(training, products), "bfloat16",
     .choices = products, .help = "dtype of GEMMs"},
    {"enable_cpu_offload", OT_KEY_FIXED, .choices = only_false, .help = "offloading is not priced"},
};

// Degrees in [training], as in 2024, are parsed by degree_keys.
static const ot_schema training_schema = {
    "training of torchtitan", training_keys, OT_COUNT(training_keys), .size = sizeof(training),
    .inert = "dataset|dataset_path|max_norm|steps|compile|gc_freq|gc_debug|seed|deterministic|"
             "warmup_steps|mixed_precision_reduce|dtype|debug_moe_force_load_balance|dump_folder"};

static const ot_key degree_keys[] = {
    {"data_parallel_replicate_degree", OT_KEY_INT, offsetof(parallelism, replicate), "1",
     1, 1 << 20, .help = "copies of the weights"},
    {"data_parallel_shard_degree", OT_KEY_INT, offsetof(parallelism, shard), "-1", -1, 1 << 20,
     .help = "ranks that shard the weights; -1: the remaining ranks"},
    {"tensor_parallel_degree", OT_KEY_INT, offsetof(parallelism, tp), "1", 1, 1 << 20,
     .help = "tensor parallel degree"},
    {"pipeline_parallel_degree", OT_KEY_INT, offsetof(parallelism, pp), "1", 1, 1 << 20,
     .help = "pipeline stages"},
    {"context_parallel_degree", OT_KEY_INT, offsetof(parallelism, cp), "1", 1, 1 << 20,
     .help = "context parallel degree"},
    {"expert_parallel_degree", OT_KEY_INT, offsetof(parallelism, ep), "1", 1, 1 << 20,
     .help = "expert parallel degree"},
    {"expert_tensor_parallel_degree", OT_KEY_INT, offsetof(parallelism, etp), "1", 1, 1 << 20,
     .help = "tensor parallel degree of experts"},
    {"pipeline_parallel_schedule", OT_KEY_CHOICE, offsetof(parallelism, schedule), "1F1B",
     .choices = schedules, .help = "pipeline schedule"},
    {"pipeline_parallel_layers_per_stage", OT_KEY_INTEGER, offsetof(parallelism, layers_per_stage),
     "null", 1, OT_MAX_LAYERS, .null_text = "0", .help = "layers per chunk of a stage"},
    {"pipeline_parallel_microbatch_size", OT_KEY_INTEGER,
     offsetof(parallelism, pipeline_micro_batch), "1", 1, 1 << 30,
     .help = "sequences per micro-batch of the pipeline"},
    {"fsdp_reshard_after_forward", OT_KEY_CHOICE, offsetof(parallelism, reshard), "default",
     .choices = reshards, .help = "weights are released after their forward"},
    {"pipeline_parallel_split_points", OT_KEY_FIXED, .choices = only_empty,
     .help = "stages are balanced by cost"},
    {"module_fqns_per_model_part", OT_KEY_FIXED, .choices = only_empty,
     .help = "stages are balanced by cost"},
};

static const ot_schema degree_schema = {
    "parallelism of torchtitan", degree_keys, OT_COUNT(degree_keys), .size = sizeof(parallelism),
    .inert = "enable_compiled_autograd|disable_loss_parallel|enable_async_tensor_parallel|"
             "enable_loss_parallel|context_parallel_rotate_method|pipeline_parallel_schedule_csv|"
             "pipeline_parallel_first_stage_less_layers|pipeline_parallel_last_stage_less_layers|"
             "pipeline_parallel_microbatches|custom_import|custom_args_module"};

static const ot_key checkpoint_keys[] = {
    {"mode", OT_KEY_CHOICE, offsetof(checkpointing, mode), "selective", .choices = checkpoint_modes,
     .help = "recomputed activations"},
};

static const ot_schema checkpoint_schema = {
    "activation checkpointing of torchtitan", checkpoint_keys, OT_COUNT(checkpoint_keys),
    .size = sizeof(checkpointing),
    .inert = "selective_ac_option|per_op_sac_force_recompute_mm_shapes_by_fqns|early_stop|"
             "preserve_rng_state|determinism_check|debug|memory_budget|"
             "visualize_memory_budget_pareto"};

static const ot_key keys[] = {
    {"model", OT_KEY_OBJECT, offsetof(settings, model), .object = &model_schema,
     .help = "the model"},
    {"training", OT_KEY_OBJECT, offsetof(settings, training), .object = &training_schema,
     .help = "batch and sequence"},
    {"parallelism", OT_KEY_OBJECT, offsetof(settings, degrees), .object = &degree_schema,
     .help = "degrees"},
    {"activation_checkpoint", OT_KEY_OBJECT, offsetof(settings, checkpointing),
     .object = &checkpoint_schema, .help = "recomputed activations"},
};

static const ot_schema schema = {
    "configuration of torchtitan", keys, OT_COUNT(keys), .size = sizeof(settings),
    .inert = "job|profiling|metrics|optimizer|lr_scheduler|checkpoint|compile|float8|quantize|mx|"
             "comm|fault_tolerance|validation|memory_estimation|debug"};
// clang-format on

// ---- models ----

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
  const ot_key *const section = ot_schema_find(&schema, 0, "parallelism");
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

// ---- interpretation ----

// "8B_flex" is an "8B" with other kernels.
static bool is_flavor(const char *known, const char *given) {
  const int64_t length = ot_text_length(known);
  return ot_text_starts_with(given, known) && (given[length] == '\0' || given[length] == '_');
}

static ot_status build_model(ot_import *import, const settings *config) {
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
  ot_fail(OT_USAGE, "model.flavor: %s %s is unknown (%s)", config->model.name, config->model.flavor,
          import->path);
  return ot_fail_hint(OT_USAGE, "one of %s", known.text);
}

static ot_pipeline pipeline_of(ot_import *import, const parallelism *d) {
  if (d->pp == 1) return OT_PIPELINE_1F1B;
  if (d->schedule == ORDER_GPIPE) return OT_PIPELINE_GPIPE;
  if (d->schedule == ORDER_ZB_V) return OT_PIPELINE_ZB_V;
  if (d->schedule == ORDER_1F1B) return OT_PIPELINE_1F1B;
  if (d->schedule == ORDER_INTERLEAVED_ZB) {
    ot_import_note(import, "InterleavedZeroBubble is priced as Interleaved1F1B");
  }
  return OT_PIPELINE_INTERLEAVED;
}

// torchtitan/distributed/pipeline_parallel.py: embedding and head count as one layer each; without
// a number of layers, looped schedules have two chunks.
static int chunks_of(const ot_imported *out, const parallelism *d) {
  if (out->pipeline != OT_PIPELINE_INTERLEAVED) return out->pipeline == OT_PIPELINE_ZB_V ? 2 : 1;
  if (d->layers_per_stage == 0) return 2;
  const int64_t stages =
      (out->model.num_layers + 2 + d->layers_per_stage - 1) / d->layers_per_stage;
  return stages > d->pp ? (int)(stages / d->pp) : 1;
}

// By default, weights are released after their forward, except in pipelines.
static int zero_of(const parallelism *d) {
  if (d->shard == 1) return 0;
  const bool resharded = d->reshard == 1 || (d->reshard == 0 && d->pp == 1);
  return resharded ? 3 : 2;
}

static const char *precision_of(const ot_import *import, const settings *config) {
  if (config->training.products == 1) return "fp32";
  for (int64_t i = 0; i < config->model.num_converters; i++) {
    if (ot_text_find(config->model.converters[i], "float8")) return "fp8";
  }
  return ot_import_has_line(import, "[quantize") ? "fp8" : NULL;
}

static ot_status build_step(ot_import *import, const settings *config) {
  static const ot_recompute modes[] = {OT_RECOMPUTE_NONE, OT_RECOMPUTE_SELECTIVE,
                                       OT_RECOMPUTE_FULL};
  const parallelism *const d = &config->degrees;
  const training *const t = &config->training;
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
  settings config;
  ot_node *tree;
  OT_TRY(ot_tree_parse_toml(&origin, import->text, import->bytes, import->arena, &tree));
  move_degrees(import, tree, "training", false);
  move_degrees(import, tree, "experimental", true);
  OT_TRY(ot_schema_read(&schema, tree, import->arena, &config));
  ot_import_ignored(import, &schema, tree, "");
  OT_TRY(build_model(import, &config));
  return build_step(import, &config);
}
