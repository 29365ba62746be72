// SPDX-License-Identifier: Apache-2.0
// The tables of nanotron's YAML, as src/nanotron/config/config.py spells and defaults it.
#include "import/nanotron_keys.h"

static const char *const orders[] = {"1f1b", "afab", NULL};
static const char *const tp_modes[] = {"ALL_REDUCE|all_reduce", "REDUCE_SCATTER|reduce_scatter",
                                       NULL};
static const char *const types[] = {"bfloat16", "float32", "float16", NULL};

static const ot_key parallelism_keys[] = {
    {.name = "dp",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_nanotron_parallelism, dp),
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "ranks with data of their own"},
    {.name = "pp",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_nanotron_parallelism, pp),
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "stages of the pipeline"},
    {.name = "tp",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_nanotron_parallelism, tp),
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "ways of tensor parallelism"},
    {.name = "context_parallel_size",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_nanotron_parallelism, cp),
     .minimum = 1,
     .maximum = 1 << 20,
     .fallback = "1",
     .help = "ways that sequences are cut"},
    {.name = "expert_parallel_size",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_nanotron_parallelism, ep),
     .minimum = 1,
     .maximum = 1 << 20,
     .fallback = "1",
     .help = "ways that experts are spread"},
    {.name = "pp_engine",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_nanotron_parallelism, order),
     .fallback = "afab",
     .null_text = "afab",
     .choices = orders,
     .help = "order of the pipeline"},
    {.name = "tp_mode",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_nanotron_parallelism, tp_mode),
     .fallback = "ALL_REDUCE",
     .null_text = "ALL_REDUCE",
     .choices = tp_modes,
     .help = "whether norms are cut over tp"},
    {.name = "recompute_layer",
     .type = OT_KEY_BOOL,
     .offset = offsetof(ot_nanotron_parallelism, recompute),
     .fallback = "false",
     .help = "layers are computed again"},
};

static const ot_schema parallelism_schema = {
    .name = "parallelism of nanotron",
    .keys = parallelism_keys,
    .num_keys = OT_COUNT(parallelism_keys),
    .size = sizeof(ot_nanotron_parallelism),
    .inert = "tp_linear_async_communication|tp_recompute_allgather|moe_layer_recompute",
};

static const ot_key token_keys[] = {
    {.name = "sequence_length",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_nanotron_tokens, sequence),
     .minimum = 1,
     .maximum = INT32_MAX,
     .help = "tokens of a sequence"},
    {.name = "micro_batch_size",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_nanotron_tokens, micro_batch),
     .minimum = 1,
     .maximum = 1 << 30,
     .help = "sequences of one forward and backward"},
    {.name = "batch_accumulation_per_replica",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_nanotron_tokens, micro_batches),
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "micro-batches of a step on each rank of data parallelism"},
};

static const ot_schema token_schema = {
    .name = "tokens of nanotron",
    .keys = token_keys,
    .num_keys = OT_COUNT(token_keys),
    .size = sizeof(ot_nanotron_tokens),
    .inert = "train_steps|val_check_interval|limit_val_batches|limit_test_batches",
};

static const ot_key optimizer_keys[] = {
    {.name = "zero_stage",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_nanotron_optimizer, zero),
     .minimum = 0,
     .maximum = 1,
     .fallback = "0",
     .help = "optimizer state is cut over data parallelism"},
    {.name = "accumulate_grad_in_fp32",
     .type = OT_KEY_BOOL,
     .offset = offsetof(ot_nanotron_optimizer, fp32_gradients),
     .fallback = "true",
     .help = "gradients are kept in fp32"},
};

static const ot_schema optimizer_schema = {
    .name = "optimizer of nanotron",
    .keys = optimizer_keys,
    .num_keys = OT_COUNT(optimizer_keys),
    .size = sizeof(ot_nanotron_optimizer),
    .inert =
        "optimizer_factory|weight_decay|clip_grad|learning_rate_scheduler|weight_decay_exclude_"
        "named_params",
};

static const ot_key model_keys[] = {
    {.name = "dtype",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_nanotron_model, type),
     .fallback = "bfloat16",
     .null_text = "bfloat16",
     .choices = types,
     .help = "type of products"},
    {.name = "make_vocab_size_divisible_by",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_nanotron_model, multiple),
     .minimum = 1,
     .maximum = 1 << 20,
     .fallback = "1",
     .help = "the embedding has a multiple of this times tp rows"},
};

// model_config is read apart: it is HF's.
static const ot_schema model_schema = {
    .name = "model of nanotron",
    .keys = model_keys,
    .num_keys = OT_COUNT(model_keys),
    .size = sizeof(ot_nanotron_model),
    .inert = "model_config|init_method|ddp_bucket_cap_mb",
};

static const ot_key keys[] = {
    {.name = "parallelism",
     .type = OT_KEY_OBJECT,
     .offset = offsetof(ot_nanotron_config, parallelism),
     .object = &parallelism_schema,
     .help = "degrees"},
    {.name = "tokens",
     .type = OT_KEY_OBJECT,
     .offset = offsetof(ot_nanotron_config, tokens),
     .object = &token_schema,
     .help = "batch and sequence"},
    {.name = "optimizer",
     .type = OT_KEY_OBJECT,
     .offset = offsetof(ot_nanotron_config, optimizer),
     .object = &optimizer_schema,
     .null_text = "",
     .help = "optimizer"},
    {.name = "model",
     .type = OT_KEY_OBJECT,
     .offset = offsetof(ot_nanotron_config, model),
     .object = &model_schema,
     .help = "the model"},
};

const ot_schema ot_nanotron_schema = {
    .name = "configuration of nanotron",
    .keys = keys,
    .num_keys = OT_COUNT(keys),
    .size = sizeof(ot_nanotron_config),
    .inert =
        "general|tokenizer|checkpoints|logging|data_stages|profiler|lighteval|s3_upload|"
        "metrics_logging|slurm",
};
