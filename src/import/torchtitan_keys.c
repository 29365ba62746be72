// SPDX-License-Identifier: Apache-2.0
// The tables of torchtitan's TOML, as torchtitan/config/job_config.py of 2025 spells and defaults
// it, with the spellings of 2024 ([experimental], degrees in [training], batch_size).
#include "import/torchtitan_keys.h"

#include "describe/model.h"

static const char *const schedules[] = {
    "1F1B|1f1b",     "GPipe|gpipe", "Interleaved1F1B|interleaved_1f1b", "InterleavedZeroBubble",
    "ZBVZeroBubble", NULL};
static const char *const reshards[] = {"default", "always", "never", NULL};
static const char *const products[] = {"bfloat16", "float32", NULL};
static const char *const modes[] = {"none", "selective", "full", NULL};
static const char *const only_false[] = {"false", NULL};
static const char *const only_empty[] = {"[]", "", "null", NULL};

static const ot_key model_keys[] = {
    {.name = "name",
     .type = OT_KEY_TEXT,
     .offset = offsetof(ot_torchtitan_model, name),
     .fallback = "llama3",
     .help = "kind of model"},
    {.name = "flavor",
     .type = OT_KEY_TEXT,
     .offset = offsetof(ot_torchtitan_model, flavor),
     .fallback = "debugmodel",
     .help = "size of the model"},
    {.name = "converters",
     .type = OT_KEY_TEXT,
     .shape = OT_SHAPE_LIST,
     .offset = offsetof(ot_torchtitan_model, converters),
     .count_offset = offsetof(ot_torchtitan_model, num_converters),
     .fallback = "",
     .help = "float8 or none"},
};

static const ot_schema model_schema = {
    .name = "model of torchtitan",
    .keys = model_keys,
    .num_keys = OT_COUNT(model_keys),
    .size = sizeof(ot_torchtitan_model),
    .inert = "tokenizer_path|hf_assets_path|print_after_conversion|norm_type",
};

static const ot_key training_keys[] = {
    {.name = "local_batch_size",
     .also = "batch_size",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_torchtitan_training, local_batch),
     .minimum = 1,
     .maximum = 1 << 30,
     .fallback = "8",
     .help = "sequences of a step on each rank of data parallelism"},
    {.name = "global_batch_size",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_torchtitan_training, global_batch),
     .minimum = -1,
     .maximum = 1 << 30,
     .fallback = "-1",
     .help = "sequences of a step; -1: local_batch_size on each rank"},
    {.name = "seq_len",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_torchtitan_training, sequence),
     .minimum = 1,
     .maximum = INT32_MAX,
     .fallback = "2048",
     .help = "tokens of a sequence"},
    {.name = "mixed_precision_param",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_torchtitan_training, products),
     .fallback = "bfloat16",
     .choices = products,
     .help = "type of products"},
    {.name = "enable_cpu_offload",
     .type = OT_KEY_FIXED,
     .choices = only_false,
     .help = "offloading is not priced"},
};

// Degrees in [training] are read by degree_keys, as they were in 2024.
static const ot_schema training_schema = {
    .name = "training of torchtitan",
    .keys = training_keys,
    .num_keys = OT_COUNT(training_keys),
    .size = sizeof(ot_torchtitan_training),
    .inert =
        "dataset|dataset_path|max_norm|steps|compile|gc_freq|gc_debug|seed|deterministic|"
        "warmup_steps|mixed_precision_reduce|dtype|debug_moe_force_load_balance|dump_folder",
};

static const ot_key degree_keys[] = {
    {.name = "data_parallel_replicate_degree",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_torchtitan_degrees, replicate),
     .minimum = 1,
     .maximum = 1 << 20,
     .fallback = "1",
     .help = "copies of the weights"},
    {.name = "data_parallel_shard_degree",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_torchtitan_degrees, shard),
     .minimum = -1,
     .maximum = 1 << 20,
     .fallback = "-1",
     .help = "ways that weights are cut; -1: what is left"},
    {.name = "tensor_parallel_degree",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_torchtitan_degrees, tp),
     .minimum = 1,
     .maximum = 1 << 20,
     .fallback = "1",
     .help = "ways of tensor parallelism"},
    {.name = "pipeline_parallel_degree",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_torchtitan_degrees, pp),
     .minimum = 1,
     .maximum = 1 << 20,
     .fallback = "1",
     .help = "stages of the pipeline"},
    {.name = "context_parallel_degree",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_torchtitan_degrees, cp),
     .minimum = 1,
     .maximum = 1 << 20,
     .fallback = "1",
     .help = "ways that sequences are cut"},
    {.name = "expert_parallel_degree",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_torchtitan_degrees, ep),
     .minimum = 1,
     .maximum = 1 << 20,
     .fallback = "1",
     .help = "ways that experts are spread"},
    {.name = "expert_tensor_parallel_degree",
     .type = OT_KEY_INT,
     .offset = offsetof(ot_torchtitan_degrees, etp),
     .minimum = 1,
     .maximum = 1 << 20,
     .fallback = "1",
     .help = "ways of tensor parallelism inside experts"},
    {.name = "pipeline_parallel_schedule",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_torchtitan_degrees, schedule),
     .fallback = "1F1B",
     .choices = schedules,
     .help = "order of the pipeline"},
    {.name = "pipeline_parallel_layers_per_stage",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_torchtitan_degrees, layers_per_stage),
     .minimum = 1,
     .maximum = OT_MAX_LAYERS,
     .fallback = "null",
     .null_text = "0",
     .help = "layers of a chunk of a stage"},
    {.name = "pipeline_parallel_microbatch_size",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_torchtitan_degrees, pipeline_micro_batch),
     .minimum = 1,
     .maximum = 1 << 30,
     .fallback = "1",
     .help = "sequences of a micro-batch of the pipeline"},
    {.name = "fsdp_reshard_after_forward",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_torchtitan_degrees, reshard),
     .fallback = "default",
     .choices = reshards,
     .help = "weights are let go after their forward"},
    {.name = "pipeline_parallel_split_points",
     .type = OT_KEY_FIXED,
     .choices = only_empty,
     .help = "stages are cut by cost"},
    {.name = "module_fqns_per_model_part",
     .type = OT_KEY_FIXED,
     .choices = only_empty,
     .help = "stages are cut by cost"},
};

static const ot_schema degree_schema = {
    .name = "parallelism of torchtitan",
    .keys = degree_keys,
    .num_keys = OT_COUNT(degree_keys),
    .size = sizeof(ot_torchtitan_degrees),
    .inert =
        "enable_compiled_autograd|disable_loss_parallel|enable_async_tensor_parallel|"
        "enable_loss_parallel|context_parallel_rotate_method|pipeline_parallel_schedule_csv|"
        "pipeline_parallel_first_stage_less_layers|pipeline_parallel_last_stage_less_layers|"
        "pipeline_parallel_microbatches|custom_import|custom_args_module",
};

static const ot_key checkpoint_keys[] = {
    {.name = "mode",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_torchtitan_checkpointing, mode),
     .choices = modes,
     .fallback = "selective",
     .help = "what is computed again"},
};

static const ot_schema checkpoint_schema = {
    .name = "activation checkpointing of torchtitan",
    .keys = checkpoint_keys,
    .num_keys = OT_COUNT(checkpoint_keys),
    .size = sizeof(ot_torchtitan_checkpointing),
    .inert =
        "selective_ac_option|per_op_sac_force_recompute_mm_shapes_by_fqns|early_stop|"
        "preserve_rng_state|determinism_check|debug|memory_budget|visualize_memory_budget_pareto",
};

static const ot_key keys[] = {
    {.name = "model",
     .type = OT_KEY_OBJECT,
     .offset = offsetof(ot_torchtitan_config, model),
     .object = &model_schema,
     .help = "the model"},
    {.name = "training",
     .type = OT_KEY_OBJECT,
     .offset = offsetof(ot_torchtitan_config, training),
     .object = &training_schema,
     .help = "batch and sequence"},
    {.name = "parallelism",
     .type = OT_KEY_OBJECT,
     .offset = offsetof(ot_torchtitan_config, degrees),
     .object = &degree_schema,
     .help = "degrees"},
    {.name = "activation_checkpoint",
     .type = OT_KEY_OBJECT,
     .offset = offsetof(ot_torchtitan_config, checkpointing),
     .object = &checkpoint_schema,
     .help = "what is computed again"},
};

const ot_schema ot_torchtitan_schema = {
    .name = "configuration of torchtitan",
    .keys = keys,
    .num_keys = OT_COUNT(keys),
    .size = sizeof(ot_torchtitan_config),
    .inert =
        "job|profiling|metrics|optimizer|lr_scheduler|checkpoint|compile|float8|quantize|mx|"
        "comm|fault_tolerance|validation|memory_estimation|debug",
};
