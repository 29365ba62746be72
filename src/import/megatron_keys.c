// SPDX-License-Identifier: Apache-2.0
// The table of Megatron-LM's flags, without dashes. Other flags are refused, so that each new one
// is classified by its effect on the cost of a step.
#include "import/megatron_keys.h"

#include "describe/model.h"

static const char *const strategies[] = {"no_shard", "optim", "optim_grads", "optim_grads_params",
                                         NULL};
static const char *const positions[] = {"learned_absolute", "rope", NULL};
static const char *const norms[] = {"LayerNorm", "RMSNorm", NULL};
static const char *const fp8_formats[] = {"hybrid", "e4m3", NULL};
static const char *const granularities[] = {"full", "selective", NULL};
static const char *const methods[] = {"uniform", "block", NULL};
static const char *const implementations[] = {"transformer_engine", "local", NULL};
static const char *const only_false[] = {"false", NULL};
static const char *const only_null[] = {"null", NULL};
static const char *const only_zero[] = {"0", "null", NULL};
static const char *const only_adam[] = {"adam", NULL};
static const char *const only_one[] = {"1", "null", NULL};

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
     .null_text = "0", .help = "key and value heads"},
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
     .help = "fused attention"},
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
     0, OT_NO_MAXIMUM, .help = "base of the rotary frequencies"},
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
    {"moe-layer-freq", OT_KEY_FIXED, .choices = only_one,
     .help = "mixed dense and MoE layers are not supported"},
    {"moe-expert-capacity-factor", OT_KEY_FIXED, .choices = only_null,
     .help = "experts that drop tokens are not priced"},
    {"multi-latent-attention", OT_KEY_FIXED, .choices = only_false,
     .help = "latent attention is not supported here"},
    {"mtp-num-layers", OT_KEY_FIXED, .choices = only_zero,
     .help = "multi-token prediction is not supported"},
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
    {"use-precision-aware-optimizer", OT_KEY_FIXED, .choices = only_false,
     .help = "states in other dtypes are not priced"},
    {"quick-geglu", OT_KEY_FIXED, .choices = only_false, .help = "this activation is not priced"},
};

// Data, checkpoints, logs, learning rates, switches of fusions and overlaps that the engine's
// description assumes by default, and the assignment of layers to stages.
static const char inert[] =
    "*-data-path|account-for-embedding-in-pipeline-split|account-for-loss-in-pipeline-split|"
    "accumulate-allreduce-grads-in-fp32|adam-*|align-grad-reduce|align-param-gather|"
    "apply-layernorm-1p|apply-query-key-layer-scaling|"
    "apply-residual-connection-post-layernorm|apply-rope-fusion|apply-wd-to-qk-layernorm|"
    "async-save|async-strategy|async-tensor-model-parallel-allreduce|attention-backend|"
    "attention-softmax-in-fp32|auto-detect-ckpt-format|batch-p2p-communication|"
    "bias-activation-fusion|bias-dropout-fusion|bias-gelu-fusion|bias-swiglu-fusion|"
    "calc-ft-timeouts|calculate-per-token-loss|check-for-large-grads|"
    "check-for-nan-in-loss-and-grad|check-for-spiky-loss|"
    "check-weight-hash-across-dp-replicas-interval|ckpt-*|clip-grad|"
    "clone-scatter-output-in-embedding|config-logger-dir|context-parallel-ulysses-degree|"
    "cp-comm-type|cross-entropy-fusion-impl|cross-entropy-loss-fusion|cuda-graph-*|data-*|"
    "dataloader-type|ddp-*|deallocate-pipeline-outputs|decoder-first-pipeline-num-layers|"
    "decoder-last-pipeline-num-layers|decoupled-*|defer-embedding-wgrad-compute|"
    "delay-wgrad-compute|deterministic-mode|disable-bf16-reduced-precision-matmul|dist-ckpt-*|"
    "distribute-saved-activations|distributed-*|empty-unused-memory-level|enable-cuda-graph|"
    "enable-experimental|end-weight-decay|eod-mask-loss|error-injection-*|eval-*|exit-*|"
    "external-cuda-graph|finetune|first-last-layers-bf16|flight-recorder-*|"
    "fp16-lm-cross-entropy|fp32-residual-connection|fp8-*|fsdp-double-buffer|full-validation|"
    "fully-parallel-save|gradient-accumulation-fusion|gradient-reduce-div-fusion|"
    "high-priority-stream-groups|hysteresis|init-method-xavier-uniform|initial-loss-scale|"
    "keep-fp8-transpose-cache|lazy-mpu-init|legacy-tokenizer|load|load-main-params-from-ckpt|"
    "local-rank|log-*|logging-level|loss-scale*|lr|lr-*|manual-gc*|mask-prob|"
    "masked-softmax-fusion|memory-snapshot-path|"
    "microbatch-group-size-per-virtual-pipeline-stage|mid-level-dataset-surplus|"
    "min-loss-scale|min-lr|mmap-bin-files|mock-data|moe-*|muon-momentum|"
    "nccl-communicator-config-path|nccl-ub|no-align-grad-reduce|no-align-param-gather|"
    "no-async-tensor-model-parallel-allreduce|no-bias-dropout-fusion|no-bias-gelu-fusion|"
    "no-bias-swiglu-fusion|no-check-for-nan-in-loss-and-grad|"
    "no-create-attention-mask-in-dataloader|no-data-sharding|no-gradient-accumulation-fusion|"
    "no-initialization|no-load-*|no-masked-softmax-fusion|no-mmap-bin-files|no-one-logger|"
    "no-overlap-p2p-communication|no-persist-layer-norm|no-position-embedding|"
    "no-query-key-layer-scaling|no-rope-fusion|no-save-*|"
    "no-scatter-gather-tensors-in-pipeline|non-persistent-*|num-dataset-builder-threads|"
    "num-distributed-optimizer-instances|num-workers|nvtx-ranges|object-storage-cache-path|"
    "onnx-safe|overlap-grad-reduce|overlap-p2p-communication|"
    "overlap-p2p-communication-warmup-flush|overlap-param-gather|"
    "overlap-param-gather-with-optimizer-step|override-opt-param-scheduler|"
    "override-opt_param-scheduler|per-split-data-args-path|pipeline-model-parallel-layout|"
    "pretrained-checkpoint|profile|profile-*|rampup-batch-size|recompute-modules|"
    "record-memory-history|rerun-mode|reset-attention-mask|reset-position-ids|"
    "retro-add-retriever|rope-scaling-factor|rotary-*|run-workload-inspector-server|"
    "sample-rate|save|save-*|seed|sgd-momentum|skip-train|spec|split|start-weight-decay|"
    "step-batch-size-schedule|straggler-minmax-count|te-rng-tracker|tensorboard-*|test-mode|"
    "tiktoken-*|timing-*|tokenizer-*|tp-comm-*|train-*|trust-remote-code|use-checkpoint-*|"
    "use-cpu-initialization|use-dist-ckpt|use-fused-rmsnorm|use-legacy-models|"
    "use-mcore-models|use-mp-args-from-checkpoint-args|use-nccl-ub|use-one-sent-docs|"
    "use-persistent-ckpt-worker|use-pytorch-profiler|use-ring-exchange-p2p|use-rope-scaling|"
    "use-te-activation-func|use-tp-pp-dp-mapping|variable-seq-lengths|vocab-extra-ids|"
    "vocab-file|wandb-*|weight-decay|weight-decay-incr-style|yaml-cfg";

const ot_schema ot_megatron_schema = {
    "flags of Megatron-LM", keys, OT_COUNT(keys), .size = sizeof(ot_megatron_flags),
    .inert = inert,
    .unknown_hint = "remove --%s, if it affects neither time nor memory of a step"};
// clang-format on
