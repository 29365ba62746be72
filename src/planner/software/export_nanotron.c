// SPDX-License-Identifier: Apache-2.0
// nanotron: the YAML of version 0.4 (src/nanotron/config/config.py, models_config.py) for
// run_train.py. Data stages are a placeholder.
#include "base/text.h"
#include "software/export_parts.h"

static const char software[] = "nanotron";

static ot_status check_model(const ot_exporter *e) {
  const ot_model *const m = e->model;
  OT_TRY(ot_export_plain_model(e, software));
  if (m->family != OT_FAMILY_LLAMA && m->family != OT_FAMILY_QWEN2) {
    return ot_export_refuse(e, software, ot_family_name(m->family));
  }
  if (m->head_dim * m->num_heads != m->hidden_size) {
    return ot_export_refuse(e, software, "a head width that is not hidden / heads");
  }
  if (m->output_bias || m->mlp_bias) return ot_export_refuse(e, software, "biases");
  return OT_OK;
}

static void put_model(const ot_exporter *e) {
  const ot_model *const m = e->model;
  const bool qwen = m->family == OT_FAMILY_QWEN2;
  ot_text_appendf(e->out,
                  "model:\n"
                  "  dtype: %s\n"
                  "  init_method: {std: %g}\n"
                  "  make_vocab_size_divisible_by: 1\n"
                  "  model_config:\n"
                  "    %s: true\n"
                  "    hidden_act: silu\n"
                  "    hidden_size: %lld\n"
                  "    intermediate_size: %lld\n",
                  e->job->recipe.products == OT_F32   ? "float32"
                  : e->job->recipe.products == OT_F16 ? "float16"
                                                      : "bfloat16",
                  m->initializer_range, qwen ? "is_qwen2_config" : "is_llama_config",
                  (long long)m->hidden_size, (long long)m->intermediate_size);
  ot_text_appendf(e->out,
                  "    num_hidden_layers: %lld\n"
                  "    num_attention_heads: %lld\n"
                  "    num_key_value_heads: %lld\n"
                  "    max_position_embeddings: %lld\n"
                  "    rms_norm_eps: %g\n"
                  "    rope_theta: %.1f\n"
                  "    attention_bias: %s\n"
                  "    tie_word_embeddings: %s\n"
                  "    vocab_size: %lld\n",
                  (long long)m->num_layers, (long long)m->num_heads, (long long)m->num_kv_heads,
                  (long long)m->max_positions, m->norm_epsilon, m->rope.theta,
                  m->qkv_bias ? "true" : "false", m->tie_word_embeddings ? "true" : "false",
                  (long long)m->vocab_size);
}

static void put_parallel(const ot_exporter *e) {
  const ot_candidate *const c = e->candidate;
  ot_text_appendf(e->out,
                  "parallelism:\n"
                  "  dp: %d\n"
                  "  pp: %d\n"
                  "  tp: %d\n"
                  "  context_parallel_size: %d\n"
                  "  expert_parallel_size: %d\n"
                  "  pp_engine: %s\n"
                  "  tp_mode: %s\n"
                  "  tp_linear_async_communication: %s\n"
                  "  recompute_layer: %s\n",
                  c->dp, c->pp, c->tp, c->cp, c->ep,
                  c->pipeline == OT_PIPELINE_GPIPE ? "afab" : "1f1b",
                  c->no_sequence_parallel ? "ALL_REDUCE" : "REDUCE_SCATTER",
                  e->engine->overlap_tensor == OT_TENSOR_OVERLAP_NONE ? "false" : "true",
                  c->recompute == OT_RECOMPUTE_FULL ? "true" : "false");
}

static void put_step(const ot_exporter *e) {
  const ot_candidate *const c = e->candidate;
  const double steps =
      e->job->tokens / (double)e->job->sequence_length / (double)e->job->global_batch_size;
  ot_text_appendf(e->out,
                  "tokens:\n"
                  "  sequence_length: %lld\n"
                  "  train_steps: %.0f\n"
                  "  micro_batch_size: %lld\n"
                  "  batch_accumulation_per_replica: %lld\n"
                  "optimizer:\n"
                  "  zero_stage: %d\n"
                  "  accumulate_grad_in_fp32: %s\n",
                  (long long)e->job->sequence_length, steps, (long long)c->micro_batch_size,
                  (long long)c->micro_batches, c->dp > 1 ? c->zero : 0,
                  e->job->recipe.gradient_bytes == 4 ? "true" : "false");
  // Yours to choose, as the data.
  ot_text_appendf(e->out,
                  "  clip_grad: 1.0\n"
                  "  weight_decay: 0.1\n"
                  "  learning_rate_scheduler: {learning_rate: 0.0003, lr_warmup_steps: 100,\n"
                  "    lr_warmup_style: linear, lr_decay_style: cosine, min_decay_lr: 3.0e-05}\n"
                  "  optimizer_factory: {name: adamW, adam_beta1: 0.9, adam_beta2: 0.95,\n"
                  "    adam_eps: 1.0e-08, torch_adam_is_fused: true}\n"
                  "general: {project: orthant, run: %s, seed: 42}\n"
                  "tokenizer: {tokenizer_name_or_path: \"$1\"}\n"
                  "checkpoints: {checkpoint_interval: 1000, checkpoints_path: checkpoints}\n"
                  "data_stages:\n"
                  "- name: all\n"
                  "  start_training_step: 1\n"
                  "  data: {seed: 42, dataset: {dataset_folder: \"$2\"}}\n",
                  "planned");
}

ot_status ot_export_nanotron(const ot_exporter *e) {
  OT_TRY(ot_export_precision(e, software, "bf16-fp32-gradients|bf16|fp16|fp32"));
  OT_TRY(check_model(e));
  ot_export_begin(e, "nanotron 0.4, in its folder", "TOKENIZER DATA_FOLDER");
  ot_text_put(e->out, "export CUDA_DEVICE_MAX_CONNECTIONS=1\ncat >orthant.yaml <<END\n");
  put_model(e);
  put_parallel(e);
  put_step(e);
  ot_text_put(e->out, "END\n");
  ot_export_launcher(e);
  ot_text_put(e->out, "run_train.py --config-file orthant.yaml\n");
  return OT_OK;
}
