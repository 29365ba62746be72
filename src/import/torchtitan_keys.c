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

// clang-format off
static const ot_key model_keys[] = {
    {"name", OT_KEY_TEXT, offsetof(ot_torchtitan_model, name), "llama3", .help = "kind of model"},
    {"flavor", OT_KEY_TEXT, offsetof(ot_torchtitan_model, flavor), "debugmodel",
     .help = "size of the model"},
    {"converters", OT_KEY_TEXT, offsetof(ot_torchtitan_model, converters), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_torchtitan_model, num_converters),
     .help = "float8 or none"},
};

static const ot_schema model_schema = {
    "model of torchtitan", model_keys, OT_COUNT(model_keys), .size = sizeof(ot_torchtitan_model),
    .inert = "tokenizer_path|hf_assets_path|print_after_conversion|norm_type"};

static const ot_key training_keys[] = {
    {"local_batch_size", OT_KEY_INTEGER, offsetof(ot_torchtitan_training, local_batch), "8",
     1, 1 << 30, .also = "batch_size",
     .help = "sequences of a step on each rank of data parallelism"},
    {"global_batch_size", OT_KEY_INTEGER, offsetof(ot_torchtitan_training, global_batch), "-1",
     -1, 1 << 30, .help = "sequences of a step; -1: local_batch_size on each rank"},
    {"seq_len", OT_KEY_INTEGER, offsetof(ot_torchtitan_training, sequence), "2048", 1, INT32_MAX,
     .help = "tokens of a sequence"},
    {"mixed_precision_param", OT_KEY_CHOICE, offsetof(ot_torchtitan_training, products), "bfloat16",
     .choices = products, .help = "type of products"},
    {"enable_cpu_offload", OT_KEY_FIXED, .choices = only_false, .help = "offloading is not priced"},
};

// Degrees in [training] are read by degree_keys, as they were in 2024.
static const ot_schema training_schema = {
    "training of torchtitan", training_keys, OT_COUNT(training_keys),
    .size = sizeof(ot_torchtitan_training),
    .inert = "dataset|dataset_path|max_norm|steps|compile|gc_freq|gc_debug|seed|deterministic|"
             "warmup_steps|mixed_precision_reduce|dtype|debug_moe_force_load_balance|dump_folder"};

static const ot_key degree_keys[] = {
    {"data_parallel_replicate_degree", OT_KEY_INT, offsetof(ot_torchtitan_degrees, replicate), "1",
     1, 1 << 20, .help = "copies of the weights"},
    {"data_parallel_shard_degree", OT_KEY_INT, offsetof(ot_torchtitan_degrees, shard), "-1",
     -1, 1 << 20, .help = "ways that weights are cut; -1: what is left"},
    {"tensor_parallel_degree", OT_KEY_INT, offsetof(ot_torchtitan_degrees, tp), "1", 1, 1 << 20,
     .help = "ways of tensor parallelism"},
    {"pipeline_parallel_degree", OT_KEY_INT, offsetof(ot_torchtitan_degrees, pp), "1", 1, 1 << 20,
     .help = "stages of the pipeline"},
    {"context_parallel_degree", OT_KEY_INT, offsetof(ot_torchtitan_degrees, cp), "1", 1, 1 << 20,
     .help = "ways that sequences are cut"},
    {"expert_parallel_degree", OT_KEY_INT, offsetof(ot_torchtitan_degrees, ep), "1", 1, 1 << 20,
     .help = "ways that experts are spread"},
    {"expert_tensor_parallel_degree", OT_KEY_INT, offsetof(ot_torchtitan_degrees, etp), "1",
     1, 1 << 20, .help = "ways of tensor parallelism inside experts"},
    {"pipeline_parallel_schedule", OT_KEY_CHOICE, offsetof(ot_torchtitan_degrees, schedule), "1F1B",
     .choices = schedules, .help = "order of the pipeline"},
    {"pipeline_parallel_layers_per_stage", OT_KEY_INTEGER,
     offsetof(ot_torchtitan_degrees, layers_per_stage), "null", 1, OT_MAX_LAYERS, .null_text = "0",
     .help = "layers of a chunk of a stage"},
    {"pipeline_parallel_microbatch_size", OT_KEY_INTEGER,
     offsetof(ot_torchtitan_degrees, pipeline_micro_batch), "1", 1, 1 << 30,
     .help = "sequences of a micro-batch of the pipeline"},
    {"fsdp_reshard_after_forward", OT_KEY_CHOICE, offsetof(ot_torchtitan_degrees, reshard),
     "default", .choices = reshards, .help = "weights are let go after their forward"},
    {"pipeline_parallel_split_points", OT_KEY_FIXED, .choices = only_empty,
     .help = "stages are cut by cost"},
    {"module_fqns_per_model_part", OT_KEY_FIXED, .choices = only_empty,
     .help = "stages are cut by cost"},
};

static const ot_schema degree_schema = {
    "parallelism of torchtitan", degree_keys, OT_COUNT(degree_keys),
    .size = sizeof(ot_torchtitan_degrees),
    .inert = "enable_compiled_autograd|disable_loss_parallel|enable_async_tensor_parallel|"
             "enable_loss_parallel|context_parallel_rotate_method|pipeline_parallel_schedule_csv|"
             "pipeline_parallel_first_stage_less_layers|pipeline_parallel_last_stage_less_layers|"
             "pipeline_parallel_microbatches|custom_import|custom_args_module"};

static const ot_key checkpoint_keys[] = {
    {"mode", OT_KEY_CHOICE, offsetof(ot_torchtitan_checkpointing, mode), "selective",
     .choices = modes, .help = "what is computed again"},
};

static const ot_schema checkpoint_schema = {
    "activation checkpointing of torchtitan", checkpoint_keys, OT_COUNT(checkpoint_keys),
    .size = sizeof(ot_torchtitan_checkpointing),
    .inert = "selective_ac_option|per_op_sac_force_recompute_mm_shapes_by_fqns|early_stop|"
             "preserve_rng_state|determinism_check|debug|memory_budget|"
             "visualize_memory_budget_pareto"};

static const ot_key keys[] = {
    {"model", OT_KEY_OBJECT, offsetof(ot_torchtitan_config, model), .object = &model_schema,
     .help = "the model"},
    {"training", OT_KEY_OBJECT, offsetof(ot_torchtitan_config, training),
     .object = &training_schema, .help = "batch and sequence"},
    {"parallelism", OT_KEY_OBJECT, offsetof(ot_torchtitan_config, degrees),
     .object = &degree_schema, .help = "degrees"},
    {"activation_checkpoint", OT_KEY_OBJECT, offsetof(ot_torchtitan_config, checkpointing),
     .object = &checkpoint_schema, .help = "what is computed again"},
};

const ot_schema ot_torchtitan_schema = {
    "configuration of torchtitan", keys, OT_COUNT(keys), .size = sizeof(ot_torchtitan_config),
    .inert = "job|profiling|metrics|optimizer|lr_scheduler|checkpoint|compile|float8|quantize|mx|"
             "comm|fault_tolerance|validation|memory_estimation|debug"};
// clang-format on
