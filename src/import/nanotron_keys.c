// SPDX-License-Identifier: Apache-2.0
// The tables of nanotron's YAML, as src/nanotron/config/config.py spells and defaults it.
#include "import/nanotron_keys.h"

static const char *const orders[] = {"1f1b", "afab", NULL};
static const char *const tp_modes[] = {"ALL_REDUCE|all_reduce", "REDUCE_SCATTER|reduce_scatter",
                                       NULL};
static const char *const types[] = {"bfloat16", "float32", "float16", NULL};

// clang-format off
static const ot_key parallelism_keys[] = {
    {"dp", OT_KEY_INT, offsetof(ot_nanotron_parallelism, dp), NULL, 1, 1 << 20,
     .help = "ranks with data of their own"},
    {"pp", OT_KEY_INT, offsetof(ot_nanotron_parallelism, pp), NULL, 1, 1 << 20,
     .help = "stages of the pipeline"},
    {"tp", OT_KEY_INT, offsetof(ot_nanotron_parallelism, tp), NULL, 1, 1 << 20,
     .help = "ways of tensor parallelism"},
    {"context_parallel_size", OT_KEY_INT, offsetof(ot_nanotron_parallelism, cp), "1", 1, 1 << 20,
     .help = "ways that sequences are cut"},
    {"expert_parallel_size", OT_KEY_INT, offsetof(ot_nanotron_parallelism, ep), "1", 1, 1 << 20,
     .help = "ways that experts are spread"},
    {"pp_engine", OT_KEY_CHOICE, offsetof(ot_nanotron_parallelism, order), "afab",
     .choices = orders, .null_text = "afab", .help = "order of the pipeline"},
    {"tp_mode", OT_KEY_CHOICE, offsetof(ot_nanotron_parallelism, tp_mode), "ALL_REDUCE",
     .choices = tp_modes, .null_text = "ALL_REDUCE", .help = "whether norms are cut over tp"},
    {"recompute_layer", OT_KEY_BOOL, offsetof(ot_nanotron_parallelism, recompute), "false",
     .help = "layers are computed again"},
};

static const ot_schema parallelism_schema = {
    "parallelism of nanotron", parallelism_keys, OT_COUNT(parallelism_keys),
    .size = sizeof(ot_nanotron_parallelism),
    .inert = "tp_linear_async_communication|tp_recompute_allgather|moe_layer_recompute"};

static const ot_key token_keys[] = {
    {"sequence_length", OT_KEY_INTEGER, offsetof(ot_nanotron_tokens, sequence), NULL, 1, INT32_MAX,
     .help = "tokens of a sequence"},
    {"micro_batch_size", OT_KEY_INTEGER, offsetof(ot_nanotron_tokens, micro_batch), NULL,
     1, 1 << 30, .help = "sequences of one forward and backward"},
    {"batch_accumulation_per_replica", OT_KEY_INTEGER, offsetof(ot_nanotron_tokens, micro_batches),
     NULL, 1, 1 << 20, .help = "micro-batches of a step on each rank of data parallelism"},
};

static const ot_schema token_schema = {
    "tokens of nanotron", token_keys, OT_COUNT(token_keys), .size = sizeof(ot_nanotron_tokens),
    .inert = "train_steps|val_check_interval|limit_val_batches|limit_test_batches"};

static const ot_key optimizer_keys[] = {
    {"zero_stage", OT_KEY_INT, offsetof(ot_nanotron_optimizer, zero), "0", 0, 1,
     .help = "optimizer state is cut over data parallelism"},
    {"accumulate_grad_in_fp32", OT_KEY_BOOL, offsetof(ot_nanotron_optimizer, fp32_gradients),
     "true", .help = "gradients are kept in fp32"},
};

static const ot_schema optimizer_schema = {
    "optimizer of nanotron", optimizer_keys, OT_COUNT(optimizer_keys),
    .size = sizeof(ot_nanotron_optimizer),
    .inert = "optimizer_factory|weight_decay|clip_grad|learning_rate_scheduler|"
             "weight_decay_exclude_named_params"};

static const ot_key model_keys[] = {
    {"dtype", OT_KEY_CHOICE, offsetof(ot_nanotron_model, type), "bfloat16", .choices = types,
     .null_text = "bfloat16", .help = "type of products"},
    {"make_vocab_size_divisible_by", OT_KEY_INTEGER, offsetof(ot_nanotron_model, multiple), "1",
     1, 1 << 20, .help = "the embedding has a multiple of this times tp rows"},
};

// model_config is read apart: it is HF's.
static const ot_schema model_schema = {
    "model of nanotron", model_keys, OT_COUNT(model_keys), .size = sizeof(ot_nanotron_model),
    .inert = "model_config|init_method|ddp_bucket_cap_mb"};

static const ot_key keys[] = {
    {"parallelism", OT_KEY_OBJECT, offsetof(ot_nanotron_config, parallelism),
     .object = &parallelism_schema, .help = "degrees"},
    {"tokens", OT_KEY_OBJECT, offsetof(ot_nanotron_config, tokens), .object = &token_schema,
     .help = "batch and sequence"},
    {"optimizer", OT_KEY_OBJECT, offsetof(ot_nanotron_config, optimizer),
     .object = &optimizer_schema, .null_text = "", .help = "optimizer"},
    {"model", OT_KEY_OBJECT, offsetof(ot_nanotron_config, model), .object = &model_schema,
     .help = "the model"},
};

const ot_schema ot_nanotron_schema = {
    "configuration of nanotron", keys, OT_COUNT(keys), .size = sizeof(ot_nanotron_config),
    .inert = "general|tokenizer|checkpoints|logging|data_stages|profiler|lighteval|s3_upload|"
             "metrics_logging|slurm"};
// clang-format on
