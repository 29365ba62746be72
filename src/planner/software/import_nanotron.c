// SPDX-License-Identifier: Apache-2.0
// nanotron: YAML as src/nanotron/config/config.py spells and defaults it. Its model_config has the
// keys of a HF config.json, with a few additional keys and other defaults
// (src/nanotron/config/models_config.py).
#include "base/number.h"
#include "base/text.h"
#include "describe/model_keys.h"
#include "software/import_parts.h"

// ---- keys ----

typedef struct parallelism {
  int dp, pp, tp, cp, ep;
  int order;    // 0 1f1b, 1 all forward, all backward
  int tp_mode;  // 0 all-reduce, 1 reduce-scatter
  bool recompute, async;
} parallelism;

typedef struct tokens {
  int64_t sequence, micro_batch, micro_batches;
} tokens;

typedef struct optimizer {
  int zero;
  bool fp32_gradients;
} optimizer;

enum { DEFAULT_BUCKET = 25 };  // MiB

typedef struct model {
  int type;  // 0 bfloat16, 1 float32, 2 float16
  int64_t multiple, bucket;
} model;

typedef struct settings {
  parallelism parallelism;
  tokens tokens;
  optimizer optimizer;
  model model;
} settings;

static const char *const orders[] = {"1f1b", "afab", NULL};
static const char *const tp_modes[] = {"ALL_REDUCE|all_reduce", "REDUCE_SCATTER|reduce_scatter",
                                       NULL};
static const char *const only_true[] = {"true", "null", NULL};
static const char *const only_false[] = {"false", "null", NULL};
static const char *const types[] = {"bfloat16", "float32", "float16", NULL};

// clang-format off
static const ot_key parallelism_keys[] = {
    {"dp", OT_KEY_INT, offsetof(parallelism, dp), NULL, 1, 1 << 20,
     .help = "data parallel degree"},
    {"pp", OT_KEY_INT, offsetof(parallelism, pp), NULL, 1, 1 << 20,
     .help = "pipeline stages"},
    {"tp", OT_KEY_INT, offsetof(parallelism, tp), NULL, 1, 1 << 20,
     .help = "tensor parallel degree"},
    {"context_parallel_size", OT_KEY_INT, offsetof(parallelism, cp), "1", 1, 1 << 20,
     .help = "context parallel degree"},
    {"expert_parallel_size", OT_KEY_INT, offsetof(parallelism, ep), "1", 1, 1 << 20,
     .help = "expert parallel degree"},
    {"pp_engine", OT_KEY_CHOICE, offsetof(parallelism, order), "afab", .choices = orders,
     .null_text = "afab", .help = "pipeline schedule"},
    {"tp_mode", OT_KEY_CHOICE, offsetof(parallelism, tp_mode), "ALL_REDUCE", .choices = tp_modes,
     .null_text = "ALL_REDUCE", .help = "sequence parallelism of norms over tp"},
    {"recompute_layer", OT_KEY_BOOL, offsetof(parallelism, recompute), "false",
     .help = "layers are recomputed"},
    {"tp_linear_async_communication", OT_KEY_BOOL, offsetof(parallelism, async), "false",
     .null_text = "false", .help = "collectives of tp are concurrent with GEMMs of the backward"},
    {"tp_recompute_allgather", OT_KEY_FIXED, .choices = only_true,
     .help = "gathered tensors that are kept are not priced"},
    {"moe_layer_recompute", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
};

static const ot_schema parallelism_schema = {
    "parallelism of nanotron", parallelism_keys, OT_COUNT(parallelism_keys),
    .size = sizeof(parallelism)};

static const ot_key token_keys[] = {
    {"sequence_length", OT_KEY_INTEGER, offsetof(tokens, sequence), NULL, 1, INT32_MAX,
     .help = "tokens per sequence"},
    {"micro_batch_size", OT_KEY_INTEGER, offsetof(tokens, micro_batch), NULL, 1, 1 << 30,
     .help = "sequences per forward and backward"},
    {"batch_accumulation_per_replica", OT_KEY_INTEGER, offsetof(tokens, micro_batches), NULL,
     1, 1 << 20, .help = "micro-batches per step on each data parallel rank"},
};

static const ot_schema token_schema = {
    "tokens of nanotron", token_keys, OT_COUNT(token_keys), .size = sizeof(tokens),
    .inert = "train_steps|val_check_interval|limit_val_batches|limit_test_batches"};

static const ot_key optimizer_keys[] = {
    {"zero_stage", OT_KEY_INT, offsetof(optimizer, zero), "0", 0, 1,
     .help = "optimizer state is sharded over data parallel ranks"},
    {"accumulate_grad_in_fp32", OT_KEY_BOOL, offsetof(optimizer, fp32_gradients), "true",
     .help = "gradients are kept in fp32"},
};

static const ot_schema optimizer_schema = {
    "optimizer of nanotron", optimizer_keys, OT_COUNT(optimizer_keys), .size = sizeof(optimizer),
    .inert = "optimizer_factory|weight_decay|clip_grad|learning_rate_scheduler|"
             "weight_decay_exclude_named_params"};

static const ot_key model_keys[] = {
    {"dtype", OT_KEY_CHOICE, offsetof(model, type), "bfloat16", .choices = types,
     .null_text = "bfloat16", .help = "dtype of GEMMs"},
    {"make_vocab_size_divisible_by", OT_KEY_INTEGER, offsetof(model, multiple), "1", 1, 1 << 20,
     .help = "the embedding rows are padded to a multiple of this times tp"},
    {"ddp_bucket_cap_mb", OT_KEY_INTEGER, offsetof(model, bucket), "25", 1, 1 << 20,
     .help = "MiB of a gradient reduction"},
};

// model_config is parsed separately: it has HF's keys.
static const ot_schema model_schema = {
    "model of nanotron", model_keys, OT_COUNT(model_keys), .size = sizeof(model),
    .inert = "model_config|init_method"};

static const ot_key keys[] = {
    {"parallelism", OT_KEY_OBJECT, offsetof(settings, parallelism), .object = &parallelism_schema,
     .help = "degrees"},
    {"tokens", OT_KEY_OBJECT, offsetof(settings, tokens), .object = &token_schema,
     .help = "batch and sequence"},
    {"optimizer", OT_KEY_OBJECT, offsetof(settings, optimizer), .object = &optimizer_schema,
     .null_text = "", .help = "optimizer"},
    {"model", OT_KEY_OBJECT, offsetof(settings, model), .object = &model_schema,
     .help = "the model"},
};

static const ot_schema schema = {
    "configuration of nanotron", keys, OT_COUNT(keys), .size = sizeof(settings),
    .inert = "general|tokenizer|checkpoints|logging|data_stages|profiler|lighteval|s3_upload|"
             "metrics_logging|slurm"};
// clang-format on

// ---- interpretation ----

bool ot_nanotron_is(const ot_import *import) {
  return ot_import_has_line(import, "model_config:") &&
         ot_import_has_line(import, "parallelism:") && ot_import_has_line(import, "tokens:");
}

// Keys of model_config that are not HF's and do not affect the cost of a step.
static const char own_keys[] =
    "is_llama_config|is_qwen2_config|rope_interleaved|z_loss_enabled|z_loss_coefficient|"
    "_attn_implementation|flex_attention_mask|_fused_rotary_emb|_fused_rms_norm|"
    "_use_qkv_packed|_use_doc_masking|sliding_window_size|no_rope_layer|moe_config|"
    "attn_implementation";

// Keys that must be unset, since they change the model.
static ot_status check_own(const ot_import *import, const ot_node *config) {
  static const char *const refused[] = {"sliding_window_size", "no_rope_layer", "moe_config", NULL};
  for (int i = 0; refused[i]; i++) {
    const ot_node *const node = ot_node_child(config, refused[i]);
    OT_CHECK(!node || node->kind == OT_NODE_NULL, OT_USAGE,
             "model.model_config.%s is not supported in nanotron's files; allowed: null (%s)",
             refused[i], ot_node_place(import->arena, node));
  }
  const ot_node *const starcoder = ot_node_child(config, "is_starcoder2_config");
  OT_CHECK(!starcoder, OT_USAGE, "model.model_config: starcoder2 is not supported (%s)",
           ot_node_place(import->arena, starcoder));
  return OT_OK;
}

static void put_default(const ot_import *import, ot_node *map, const char *key, const char *value) {
  if (ot_node_child(map, key)) return;
  ot_node *const node = ot_node_word(import->arena, value);
  node->source = "nanotron's default";
  ot_node_put(import->arena, map, key, node);
}

// nanotron's Qwen2 has biases only with attention_bias, and then as HF's (models/qwen.py).
static ot_status hf_keys(ot_import *import, ot_node *config, ot_node **out) {
  ot_node *const map = ot_node_create(import->arena, OT_NODE_MAP);
  ot_node *next;
  const ot_node *const qwen = ot_node_child(config, "is_qwen2_config");
  const ot_node *const bias = ot_node_child(config, "attention_bias");
  const bool biased = qwen && bias && bias->text && ot_choice_matches("true|True", bias->text);
  map->source = config->source;
  map->line = config->line;
  map->column = config->column;
  ot_node_put(import->arena, map, "model_type",
              ot_node_text(import->arena, biased ? "qwen2" : "llama"));
  OT_TRY(check_own(import, config));
  for (ot_node *child = config->first; child; child = next) {
    next = child->next;
    if (ot_choice_matches(own_keys, child->key)) continue;
    if (biased && ot_text_equal(child->key, "attention_bias")) continue;
    ot_node_append(map, child);
  }
  const ot_node *const heads = ot_node_child(map, "num_attention_heads");
  if (biased && heads && heads->text) put_default(import, map, "num_key_value_heads", heads->text);
  put_default(import, map, "rms_norm_eps", "1e-06");
  put_default(import, map, "rope_theta", "10000");
  *out = map;
  return OT_OK;
}

static ot_status build_model(ot_import *import, const settings *config, ot_node *tree) {
  ot_imported *const out = import->out;
  ot_node *const given = ot_node_find(tree, "model.model_config");
  OT_CHECK(given && given->kind == OT_NODE_MAP, OT_USAGE,
           "model.model_config: a map of the model's keys is required (%s)", import->path);
  OT_TRY(hf_keys(import, given, &out->model_keys));
  OT_TRY(ot_model_read(out->model_keys, import->arena, &out->model));
  const int64_t rows =
      ot_import_padded(out->model.vocab_size, config->model.multiple * config->parallelism.tp);
  if (rows == out->model.vocab_size) return OT_OK;
  ot_node *const vocabulary = ot_node_child(out->model_keys, "vocab_size");
  if (vocabulary) ot_node_remove(out->model_keys, vocabulary);
  ot_node_put(import->arena, out->model_keys, "vocab_size", ot_node_integer(import->arena, rows));
  return ot_model_read(out->model_keys, import->arena, &out->model);
}

static const char *precision_of(const settings *config) {
  if (config->model.type == 1) return "fp32";
  if (config->model.type == 2) return "fp16";
  return config->optimizer.fp32_gradients ? "bf16-fp32-gradients" : "bf16";
}

static void build_step(const ot_import *import, const settings *config) {
  const parallelism *const p = &config->parallelism;
  ot_imported *const out = import->out;
  out->engine = "nanotron";
  out->precision = precision_of(config);
  out->tp = p->tp;
  out->pp = p->pp;
  out->vpp = 1;
  out->cp = p->cp;
  out->ep = p->ep;
  out->etp = p->tp;
  out->dp = p->dp;
  out->dp_replicate = 1;
  out->devices = p->tp * p->pp * p->cp * p->dp;
  out->zero = config->optimizer.zero;
  out->pipeline = p->order == 1 && p->pp > 1 ? OT_PIPELINE_GPIPE : OT_PIPELINE_1F1B;
  out->recompute = p->recompute ? OT_RECOMPUTE_FULL : OT_RECOMPUTE_NONE;
  out->micro_batch_size = config->tokens.micro_batch;
  out->global_batch_size = config->tokens.micro_batch * config->tokens.micro_batches * p->dp;
  out->sequence_length = config->tokens.sequence;
  out->no_sequence_parallel = p->tp > 1 && p->tp_mode == 0;
  if (config->model.bucket != DEFAULT_BUCKET) {
    out->options.bucket_bytes = config->model.bucket << 20;
  }
  if (p->tp > 1 && p->async) {
    out->options.async_tp = OT_SWITCH_OFF;
    out->options.backward_tp = OT_SWITCH_ON;
  }
}

ot_status ot_nanotron_import(ot_import *import) {
  settings config;
  ot_node *tree;
  OT_TRY(ot_import_parse_yaml(import, &tree));
  OT_TRY(ot_schema_read(&schema, tree, import->arena, &config));
  OT_CHECK((int64_t)config.parallelism.dp * config.parallelism.tp * config.parallelism.pp *
                   config.parallelism.cp <=
               1 << 20,
           OT_USAGE, "parallelism: more than %d devices (%s)", 1 << 20, import->path);
  ot_import_ignored(import, &schema, tree, "");
  OT_TRY(build_model(import, &config, tree));
  import->out->has_model = true;
  build_step(import, &config);
  return OT_OK;
}
