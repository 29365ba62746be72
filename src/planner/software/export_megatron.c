// SPDX-License-Identifier: Apache-2.0
// Megatron-LM: flags of pretrain_gpt.py as core 0.14 spells them (megatron/training/arguments.py,
// megatron/core/transformer/transformer_config.py). Layers that do not divide into equal chunks are
// a layout (docs/user-guide/features/pipeline_parallel_layout.md).
#include "software/export_parts.h"

static const char software[] = "Megatron-LM";

static bool is_rope(const ot_model *m) { return !m->learned_positions; }

static ot_status check_model(const ot_exporter *e) {
  const ot_model *const m = e->model;
  OT_TRY(ot_export_plain_model(e, software));
  if (m->qkv_bias != m->output_bias && !(m->qkv_bias && !m->mlp_bias)) {
    return ot_export_refuse(e, software, "biases");
  }
  if (m->output_bias != m->mlp_bias) return ot_export_refuse(e, software, "biases");
  if (is_rope(m) && m->rotary_dim != m->head_dim && m->mla.kv_rank == 0) {
    return ot_export_refuse(e, software, "partly rotated heads");
  }
  if (m->moe.num_experts > 0 && m->moe.routing != OT_MOE_DROPLESS) {
    return ot_export_refuse(e, software, "routing that drops tokens");
  }
  return OT_OK;
}

// Newer than the flags written here: one grouped kernel for both products of experts, captured with
// the dispatch of their tokens.
static ot_status check_experts(const ot_exporter *e) {
  if (e->model->moe.num_experts == 0 || !e->engine->kernels.fused_experts) return OT_OK;
  ot_fail(OT_USAGE,
          "--emit megatron: the fused experts of engine %s cannot be configured with flags of core "
          "0.14",
          e->engine->name);
  return ot_fail_hint(OT_USAGE, "--engine megatron-bridge");
}

// ---- the model ----

static void put_attention(const ot_exporter *e) {
  const ot_model *const m = e->model;
  ot_export_flag(e, "num-attention-heads", "%lld", (long long)m->num_heads);
  if (m->mla.kv_rank > 0) {
    ot_export_flag(e, "multi-latent-attention", "%s", "");
    if (m->mla.q_rank > 0) ot_export_flag(e, "q-lora-rank", "%lld", (long long)m->mla.q_rank);
    ot_export_flag(e, "kv-lora-rank", "%lld", (long long)m->mla.kv_rank);
    ot_export_flag(e, "qk-head-dim", "%lld", (long long)m->mla.nope_dim);
    ot_export_flag(e, "qk-pos-emb-head-dim", "%lld", (long long)m->mla.rope_dim);
    ot_export_flag(e, "v-head-dim", "%lld", (long long)m->mla.v_dim);
    ot_export_flag(e, "qk-layernorm", "%s", "");
    return;
  }
  if (m->num_kv_heads != m->num_heads) {
    ot_export_flag(e, "group-query-attention", "%s", "");
    ot_export_flag(e, "num-query-groups", "%lld", (long long)m->num_kv_heads);
  }
  if (m->head_dim * m->num_heads != m->hidden_size)
    ot_export_flag(e, "kv-channels", "%lld", (long long)m->head_dim);
  if (m->qk_norm == OT_QK_NORM_HEAD) ot_export_flag(e, "qk-layernorm", "%s", "");
}

static ot_status put_activation(const ot_exporter *e) {
  const ot_model *const m = e->model;
  if (m->gated_mlp && m->activation == OT_ACTIVATION_SILU) {
    ot_export_flag(e, "swiglu", "%s", "");
  } else if (m->gated_mlp || m->activation == OT_ACTIVATION_SILU ||
             m->activation == OT_ACTIVATION_RELU) {
    return ot_export_refuse(e, software, "the activation");
  } else if (m->activation == OT_ACTIVATION_GELU_TANH) {
    ot_export_flag(e, "openai-gelu", "%s", "");
  }
  return OT_OK;
}

static void put_positions(const ot_exporter *e) {
  const ot_model *const m = e->model;
  ot_export_flag(e, "seq-length", "%lld", (long long)e->job->sequence_length);
  ot_export_flag(e, "max-position-embeddings", "%lld", (long long)m->max_positions);
  ot_export_flag(e, "position-embedding-type", "%s", is_rope(m) ? "rope" : "learned_absolute");
  if (!is_rope(m)) return;
  ot_export_flag(e, "rotary-base", "%.0f", m->rope.theta);
  if (m->rope.type == OT_ROPE_LLAMA3) {
    ot_export_flag(e, "use-rope-scaling", "%s", "");
    ot_export_flag(e, "rope-scaling-factor", "%g", m->rope.factor);
  }
}

static void put_norms(const ot_exporter *e) {
  const ot_model *const m = e->model;
  ot_export_flag(e, "normalization", "%s", m->norm == OT_NORM_RMSNORM ? "RMSNorm" : "LayerNorm");
  ot_export_flag(e, "norm-epsilon", "%g", m->norm_epsilon);
  ot_export_flag(e, "attention-dropout", "%g", m->attention_dropout);
  ot_export_flag(e, "hidden-dropout", "%g", m->residual_dropout);
  ot_export_flag(e, "init-method-std", "%g", m->initializer_range);
  if (!m->mlp_bias) ot_export_flag(e, "disable-bias-linear", "%s", "");
  if (m->qkv_bias && !m->mlp_bias) ot_export_flag(e, "add-qkv-bias", "%s", "");
  if (!m->tie_word_embeddings) {
    ot_export_flag(e, "untie-embeddings-and-output-weights", "%s", "");
  }
}

// Which layers have experts: "1", or "([0]*3+[1]*58)".
static void put_expert_layers(const ot_exporter *e) {
  const ot_model *const m = e->model;
  ot_text_builder text = {.arena = e->out->arena};
  int64_t runs = 0;
  for (int64_t i = 0; i < m->num_layers; runs++) {
    const int64_t first = i;
    while (i < m->num_layers && m->moe.layer[i] == m->moe.layer[first]) i++;
    ot_text_appendf(&text, "%s[%d]*%lld", runs > 0 ? "+" : "", m->moe.layer[first],
                    (long long)(i - first));
  }
  if (runs > 1) ot_export_flag(e, "moe-layer-freq", "'(%s)'", ot_text_builder_text(&text));
}

static void put_routing(const ot_exporter *e) {
  const ot_moe *const x = &e->model->moe;
  if (x->score == OT_MOE_SIGMOID) ot_export_flag(e, "moe-router-score-function", "sigmoid");
  if (x->balance == OT_MOE_BALANCE_BIAS)
    ot_export_flag(e, "moe-router-enable-expert-bias", "%s", "");
  const bool aux = x->balance == OT_MOE_BALANCE_AUX_LOSS;
  ot_export_flag(e, "moe-router-load-balancing-type", "%s", aux ? "aux_loss" : "none");
  if (aux) ot_export_flag(e, "moe-aux-loss-coeff", "%g", x->aux_coefficient);
  if (x->num_groups > 1) {
    ot_export_flag(e, "moe-router-num-groups", "%lld", (long long)x->num_groups);
    ot_export_flag(e, "moe-router-group-topk", "%lld", (long long)x->groups_per_token);
  }
  if (x->scale != 1) ot_export_flag(e, "moe-router-topk-scaling-factor", "%g", x->scale);
}

static void put_experts(const ot_exporter *e) {
  const ot_moe *const x = &e->model->moe;
  if (x->num_experts == 0) return;
  ot_export_flag(e, "num-experts", "%lld", (long long)x->num_experts);
  ot_export_flag(e, "moe-router-topk", "%lld", (long long)x->experts_per_token);
  ot_export_flag(e, "moe-ffn-hidden-size", "%lld", (long long)x->expert_size);
  if (x->shared_size > 0) {
    ot_export_flag(e, "moe-shared-expert-intermediate-size", "%lld", (long long)x->shared_size);
  }
  put_expert_layers(e);
  put_routing(e);
  ot_export_flag(e, "moe-grouped-gemm", "%s", "");
  ot_export_flag(e, "moe-token-dispatcher-type", "alltoall");
}

static ot_status put_model(const ot_exporter *e) {
  const ot_model *const m = e->model;
  ot_text_put(e->out, "model=(\n");
  ot_export_flag(e, "num-layers", "%lld", (long long)m->num_layers);
  ot_export_flag(e, "hidden-size", "%lld", (long long)m->hidden_size);
  ot_export_flag(e, "ffn-hidden-size", "%lld", (long long)m->intermediate_size);
  put_attention(e);
  OT_TRY(put_activation(e));
  put_positions(e);
  put_norms(e);
  put_experts(e);
  // The plan counts no padding: rows are padded only to a multiple of tp.
  ot_export_flag(e, "vocab-size", "%lld", (long long)m->vocab_size);
  ot_export_flag(e, "make-vocab-size-divisible-by", "1");
  ot_text_put(e->out, ")\n");
  return OT_OK;
}

// ---- parallelism ----

// "Et*7|t*8|...|t*7L": one part for each chunk, in model order.
static void put_layout(const ot_exporter *e) {
  ot_text_builder text = {.arena = e->out->arena};
  for (int c = 0; c < e->plan->num_chunks; c++) {
    ot_text_appendf(&text, "%s%s", c > 0 ? "|" : "", c == 0 ? "E" : "");
    if (e->plan->layers[c] > 0) ot_text_appendf(&text, "t*%d", e->plan->layers[c]);
  }
  ot_export_flag(e, "pipeline-model-parallel-layout", "'%sL'", ot_text_builder_text(&text));
}

static void put_stages(const ot_exporter *e) {
  const ot_candidate *const c = e->candidate;
  const int chunks = e->plan->num_chunks;
  bool even = true;
  for (int i = 1; i < chunks; i++) even = even && e->plan->layers[i] == e->plan->layers[0];
  ot_export_flag(e, "pipeline-model-parallel-size", "%d", c->pp);
  if (c->pp == 1) return;
  if (!even) {
    put_layout(e);
  } else if (chunks > c->pp) {
    ot_export_flag(e, "num-layers-per-virtual-pipeline-stage", "%d", e->plan->layers[0]);
  }
}

static bool is_sharded(const ot_exporter *e) {
  return e->candidate->zero >= 2 && e->candidate->dp > 1;
}

static void put_zero(const ot_exporter *e) {
  const ot_candidate *const c = e->candidate;
  if (c->dp == 1 || c->zero == 0) return;
  ot_export_flag(e, "use-distributed-optimizer", "%s", "");
  if (c->dp_shard < c->dp)
    ot_export_flag(e, "num-distributed-optimizer-instances", "%d", c->dp / c->dp_shard);
  if (!is_sharded(e)) return;
  ot_export_flag(e, "use-megatron-fsdp", "%s", "");
  ot_export_flag(e, "data-parallel-sharding-strategy", "%s",
                 c->zero == 2 ? "optim_grads" : "optim_grads_params");
  ot_export_flag(e, "ckpt-format", "fsdp_dtensor");
}

static void put_overlap(const ot_exporter *e) {
  const ot_candidate *const c = e->candidate;
  const ot_engine *const engine = e->engine;
  const bool gathers = c->zero == 3 ? engine->overlap_gather : engine->overlap_update_gather;
  if (engine->overlap_reduce) ot_export_flag(e, "overlap-grad-reduce", "%s", "");
  if (c->zero > 0 && c->dp > 1 && gathers) ot_export_flag(e, "overlap-param-gather", "%s", "");
  const bool pieces = engine->overlap_tensor == OT_TENSOR_OVERLAP_PIECES;
  if (c->tp > 1 && !c->no_sequence_parallel && pieces)
    ot_export_flag(e, "tp-comm-overlap", "%s", "");
  if (ot_candidate_pairs(engine, c))
    ot_export_flag(e, "overlap-moe-expert-parallel-comm", "%s", "");
}

static void put_parallel(const ot_exporter *e) {
  const ot_candidate *const c = e->candidate;
  ot_text_put(e->out, "parallel=(\n");
  ot_export_flag(e, "tensor-model-parallel-size", "%d", c->tp);
  if (c->tp > 1 && !c->no_sequence_parallel) ot_export_flag(e, "sequence-parallel", "%s", "");
  put_stages(e);
  ot_export_flag(e, "context-parallel-size", "%d", c->cp);
  if (e->model->moe.num_experts > 0) {
    ot_export_flag(e, "expert-model-parallel-size", "%d", c->ep);
    ot_export_flag(e, "expert-tensor-parallel-size", "%d", c->etp);
  }
  put_zero(e);
  put_overlap(e);
  ot_text_put(e->out, ")\n");
}

// ---- the step ----

static void put_precision(const ot_exporter *e) {
  const ot_recipe *const r = &e->job->recipe;
  if (r->products == OT_F32) return;
  ot_export_flag(e, r->products == OT_F16 ? "fp16" : "bf16", "%s", "");
  if (r->products == OT_F8) ot_export_flag(e, "fp8-format", "hybrid");
  if (r->products != OT_F16 && r->gradient_bytes == 2)
    ot_export_flag(e, "grad-reduce-in-bf16", "%s", "");
  if (r->moment_bytes == 4) {
    ot_text_put(e->out,
                "  --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16\n");
  }
}

static void put_step(const ot_exporter *e) {
  const ot_candidate *const c = e->candidate;
  const bool later = e->engine->kernels.host_ops < 0.5;
  ot_text_put(e->out, "step=(\n");
  ot_export_flag(e, "micro-batch-size", "%lld", (long long)c->micro_batch_size);
  ot_export_flag(e, "global-batch-size", "%lld", (long long)e->job->global_batch_size);
  put_precision(e);
  if (c->recompute == OT_RECOMPUTE_FULL) {
    ot_text_put(e->out,
                "  --recompute-granularity full --recompute-method uniform "
                "--recompute-num-layers 1\n");
  }
  if (c->recompute == OT_RECOMPUTE_SELECTIVE) {
    char modules[OT_MODULES_BYTES];
    ot_module_set_print(c->modules, " ", modules, sizeof modules);
    ot_text_appendf(e->out, "  --recompute-granularity selective%s%s\n",
                    c->modules ? " --recompute-modules " : "", modules);
  }
  ot_export_flag(e, "transformer-impl", "transformer_engine");
  if (later) {
    ot_text_put(e->out,
                "  --enable-cuda-graph\n"
                "  --cross-entropy-loss-fusion\n");
  }
  ot_text_put(e->out, ")\n");
}

ot_status ot_export_megatron(const ot_exporter *e) {
  if (e->engine->fp8_activation_inputs)
    return ot_export_refuse(e, "its command line", "gate and up in 8 bits");
  OT_TRY(ot_export_precision(e, software,
                             "bf16|bf16-fp32-gradients|fp16|fp32|fp8|fp8-fp32-gradients"));
  OT_TRY(check_model(e));
  OT_TRY(check_experts(e));
  ot_export_begin(e, "Megatron-LM, core 0.14, in its folder", "DATA_PREFIX TOKENIZER");
  // arguments.py: Megatron FSDP needs several connections, overlap of tp one.
  if (!is_sharded(e)) ot_text_put(e->out, "export CUDA_DEVICE_MAX_CONNECTIONS=1\n");
  OT_TRY(put_model(e));
  put_parallel(e);
  put_step(e);
  ot_text_appendf(e->out,
                  "# Yours to choose: data, tokenizer, learning rate, checkpoints.\n"
                  "run=(\n"
                  "  --data-path \"$1\" --tokenizer-type HuggingFaceTokenizer --tokenizer-model "
                  "\"$2\"\n"
                  "  --lr 3e-4 --lr-decay-style cosine --weight-decay 0.1 --clip-grad 1.0\n"
                  "  --train-samples %.0f\n"
                  ")\n",
                  e->job->tokens / (double)e->job->sequence_length);
  ot_export_launcher(e);
  ot_text_put(e->out,
              "pretrain_gpt.py \\\n"
              "  \"${model[@]}\" \"${parallel[@]}\" \"${step[@]}\" \"${run[@]}\"\n");
  return OT_OK;
}
