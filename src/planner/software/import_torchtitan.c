// SPDX-License-Identifier: Apache-2.0
// torchtitan: its TOML as torchtitan/config/job_config.py of 2025 spells and defaults it. Spellings
// of 2024 ([experimental], degrees in [training], batch_size) are converted. Its models are named,
// not described: those that are presets here are known.
#include "base/number.h"
#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "software/import_parts.h"
#include "software/shell.h"
#include "software/titan_models.h"
#include "software/tree_toml.h"

// ---- keys ----

typedef struct model {
  const char *name, *flavor;
  const char **converters;  // [num_converters]
  int64_t num_converters;
} model;

typedef struct training {
  int64_t local_batch, global_batch, sequence;
  int products;   // 0 bfloat16, 1 float32
  int stored;     // 0 float32, 1 bfloat16
  bool compiled;  // of 2024
} training;

// Pipeline schedules, as in the table.
enum {
  ORDER_1F1B,
  ORDER_GPIPE,
  ORDER_INTERLEAVED,
  ORDER_INTERLEAVED_ZB,
  ORDER_ZB_V,
  ORDER_DUALPIPE_V,
};

typedef struct parallelism {
  int replicate, shard, tp, pp, cp, ep, etp;
  int schedule;
  int64_t layers_per_stage, pipeline_micro_batch, micro_batches;
  int first_less, last_less;  // layers that embedding and head count as
  int reshard;                // 0 default, 1 always, 2 never
  bool async, no_loss_parallel;
  int exchange;  // of tokens: 0 standard, 1 deepep
} parallelism;

typedef struct checkpointing {
  int mode;            // 0 none, 1 selective, 2 full
  const char *option;  // "op", or N: every N-th layer
} checkpointing;

typedef struct compilation {
  bool enabled;
  const char **components;  // [num_components]
  int64_t num_components;
} compilation;

typedef struct float8 {
  bool linear;  // of 2024
  bool gathers;
} float8;

typedef struct settings {
  model model;
  training training;
  parallelism degrees;
  checkpointing checkpointing;
  compilation compilation;
  float8 float8;
} settings;

static const char *const schedules[] = {"1F1B|1f1b",
                                        "GPipe|gpipe",
                                        "Interleaved1F1B|interleaved_1f1b",
                                        "InterleavedZeroBubble",
                                        "ZBVZeroBubble",
                                        "DualPipeV",
                                        NULL};
static const char *const reshards[] = {"default", "always", "never", NULL};
static const char *const products[] = {"bfloat16", "float32", NULL};
static const char *const checkpoint_modes[] = {"none", "selective", "full", NULL};
static const char *const only_false[] = {"false", NULL};
static const char *const only_fp32[] = {"float32", NULL};
static const char *const stored_types[] = {"float32", "bfloat16", NULL};
static const char *const adams[] = {"AdamW", "Adam", NULL};
static const char *const only_fused[] = {"fused", NULL};
static const char *const only_true[] = {"true", NULL};
static const char *const only_rings[] = {"allgather", "alltoall", NULL};
static const char *const exchanges[] = {"standard", "deepep|hybridep", NULL};
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
    {"dtype", OT_KEY_CHOICE, offsetof(training, stored), "float32", .choices = stored_types,
     .help = "dtype of weights and states"},
    {"compile", OT_KEY_BOOL, offsetof(training, compiled), "false", .help = "blocks are compiled"},
    {"mixed_precision_reduce", OT_KEY_FIXED, .choices = only_fp32, .help = "in fp32"},
    {"enable_cpu_offload", OT_KEY_FIXED, .choices = only_false, .help = "offloading is not priced"},
    {"deterministic", OT_KEY_FIXED, .choices = only_false,
     .help = "deterministic kernels are not priced"},
};

// Degrees in [training], as in 2024, are parsed by degree_keys.
static const ot_schema training_schema = {
    "training of torchtitan", training_keys, OT_COUNT(training_keys), .size = sizeof(training),
    .inert = "dataset|dataset_path|max_norm|steps|gc_freq|gc_debug|seed|warmup_steps|"
             "debug_moe_force_load_balance|dump_folder"};

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
    {"pipeline_parallel_first_stage_less_layers", OT_KEY_INT, offsetof(parallelism, first_less),
     "1", 0, 64, .help = "layers that the embedding counts as"},
    {"pipeline_parallel_last_stage_less_layers", OT_KEY_INT, offsetof(parallelism, last_less), "1",
     0, 64, .help = "layers that the head counts as"},
    {"pipeline_parallel_microbatches", OT_KEY_INTEGER, offsetof(parallelism, micro_batches), "null",
     1, 1 << 20, .null_text = "0", .help = "micro-batches of the pipeline, in 2024"},
    {"pipeline_parallel_schedule_csv", OT_KEY_FIXED, .choices = only_empty,
     .help = "schedules of a file are not priced"},
    {"pipeline_parallel_expert_parallel_overlap", OT_KEY_FIXED, .choices = only_true,
     .help = "DualPipeV whose pairs hide no tokens is not priced"},
    {"enable_async_tensor_parallel", OT_KEY_BOOL, offsetof(parallelism, async), "false",
     .help = "collectives of tp are concurrent with their GEMMs, if blocks are compiled"},
    {"disable_loss_parallel", OT_KEY_BOOL, offsetof(parallelism, no_loss_parallel), "false",
     .help = "whole logits on each rank of tp"},
    {"enable_loss_parallel", OT_KEY_FIXED, .choices = only_true, .help = "logits are sharded"},
    {"enable_compiled_autograd", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
    {"context_parallel_rotate_method", OT_KEY_FIXED, .choices = only_rings,
     .help = "both exchange the same keys and values"},
    {"expert_parallel_comm_backend", OT_KEY_CHOICE, offsetof(parallelism, exchange), "standard",
     .choices = exchanges, .help = "how tokens are exchanged"},
};

static const ot_schema degree_schema = {
    "parallelism of torchtitan", degree_keys, OT_COUNT(degree_keys), .size = sizeof(parallelism),
    .inert = "custom_import|custom_args_module"};

static const ot_key checkpoint_keys[] = {
    {"mode", OT_KEY_CHOICE, offsetof(checkpointing, mode), "selective", .choices = checkpoint_modes,
     .help = "recomputed activations"},
    {"selective_ac_option", OT_KEY_TEXT, offsetof(checkpointing, option), "2",
     .help = "op: every second GEMM; N: every N-th layer"},
};

static const ot_schema checkpoint_schema = {
    "activation checkpointing of torchtitan", checkpoint_keys, OT_COUNT(checkpoint_keys),
    .size = sizeof(checkpointing),
    .inert = "per_op_sac_force_recompute_mm_shapes_by_fqns|early_stop|preserve_rng_state|"
             "determinism_check|debug|memory_budget|visualize_memory_budget_pareto"};

static const ot_key compile_keys[] = {
    {"enable", OT_KEY_BOOL, offsetof(compilation, enabled), "false",
     .help = "blocks are compiled"},
    {"components", OT_KEY_TEXT, offsetof(compilation, components), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(compilation, num_components), .help = "model, loss; empty: both"},
};
static const ot_schema compile_schema = {
    "compile of torchtitan", compile_keys, OT_COUNT(compile_keys), .size = sizeof(compilation),
    .inert = "backend"};

static const ot_key float8_keys[] = {
    {"enable_float8_linear", OT_KEY_BOOL, offsetof(float8, linear), "false",
     .help = "GEMMs in fp8, in 2024"},
    {"enable_fsdp_float8_all_gather", OT_KEY_BOOL, offsetof(float8, gathers), "false",
     .help = "weights are gathered in 8 bits"},
    {"force_recompute_fp8_weight_in_bwd", OT_KEY_FIXED, .choices = only_false,
     .help = "not priced"},
    {"emulate", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
};
static const ot_schema float8_schema = {
    "float8 of torchtitan", float8_keys, OT_COUNT(float8_keys), .size = sizeof(float8),
    .inert = "precompute_float8_dynamic_scale_for_fsdp|recipe_name|filter_fqns|"
             "moe_fqns_prototype|moe_fqns"};

static const ot_key optimizer_keys[] = {
    {"name", OT_KEY_FIXED, .choices = adams, .help = "states of other optimizers are not priced"},
    {"implementation", OT_KEY_FIXED, .choices = only_fused, .help = "other updates: not priced"},
    {"fused", OT_KEY_FIXED, .choices = only_true, .help = "other updates are not priced"},
    {"early_step_in_backward", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
};
static const ot_schema optimizer_schema = {
    "optimizer of torchtitan", optimizer_keys, OT_COUNT(optimizer_keys), .size = 1,
    .inert = "lr|beta1|beta2|eps|weight_decay"};

static const ot_key debug_keys[] = {
    {"deterministic", OT_KEY_FIXED, .choices = only_false,
     .help = "deterministic kernels are not priced"},
};
static const ot_schema debug_schema = {
    "debug of torchtitan", debug_keys, OT_COUNT(debug_keys), .size = 1,
    .inert = "seed|moe_force_load_balance|deterministic_warn_only|print_config|save_config_file"};

static const ot_key tolerance_keys[] = {
    {"enable", OT_KEY_FIXED, .choices = only_false, .help = "fault tolerance is not priced"},
};
static const ot_schema tolerance_schema = {
    "fault_tolerance of torchtitan", tolerance_keys, OT_COUNT(tolerance_keys), .size = 1,
    .inert = "*"};

static const ot_key keys[] = {
    {"model", OT_KEY_OBJECT, offsetof(settings, model), .object = &model_schema,
     .help = "the model"},
    {"training", OT_KEY_OBJECT, offsetof(settings, training), .object = &training_schema,
     .help = "batch and sequence"},
    {"parallelism", OT_KEY_OBJECT, offsetof(settings, degrees), .object = &degree_schema,
     .help = "degrees"},
    {"activation_checkpoint", OT_KEY_OBJECT, offsetof(settings, checkpointing),
     .object = &checkpoint_schema, .help = "recomputed activations"},
    {"compile", OT_KEY_OBJECT, offsetof(settings, compilation), .object = &compile_schema,
     .help = "compiled parts"},
    {"float8", OT_KEY_OBJECT, offsetof(settings, float8), .object = &float8_schema,
     .help = "fp8"},
    {"optimizer", OT_KEY_OBJECT, 0, .object = &optimizer_schema, .help = "optimizer"},
    {"debug", OT_KEY_OBJECT, 0, .object = &debug_schema, .help = "debugging"},
    {"fault_tolerance", OT_KEY_OBJECT, 0, .object = &tolerance_schema, .help = "not priced"},
};

static const ot_schema schema = {
    "configuration of torchtitan", keys, OT_COUNT(keys), .size = sizeof(settings),
    .inert = "job|profiling|metrics|lr_scheduler|checkpoint|comm|validation|memory_estimation"};
// clang-format on

// ---- models ----
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
  ot_text_builder known = {.arena = import->arena};
  const ot_titan_model *m;
  for (int i = 0; (m = ot_titan_model_at(i)) != NULL; i++) {
    const bool named = ot_text_equal(m->name, config->model.name);
    if (named && is_flavor(m->flavor, config->model.flavor))
      return ot_import_preset(import, m->preset);
    ot_text_appendf(&known, "%s%s %s", i > 0 ? ", " : "", m->name, m->flavor);
  }
  ot_fail(OT_USAGE, "model.flavor: %s %s is unknown (%s)", config->model.name, config->model.flavor,
          import->path);
  return ot_fail_hint(OT_USAGE, "one of %s", known.text);
}

static ot_pipeline pipeline_of(ot_import *import, const parallelism *d) {
  if (d->pp == 1) return OT_PIPELINE_1F1B;
  if (d->schedule == ORDER_GPIPE) return OT_PIPELINE_GPIPE;
  if (d->schedule == ORDER_ZB_V) return OT_PIPELINE_ZB_V;
  if (d->schedule == ORDER_DUALPIPE_V) return OT_PIPELINE_DUALPIPE_V;
  if (d->schedule == ORDER_1F1B) return OT_PIPELINE_1F1B;
  if (d->schedule == ORDER_INTERLEAVED_ZB) {
    ot_import_note(import, "InterleavedZeroBubble is priced as Interleaved1F1B");
  }
  return OT_PIPELINE_INTERLEAVED;
}

static int64_t counted_layers(const ot_imported *out, const parallelism *d) {
  return out->model.num_layers + d->first_less + d->last_less;
}

// torchtitan/distributed/pipeline_parallel.py: embedding and head count as layers; without a number
// of layers, looped schedules have two chunks.
static int chunks_of(const ot_imported *out, const parallelism *d) {
  if (out->pipeline != OT_PIPELINE_INTERLEAVED) {
    return ot_pipeline_chunks(out->pipeline, d->pp, 1);
  }
  if (d->layers_per_stage == 0) return 2;
  const int64_t stages = (counted_layers(out, d) + d->layers_per_stage - 1) / d->layers_per_stage;
  return stages > d->pp ? (int)(stages / d->pp) : 1;
}

// Layers of each chunk; what remains goes to the first ones.
static ot_status build_chunks(ot_import *import, const parallelism *d) {
  ot_imported *const out = import->out;
  const int64_t chunks = (int64_t)d->pp * out->vpp, all = counted_layers(out, d);
  if (d->pp == 1) return OT_OK;
  OT_CHECK(chunks <= all, OT_USAGE,
           "parallelism: %lld chunks of the pipeline are more than the layers (%s)",
           (long long)chunks, import->path);
  int *const layers = ot_arena_array(import->arena, chunks, sizeof *layers);
  for (int64_t c = 0; c < chunks; c++) layers[c] = (int)(all / chunks + (c < all % chunks));
  layers[0] -= d->first_less;
  layers[chunks - 1] -= d->last_less;
  OT_CHECK(layers[0] >= 0 && layers[chunks - 1] >= 0, OT_USAGE,
           "parallelism: the first or last chunk of the pipeline has less than no layers (%s)",
           import->path);
  out->chunk_layers = layers;
  out->num_chunks = (int)chunks;
  return OT_OK;
}

// By default, weights are released after their forward, except in pipelines.
static int zero_of(const parallelism *d) {
  if (d->shard == 1) return 0;
  const bool resharded = d->reshard == 1 || (d->reshard == 0 && d->pp == 1);
  return resharded ? 3 : 2;
}

static ot_status read_precision(ot_import *import, const settings *config) {
  ot_imported *const out = import->out;
  bool narrow = config->float8.linear;
  for (int64_t i = 0; i < config->model.num_converters; i++) {
    const char *const converter = config->model.converters[i];
    OT_CHECK(ot_choice_matches("float8|quantize.linear.float8|", converter), OT_USAGE,
             "model.converters: %s is not priced; allowed: float8, quantize.linear.float8 (%s)",
             converter, import->path);
    narrow = narrow || converter[0] != '\0';
  }
  if (narrow) {
    out->precision = "fp8";
  } else if (config->training.stored == 1) {
    out->precision = "bf16-pure";
  } else if (config->training.products == 1) {
    out->precision = "fp32";
  }
  out->gather_bytes = narrow && config->float8.gathers ? 1 : 0;
  return OT_OK;
}

// ---- what a run switches on ----

static bool compiles_blocks(const settings *config) {
  const compilation *const c = &config->compilation;
  bool named = c->num_components == 0;
  for (int64_t i = 0; i < c->num_components; i++)
    named = named || ot_text_equal(c->components[i], "model");
  return config->training.compiled || (c->enabled && named);
}

// "op" is what the engine file describes; N recomputes every N-th layer whole.
static ot_status read_recompute(ot_import *import, const checkpointing *c) {
  static const ot_recompute modes[] = {OT_RECOMPUTE_NONE, OT_RECOMPUTE_SELECTIVE,
                                       OT_RECOMPUTE_FULL};
  ot_imported *const out = import->out;
  int64_t every;
  out->recompute = modes[c->mode];
  if (out->recompute != OT_RECOMPUTE_SELECTIVE || ot_text_equal(c->option, "op")) return OT_OK;
  OT_CHECK(ot_number_parse_size(c->option, &every) && every >= 1, OT_USAGE,
           "activation_checkpoint.selective_ac_option: %s; allowed: op, or N for every N-th layer "
           "(%s)",
           c->option, import->path);
  if (every == 1) {
    out->recompute = OT_RECOMPUTE_FULL;
    return OT_OK;
  }
  out->options.selective_share = 1.0 / (double)every;
  ot_import_note(import,
                 "every %lld-th layer is recomputed: its time is priced, its memory as with \"op\"",
                 (long long)every);
  return OT_OK;
}

static ot_status read_options(ot_import *import, const settings *config) {
  ot_engine_options *const o = &import->out->options;
  const parallelism *const d = &config->degrees;
  const bool compiled = compiles_blocks(config);
  OT_CHECK(d->tp == 1 || !d->no_loss_parallel, OT_USAGE,
           "parallelism.disable_loss_parallel: not priced with tp; allowed: false (%s)",
           import->path);
  o->compiled = compiled ? OT_SWITCH_ON : OT_SWITCH_OFF;
  if (d->exchange == 1) o->fused_dispatch = OT_SWITCH_ON;
  if (d->tp > 1) o->async_tp = compiled && d->async ? OT_SWITCH_ON : OT_SWITCH_OFF;
  return read_recompute(import, &config->checkpointing);
}

static void read_batch(const settings *config, ot_imported *out) {
  const parallelism *const d = &config->degrees;
  const training *const t = &config->training;
  int64_t stage_batch = d->pipeline_micro_batch;
  if (d->micro_batches > 0) stage_batch = t->local_batch / d->micro_batches;
  out->micro_batch_size = d->pp > 1 && stage_batch > 0 ? stage_batch : t->local_batch;
  out->global_batch_size = t->global_batch > 0 ? t->global_batch : 0;
  out->local_batch_size = t->global_batch > 0 ? 0 : t->local_batch;
  out->sequence_length = t->sequence;
}

static ot_status build_step(ot_import *import, const settings *config) {
  const parallelism *const d = &config->degrees;
  ot_imported *const out = import->out;
  OT_CHECK(d->shard != 0, OT_USAGE,
           "parallelism.data_parallel_shard_degree: 0 is out of range; allowed: -1, or 1 and more "
           "(%s)",
           import->path);
  OT_CHECK(config->training.global_batch != 0, OT_USAGE,
           "training.global_batch_size: 0 is out of range; allowed: -1, or 1 and more (%s)",
           import->path);
  out->engine = "torchtitan";
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
  read_batch(config, out);
  OT_TRY(read_precision(import, config));
  OT_TRY(build_chunks(import, d));
  return read_options(import, config);
}

// [quantize.linear.float8] is the [float8] of earlier versions.
static ot_status move_quantize(const ot_import *import, ot_node *tree) {
  ot_node *const quantize = ot_node_child(tree, "quantize");
  if (!quantize) return OT_OK;
  ot_node *const linear = ot_node_child(quantize, "linear");
  ot_node *const narrow = linear ? ot_node_child(linear, "float8") : NULL;
  OT_CHECK(narrow && ot_node_count(linear) == 1 && ot_node_count(quantize) == 1, OT_USAGE,
           "quantize: only quantize.linear.float8 is priced (%s)",
           ot_node_place(import->arena, quantize));
  ot_node_remove(tree, quantize);
  ot_node_remove(linear, narrow);
  narrow->next = NULL;
  ot_node_put(import->arena, tree, "float8", narrow);
  return OT_OK;
}

// ---- flags of a launch script ----

// The map of the section that `flag` ("--training.seq_len") names, and its key; false for a flag of
// the launcher.
static bool find_flag(const ot_import *import, ot_node *tree, const char *flag, ot_node **section,
                      const char **key) {
  const char *const dot = ot_text_find(flag, ".");
  if (!ot_text_starts_with(flag, "--") || !dot) return false;
  *section = section_of(import, tree, ot_arena_text(import->arena, flag + 2, dot - flag - 2));
  *key = dot + 1;
  return (*section)->kind == OT_NODE_MAP;
}

// "--a.b=4", "--a.b 4", or "--a.b" alone: true. Flags hold over the file.
static void put_flag(const ot_import *import, ot_node *tree, const ot_shell_word *word,
                     const ot_shell_word *next) {
  ot_node *section;
  const char *key;
  if (!find_flag(import, tree, word->text, &section, &key)) return;
  const char *const equals = ot_text_find(key, "=");
  const bool alone = !next || ot_text_starts_with(next->text, "--");
  const char *const value = equals ? equals + 1 : alone ? "true" : next->text;
  if (equals) key = ot_arena_text(import->arena, key, equals - key);
  const ot_node *const before = ot_node_child(section, key);
  if (before) ot_node_remove(section, before);
  ot_node *const node =
      ot_node_put(import->arena, section, key, ot_node_word(import->arena, value));
  node->source = import->path;
  node->line = word->line;
}

static ot_status put_flags(const ot_import *import, ot_node *tree) {
  ot_shell shell;
  if (!import->script) return OT_OK;
  OT_TRY(ot_shell_read(import->path, import->script, ot_text_length(import->script), import->arena,
                       &shell));
  for (int64_t i = 0; i < shell.num_commands; i++) {
    const ot_shell_command *const command = &shell.commands[i];
    for (int64_t k = 0; k < command->num_words; k++) {
      const bool last = k + 1 == command->num_words;
      put_flag(import, tree, &command->words[k], last ? NULL : &command->words[k + 1]);
    }
  }
  return OT_OK;
}

ot_status ot_torchtitan_import(ot_import *import) {
  const ot_tree_origin origin = {.name = import->path};
  settings config;
  ot_node *tree;
  OT_TRY(ot_tree_parse_toml(&origin, import->text, import->bytes, import->arena, &tree));
  OT_TRY(put_flags(import, tree));
  move_degrees(import, tree, "training", false);
  move_degrees(import, tree, "experimental", true);
  OT_TRY(move_quantize(import, tree));
  OT_TRY(ot_schema_read(&schema, tree, import->arena, &config));
  ot_import_ignored(import, &schema, tree, "");
  OT_TRY(build_model(import, &config));
  return build_step(import, &config);
}
