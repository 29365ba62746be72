// SPDX-License-Identifier: Apache-2.0
// The model of a row. Files state shapes; the kind of MLP determines the rest: gated ones belong to
// the Llama family (RMSNorm, rotary positions, no biases), others to the GPT family (LayerNorm,
// biases, tied embeddings).
#include <math.h>
#include <string.h>

#include "published_job.h"

static ot_status check_shape(const ot_published_model *m) {
  OT_CHECK(m->layers > 0 && m->hidden > 0 && m->heads > 0 && m->ffn > 0 && m->vocab > 0, OT_USAGE,
           "model %s: layers, hidden, heads, ffn or vocab is not stated", m->name);
  OT_CHECK(m->layers + m->moe.mtp_layers <= OT_MAX_LAYERS, OT_USAGE,
           "model %s: layers=%lld; allowed: up to %d", m->name, (long long)m->layers,
           OT_MAX_LAYERS);
  OT_CHECK(m->head_dim > 0 || m->hidden % m->heads == 0, OT_USAGE,
           "model %s: heads=%lld does not divide hidden=%lld, and head_dim is not stated", m->name,
           (long long)m->heads, (long long)m->hidden);
  return OT_OK;
}

static void set_gpt(const ot_published_row *row, ot_model *out) {
  // MPT and BLOOM use ALiBi instead: no table.
  const bool positions = !ot_published_mentions(row->model.name, "MPT") &&
                         !ot_published_mentions(row->model.name, "BLOOM");
  const bool biases = !ot_published_mentions(row->model.name, "MPT");
  out->family = OT_FAMILY_GPT2;
  out->norm = OT_NORM_LAYERNORM;
  out->activation = OT_ACTIVATION_GELU_TANH;
  out->qkv_bias = out->output_bias = out->mlp_bias = biases;
  out->learned_positions = positions;
}

static void set_llama(const ot_published_row *row, ot_model *out) {
  const bool qwen2 = ot_published_mentions(row->model.name, "Qwen2");
  const bool qwen3 = ot_published_mentions(row->model.name, "Qwen3");
  out->family = qwen3 ? OT_FAMILY_QWEN3 : qwen2 ? OT_FAMILY_QWEN2 : OT_FAMILY_LLAMA;
  out->norm = OT_NORM_RMSNORM;
  out->gated_mlp = true;
  out->activation = OT_ACTIVATION_SILU;
  out->qkv_bias = qwen2;
  out->qk_norm = qwen3 ? OT_QK_NORM_HEAD : OT_QK_NORM_NONE;
  out->rotary_dim = out->head_dim;
}

// gpt-oss (its model card): every other layer has a window of 128 tokens, and experts have biases.
static void set_gpt_oss(const ot_published_row *row, ot_model *out) {
  if (!ot_published_mentions(row->model.name, "gpt-oss")) return;
  out->moe.biases = out->moe.num_experts > 0;
  for (int64_t i = 0; i < out->num_layers; i += 2) out->window[i] = 128;
}

static void set_experts(const ot_published_experts *moe, ot_model *out) {
  out->family = OT_FAMILY_QWEN3_MOE;
  out->moe = (ot_moe){.num_experts = moe->experts,
                      .experts_per_token = moe->topk,
                      .expert_size = moe->moe_ffn,
                      .shared_size = moe->shared_experts > 0 ? moe->shared_ffn : 0,
                      .scale = 1,
                      .num_groups = 1,
                      .groups_per_token = 1,
                      .capacity_factor = 1};
  for (int64_t i = moe->dense_first_layers; i < out->num_layers; i++) out->moe.layer[i] = true;
}

// DeepSeek-AI 2024, DeepSeek-V2, sec. 2.1: each head has its own keys and values, from latents.
static void set_latent(const ot_published_latent *mla, ot_model *out) {
  out->family = OT_FAMILY_DEEPSEEK_V3;
  out->mla = (ot_mla){.kv_rank = mla->kv_lora,
                      .q_rank = mla->q_lora,
                      .nope_dim = mla->qk_nope,
                      .rope_dim = mla->qk_rope,
                      .v_dim = mla->v_head};
  out->head_dim = mla->qk_nope + mla->qk_rope;
  out->num_kv_heads = out->num_heads;
  out->rotary_dim = mla->qk_rope;
  out->attention_scale = 1 / sqrt((double)out->head_dim);
  out->qk_norm = OT_QK_NORM_NONE;
}

// An MTP module (DeepSeek-AI 2024, sec. 2.2) counts as one more layer.
static ot_model common_model(const ot_published_row *row, bool gated) {
  const ot_published_model *const m = &row->model;
  const int64_t head_dim = m->head_dim > 0 ? m->head_dim : m->hidden / m->heads;
  const ot_rope rope = {.type = OT_ROPE_DEFAULT, .theta = 10000, .factor = 1};
  return (ot_model){
      .vocab_size = m->vocab,
      .hidden_size = m->hidden,
      .intermediate_size = m->ffn,
      .num_layers = m->layers + m->moe.mtp_layers,
      .num_heads = m->heads,
      .num_kv_heads = m->kv_heads > 0 ? m->kv_heads : m->heads,
      .head_dim = head_dim,
      .max_positions = row->seq_len,
      .tie_word_embeddings = m->tied_embeddings == OT_PUBLISHED_OPEN ? !gated : m->tied_embeddings,
      .norm_epsilon = 1e-5,
      .embedding_scale = 1,
      .attention_scale = 1 / sqrt((double)head_dim),
      .rope = rope,
      .rope_local = rope,
      .initializer_range = 0.02,
      .dtype = OT_BF16,
      .bos_id = -1,
      .pad_id = -1,
  };
}

ot_status ot_published_model_build(const ot_published_row *row, ot_model *out) {
  const ot_published_model *const m = &row->model;
  OT_TRY(check_shape(m));
  const bool gated = ot_published_mentions(m->ffn_kind, "glu");
  *out = common_model(row, gated);
  if (gated) {
    set_llama(row, out);
  } else {
    set_gpt(row, out);
  }
  if (ot_published_mentions(m->ffn_kind, "relu")) out->activation = OT_ACTIVATION_RELU;
  if (m->has_experts) set_experts(&m->moe, out);
  if (m->has_latent) set_latent(&m->mla, out);
  out->model_type = ot_family_name(out->family);
  out->architecture = ot_family_architecture(out->family);
  set_gpt_oss(row, out);
  return ot_model_check(out);
}
