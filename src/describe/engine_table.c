// SPDX-License-Identifier: Apache-2.0
// The engines. A row is what the source code or documentation of a software says of itself at the
// version that published runs used, as far as we know it. What published step times have decided is
// said in docs/pricing.md.
//
// host_ops compares with eager PyTorch: about 0.5 where blocks are compiled but dispatched from
// Python, 0.1 for programs that launch kernels themselves (2 to 3 us each), 0.02 for captured
// graphs (well below 1 us). update_bytes of mixed precision in Megatron-LM's optimizer.py: fp16
// gradients copied to fp32 (6), unscaled and checked (8), squared (4), clipped (8), Adam (28),
// weights copied back (6): 60; with fused buffers and one pass for most of it about 40; Adam alone
// 30. loss_bytes: fp32 copy, maximum, difference, exponent, sum, quotient, gradient, fp16 copy: 44;
// compiled 20; fused kernels 6 to 10. NCCL chooses ring, tree or switch by size.
// expert_ops: permute, dispatch, sort and their like are about two operators of Python each, and
// group_ops one for each expert of the rank, of quantizers or of biases (Megatron-core,
// token_dispatcher.py, experts.py; Transformer Engine, grouped_linear.py).
// expert_bias_bytes: the bias of each expert times fp32 gates, added, joined with the others and
// cast (TEGroupedMLP._apply_bias). score_passes of unfused attention: 4.5 with Megatron-LM's fused
// softmax in fp16, twice that in fp32 as frameworks write it. context_bytes: CUDA and its libraries
// take about 1 GB, each communicator of NCCL some 0.4 GB, of which a mesh of four axes has four;
// DeepSpeed's pipelines have about eight. Buckets of Megatron-core: 40 M gradients, or 1 M for each
// rank of dp (distributed_data_parallel.py).
#include <stddef.h>

#include "describe/engine.h"

// Everything in one pass, planned memory, collectives of comm/.
const ot_engine ot_engine_orthant = {
    .name = "orthant",
    .kernels = {.attention = OT_ATTENTION_FLASH_2,
                .pass_factor = 1,
                .loss_bytes = 8,
                .cast_bytes = 3,
                .host_ops = 0.1,
                .host_ahead = true,
                .fused_accumulation = true,
                .fused_sums = true,
                .switch_reductions = true,
                .relays = true},
    .recipe = "bf16",
    .chunked_loss = true,
    .loss_rows = 256,
    .sequence_parallel = true,
    .tensor_products_overlap = true,
    .overlap_reduce = true,
    .overlap_gather = true,
    .overlap_pipeline = true,
    .reduce = OT_COLLECTIVE_EXCHANGE,
    .gather = OT_COLLECTIVE_RING,
    .reduce_each_micro_batch = true,
    .reshard_after_forward = true,
    .fused_optimizer = true,
    .context_bytes = 2500000000,
};

// Megatron-LM v2.x (megatron/model/{transformer,fused_softmax}.py, optimizer.py): scaled masked
// softmax, bias + gelu, bias + dropout + residual and layer norm are fused kernels; dropout after
// softmax is one more (softmax reads and writes, dropout reads and writes and writes a mask).
// Messages between stages are scattered over tp (Narayanan et al. 2021, sec. 4.1).
// Gradients are summed when the backward is over (local DDP). No sequence parallelism.
static const ot_engine megatron_2021 = {
    .name = "megatron-2021",
    .kernels = {.attention = OT_ATTENTION_UNFUSED,
                .pass_factor = 1,
                .score_passes = 4.5,
                .loss_bytes = 44,
                .host_ops = 1,
                .host_ahead = true},
    .recipe = "fp16",
    .scattered_messages = true,
    .dropout = true,
    .update_bytes = 60,
    .reduce = OT_COLLECTIVE_BEST,
    .gather = OT_COLLECTIVE_BEST,
    .fused_optimizer = true,
    .zero_bytes = 2,
    .saved_score_bytes = 5,
    .keeps_outputs = true,
    .loss_logit_bytes = 10,
    .allocator_slack = 0.08,
    .context_bytes = 2000000000,
};

// Korthikanti et al. 2022: sequence parallelism, what a stage sent is freed (appendix B), and dw
// beside the collectives of the backward (LinearWithGradAccumulationAndAsyncCommunication).
static const ot_engine megatron_2022 = {
    .name = "megatron-2022",
    .kernels = {.attention = OT_ATTENTION_UNFUSED,
                .pass_factor = 1,
                .score_passes = 4.5,
                .loss_bytes = 44,
                .host_ops = 1,
                .host_ahead = true,
                .fused_accumulation = true},
    .recipe = "fp16",
    .scattered_messages = true,
    .dropout = true,
    .sequence_parallel = true,
    .tensor_products_overlap = true,
    .update_bytes = 60,
    .reduce = OT_COLLECTIVE_BEST,
    .gather = OT_COLLECTIVE_BEST,
    .fused_optimizer = true,
    .zero_bytes = 4,
    .saved_score_bytes = 5,
    .loss_logit_bytes = 10,
    .allocator_slack = 0.08,
    .context_bytes = 2000000000,
};

// Megatron-DeepSpeed (DeepSpeed 0.5 pipe engine): Megatron-LM's layers, 1F1B with sends that the
// host does not wait for, of which each rank of tp sends its part (v0.5.10, runtime/pipe/engine.py,
// is_pipe_partitioned and is_grad_partitioned), ZeRO 1 with gradients reduced at the end of the
// step and weights gathered after it.
static const ot_engine megatron_deepspeed = {
    .name = "megatron-deepspeed",
    .kernels = {.attention = OT_ATTENTION_UNFUSED,
                .pass_factor = 1,
                .score_passes = 4.5,
                .loss_bytes = 44,
                .host_ops = 1,
                .host_ahead = true},
    .recipe = "fp16",
    .scattered_messages = true,
    .overlap_pipeline = true,
    .dropout = true,
    .update_bytes = 60,
    .reduce = OT_COLLECTIVE_BEST,
    .gather = OT_COLLECTIVE_BEST,
    .bucket_bytes = 1000000000,
    .copies_gradients = true,
    .fused_optimizer = true,
    .zero_bytes = 2,
    .saved_score_bytes = 5,
    .keeps_outputs = true,
    .step_bytes = 8,
    .loss_logit_bytes = 10,
    .allocator_slack = 0.08,
    .context_bytes = 4200000000,
};

// The same with CUDA_LAUNCH_BLOCKING=1 (bigscience tr11: "do not remove or the training will
// hang"): the host waits for each kernel and for its own call, and nothing hides either.
static const ot_engine megatron_deepspeed_blocking = {
    .name = "megatron-deepspeed-blocking",
    .kernels = {.attention = OT_ATTENTION_UNFUSED,
                .pass_factor = 1,
                .score_passes = 4.5,
                .loss_bytes = 44,
                .host_ops = 3.25},
    .recipe = "fp16",
    .scattered_messages = true,
    .overlap_pipeline = true,
    .dropout = true,
    .update_bytes = 60,
    .reduce = OT_COLLECTIVE_BEST,
    .gather = OT_COLLECTIVE_BEST,
    .bucket_bytes = 1000000000,
    .copies_gradients = true,
    .fused_optimizer = true,
    .zero_bytes = 2,
    .saved_score_bytes = 5,
    .keeps_outputs = true,
    .step_bytes = 8,
    .loss_logit_bytes = 10,
    .allocator_slack = 0.08,
    .context_bytes = 4200000000,
};

// DeepSpeed ZeRO 3 around Megatron-LM's layers: gathers are fetched ahead, reduce-scatters leave in
// buckets of 5e8 elements, weights within stage3_max_reuse_distance of 1e9 are not let go (defaults
// of runtime/zero/config.py).
static const ot_engine deepspeed = {
    .name = "deepspeed",
    .kernels = {.attention = OT_ATTENTION_UNFUSED,
                .pass_factor = 1,
                .score_passes = 4.5,
                .loss_bytes = 44,
                .host_ops = 1,
                .host_ahead = true},
    .recipe = "fp16",
    .dropout = true,
    .overlap_reduce = true,
    .overlap_gather = true,
    .update_bytes = 60,
    .reduce = OT_COLLECTIVE_BEST,
    .gather = OT_COLLECTIVE_BEST,
    .bucket_bytes = 1000000000,
    .reduce_each_micro_batch = true,
    .reshard_after_forward = true,
    .live_elements = 1000000000,
    .copies_gradients = true,
    .fused_optimizer = true,
    .saved_score_bytes = 5,
    .loss_logit_bytes = 10,
    .allocator_slack = 0.08,
    .context_bytes = 2500000000,
};

// Megatron-core 0.5 to 0.8 with Transformer Engine 1.x (NeMo 24, MLPerf 3.1): fused attention of
// cuDNN, norm and bias fused, swiglu fused; distributed optimizer with sums and gathers beside the
// passes; tp collectives in pieces beside products (user buffers).
static const ot_engine megatron_core = {
    .name = "megatron-core",
    .kernels = {.attention = OT_ATTENTION_FLASH_2,
                .pass_factor = 1,
                .loss_bytes = 44,
                .cast_bytes = 4,
                .host_ops = 1,
                .expert_ops = 2,
                .group_ops = 1,
                .host_ahead = true,
                .fused_accumulation = true,
                .switch_reductions = true,
                .relays = true},
    .recipe = "bf16-fp32-gradients",
    .sequence_parallel = true,
    .tensor_products_overlap = true,
    .overlap_reduce = true,
    .overlap_update_gather = true,
    .overlap_tensor = true,
    .overlap_pipeline = true,
    .sorts_received = true,
    .expert_bias_bytes = {28, 40},
    .update_bytes = 40,
    .reduce = OT_COLLECTIVE_BEST,
    .gather = OT_COLLECTIVE_BEST,
    .bucket_bytes = 160000000,
    .bucket_rank_bytes = 4000000,
    .fused_optimizer = true,
    .zero_bytes = 4,
    .loss_logit_bytes = 10,
    .allocator_slack = 0.08,
    .context_bytes = 2500000000,
};

// Megatron-core 0.12 and later with Transformer Engine 2 (Megatron-Bridge 25, 26): attention of
// cuDNN 9, fused cross-entropy, captured graphs of what is not experts; all-to-all of experts
// beside compute is a choice that most of its recipes leave. Megatron FSDP gathers a layer's
// weights ahead and frees them after each use.
static const ot_engine megatron_bridge = {
    .name = "megatron-bridge",
    .kernels = {.attention = OT_ATTENTION_FLASH_3,
                .pass_factor = 1,
                .loss_bytes = 10,
                .cast_bytes = 3,
                .host_ops = 0.1,
                .expert_ops = 2,
                .group_ops = 1,
                .host_ahead = true,
                .fused_accumulation = true,
                .switch_reductions = true,
                .relays = true},
    .recipe = "bf16-fp32-gradients",
    .sequence_parallel = true,
    .tensor_products_overlap = true,
    .overlap_reduce = true,
    .overlap_gather = true,
    .overlap_update_gather = true,
    .overlap_tensor = true,
    .overlap_pipeline = true,
    .update_bytes = 40,
    .reduce = OT_COLLECTIVE_BEST,
    .gather = OT_COLLECTIVE_BEST,
    .bucket_bytes = 160000000,
    .bucket_rank_bytes = 4000000,
    .reshard_after_forward = true,
    .fused_optimizer = true,
    .sorts_received = true,
    .expert_bias_bytes = {28, 40},
    .zero_bytes = 4,
    .loss_logit_bytes = 6,
    .allocator_slack = 0.05,
    .context_bytes = 2500000000,
};

// The same from container 26.06 on, where recipes of 8-bit experts capture whole iterations, let
// rows travel beside compute, fuse grouped products with what is between them and sort rows as they
// are sent (scripts/performance at v0.5: cuda_graph_impl full_iteration, moe_a2a_overlap,
// cutedsl_fused_grouped_mlp, hybridep). Their attention in fp8 is priced in bf16: what its products
// save and its casts cost is not known. The rest is megatron_bridge's, which a test compares.
static const ot_engine megatron_bridge_26_06 = {
    .name = "megatron-bridge-26.06",
    .kernels = {.attention = OT_ATTENTION_FLASH_3,
                .pass_factor = 1,
                .loss_bytes = 10,
                .cast_bytes = 3,
                .host_ops = 0.1,
                .expert_ops = 0.1,
                .host_ahead = true,
                .fused_accumulation = true,
                .fused_experts = true,
                .switch_reductions = true,
                .relays = true},
    .recipe = "bf16-fp32-gradients",
    .sequence_parallel = true,
    .tensor_products_overlap = true,
    .overlap_reduce = true,
    .overlap_gather = true,
    .overlap_update_gather = true,
    .overlap_tensor = true,
    .overlap_pipeline = true,
    .overlap_expert = true,
    .update_bytes = 40,
    .reduce = OT_COLLECTIVE_BEST,
    .gather = OT_COLLECTIVE_BEST,
    .bucket_bytes = 160000000,
    .bucket_rank_bytes = 4000000,
    .reshard_after_forward = true,
    .fused_optimizer = true,
    .zero_bytes = 4,
    .loss_logit_bytes = 6,
    .allocator_slack = 0.05,
    .context_bytes = 2500000000,
};

// PyTorch FSDP 1 with eager modules (llm-foundry 0.1 to 0.4): attention in Triton, layer norm in
// low precision, gelu, residual additions and casts of amp are kernels of their own; cross-entropy
// over whole logits, of which only themselves and their gradient are kept (loss_fn
// fused_crossentropy).
static const ot_engine fsdp = {
    .name = "fsdp",
    .kernels = {.attention = OT_ATTENTION_FLASH_1,
                .pass_factor = 1.6,
                .score_passes = 9,
                .loss_bytes = 48,
                .cast_bytes = 4,
                .casts_weights = true,
                .host_ops = 0.8,
                .host_ahead = true,
                .relays = true},
    .recipe = "amp-bf16",
    .overlap_reduce = true,
    .overlap_gather = true,
    .update_bytes = 50,
    .reduce = OT_COLLECTIVE_RING,
    .gather = OT_COLLECTIVE_RING,
    .reduce_each_micro_batch = true,
    .reshard_after_forward = true,
    .zero_bytes = 0,
    .loss_logit_bytes = 4,
    .allocator_slack = 0.08,
    .context_bytes = 1500000000,
};

// torchtitan 2024 (docs/performance.md): FSDP 2, each block compiled, attention of PyTorch (flash
// 2), loss over whole logits, compiled. Selective recompute makes every second product again, and
// what is between them: half of the products, most of the passes, no attention.
static const ot_engine torchtitan = {
    .name = "torchtitan",
    .kernels = {.attention = OT_ATTENTION_FLASH_2,
                .pass_factor = 1,
                .score_passes = 9,
                .loss_bytes = 20,
                .cast_bytes = 4,
                .casts_weights = true,
                .host_ops = 0.5,
                .host_ahead = true,
                .relays = true},
    .recipe = "amp-bf16",
    .selective_share = 0.43,
    .sequence_parallel = true,
    .overlap_reduce = true,
    .overlap_gather = true,
    .overlap_tensor = true,
    .overlap_pipeline = true,
    .update_bytes = 30,
    .reduce = OT_COLLECTIVE_RING,
    .gather = OT_COLLECTIVE_RING,
    .reduce_each_micro_batch = true,
    .reshard_after_forward = true,
    .fused_optimizer = true,
    .drops_elementwise = true,
    .loss_logit_bytes = 10,
    .allocator_slack = 0.08,
    .context_bytes = 1500000000,
};

// nanotron 0.4 (src/nanotron): flash 2, layers in eager PyTorch, bf16 with fp32 accumulation of
// gradients, ZeRO 1, sums of gradients beside the last backward, tp collectives exposed. The
// activation of a gate and its product are kernels of their own (GLUActivation). Logits are cast,
// copied to contiguous memory and shifted by their maximum, all in fp32 (sharded_cross_entropy).
static const ot_engine nanotron = {
    .name = "nanotron",
    .kernels = {.attention = OT_ATTENTION_FLASH_2,
                .pass_factor = 2,
                .score_passes = 9,
                .loss_bytes = 48,
                .cast_bytes = 4,
                .host_ops = 1,
                .host_ahead = true,
                .switch_reductions = true,
                .relays = true},
    .recipe = "bf16-fp32-gradients",
    .sequence_parallel = true,
    .overlap_reduce = true,
    .update_bytes = 40,
    .reduce = OT_COLLECTIVE_BEST,
    .gather = OT_COLLECTIVE_BEST,
    .bucket_bytes = 25000000,
    .copies_gradients = true,
    .fused_optimizer = true,
    .zero_bytes = 4,
    .cuts_by_cost = true,
    .keeps_gathered = true,
    .keeps_activated = true,
    .keeps_outputs = true,
    .copy_bytes = 2,
    .loss_logit_bytes = 12,
    .allocator_slack = 0.08,
    .context_bytes = 2500000000,
};

// JAX with Pax or MaxText: the step is compiled whole by XLA; attention of Transformer Engine or
// Pallas, collectives scheduled beside compute (latency-hiding scheduler).
static const ot_engine jax = {
    .name = "jax",
    .kernels = {.attention = OT_ATTENTION_FLASH_2,
                .pass_factor = 1,
                .score_passes = 9,
                .loss_bytes = 16,
                .cast_bytes = 3,
                .casts_weights = true,
                .host_ops = 0.05,
                .host_ahead = true,
                .fused_accumulation = true,
                .switch_reductions = true,
                .relays = true},
    .recipe = "amp-bf16",
    .sequence_parallel = true,
    .tensor_products_overlap = true,
    .overlap_reduce = true,
    .overlap_gather = true,
    .overlap_tensor = true,
    .overlap_pipeline = true,
    .update_bytes = 30,
    .reduce = OT_COLLECTIVE_BEST,
    .gather = OT_COLLECTIVE_BEST,
    .reduce_each_micro_batch = true,
    .reshard_after_forward = true,
    .fused_optimizer = true,
    .loss_logit_bytes = 8,
    .allocator_slack = 0.05,
    .context_bytes = 1500000000,
};

// llmq (README, doc.md): C++ and CUDA, captured graphs, cuDNN attention, head in chunks, bf16
// moments, sums over ranks when the last micro-batch is done.
static const ot_engine llmq = {
    .name = "llmq",
    .kernels = {.attention = OT_ATTENTION_FLASH_3,
                .pass_factor = 1,
                .loss_bytes = 6,
                .cast_bytes = 3,
                .host_ops = 0.02,
                .host_ahead = true,
                .fused_accumulation = true,
                .switch_reductions = true,
                .relays = true},
    .recipe = "bf16-bf16-moments",
    .chunked_loss = true,
    .loss_rows = 4096,
    .overlap_reduce = true,
    .overlap_gather = true,
    .update_bytes = 20,
    .reduce = OT_COLLECTIVE_BEST,
    .gather = OT_COLLECTIVE_BEST,
    .fused_optimizer = true,
    .zero_bytes = 2,
    .loss_logit_bytes = 2,
    .context_bytes = 1000000000,
};

// OneFlow 0.4 (DLPerf GPT): a static graph run by a C++ runtime, Megatron's fusions and dropout
// with the softmax (fused_scale_mask_softmax_dropout), gradients summed beside the backward.
static const ot_engine oneflow = {
    .name = "oneflow",
    .kernels = {.attention = OT_ATTENTION_UNFUSED,
                .pass_factor = 1,
                .score_passes = 3.5,
                .loss_bytes = 44,
                .host_ops = 0.1,
                .host_ahead = true},
    .recipe = "fp16",
    .dropout = true,
    .overlap_reduce = true,
    .overlap_pipeline = true,
    .update_bytes = 60,
    .reduce = OT_COLLECTIVE_RING,
    .gather = OT_COLLECTIVE_RING,
    .fused_optimizer = true,
    .saved_score_bytes = 5,
    .stage_buffers = 2,
    .copy_bytes = 2,
    .loss_logit_bytes = 10,
    .context_bytes = 1000000000,
};

static const ot_engine *const engines[] = {&ot_engine_orthant,
                                           &megatron_2021,
                                           &megatron_2022,
                                           &megatron_deepspeed,
                                           &megatron_deepspeed_blocking,
                                           &deepspeed,
                                           &megatron_core,
                                           &megatron_bridge,
                                           &megatron_bridge_26_06,
                                           &fsdp,
                                           &torchtitan,
                                           &nanotron,
                                           &jax,
                                           &llmq,
                                           &oneflow,
                                           NULL};

const ot_engine *ot_engine_at(int index) { return engines[index]; }
