// SPDX-License-Identifier: Apache-2.0
// DeepSpeed: its JSON (docs of DeepSpeed, config-json; runtime/zero/config.py) for
// Megatron-DeepSpeed of 2025, whose flags describe the model and the other axes
// (megatron/arguments.py). Without stages the pipeline engine is off (--no-pipeline-parallel),
// which ZeRO 2 and 3 need.
#include "base/text.h"
#include "software/export_parts.h"

static const char software[] = "Megatron-DeepSpeed";

static ot_status check_model(const ot_exporter *e) {
  const ot_model *const m = e->model;
  OT_TRY(ot_export_plain_model(e, software));
  if (m->moe.num_experts > 0 || m->mla.kv_rank > 0 || m->qk_norm != OT_QK_NORM_NONE) {
    return ot_export_refuse(e, software, ot_family_name(m->family));
  }
  if (m->qkv_bias != m->mlp_bias || m->output_bias != m->mlp_bias) {
    return ot_export_refuse(e, software, "biases");
  }
  const bool silu = m->activation == OT_ACTIVATION_SILU;
  if (m->gated_mlp != silu || m->activation == OT_ACTIVATION_RELU) {
    return ot_export_refuse(e, software, "the activation");
  }
  return OT_OK;
}

static void put_model(const ot_exporter *e) {
  const ot_model *const m = e->model;
  ot_text_put(e->out, "model=(\n");
  ot_export_flag(e, "num-layers", "%lld", (long long)m->num_layers);
  ot_export_flag(e, "hidden-size", "%lld", (long long)m->hidden_size);
  ot_export_flag(e, "ffn-hidden-size", "%lld", (long long)m->intermediate_size);
  ot_export_flag(e, "num-attention-heads", "%lld", (long long)m->num_heads);
  if (m->num_kv_heads != m->num_heads)
    ot_export_flag(e, "num-key-value-heads", "%lld", (long long)m->num_kv_heads);
  if (m->head_dim * m->num_heads != m->hidden_size)
    ot_export_flag(e, "kv-channels", "%lld", (long long)m->head_dim);
  ot_export_flag(e, "seq-length", "%lld", (long long)e->job->sequence_length);
  ot_export_flag(e, "max-position-embeddings", "%lld", (long long)m->max_positions);
  if (!m->learned_positions) {
    ot_export_flag(e, "use-rotary-position-embeddings", "%s", "");
    ot_export_flag(e, "rotary-position-embeddings-theta", "%.0f", m->rope.theta);
  }
  ot_export_flag(e, "normalization", "%s", m->norm == OT_NORM_RMSNORM ? "rmsnorm" : "layernorm");
  ot_export_flag(e, "layernorm-epsilon", "%g", m->norm_epsilon);
  ot_export_flag(e, "attention-dropout", "%g", m->attention_dropout);
  ot_export_flag(e, "hidden-dropout", "%g", m->residual_dropout);
  ot_export_flag(e, "init-method-std", "%g", m->initializer_range);
  if (m->gated_mlp) ot_export_flag(e, "swiglu", "%s", "");
  if (m->activation == OT_ACTIVATION_GELU_TANH) ot_export_flag(e, "openai-gelu", "%s", "");
  if (!m->mlp_bias) ot_export_flag(e, "disable-bias-linear", "%s", "");
  if (!m->tie_word_embeddings) ot_export_flag(e, "untie-embeddings-and-output-weights", "%s", "");
  ot_export_flag(e, "vocab-size", "%lld", (long long)m->vocab_size);
  ot_export_flag(e, "make-vocab-size-divisible-by", "1");
  ot_text_put(e->out, ")\n");
}

static void put_step(const ot_exporter *e) {
  const ot_candidate *const c = e->candidate;
  const ot_recipe *const r = &e->job->recipe;
  ot_text_put(e->out, "step=(\n");
  ot_export_flag(e, "tensor-model-parallel-size", "%d", c->tp);
  ot_export_flag(e, "pipeline-model-parallel-size", "%d", c->pp);
  if (!ot_names_allow(&e->engine->runs.axes, "pp"))
    ot_export_flag(e, "no-pipeline-parallel", "%s", "");
  ot_export_flag(e, "micro-batch-size", "%lld", (long long)c->micro_batch_size);
  ot_export_flag(e, "global-batch-size", "%lld", (long long)e->job->global_batch_size);
  if (r->products != OT_F32) ot_export_flag(e, r->products == OT_F16 ? "fp16" : "bf16", "%s", "");
  if (c->recompute == OT_RECOMPUTE_FULL) {
    ot_text_put(e->out,
                "  --deepspeed-activation-checkpointing\n"
                "  --recompute-granularity full --recompute-method uniform\n");
  }
  ot_text_appendf(e->out,
                  "  --deepspeed --deepspeed_config orthant.json --zero-stage %d\n"
                  ")\n",
                  c->dp > 1 ? c->zero : 0);
}

static void put_json(const ot_exporter *e) {
  const ot_candidate *const c = e->candidate;
  const ot_recipe *const r = &e->job->recipe;
  const bool groups = c->zero > 0 && c->dp_shard < c->dp;
  ot_text_appendf(e->out,
                  "cat >orthant.json <<END\n"
                  "{\n"
                  "  \"train_batch_size\": %lld,\n"
                  "  \"train_micro_batch_size_per_gpu\": %lld,\n"
                  "  \"gradient_accumulation_steps\": %lld,\n"
                  "  \"gradient_clipping\": 1.0,\n"
                  "  \"steps_per_print\": 100,\n"
                  "  \"bf16\": {\"enabled\": %s},\n"
                  "  \"fp16\": {\"enabled\": %s},\n"
                  "  \"zero_optimization\": {\n"
                  "    \"stage\": %d,\n"
                  "    \"overlap_comm\": %s,\n"
                  "    \"mics_shard_size\": %d,\n"
                  "    \"reduce_bucket_size\": %lld\n"
                  "  }\n"
                  "}\n"
                  "END\n",
                  (long long)e->job->global_batch_size, (long long)c->micro_batch_size,
                  (long long)c->micro_batches, r->products == OT_BF16 ? "true" : "false",
                  r->products == OT_F16 ? "true" : "false", c->dp > 1 ? c->zero : 0,
                  e->engine->overlap_reduce ? "true" : "false", groups ? c->dp_shard : -1,
                  (long long)e->engine->bucket_bytes / 2);
}

ot_status ot_export_deepspeed(const ot_exporter *e) {
  OT_TRY(ot_export_precision(e, software, "fp16|bf16|fp32"));
  OT_TRY(check_model(e));
  ot_export_begin(e, "Megatron-DeepSpeed of 2025 with DeepSpeed, in its folder",
                  "DATA_PREFIX TOKENIZER");
  ot_text_put(e->out, "export CUDA_DEVICE_MAX_CONNECTIONS=1\n");
  put_json(e);
  put_model(e);
  put_step(e);
  ot_text_appendf(e->out,
                  "# Yours to choose: data, tokenizer, learning rate, checkpoints.\n"
                  "run=(\n"
                  "  --data-path \"$1\" --tokenizer-type HFTokenizer --tokenizer-model \"$2\"\n"
                  "  --lr 3e-4 --lr-decay-style cosine --weight-decay 0.1 --clip-grad 1.0\n"
                  "  --train-samples %.0f\n"
                  ")\n",
                  e->job->tokens / (double)e->job->sequence_length);
  ot_export_launcher(e);
  ot_text_put(e->out,
              "pretrain_gpt.py \\\n"
              "  \"${model[@]}\" \"${step[@]}\" \"${run[@]}\"\n");
  return OT_OK;
}
