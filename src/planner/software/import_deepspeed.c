// SPDX-License-Identifier: Apache-2.0
// DeepSpeed: its JSON (documentation, config-json; deepspeed/runtime/config.py, zero/config.py),
// alone, or as a script of Megatron-DeepSpeed names it. Alone it does not describe the model, which
// --model gives, nor recompute. "auto" (Hugging Face's Trainer) counts as not given.
#include "base/text.h"
#include "software/import_parts.h"

// ---- keys ----

typedef struct zero {
  int stage;
  int overlap;  // -1 = not given
  int64_t bucket, reuse, live, small;
  int64_t group;  // MiCS
} zero;

typedef struct switched {
  int enabled;  // 0 false, 1 true, -1 auto
} switched;

typedef struct types {
  int accumulate;  // -1 = not given, 0 fp32, 1 bf16, 2 fp16
} types;

typedef struct settings {
  int64_t batch, micro_batch, accumulation;  // -1 = not given
  zero zero;
  switched bf16, fp16;
  types types;
} settings;

static const char *const automatic[] = {"auto", NULL};
static const char *const truths[] = {"false|False", "true|True", NULL};
static const char *const only_true[] = {"true", "True", NULL};
static const char *const only_false[] = {"false", "False", NULL};
static const char *const only_null[] = {"null", NULL};
static const char *const only_one[] = {"1", "null", NULL};
static const char *const dtypes[] = {"fp32|float32", "bf16|bfloat16", "fp16|float16", NULL};
static const char *const adams[] = {"Adam", "AdamW", "adam", "adamw", "FusedAdam", NULL};

// clang-format off
static const ot_key zero_keys[] = {
    {"stage", OT_KEY_INT, offsetof(zero, stage), "0", 0, 3, .help = "stage of ZeRO"},
    {"overlap_comm", OT_KEY_CHOICE, offsetof(zero, overlap), "auto", .choices = truths,
     .help = "reductions are concurrent with the backward; by default of stage 3"},
    {"reduce_bucket_size", OT_KEY_INTEGER, offsetof(zero, bucket), "5e8", 1, 1e12,
     .choices = automatic, .help = "gradients of a reduction"},
    {"stage3_max_reuse_distance", OT_KEY_INTEGER, offsetof(zero, reuse), "1e9", 0, 1e13,
     .choices = automatic, .help = "weights used again within it stay gathered"},
    {"stage3_max_live_parameters", OT_KEY_INTEGER, offsetof(zero, live), "1e9", 0, 1e13,
     .choices = automatic, .help = "most weights that stay gathered"},
    {"stage3_param_persistence_threshold", OT_KEY_INTEGER, offsetof(zero, small), "1e5", 0, 1e7,
     .choices = automatic, .help = "tensors below it are not sharded; larger ones are priced so"},
    {"mics_shard_size", OT_KEY_INTEGER, offsetof(zero, group), "-1", -1, 1 << 20,
     .help = "ranks that shard the states; -1: all"},
    {"contiguous_gradients", OT_KEY_FIXED, .choices = only_true, .help = "priced with copies"},
    {"reduce_scatter", OT_KEY_FIXED, .choices = only_true, .help = "all-reduce is not priced"},
    {"allgather_partitions", OT_KEY_FIXED, .choices = only_true, .help = "not priced"},
    {"offload_optimizer", OT_KEY_FIXED, .choices = only_null, .help = "offloading is not priced"},
    {"offload_param", OT_KEY_FIXED, .choices = only_null, .help = "offloading is not priced"},
    {"cpu_offload", OT_KEY_FIXED, .choices = only_false, .help = "offloading is not priced"},
    {"zero_hpz_partition_size", OT_KEY_FIXED, .choices = only_one, .help = "ZeRO++ is not priced"},
    {"zero_quantized_weights", OT_KEY_FIXED, .choices = only_false, .help = "ZeRO++ not priced"},
    {"zero_quantized_gradients", OT_KEY_FIXED, .choices = only_false, .help = "ZeRO++ not priced"},
};

// Inert: keys that the engine file prices in any case, or that act outside a step.
static const ot_schema zero_schema = {
    "zero_optimization of DeepSpeed", zero_keys, OT_COUNT(zero_keys), .size = sizeof(zero),
    .inert = "allgather_bucket_size|stage3_prefetch_bucket_size|sub_group_size|"
             "round_robin_gradients|load_from_fp32_weights|elastic_checkpoint|"
             "stage3_gather_16bit_weights_on_model_save|ignore_unused_parameters|"
             "stage3_gather_fp16_weights_on_model_save|memory_efficient_linear"};

static const ot_key switched_keys[] = {
    {"enabled", OT_KEY_CHOICE, offsetof(switched, enabled), "auto", .choices = truths,
     .help = "GEMMs in this type"},
};
static const ot_schema switched_schema = {
    "precision of DeepSpeed", switched_keys, OT_COUNT(switched_keys), .size = sizeof(switched),
    .inert = "loss_scale|initial_scale_power|loss_scale_window|hysteresis|min_loss_scale|"
             "consecutive_hysteresis|auto_cast|immediate_grad_update"};

static const ot_key type_keys[] = {
    {"grad_accum_dtype", OT_KEY_CHOICE, offsetof(types, accumulate), "auto", .choices = dtypes,
     .null_text = "auto", .help = "type of accumulated gradients"},
};
static const ot_schema type_schema = {
    "data_types of DeepSpeed", type_keys, OT_COUNT(type_keys), .size = sizeof(types)};

static const ot_key optimizer_keys[] = {
    {"type", OT_KEY_FIXED, .choices = adams, .help = "states of other optimizers are not priced"},
};
static const ot_schema optimizer_schema = {
    "optimizer of DeepSpeed", optimizer_keys, OT_COUNT(optimizer_keys), .size = 1,
    .inert = "params|legacy_fusion"};

static const ot_key checkpoint_keys[] = {
    {"partition_activations", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
    {"cpu_checkpointing", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
};
static const ot_schema checkpoint_schema = {
    "activation_checkpointing of DeepSpeed", checkpoint_keys, OT_COUNT(checkpoint_keys), .size = 1,
    .inert = "contiguous_memory_optimization|number_checkpoints|profile|"
             "synchronize_checkpoint_boundary"};

static const ot_key keys[] = {
    {"train_batch_size", OT_KEY_INTEGER, offsetof(settings, batch), "auto", 1, 1 << 30,
     .choices = automatic, .help = "sequences per step"},
    {"train_micro_batch_size_per_gpu", OT_KEY_INTEGER, offsetof(settings, micro_batch), "auto",
     1, 1 << 30, .choices = automatic, .help = "sequences per forward and backward"},
    {"gradient_accumulation_steps", OT_KEY_INTEGER, offsetof(settings, accumulation), "auto",
     1, 1 << 20, .choices = automatic, .help = "micro-batches per step on each rank of dp"},
    {"zero_optimization", OT_KEY_OBJECT, offsetof(settings, zero), .object = &zero_schema,
     .help = "ZeRO"},
    {"bf16", OT_KEY_OBJECT, offsetof(settings, bf16), .also = "bfloat16",
     .object = &switched_schema, .help = "bf16"},
    {"fp16", OT_KEY_OBJECT, offsetof(settings, fp16), .object = &switched_schema, .help = "fp16"},
    {"data_types", OT_KEY_OBJECT, offsetof(settings, types), .object = &type_schema,
     .help = "types of gradients"},
    {"optimizer", OT_KEY_OBJECT, 0, .object = &optimizer_schema, .help = "optimizer"},
    {"activation_checkpointing", OT_KEY_OBJECT, 0, .object = &checkpoint_schema,
     .help = "settings of checkpoints"},
    {"wall_clock_breakdown", OT_KEY_FIXED, .choices = only_false,
     .help = "its synchronisations are not priced"},
    {"communication_data_type", OT_KEY_FIXED, .choices = only_null, .help = "not priced"},
    {"amp", OT_KEY_FIXED, .choices = only_null, .help = "amp is not priced"},
    {"curriculum_learning", OT_KEY_FIXED, .choices = only_null,
     .help = "growing sequences are not priced"},
    {"sparse_attention", OT_KEY_FIXED, .choices = only_null, .help = "not priced"},
    {"compression_training", OT_KEY_FIXED, .choices = only_null, .help = "not priced"},
    {"compile", OT_KEY_FIXED, .choices = only_null, .help = "not priced"},
};

static const ot_schema schema = {
    "configuration of DeepSpeed", keys, OT_COUNT(keys), .size = sizeof(settings),
    .inert = "gradient_clipping|prescale_gradients|gradient_predivide_factor|steps_per_print|"
             "scheduler|zero_allow_untested_optimizer|zero_force_ds_cpu_optimizer|checkpoint|"
             "dump_state|tensorboard|wandb|csv_monitor|comet|comms_logger|flops_profiler|"
             "dataloader_drop_last|memory_breakdown|seed|pipeline",
    .unknown_hint = "remove %s, if it affects neither time nor memory of a step"};
// clang-format on

// ---- interpretation ----

static bool looks_like(const char *text) {
  return ot_text_find(text, "\"zero_optimization\"") ||
         ot_text_find(text, "\"train_micro_batch_size_per_gpu\"") ||
         ot_text_find(text, "\"train_batch_size\"");
}

bool ot_deepspeed_is(const ot_import *import) {
  const char *at = import->text;
  while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') at++;
  return *at == '{' && looks_like(at);
}

static const char *precision_of(const settings *config) {
  if (config->fp16.enabled == 1) return "fp16";
  if (config->bf16.enabled != 1) return "fp32";
  return config->types.accumulate == 0 ? "bf16-fp32-accumulators" : "bf16";
}

static void build_options(const settings *config, ot_engine_options *o) {
  enum { GRADIENT_BYTES = 2 };
  const zero *const z = &config->zero;
  const bool overlaps = z->overlap == 1 || (z->overlap < 0 && z->stage == 3);
  o->overlap_reduce = overlaps ? OT_SWITCH_ON : OT_SWITCH_OFF;
  if (z->bucket > 0) o->bucket_bytes = z->bucket * GRADIENT_BYTES;
  if (z->stage == 3 && z->reuse >= 0 && z->live >= 0)
    o->live_elements = 1 + (z->reuse < z->live ? z->reuse : z->live);
}

static ot_status build(ot_import *import, const settings *config) {
  ot_imported *const out = import->out;
  out->zero = config->zero.stage;
  out->precision = precision_of(config);
  build_options(config, &out->options);
  if (config->micro_batch > 0) out->micro_batch_size = config->micro_batch;
  if (config->batch > 0) {
    out->global_batch_size = config->batch;
    out->local_batch_size = 0;
  } else if (config->accumulation > 0) {
    out->global_batch_size = 0;
    out->local_batch_size = out->micro_batch_size * config->accumulation;
  }
  OT_CHECK(out->micro_batch_size > 0, OT_USAGE,
           "train_micro_batch_size_per_gpu: a number is needed (%s)", import->path);
  OT_CHECK(out->global_batch_size > 0 || out->local_batch_size > 0, OT_USAGE,
           "train_batch_size: a number is needed, or gradient_accumulation_steps (%s)",
           import->path);
  out->shard_ranks = config->zero.group > 0 ? (int)config->zero.group : 0;
  return OT_OK;
}

static ot_status read_text(ot_import *import, const char *name, const char *text,
                           settings *config) {
  const ot_tree_origin origin = {.name = name};
  ot_node *tree;
  OT_TRY(import->host->parse_json(&origin, text, ot_text_length(text), import->arena, &tree));
  OT_TRY(ot_schema_read(&schema, tree, import->arena, config));
  ot_import_ignored(import, &schema, tree, "");
  return OT_OK;
}

ot_status ot_deepspeed_import(ot_import *import) {
  ot_imported *const out = import->out;
  settings config;
  OT_TRY(read_text(import, import->path, import->text, &config));
  out->engine = "deepspeed";
  out->tp = out->pp = out->vpp = out->cp = out->ep = out->etp = out->dp_replicate = 1;
  out->pipeline = OT_PIPELINE_1F1B;
  out->recompute = OT_RECOMPUTE_NONE;
  ot_import_note(import, "the file does not say what is recomputed: nothing");
  return build(import, &config);
}

// The text of the JSON: a here-document of the script, or the file next to it that it names. A name
// that leads elsewhere is not followed: the script may come from anyone.
static ot_status find_json(ot_import *import, const char *named, const char **name,
                           const char **text) {
  *name = import->path;
  *text = import->document;
  if (import->document && looks_like(import->document)) return OT_OK;
  OT_CHECK(!ot_text_find(named, "/"), OT_USAGE,
           "deepspeed-config: %s is not a file next to the script (%s)", named, import->path);
  *name = ot_import_beside(import, named);
  return import->host->read_beside(*name, import->arena, text);
}

ot_status ot_deepspeed_of_script(ot_import *import, const ot_megatron_flags *f) {
  const char *name, *text;
  settings config;
  OT_CHECK(f->deepspeed_config[0] != '\0', OT_USAGE,
           "deepspeed-config: the script names no JSON (%s)", import->path);
  OT_TRY(find_json(import, f->deepspeed_config, &name, &text));
  OT_TRY(read_text(import, name, text, &config));
  OT_CHECK(f->zero_stage < 0 || f->zero_stage == config.zero.stage, OT_USAGE,
           "zero-stage %d is not the stage %d of %s", f->zero_stage, config.zero.stage, name);
  return build(import, &config);
}
