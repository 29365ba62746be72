// SPDX-License-Identifier: Apache-2.0
// The table of Megatron-LM's flags, without dashes. Other flags are refused, so that each new one
// is classified by its effect on the cost of a step.
#include "software/megatron_keys.h"

#include "describe/model.h"

static const char *const strategies[] = {"no_shard", "optim", "optim_grads", "optim_grads_params",
                                         NULL};
static const char *const positions[] = {"learned_absolute", "rope", NULL};
static const char *const norms[] = {"LayerNorm|layernorm", "RMSNorm|rmsnorm", NULL};
static const char *const fp8_formats[] = {"hybrid", "e4m3", NULL};
static const char *const moments[] = {"fp32|torch.float32", "bf16|torch.bfloat16",
                                      "fp16|torch.float16", "fp8|torch.uint8", NULL};
static const char *const granularities[] = {"full", "selective", NULL};
static const char *const methods[] = {"uniform", "block", NULL};
static const char *const implementations[] = {"transformer_engine", "local", NULL};
static const char *const only_false[] = {"false", NULL};
static const char *const only_null[] = {"null", NULL};
static const char *const only_zero[] = {"0", "null", NULL};
static const char *const only_adam[] = {"adam", NULL};
static const char *const only_one[] = {"1", "null", NULL};
static const char *const only_unsharded[] = {"no_shard", NULL};
static const char *const scores[] = {"softmax", "sigmoid", NULL};
static const char *const dispatchers[] = {"alltoall", "flex", NULL};
static const char *const flexible[] = {"deepep", "hybridep", NULL};
static const char *const graph_kinds[] = {"none", "local", "transformer_engine", "full_iteration",
                                          NULL};
static const char *const backends[] = {"fused", "flash", "unfused|local", NULL};

// clang-format off
static const ot_key keys[] = {
    {"tensor-model-parallel-size", OT_KEY_INT, offsetof(ot_megatron_flags, tp), "1", 1, 1 << 20,
     .also = "model-parallel-size", .help = "tensor parallel degree"},
    {"pipeline-model-parallel-size", OT_KEY_INT, offsetof(ot_megatron_flags, pp), "1", 1, 1 << 20,
     .help = "pipeline stages"},
    {"context-parallel-size", OT_KEY_INT, offsetof(ot_megatron_flags, cp), "1", 1, 1 << 20,
     .help = "context parallel degree"},
    {"expert-model-parallel-size", OT_KEY_INT, offsetof(ot_megatron_flags, ep), "1", 1, 1 << 20,
     .help = "expert parallel degree"},
    {"expert-tensor-parallel-size", OT_KEY_INT, offsetof(ot_megatron_flags, etp), "null",
     1, 1 << 20, .null_text = "0", .help = "tensor parallel degree of experts"},
    {"num-layers-per-virtual-pipeline-stage", OT_KEY_INT,
     offsetof(ot_megatron_flags, layers_per_chunk), "null", 1, OT_MAX_LAYERS, .null_text = "0",
     .help = "layers per chunk of a stage"},
    {"num-virtual-stages-per-pipeline-rank", OT_KEY_INT, offsetof(ot_megatron_flags, vpp), "null",
     1, OT_MAX_LAYERS, .null_text = "0", .help = "chunks per stage"},
    {"num-layers", OT_KEY_INTEGER, offsetof(ot_megatron_flags, layers), NULL, 1, OT_MAX_LAYERS,
     .help = "layers"},
    {"hidden-size", OT_KEY_INTEGER, offsetof(ot_megatron_flags, hidden), NULL, 1, 1 << 20,
     .help = "width of the residual stream"},
    {"num-attention-heads", OT_KEY_INTEGER, offsetof(ot_megatron_flags, heads), NULL, 1, 1 << 16,
     .help = "query heads"},
    {"group-query-attention", OT_KEY_BOOL, offsetof(ot_megatron_flags, grouped), "false",
     .help = "fewer key and value heads than query heads"},
    {"num-query-groups", OT_KEY_INTEGER, offsetof(ot_megatron_flags, groups), "null", 1, 1 << 16,
     .also = "num-key-value-heads", .null_text = "0", .help = "key and value heads"},
    {"ffn-hidden-size", OT_KEY_INTEGER, offsetof(ot_megatron_flags, ffn), "null", 1, 1 << 22,
     .null_text = "0", .help = "width of the MLP"},
    {"kv-channels", OT_KEY_INTEGER, offsetof(ot_megatron_flags, channels), "null", 1, 1 << 16,
     .null_text = "0", .help = "width of a head"},
    {"max-position-embeddings", OT_KEY_INTEGER, offsetof(ot_megatron_flags, positions), "null",
     1, INT32_MAX, .null_text = "0", .help = "longest sequence"},
    {"seq-length", OT_KEY_INTEGER, offsetof(ot_megatron_flags, sequence), NULL, 1, INT32_MAX,
     .help = "tokens per sequence"},
    {"micro-batch-size", OT_KEY_INTEGER, offsetof(ot_megatron_flags, micro_batch), NULL, 1, 1 << 30,
     .help = "sequences per forward and backward"},
    {"global-batch-size", OT_KEY_INTEGER, offsetof(ot_megatron_flags, global_batch), "null",
     1, 1 << 30, .null_text = "0", .help = "sequences per step"},
    {"vocab-size", OT_KEY_INTEGER, offsetof(ot_megatron_flags, vocabulary), "null", 1, INT32_MAX,
     .null_text = "0", .help = "vocabulary size of the tokenizer"},
    {"padded-vocab-size", OT_KEY_INTEGER, offsetof(ot_megatron_flags, padded_vocabulary), "null",
     1, INT32_MAX, .null_text = "0", .help = "rows of the embedding"},
    {"make-vocab-size-divisible-by", OT_KEY_INTEGER,
     offsetof(ot_megatron_flags, vocabulary_multiple), "128", 1, 1 << 20,
     .help = "the embedding rows are padded to a multiple of this times tp"},
    {"swiglu", OT_KEY_BOOL, offsetof(ot_megatron_flags, swiglu), "false",
     .help = "gated MLP with silu"},
    {"squared-relu", OT_KEY_BOOL, offsetof(ot_megatron_flags, squared_relu), "false",
     .help = "square of relu in the MLP"},
    {"openai-gelu", OT_KEY_BOOL, offsetof(ot_megatron_flags, tanh_gelu), "false",
     .help = "gelu by tanh"},
    {"untie-embeddings-and-output-weights", OT_KEY_BOOL, offsetof(ot_megatron_flags, untied),
     "false", .help = "the output head has its own weights"},
    {"disable-bias-linear", OT_KEY_BOOL, offsetof(ot_megatron_flags, no_bias), "false",
     .help = "no biases in linear layers"},
    {"add-qkv-bias", OT_KEY_BOOL, offsetof(ot_megatron_flags, qkv_bias), "false",
     .help = "biases on queries, keys and values"},
    {"qk-layernorm", OT_KEY_BOOL, offsetof(ot_megatron_flags, qk_norm), "false",
     .help = "queries and keys are normalised"},
    {"use-rotary-position-embeddings", OT_KEY_BOOL, offsetof(ot_megatron_flags, rotary), "false",
     .help = "rotary positions, in the older spelling"},
    {"bf16", OT_KEY_BOOL, offsetof(ot_megatron_flags, bf16), "false", .help = "GEMMs in bf16"},
    {"fp16", OT_KEY_BOOL, offsetof(ot_megatron_flags, fp16), "false", .help = "GEMMs in fp16"},
    {"grad-reduce-in-bf16", OT_KEY_BOOL, offsetof(ot_megatron_flags, gradients_bf16), "false",
     .help = "gradients are stored and reduced in bf16"},
    {"use-distributed-optimizer", OT_KEY_BOOL, offsetof(ot_megatron_flags, distributed_optimizer),
     "false", .help = "optimizer state is sharded over data parallel ranks"},
    {"sequence-parallel", OT_KEY_BOOL, offsetof(ot_megatron_flags, sequence_parallel), "false",
     .help = "norms are sharded over the sequence"},
    {"use-torch-fsdp2", OT_KEY_BOOL, offsetof(ot_megatron_flags, torch_fsdp), "false",
     .help = "weights are sharded over data parallel ranks, by PyTorch"},
    {"recompute-activations", OT_KEY_BOOL, offsetof(ot_megatron_flags, recompute_activations),
     "false", .help = "attention is recomputed"},
    {"use-flash-attn", OT_KEY_BOOL, offsetof(ot_megatron_flags, flash), "false",
     .also = "use-flash-attn-v2", .help = "fused attention"},
    {"use-megatron-fsdp", OT_KEY_BOOL, offsetof(ot_megatron_flags, megatron_fsdp), "false",
     .also = "use-custom-fsdp", .help = "weights and states are sharded over dp"},
    {"data-parallel-sharding-strategy", OT_KEY_CHOICE, offsetof(ot_megatron_flags, sharding),
     "no_shard", .choices = strategies, .help = "what Megatron-FSDP shards"},
    {"position-embedding-type", OT_KEY_CHOICE, offsetof(ot_megatron_flags, position_type),
     "learned_absolute", .choices = positions, .help = "position embedding"},
    {"normalization", OT_KEY_CHOICE, offsetof(ot_megatron_flags, normalization), "LayerNorm",
     .choices = norms, .help = "kind of norm"},
    {"fp8-format", OT_KEY_CHOICE, offsetof(ot_megatron_flags, fp8), "auto", .also = "fp8",
     .choices = fp8_formats, .help = "GEMMs in fp8"},
    {"recompute-granularity", OT_KEY_CHOICE, offsetof(ot_megatron_flags, recompute), "auto",
     .choices = granularities, .help = "recomputed activations"},
    {"recompute-method", OT_KEY_CHOICE, offsetof(ot_megatron_flags, method), "auto",
     .choices = methods, .help = "recomputed layers"},
    {"recompute-num-layers", OT_KEY_INTEGER, offsetof(ot_megatron_flags, recompute_layers), "null",
     1, OT_MAX_LAYERS, .null_text = "0",
     .help = "layers of a recompute unit or, by block, of a stage"},
    {"transformer-impl", OT_KEY_CHOICE, offsetof(ot_megatron_flags, implementation),
     "transformer_engine", .choices = implementations, .help = "kernels of layers"},
    {"rotary-base", OT_KEY_REAL, offsetof(ot_megatron_flags, rotary_base), "10000",
     0, OT_NO_MAXIMUM, .also = "rotary-position-embeddings-theta",
     .help = "base of the rotary frequencies"},
    {"norm-epsilon", OT_KEY_REAL, offsetof(ot_megatron_flags, epsilon), "1e-05", 0, OT_NO_MAXIMUM,
     .also = "layernorm-epsilon", .help = "added in norms"},
    {"hidden-dropout", OT_KEY_REAL, offsetof(ot_megatron_flags, hidden_dropout), "0.1",
     0, OT_NO_MAXIMUM, .help = "share of values dropped where a branch joins"},
    {"attention-dropout", OT_KEY_REAL, offsetof(ot_megatron_flags, attention_dropout), "0.1",
     0, OT_NO_MAXIMUM, .help = "share of attention probabilities dropped"},
    {"init-method-std", OT_KEY_REAL, offsetof(ot_megatron_flags, initial_std), "0.02",
     0, OT_NO_MAXIMUM, .help = "standard deviation of initial weights"},
    {"tokenizer-type", OT_KEY_TEXT, offsetof(ot_megatron_flags, tokenizer), "",
     .help = "kind of tokenizer"},
    {"merge-file", OT_KEY_TEXT, offsetof(ot_megatron_flags, merges), "",
     .help = "merges of a byte-level tokenizer"},
    {"num-experts", OT_KEY_INTEGER, offsetof(ot_megatron_flags, experts), "null", 1, 1 << 16,
     .also = "num-moe-experts", .null_text = "0", .help = "routed experts per layer"},
    {"moe-router-topk", OT_KEY_INTEGER, offsetof(ot_megatron_flags, experts_per_token), "2",
     1, 1 << 16, .help = "routed experts per token"},
    {"moe-ffn-hidden-size", OT_KEY_INTEGER, offsetof(ot_megatron_flags, expert_ffn), "null",
     1, 1 << 22, .null_text = "0", .help = "width of the MLP of an expert"},
    {"moe-shared-expert-intermediate-size", OT_KEY_INTEGER, offsetof(ot_megatron_flags, shared_ffn),
     "null", 1, 1 << 22, .null_text = "0", .help = "width of the MLP of all shared experts"},
    {"moe-layer-freq", OT_KEY_TEXT, offsetof(ot_megatron_flags, expert_layers), "1",
     .help = "layers with experts: every N-th, or a list such as ([0]*3+[1]*58)"},
    {"moe-router-score-function", OT_KEY_CHOICE, offsetof(ot_megatron_flags, router_score),
     "softmax", .choices = scores, .help = "scores of experts"},
    {"moe-router-topk-scaling-factor", OT_KEY_REAL, offsetof(ot_megatron_flags, router_scale),
     "null", 0, OT_NO_MAXIMUM, .null_text = "1", .help = "multiplies gates"},
    {"moe-router-num-groups", OT_KEY_INTEGER, offsetof(ot_megatron_flags, router_groups), "null",
     1, 1 << 16, .null_text = "0", .help = "groups of experts"},
    {"moe-router-group-topk", OT_KEY_INTEGER, offsetof(ot_megatron_flags, router_group_topk),
     "null", 1, 1 << 16, .null_text = "0", .help = "groups that a token's experts are in"},
    {"moe-router-enable-expert-bias", OT_KEY_BOOL, offsetof(ot_megatron_flags, router_bias),
     "false", .help = "loads are balanced by a bias"},
    {"moe-token-dispatcher-type", OT_KEY_CHOICE, offsetof(ot_megatron_flags, dispatcher),
     "alltoall", .choices = dispatchers, .help = "how tokens travel; allgather is not priced"},
    {"moe-enable-deepep", OT_KEY_BOOL, offsetof(ot_megatron_flags, deepep), "false",
     .help = "tokens are sorted while they are sent"},
    {"moe-flex-dispatcher-backend", OT_KEY_FIXED, .choices = flexible,
     .help = "both sort tokens while they are sent"},
    {"overlap-moe-expert-parallel-comm", OT_KEY_BOOL,
     offsetof(ot_megatron_flags, overlap_experts), "false",
     .help = "the all-to-all of tokens is concurrent with another micro-batch"},
    {"moe-expert-capacity-factor", OT_KEY_FIXED, .choices = only_null,
     .help = "experts that drop tokens are not priced"},
    {"multi-latent-attention", OT_KEY_BOOL, offsetof(ot_megatron_flags, latent), "false",
     .help = "latent attention"},
    {"q-lora-rank", OT_KEY_INTEGER, offsetof(ot_megatron_flags, q_rank), "null", 1, 1 << 20,
     .null_text = "0", .help = "rank of queries"},
    {"kv-lora-rank", OT_KEY_INTEGER, offsetof(ot_megatron_flags, kv_rank), "32", 1, 1 << 20,
     .help = "rank of keys and values"},
    {"qk-head-dim", OT_KEY_INTEGER, offsetof(ot_megatron_flags, key_dim), "128", 1, 1 << 16,
     .help = "width of a head without the rotated part"},
    {"qk-pos-emb-head-dim", OT_KEY_INTEGER, offsetof(ot_megatron_flags, rope_dim), "64",
     1, 1 << 16, .help = "rotated width of a head"},
    {"v-head-dim", OT_KEY_INTEGER, offsetof(ot_megatron_flags, value_dim), "128", 1, 1 << 16,
     .help = "width of a value head"},
    {"mtp-num-layers", OT_KEY_INT, offsetof(ot_megatron_flags, prediction_layers), "null", 0, 16,
     .null_text = "0", .help = "layers of multi-token prediction"},
    {"overlap-grad-reduce", OT_KEY_BOOL, offsetof(ot_megatron_flags, overlap_gradients), "false",
     .help = "gradient reductions are concurrent with the backward"},
    {"overlap-param-gather", OT_KEY_BOOL, offsetof(ot_megatron_flags, overlap_weights), "false",
     .help = "gathers of weights are concurrent with the forward"},
    {"tp-comm-overlap", OT_KEY_BOOL, offsetof(ot_megatron_flags, overlap_tp), "false",
     .help = "tp collectives are concurrent with their GEMMs"},
    {"no-async-tensor-model-parallel-allreduce", OT_KEY_BOOL,
     offsetof(ot_megatron_flags, no_async_tp), "false", .help = "nor with those of weights"},
    {"no-overlap-p2p-communication", OT_KEY_BOOL, offsetof(ot_megatron_flags, no_overlap_p2p),
     "false", .help = "messages between stages are waited for"},
    {"enable-cuda-graph", OT_KEY_BOOL, offsetof(ot_megatron_flags, graphs), "false",
     .also = "external-cuda-graph", .help = "kernels are captured"},
    {"cuda-graph-impl", OT_KEY_CHOICE, offsetof(ot_megatron_flags, graph_kind), "auto",
     .choices = graph_kinds, .help = "kernels are captured"},
    {"cross-entropy-loss-fusion", OT_KEY_BOOL, offsetof(ot_megatron_flags, fused_loss), "false",
     .help = "the loss is one kernel"},
    {"no-gradient-accumulation-fusion", OT_KEY_BOOL,
     offsetof(ot_megatron_flags, no_accumulation_fusion), "false",
     .help = "weight gradients are added by kernels of their own"},
    {"fp8-dot-product-attention", OT_KEY_BOOL, offsetof(ot_megatron_flags, fp8_attention), "false",
     .also = "fp8-multi-head-attention", .help = "GEMMs of attention in fp8"},
    {"fp8-param-gather", OT_KEY_BOOL, offsetof(ot_megatron_flags, fp8_gather), "false",
     .also = "fp8-param", .help = "weights are gathered in 8 bits"},
    {"attention-backend", OT_KEY_CHOICE, offsetof(ot_megatron_flags, backend), "auto",
     .choices = backends, .help = "attention kernel"},
    {"cp-comm-type", OT_KEY_TEXT, offsetof(ot_megatron_flags, cp_kind), "p2p",
     .help = "exchange of cp: p2p"},
    {"ddp-bucket-size", OT_KEY_INTEGER, offsetof(ot_megatron_flags, bucket_elements), "null",
     1, 1LL << 40, .null_text = "0", .help = "gradients of a reduction"},
    {"microbatch-group-size-per-virtual-pipeline-stage", OT_KEY_INT,
     offsetof(ot_megatron_flags, rounds), "null", 1, 1 << 20, .null_text = "0",
     .help = "micro-batches on a chunk before the next: pp"},
    {"recompute-modules", OT_KEY_TEXT, offsetof(ot_megatron_flags, recompute_modules), "",
     .help = "parts that selective recompute is limited to"},
    {"pipeline-model-parallel-layout", OT_KEY_TEXT, offsetof(ot_megatron_flags, layout), "",
     .help = "layers of each chunk, such as Et*7|t*8|t*7L"},
    {"decoder-first-pipeline-num-layers", OT_KEY_INT, offsetof(ot_megatron_flags, first_layers),
     "null", 0, OT_MAX_LAYERS, .null_text = "-1", .help = "layers of the first stage"},
    {"decoder-last-pipeline-num-layers", OT_KEY_INT, offsetof(ot_megatron_flags, last_layers),
     "null", 0, OT_MAX_LAYERS, .null_text = "-1", .help = "layers of the last stage"},
    {"account-for-embedding-in-pipeline-split", OT_KEY_BOOL,
     offsetof(ot_megatron_flags, embedding_is_layer), "false", .help = "it counts as a layer"},
    {"account-for-loss-in-pipeline-split", OT_KEY_BOOL,
     offsetof(ot_megatron_flags, loss_is_layer), "false", .help = "it counts as a layer"},
    {"num-distributed-optimizer-instances", OT_KEY_INT, offsetof(ot_megatron_flags, replicas), "1",
     1, 1 << 20, .help = "replicas of the sharded states"},
    {"deepspeed", OT_KEY_BOOL, offsetof(ot_megatron_flags, deepspeed), "false",
     .help = "Megatron-DeepSpeed"},
    {"deepspeed-config", OT_KEY_TEXT, offsetof(ot_megatron_flags, deepspeed_config), "",
     .help = "DeepSpeed's JSON"},
    {"zero-stage", OT_KEY_INT, offsetof(ot_megatron_flags, zero_stage), "null", 0, 3,
     .null_text = "-1", .help = "stage of ZeRO"},
    {"no-pipeline-parallel", OT_KEY_BOOL, offsetof(ot_megatron_flags, no_pipeline), "false",
     .help = "without DeepSpeed's pipeline engine"},
    {"deepspeed-activation-checkpointing", OT_KEY_BOOL, offsetof(ot_megatron_flags, checkpoints),
     "false", .also = "checkpoint-activations", .help = "layers are recomputed"},
    {"outer-dp-sharding-strategy", OT_KEY_FIXED, .choices = only_unsharded,
     .help = "shards over replicas are not priced"},
    {"moe-layer-recompute", OT_KEY_BOOL, offsetof(ot_megatron_flags, recompute_moe), "false",
     .help = "recompute-modules moe"},
    {"moe-shared-expert-overlap", OT_KEY_FIXED, .choices = only_false,
     .help = "overlap of shared experts is not priced"},
    {"moe-use-legacy-grouped-gemm", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
    {"moe-extended-tp", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
    {"delay-wgrad-compute", OT_KEY_FIXED, .choices = only_false,
     .help = "delayed weight gradients are not priced"},
    {"defer-embedding-wgrad-compute", OT_KEY_FIXED, .choices = only_false,
     .help = "delayed weight gradients are not priced"},
    {"overlap-param-gather-with-optimizer-step", OT_KEY_FIXED, .choices = only_false,
     .help = "this overlap is not priced"},
    {"overlap-p2p-communication-warmup-flush", OT_KEY_FIXED, .choices = only_false,
     .help = "this overlap is not priced"},
    {"fp32-residual-connection", OT_KEY_FIXED, .choices = only_false,
     .help = "residuals in fp32 are not priced"},
    {"fp16-lm-cross-entropy", OT_KEY_FIXED, .choices = only_false,
     .help = "a loss in fp16 is not priced"},
    {"distribute-saved-activations", OT_KEY_FIXED, .choices = only_false,
     .help = "sharded checkpoints are not priced"},
    {"first-last-layers-bf16", OT_KEY_FIXED, .choices = only_false,
     .help = "layers of different precision are not priced"},
    {"no-fp8-wgrad", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
    {"keep-fp8-transpose-cache", OT_KEY_FIXED, .choices = only_false,
     .help = "copies of weights are not priced"},
    {"fsdp-double-buffer", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
    {"nccl-ub", OT_KEY_FIXED, .also = "use-nccl-ub", .choices = only_false,
     .help = "registered buffers are not priced"},
    {"deterministic-mode", OT_KEY_FIXED, .choices = only_false,
     .help = "deterministic kernels are not priced"},
    {"empty-unused-memory-level", OT_KEY_FIXED, .choices = only_zero,
     .help = "emptying the allocator's cache is not priced"},
    {"reset-attention-mask", OT_KEY_FIXED, .choices = only_false,
     .help = "attention within documents is not priced"},
    {"variable-seq-lengths", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
    {"use-tp-pp-dp-mapping", OT_KEY_FIXED, .choices = only_false,
     .help = "this order of ranks is not priced"},
    {"use-ring-exchange-p2p", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
    {"no-scatter-gather-tensors-in-pipeline", OT_KEY_FIXED, .choices = only_false,
     .help = "not priced"},
    {"no-bias-swiglu-fusion", OT_KEY_FIXED, .choices = only_false,
     .help = "unfused passes are not priced"},
    {"no-bias-dropout-fusion", OT_KEY_FIXED, .choices = only_false,
     .help = "unfused passes are not priced"},
    {"no-rope-fusion", OT_KEY_FIXED, .choices = only_false,
     .help = "unfused passes are not priced"},
    {"context-parallel-ulysses-degree", OT_KEY_FIXED, .choices = only_one, .help = "not priced"},
    {"ds-sequence-parallel-size", OT_KEY_FIXED, .choices = only_one,
     .help = "DeepSpeed's sequence parallelism is not priced"},
    {"enable-zbh1-pipeline", OT_KEY_FIXED, .choices = only_false,
     .help = "the zero-bubble schedule of DeepSpeed is not priced"},
    {"cpu-optimizer", OT_KEY_FIXED, .choices = only_false, .help = "offloading is not priced"},
    {"cpu-offloading-num-layers", OT_KEY_FIXED, .choices = only_zero,
     .help = "offloading is not priced"},
    {"fine-grained-activation-offloading", OT_KEY_FIXED, .choices = only_false,
     .help = "offloading is not priced"},
    {"partition-activations", OT_KEY_FIXED, .choices = only_false,
     .help = "sharded checkpoints are not priced"},
    {"checkpoint-in-cpu", OT_KEY_FIXED, .choices = only_false, .help = "offloading is not priced"},
    {"use-legacy-models", OT_KEY_FIXED, .choices = only_false, .help = "not priced"},
    {"retro-add-retriever", OT_KEY_FIXED, .choices = only_false, .help = "not supported"},
    {"window-size", OT_KEY_FIXED, .choices = only_null, .help = "windows are not supported here"},
    {"linear-attention-freq", OT_KEY_FIXED, .choices = only_null,
     .help = "linear attention is not supported"},
    {"hybrid-layer-pattern", OT_KEY_FIXED, .also = "hybrid-override-pattern", .choices = only_null,
     .help = "hybrid models are not supported"},
    {"is-hybrid-model", OT_KEY_FIXED, .choices = only_false, .help = "hybrid models not supported"},
    {"heterogeneous-layers-config-path", OT_KEY_FIXED, .choices = only_null,
     .help = "heterogeneous layers are not supported"},
    {"use-mup", OT_KEY_FIXED, .choices = only_false, .help = "muP is not supported"},
    {"cpu-offloading", OT_KEY_FIXED, .choices = only_false, .help = "offloading is not priced"},
    {"optimizer-cpu-offload", OT_KEY_FIXED, .choices = only_false,
     .help = "offloading is not priced"},
    {"tensor-parallel-num-weight-shards", OT_KEY_FIXED, .choices = only_one,
     .help = "generalised tensor parallelism is not priced"},
    {"fp4-format", OT_KEY_FIXED, .also = "fp4", .choices = only_null, .help = "fp4 is not priced"},
    {"optimizer", OT_KEY_FIXED, .choices = only_adam,
     .help = "states of other optimizers are not priced"},
    {"use-precision-aware-optimizer", OT_KEY_BOOL, offsetof(ot_megatron_flags, narrow_states),
     "false", .help = "moments in other dtypes"},
    {"exp-avg-dtype", OT_KEY_CHOICE, offsetof(ot_megatron_flags, moment_1), "fp32",
     .choices = moments, .help = "dtype of first moments"},
    {"exp-avg-sq-dtype", OT_KEY_CHOICE, offsetof(ot_megatron_flags, moment_2), "fp32",
     .choices = moments, .help = "dtype of second moments"},
    {"activation-func-fp8-input-store", OT_KEY_BOOL,
     offsetof(ot_megatron_flags, fp8_activation_inputs), "false",
     .help = "gate and up are saved in 8 bits"},
    {"quick-geglu", OT_KEY_FIXED, .choices = only_false, .help = "this activation is not priced"},
};

// Flags that change neither time nor memory of a step, by reason.
static const char inert[] =
    // data, and what happens outside a step
    "*-data-path|data-*|dataloader-type|eod-mask-loss|eval-*|exit-*|finetune|full-validation|"
    "load|load-*|mask-prob|mid-level-dataset-surplus|mmap-bin-files|mock-data|no-create-attention-"
    "mask-in-dataloader|no-data-sharding|no-load-*|no-mmap-bin-files|no-save-*|non-persistent-*|"
    "num-dataset-builder-threads|num-workers|object-storage-cache-path|per-split-data-args-path|"
    "pretrained-checkpoint|reset-position-ids|sample-rate|save|save-*|skip-train|split|"
    "test-mode|tiktoken-*|tokenizer-*|train-*|trust-remote-code|vocab-extra-ids|vocab-file|"
    "async-save|async-strategy|auto-detect-ckpt-format|ckpt-*|dist-ckpt-*|fully-parallel-save|"
    "use-checkpoint-*|use-dist-ckpt|use-mp-args-from-checkpoint-args|use-one-sent-docs|"
    "use-persistent-ckpt-worker|legacy-tokenizer|yaml-cfg|"
    // logs, profiles and checks between steps
    "calc-ft-timeouts|check-for-large-grads|check-for-nan-in-loss-and-grad|check-for-spiky-loss|"
    "check-weight-hash-across-dp-replicas-interval|config-logger-dir|error-injection-*|"
    "flight-recorder-*|log-*|logging-level|memory-snapshot-path|no-check-for-nan-in-loss-and-grad|"
    "no-one-logger|nvtx-ranges|profile|profile-*|record-memory-history|rerun-mode|"
    "run-workload-inspector-server|straggler-minmax-count|tensorboard-*|timing-*|"
    "use-pytorch-profiler|wandb-*|manual-gc*|"
    // values of the optimizer, its schedule and the initial weights: the same kernels
    "adam-*|apply-wd-to-qk-layernorm|clip-grad|decoupled-*|end-weight-decay|hysteresis|"
    "init-method-xavier-uniform|initial-loss-scale|loss-scale*|lr|lr-*|min-loss-scale|min-lr|"
    "muon-momentum|no-initialization|override-opt-param-scheduler|override-opt_param-scheduler|"
    "seed|sgd-momentum|start-weight-decay|use-cpu-initialization|weight-decay|"
    "weight-decay-incr-style|calculate-per-token-loss|te-rng-tracker|"
    // numbers inside kernels that are run in any case
    "apply-layernorm-1p|apply-query-key-layer-scaling|apply-residual-connection-post-layernorm|"
    "attention-softmax-in-fp32|disable-bf16-reduced-precision-matmul|fp8-amax-*|fp8-interval|"
    "fp8-margin|fp8-recipe|gradient-reduce-div-fusion|moe-aux-loss-coeff|moe-input-jitter-eps|"
    "moe-per-layer-logging|moe-router-bias-update-rate|moe-router-dtype|"
    "moe-router-force-load-balancing|moe-router-load-balancing-type|moe-router-pre-softmax|"
    "moe-z-loss-coeff|no-position-embedding|no-query-key-layer-scaling|rope-scaling-factor|"
    "rotary-*|use-rope-scaling|mscale*|"
    // what the engine file prices in any case: fused kernels, one grouped GEMM, settings of the
    // collectives that it describes
    "apply-rope-fusion|bias-activation-fusion|bias-dropout-fusion|bias-gelu-fusion|"
    "bias-swiglu-fusion|cross-entropy-fusion-impl|gradient-accumulation-fusion|"
    "masked-softmax-fusion|no-masked-softmax-fusion|no-bias-gelu-fusion|no-persist-layer-norm|"
    "moe-deepep-num-sms|moe-grouped-gemm|moe-pad-expert-input-to-capacity|moe-permute-fusion|"
    "moe-router-fusion|moe-router-padding-for-*|moe-token-drop-policy|use-fused-rmsnorm|"
    "use-te-activation-func|accumulate-allreduce-grads-in-fp32|align-grad-reduce|"
    "align-param-gather|no-align-grad-reduce|no-align-param-gather|"
    "async-tensor-model-parallel-allreduce|batch-p2p-communication|clone-scatter-output-in-"
    "embedding|cuda-graph-scope|cuda-graph-modules|cuda-graph-warmup-steps|"
    "cuda-graph-num-warmup-steps|ddp-average-in-collective|ddp-pad-buckets-for-high-nccl-busbw|"
    "deallocate-pipeline-outputs|high-priority-stream-groups|overlap-p2p-communication|"
    "tp-comm-overlap-cfg|tp-comm-bootstrap-backend|"
    // how processes start
    "distributed-*|enable-experimental|lazy-mpu-init|local-rank|nccl-communicator-config-path|"
    "onnx-safe|spec|use-mcore-models|deepspeed-mpi|"
    // reported by notes
    "rampup-batch-size|step-batch-size-schedule";

const ot_schema ot_megatron_schema = {
    "flags of Megatron-LM", keys, OT_COUNT(keys), .size = sizeof(ot_megatron_flags),
    .inert = inert,
    .unknown_hint = "remove --%s, if it affects neither time nor memory of a step"};
// clang-format on
