// SPDX-License-Identifier: Apache-2.0
// One row a key. What is not said does not happen, or takes nothing.
#include "describe/engine_keys.h"

#include "base/text.h"

static const char *const attention[] = {"unfused", "flash-1", "flash-2", "flash-3", NULL};
static const char *const tensor_overlaps[] = {"none", "backward", "kernels", "pieces", NULL};
static const char *const pipeline_overlaps[] = {"none", "chunks", "all", NULL};

// clang-format off
static const ot_key kernel_keys[] = {
    {"attention", OT_KEY_CHOICE, offsetof(ot_kernel_style, attention), .choices = attention,
     .help = "which kernel; unfused: products around a softmax of T x T scores"},
    {"pass_factor", OT_KEY_REAL, offsetof(ot_kernel_style, pass_factor), "1", 1, OT_NO_MAXIMUM,
     .help = "bytes that elementwise work moves, over those of fused kernels"},
    {"score_passes", OT_KEY_REAL, offsetof(ot_kernel_style, score_passes), "0", 0, OT_NO_MAXIMUM,
     .help = "unfused: times that T x T scores are read or written between products"},
    {"loss_bytes", OT_KEY_REAL, offsetof(ot_kernel_style, loss_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "moved per logit, forward and backward, in addition to products"},
    {"cast_bytes", OT_KEY_REAL, offsetof(ot_kernel_style, cast_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "fp8: moved to cast an element of an operand, transpose included"},
    {"casts_weights", OT_KEY_BOOL, offsetof(ot_kernel_style, casts_weights), "false",
     .help = "fp8: weights are cast in each micro-batch; else once a step"},
    {"host_ops", OT_KEY_REAL, offsetof(ot_kernel_style, host_ops), "0", 0, OT_NO_MAXIMUM,
     .help = "host time of an op, over that of one that Python dispatches"},
    {"expert_ops", OT_KEY_REAL, offsetof(ot_kernel_style, expert_ops), "0", 0, OT_NO_MAXIMUM,
     .help = "the same of an op that moves rows to experts or works on groups"},
    {"group_ops", OT_KEY_REAL, offsetof(ot_kernel_style, group_ops), "0", 0, OT_NO_MAXIMUM,
     .help = "more of a grouped product for each expert, with 8 bits or biases"},
    {"host_ahead", OT_KEY_BOOL, offsetof(ot_kernel_style, host_ahead), "false",
     .help = "the host queues kernels while the device works"},
    {"fused_sums", OT_KEY_BOOL, offsetof(ot_kernel_style, fused_sums), "false",
     .help = "residuals and partial sums are added inside the kernel of a product"},
    {"fused_accumulation", OT_KEY_BOOL, offsetof(ot_kernel_style, fused_accumulation), "false",
     .help = "gradients of weights are added up inside the kernel of a product"},
    {"fused_experts", OT_KEY_BOOL, offsetof(ot_kernel_style, fused_experts), "false",
     .help = "grouped products make the activation between them, and the casts"},
    {"switch_reductions", OT_KEY_BOOL, offsetof(ot_kernel_style, switch_reductions), "false",
     .help = "the library adds up in switches that can (NCCL 2.18 and later)"},
    {"relays", OT_KEY_BOOL, offsetof(ot_kernel_style, relays), "false",
     .help = "and reaches a port through the neighbouring device (2.12 and later)"},
    {"fp8_attention", OT_KEY_BOOL, offsetof(ot_kernel_style, fp8_attention), "false",
     .help = "fp8 recipes: products of attention are in fp8, too"},
    {"fp8_head", OT_KEY_BOOL, offsetof(ot_kernel_style, fp8_head), "false",
     .help = "fp8 recipes: those of the head are"},
};
static const ot_schema kernels = {
    "kernels", kernel_keys, OT_COUNT(kernel_keys), .size = sizeof(ot_kernel_style)};

static const ot_key engine_keys[] = {
    {"name", OT_KEY_TEXT, offsetof(ot_engine, name), .help = "what it is called"},
    {"recipe", OT_KEY_TEXT, offsetof(ot_engine, recipe),
     .help = "precision where nothing else is said, as of --precision"},
    {"kernels", OT_KEY_OBJECT, offsetof(ot_engine, kernels), .object = &kernels,
     .help = "how it runs kernels"},
    {"dropout", OT_KEY_BOOL, offsetof(ot_engine, dropout), "false",
     .help = "after the softmax of attention, attention and the feed-forward part"},
    {"chunked_loss", OT_KEY_BOOL, offsetof(ot_engine, chunked_loss), "false",
     .help = "logits exist for some rows at a time"},
    {"loss_rows", OT_KEY_INTEGER, offsetof(ot_engine, loss_rows), "0", 0, OT_NO_MAXIMUM,
     .help = "rows of logits at once with chunked_loss"},
    {"sequence_parallel", OT_KEY_BOOL, offsetof(ot_engine, sequence_parallel), "false",
     .help = "norms and residuals are sharded over tp"},
    {"health_metrics", OT_KEY_BOOL, offsetof(ot_engine, health_metrics), "false",
     .help = "measures activations in each micro-batch"},
    {"selective_share", OT_KEY_REAL, offsetof(ot_engine, selective_share), "0", 0, 1,
     .help = "of a forward that recompute selective repeats; 0: attention alone"},
    {"scattered_messages", OT_KEY_BOOL, offsetof(ot_engine, scattered_messages), "false",
     .help = "each rank of tp sends its part of a message between stages"},
    {"overlap_reduce", OT_KEY_BOOL, offsetof(ot_engine, overlap_reduce), "false",
     .help = "sums of gradients, bucket by bucket during the last backward"},
    {"overlap_gather", OT_KEY_BOOL, offsetof(ot_engine, overlap_gather), "false",
     .help = "weights of the next block (ZeRO 3)"},
    {"overlap_update_gather", OT_KEY_BOOL, offsetof(ot_engine, overlap_update_gather), "false",
     .help = "weights after the update (ZeRO 1, 2), in the next forward"},
    {"overlap_tensor", OT_KEY_CHOICE, offsetof(ot_engine, overlap_tensor), "none",
     .choices = tensor_overlaps, .help = "what hides collectives of tp"},
    {"overlap_pipeline", OT_KEY_CHOICE, offsetof(ot_engine, overlap_pipeline), "none",
     .choices = pipeline_overlaps, .help = "which messages between stages are hidden"},
    {"overlap_expert", OT_KEY_BOOL, offsetof(ot_engine, overlap_expert), "false",
     .help = "rows on their way to experts and back"},
    {"bucket_bytes", OT_KEY_INTEGER, offsetof(ot_engine, bucket_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "gradients per reduction; 0: one block of the model"},
    {"bucket_rank_bytes", OT_KEY_INTEGER, offsetof(ot_engine, bucket_rank_bytes), "0", 0,
     OT_NO_MAXIMUM, .help = "but at least this many bytes for each rank of the reduction"},
    {"reduce_each_micro_batch", OT_KEY_BOOL, offsetof(ot_engine, reduce_each_micro_batch), "false",
     .help = "ZeRO 2 and 3: sums leave after each micro-batch"},
    {"reshard_after_forward", OT_KEY_BOOL, offsetof(ot_engine, reshard_after_forward), "false",
     .help = "ZeRO 3: weights are gathered again for the backward"},
    {"copies_gradients", OT_KEY_BOOL, offsetof(ot_engine, copies_gradients), "false",
     .help = "into buckets or another type before they are summed"},
    {"zero_bytes", OT_KEY_REAL, offsetof(ot_engine, zero_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "of a gradient, cleared each step"},
    {"update_bytes", OT_KEY_REAL, offsetof(ot_engine, update_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "moved per parameter and step by the update; 0: what the recipe keeps"},
    {"stages_by_cost", OT_KEY_BOOL, offsetof(ot_engine, stages_by_cost), "false",
     .help = "assigns blocks to stages by their cost; else as many layers each"},
    {"sorts_received", OT_KEY_BOOL, offsetof(ot_engine, sorts_received), "false",
     .help = "experts: received rows are put in order by passes of their own"},
    {"expert_bias_bytes", OT_KEY_REAL, offsetof(ot_engine, expert_bias_bytes), "0 0", 0,
     OT_NO_MAXIMUM, .shape = OT_SHAPE_ARRAY, .count = 2,
     .help = "moved per element out of experts with biases, forward and backward"},
    {"live_elements", OT_KEY_INTEGER, offsetof(ot_engine, live_elements), "0", 0, OT_NO_MAXIMUM,
     .help = "ZeRO 3: weights used again within so many stay gathered"},
    {"keeps_gathered", OT_KEY_BOOL, offsetof(ot_engine, keeps_gathered), "false",
     .help = "what sequence parallelism gathers is kept whole for the backward"},
    {"keeps_activated", OT_KEY_BOOL, offsetof(ot_engine, keeps_activated), "false",
     .help = "gated MLPs: the activated gate is kept with gate, up and product"},
    {"keeps_outputs", OT_KEY_BOOL, offsetof(ot_engine, keeps_outputs), "false",
     .help = "stages keep what they sent until its gradient is back"},
    {"drops_elementwise", OT_KEY_BOOL, offsetof(ot_engine, drops_elementwise), "false",
     .help = "what only norms and elementwise work need to make is recomputed"},
    {"stage_buffers", OT_KEY_INT, offsetof(ot_engine, stage_buffers), "0", 0, 1024,
     .help = "micro-batches that a stage has room for, per stage; 0: any number"},
    {"copy_bytes", OT_KEY_REAL, offsetof(ot_engine, copy_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "of a gradient, kept in addition where ranks sum gradients"},
    {"step_bytes", OT_KEY_REAL, offsetof(ot_engine, step_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "of a shard's gradient, flat copies that the update makes (ZeRO 1, 2)"},
    {"saved_score_bytes", OT_KEY_REAL, offsetof(ot_engine, saved_score_bytes), "0", 0,
     OT_NO_MAXIMUM, .help = "unfused attention: kept per element of scores and head"},
    {"loss_logit_bytes", OT_KEY_REAL, offsetof(ot_engine, loss_logit_bytes), "0", 0, OT_NO_MAXIMUM,
     .help = "kept per logit until its gradient is made"},
    {"allocator_slack", OT_KEY_REAL, offsetof(ot_engine, allocator_slack), "0", 0, 1,
     .below_maximum = true, .help = "share of memory lost to an allocator"},
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
           "engine: \"%s\" is this program, and no file describes it (try another name)",
           out->name);
  OT_CHECK(!out->chunked_loss || out->loss_rows > 0, OT_USAGE,
           "engine %s: chunked_loss needs loss_rows of at least 1", out->name);
  return ot_engine_check(out);
}

ot_node *ot_engine_write(const ot_engine *engine, ot_arena *arena) {
  return ot_schema_write(&ot_engine_schema, 0, engine, arena);
}
