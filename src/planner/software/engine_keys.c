// SPDX-License-Identifier: Apache-2.0
// One entry per key. An absent key means off, or no cost.
#include "software/engine_keys.h"

#include "base/text.h"

static const char *const attention[] = {"unfused", "flash-1", "flash-2", "flash-3", "flash", NULL};
static const char *const tensor_overlaps[] = {"none",   "backward", "kernels",
                                              "pieces", "half",     NULL};
static const char *const pipeline_overlaps[] = {"none", "chunks", "all", NULL};

// clang-format off
static const ot_key kernel_keys[] = {
    {"attention", OT_KEY_CHOICE, offsetof(ot_kernel_style, attention), .choices = attention,
     .help = "attention kernel; unfused: GEMMs around a softmax of T x T scores"},
    // Eight blocks of a balanced ring reach 0.902 and 0.759 of one call on H800, 0.898 and 0.802 on
    // A100, forward and backward (github.com/zhuzilin/ring-flash-attention, README): in the mean
    // 0.84, if the first block runs like one call.
    {"merged_share", OT_KEY_REAL, offsetof(ot_kernel_style, merged_share), "0.82", 0, 1,
     .help = "of the rate of attention, for the later blocks of a ring"},
    {"pass_factor", OT_KEY_REAL, offsetof(ot_kernel_style, pass_factor), "1", 1, OT_NO_MAXIMUM,
     .help = "memory traffic of elementwise ops relative to fused kernels"},
    {"score_passes", OT_KEY_REAL, offsetof(ot_kernel_style, score_passes), "0", 0, OT_NO_MAXIMUM,
     .help = "unfused: reads and writes of T x T scores between the GEMMs"},
    {"loss_bytes", OT_KEY_REAL, offsetof(ot_kernel_style, loss_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "moved per logit, forward and backward, in addition to GEMMs"},
    {"cast_bytes", OT_KEY_REAL, offsetof(ot_kernel_style, cast_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "fp8: moved to cast an element of an operand, transpose included"},
    {"casts_weights", OT_KEY_BOOL, offsetof(ot_kernel_style, casts_weights), "false",
     .help = "fp8: weights are cast in each micro-batch; else once a step"},
    {"host_ops", OT_KEY_REAL, offsetof(ot_kernel_style, host_ops), "0", 0, OT_NO_MAXIMUM,
     .help = "host time of an op relative to one dispatched from Python"},
    {"expert_ops", OT_KEY_REAL, offsetof(ot_kernel_style, expert_ops), "0", 0, OT_NO_MAXIMUM,
     .help = "the same for token dispatch and grouped ops"},
    {"group_ops", OT_KEY_REAL, offsetof(ot_kernel_style, group_ops), "0", 0, OT_NO_MAXIMUM,
     .help = "additional, per expert of a grouped GEMM, with fp8 or biases"},
    {"host_ahead", OT_KEY_BOOL, offsetof(ot_kernel_style, host_ahead), "false",
     .help = "the host queues kernels while the device works"},
    {"fused_sums", OT_KEY_BOOL, offsetof(ot_kernel_style, fused_sums), "false",
     .help = "residuals and partial sums are added in the GEMM epilogue"},
    {"fused_accumulation", OT_KEY_BOOL, offsetof(ot_kernel_style, fused_accumulation), "false",
     .help = "weight gradients are accumulated in the GEMM epilogue"},
    {"fused_experts", OT_KEY_BOOL, offsetof(ot_kernel_style, fused_experts), "false",
     .help = "activation and casts are fused into grouped GEMMs"},
    {"switch_reductions", OT_KEY_BOOL, offsetof(ot_kernel_style, switch_reductions), "false",
     .help = "in-network reductions where switches support them (NCCL 2.18+)"},
    {"relays", OT_KEY_BOOL, offsetof(ot_kernel_style, relays), "false",
     .help = "reaches a NIC through a neighbouring device (PXN, NCCL 2.12+)"},
    {"fp8_attention", OT_KEY_BOOL, offsetof(ot_kernel_style, fp8_attention), "false",
     .help = "fp8 recipes: GEMMs of attention are in fp8, too"},
    {"fp8_head", OT_KEY_BOOL, offsetof(ot_kernel_style, fp8_head), "false",
     .help = "fp8 recipes: GEMMs of the head are in fp8, too"},
};
static const ot_schema kernels = {
    "kernels", kernel_keys, OT_COUNT(kernel_keys), .size = sizeof(ot_kernel_style)};

static const ot_key engine_keys[] = {
    {"name", OT_KEY_TEXT, offsetof(ot_engine, name), .help = "name"},
    {"recipe", OT_KEY_TEXT, offsetof(ot_engine, recipe),
     .help = "default precision, as in --precision"},
    {"software", OT_KEY_CHOICE, offsetof(ot_engine, software), "none", .choices = ot_software_names,
     .help = "software whose configurations and launch scripts run it"},
    {"runs", OT_KEY_OBJECT, offsetof(ot_engine, runs), .object = &ot_abilities_schema,
     .help = "what it can run"},
    {"kernels", OT_KEY_OBJECT, offsetof(ot_engine, kernels), .object = &kernels,
     .help = "kernel style"},
    {"dropout", OT_KEY_BOOL, offsetof(ot_engine, dropout), "false",
     .help = "after the softmax of attention, attention and the MLP"},
    {"chunked_loss", OT_KEY_BOOL, offsetof(ot_engine, chunked_loss), "false",
     .help = "logits exist for some tokens at a time"},
    {"loss_rows", OT_KEY_INTEGER, offsetof(ot_engine, loss_rows), "0", 0, OT_NO_MAXIMUM,
     .help = "tokens with logits at once with chunked_loss"},
    {"sequence_parallel", OT_KEY_BOOL, offsetof(ot_engine, sequence_parallel), "false",
     .help = "norms and residuals are sharded over tp"},
    {"health_metrics", OT_KEY_BOOL, offsetof(ot_engine, health_metrics), "false",
     .help = "measures activations in each micro-batch"},
    {"selective_share", OT_KEY_REAL, offsetof(ot_engine, selective_share), "0", 0, 1,
     .help = "of a forward that selective recompute recomputes; 0: attention only"},
    {"scattered_messages", OT_KEY_BOOL, offsetof(ot_engine, scattered_messages), "false",
     .help = "each rank of tp sends its shard of a message between stages"},
    {"overlap_reduce", OT_KEY_BOOL, offsetof(ot_engine, overlap_reduce), "false",
     .help = "gradient reductions, per bucket during the last backward"},
    {"overlap_gather", OT_KEY_BOOL, offsetof(ot_engine, overlap_gather), "false",
     .help = "weights of the next block (ZeRO 3)"},
    {"overlap_update_gather", OT_KEY_BOOL, offsetof(ot_engine, overlap_update_gather), "false",
     .help = "weights after the update (ZeRO 1, 2), in the next forward"},
    {"overlap_tensor", OT_KEY_CHOICE, offsetof(ot_engine, overlap_tensor), "none",
     .choices = tensor_overlaps, .help = "computation that hides collectives of tp"},
    {"overlap_pipeline", OT_KEY_CHOICE, offsetof(ot_engine, overlap_pipeline), "none",
     .choices = pipeline_overlaps, .help = "hidden messages between stages"},
    {"overlap_expert", OT_KEY_BOOL, offsetof(ot_engine, overlap_expert), "false",
     .help = "all-to-all of tokens, in pairs of 1F1B: interleaved stages, or none"},
    {"overlap_pairs", OT_KEY_BOOL, offsetof(ot_engine, overlap_pairs), "false",
     .help = "all-to-all of tokens, in the pairs of dualpipe-v"},
    {"bucket_bytes", OT_KEY_INTEGER, offsetof(ot_engine, bucket_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "gradients per reduction; 0: one block of the model"},
    {"bucket_rank_bytes", OT_KEY_INTEGER, offsetof(ot_engine, bucket_rank_bytes), "0", 0,
     OT_NO_MAXIMUM, .help = "but at least this many bytes per rank of the reduction"},
    {"reduce_each_micro_batch", OT_KEY_BOOL, offsetof(ot_engine, reduce_each_micro_batch), "false",
     .help = "ZeRO 2 and 3: reductions after each micro-batch"},
    {"reshard_after_forward", OT_KEY_BOOL, offsetof(ot_engine, reshard_after_forward), "false",
     .help = "ZeRO 3: weights are gathered again for the backward"},
    {"copies_gradients", OT_KEY_BOOL, offsetof(ot_engine, copies_gradients), "false",
     .help = "into buckets or another dtype before the reduction"},
    {"zero_bytes", OT_KEY_REAL, offsetof(ot_engine, zero_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "of a gradient, zeroed each step"},
    {"update_bytes", OT_KEY_REAL, offsetof(ot_engine, update_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "moved per parameter and step by the update; 0: the recipe's states"},
    {"stages_by_cost", OT_KEY_BOOL, offsetof(ot_engine, stages_by_cost), "false",
     .help = "assigns blocks to stages by cost; else equal numbers of layers"},
    {"sends_copies", OT_KEY_BOOL, offsetof(ot_engine, sends_copies), "false",
     .help = "experts: a token is sent once for each of its experts"},
    {"sorts_received", OT_KEY_BOOL, offsetof(ot_engine, sorts_received), "false",
     .help = "experts: separate passes permute received tokens"},
    {"fp8_dispatch", OT_KEY_BOOL, offsetof(ot_engine, fp8_dispatch), "false",
     .help = "experts in 8 bits: tokens are sent to them in 8 bits, too"},
    {"expert_bias_bytes", OT_KEY_REAL, offsetof(ot_engine, expert_bias_bytes), "0 0", 0,
     OT_NO_MAXIMUM, .shape = OT_SHAPE_ARRAY, .count = 2,
     .help = "moved per output element of experts with biases, forward and backward"},
    {"live_elements", OT_KEY_INTEGER, offsetof(ot_engine, live_elements), "0", 0, OT_NO_MAXIMUM,
     .help = "ZeRO 3: weights used again within this many elements stay gathered"},
    {"keeps_gathered", OT_KEY_BOOL, offsetof(ot_engine, keeps_gathered), "false",
     .help = "tensors gathered by sequence parallelism are saved for the backward"},
    {"keeps_activated", OT_KEY_BOOL, offsetof(ot_engine, keeps_activated), "false",
     .help = "gated MLPs: the activated gate is saved with gate, up and product"},
    {"keeps_outputs", OT_KEY_BOOL, offsetof(ot_engine, keeps_outputs), "false",
     .help = "stages keep sent activations until their gradient is back"},
    // Megatron-core's activation_func_fp8_input_store; DeepSeek-AI 2024, sec. 3.3.3; COAT (Xi et
    // al. 2024).
    {"fp8_activation_inputs", OT_KEY_BOOL, offsetof(ot_engine, fp8_activation_inputs), "false",
     .help = "gated MLPs: gate and up are saved in 8 bits"},
    {"drops_elementwise", OT_KEY_BOOL, offsetof(ot_engine, drops_elementwise), "false",
     .help = "results of norms and elementwise ops alone are recomputed"},
    {"stage_buffers", OT_KEY_INT, offsetof(ot_engine, stage_buffers), "0", 0, 1024,
     .help = "micro-batches that a stage has memory for, per stage; 0: any number"},
    {"copy_bytes", OT_KEY_REAL, offsetof(ot_engine, copy_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "of a gradient, kept in addition when gradients are reduced"},
    {"step_bytes", OT_KEY_REAL, offsetof(ot_engine, step_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "of a gradient shard, flat copies made by the update (ZeRO 1, 2)"},
    {"saved_score_bytes", OT_KEY_REAL, offsetof(ot_engine, saved_score_bytes), "0", 0,
     OT_NO_MAXIMUM, .help = "unfused attention: saved per element of scores and head"},
    {"loss_logit_bytes", OT_KEY_REAL, offsetof(ot_engine, loss_logit_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "kept per logit until its gradient is computed"},
    {"allocator_slack", OT_KEY_REAL, offsetof(ot_engine, allocator_slack), "0", 0, 1,
     .below_maximum = true, .help = "fraction of memory lost to an allocator"},
    {"context_bytes", OT_KEY_INTEGER, offsetof(ot_engine, context_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "of an accelerator's runtime, libraries and communicators"},
};
// clang-format on

const ot_schema ot_engine_schema = {.name = "engine",
                                    .keys = engine_keys,
                                    .num_keys = OT_COUNT(engine_keys),
                                    .size = sizeof(ot_engine)};

ot_status ot_engine_read(const ot_node *tree, ot_arena *arena, ot_engine *out) {
  *out = (ot_engine){0};
  OT_TRY(ot_schema_read(&ot_engine_schema, tree, arena, out));
  OT_CHECK(!ot_text_equal(out->name, ot_engine_orthant.name), OT_USAGE,
           "engine: \"%s\" is Orthant itself, which no file describes (try another name)",
           out->name);
  OT_CHECK(!out->chunked_loss || out->loss_rows > 0, OT_USAGE,
           "engine %s: chunked_loss needs loss_rows of at least 1", out->name);
  return ot_engine_check(out);
}

ot_node *ot_engine_write(const ot_engine *engine, ot_arena *arena) {
  return ot_schema_write(&ot_engine_schema, 0, engine, arena);
}
