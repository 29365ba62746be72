// SPDX-License-Identifier: Apache-2.0
// Checks and sizes of experts and latent attention.
#include "describe/moe.h"

#include "base/text.h"
#include "describe/family.h"
#include "describe/model_keys.h"

const char *ot_moe_experts_key(ot_family family) {
  const ot_key *const key =
      ot_schema_find(&ot_model_schema, ot_family_variant(family), "num_experts");
  return key ? key->name : "num_experts";
}

static ot_status check_range(const char *key, int64_t value, int64_t minimum, int64_t maximum) {
  OT_CHECK(value >= minimum && value <= maximum, OT_USAGE,
           "model: %s=%lld is out of range; allowed: %lld to %lld", key, (long long)value,
           (long long)minimum, (long long)maximum);
  return OT_OK;
}

static ot_status check_not_negative(const char *key, double value) {
  OT_CHECK(value >= 0 && value - value == 0, OT_USAGE,
           "model: %s=%.9g is out of range; allowed: at least 0", key, value);
  return OT_OK;
}

// A token's groups must hold its experts; a group is scored by its best two (DeepSeek-AI 2024,
// DeepSeek-V3, sec. 2.1.2).
static ot_status check_groups(const ot_moe *moe, const char *experts_key) {
  OT_TRY(check_range("n_group", moe->num_groups, 1, moe->num_experts));
  OT_TRY(check_range("topk_group", moe->groups_per_token, 1, moe->num_groups));
  OT_CHECK(moe->num_experts % moe->num_groups == 0, OT_USAGE,
           "model: n_group=%lld does not divide %s=%lld", (long long)moe->num_groups, experts_key,
           (long long)moe->num_experts);
  const int64_t size = moe->num_experts / moe->num_groups;
  OT_CHECK(moe->num_groups == 1 || size >= 2, OT_USAGE,
           "model: n_group=%lld leaves one expert in a group; allowed: at least 2 of %s=%lld",
           (long long)moe->num_groups, experts_key, (long long)moe->num_experts);
  OT_CHECK(moe->groups_per_token * size >= moe->experts_per_token, OT_USAGE,
           "model: the topk_group=%lld groups of a token hold %lld experts, but "
           "num_experts_per_tok=%lld",
           (long long)moe->groups_per_token, (long long)(moe->groups_per_token * size),
           (long long)moe->experts_per_token);
  return OT_OK;
}

static ot_status check_variants(const ot_moe *moe) {
  const bool chooses = moe->routing == OT_MOE_EXPERT_CHOICE;
  OT_CHECK(!chooses || moe->balance == OT_MOE_BALANCE_NONE, OT_USAGE,
           "model: moe_routing expert_choice is balanced by itself; allowed: moe_balance none");
  OT_CHECK(!chooses || moe->num_groups == 1, OT_USAGE,
           "model: moe_routing expert_choice with n_group=%lld; allowed: 1",
           (long long)moe->num_groups);
  OT_CHECK(moe->capacity_factor > 0 && moe->capacity_factor - moe->capacity_factor == 0, OT_USAGE,
           "model: moe_capacity_factor=%.9g is out of range; allowed: above 0",
           moe->capacity_factor);
  OT_TRY(check_not_negative("router_aux_loss_coef", moe->aux_coefficient));
  OT_TRY(check_not_negative("router_z_loss_coef", moe->z_coefficient));
  return check_not_negative("moe_bias_update_rate", moe->bias_rate);
}

ot_status ot_moe_check(const ot_model *model) {
  const ot_moe *const moe = &model->moe;
  if (moe->num_experts == 0) return OT_OK;
  const char *const experts_key = ot_moe_experts_key(model->family);
  OT_TRY(check_range(experts_key, moe->num_experts, 1, OT_MAX_EXPERTS));
  OT_TRY(check_range("num_experts_per_tok", moe->experts_per_token, 1, moe->num_experts));
  OT_TRY(check_range("the width of an expert", moe->expert_size, 1, 1 << 22));
  OT_TRY(check_range("the width of the shared experts", moe->shared_size, 0, 1 << 22));
  OT_CHECK(!moe->shared_gate || moe->shared_size > 0, OT_BUG,
           "model: a shared-expert gate, but no shared experts");
  OT_CHECK(moe->scale > 0 && moe->scale - moe->scale == 0, OT_USAGE,
           "model: routed_scaling_factor=%.9g is out of range; allowed: above 0", moe->scale);
  OT_CHECK(model->gated_mlp && !model->mlp_bias, OT_BUG,
           "model: experts are gated and have no biases");
  OT_TRY(check_groups(moe, experts_key));
  return check_variants(moe);
}

ot_status ot_mla_check(const ot_model *model) {
  const ot_mla *const mla = &model->mla;
  if (mla->kv_rank == 0) return OT_OK;
  OT_TRY(check_range("kv_lora_rank", mla->kv_rank, 1, 1 << 20));
  OT_TRY(check_range("q_lora_rank", mla->q_rank, 0, 1 << 20));
  OT_TRY(check_range("qk_nope_head_dim", mla->nope_dim, 1, 1 << 16));
  OT_TRY(check_range("qk_rope_head_dim", mla->rope_dim, 2, 1 << 16));
  OT_TRY(check_range("v_head_dim", mla->v_dim, 1, 1 << 16));
  OT_CHECK(mla->v_dim <= mla->nope_dim + mla->rope_dim, OT_USAGE,
           "model: v_head_dim=%lld is wider than a key of qk_nope_head_dim + qk_rope_head_dim=%lld",
           (long long)mla->v_dim, (long long)(mla->nope_dim + mla->rope_dim));
  OT_CHECK(model->head_dim == mla->nope_dim + mla->rope_dim, OT_BUG,
           "model: head_dim=%lld is not qk_nope_head_dim + qk_rope_head_dim",
           (long long)model->head_dim);
  OT_CHECK(model->num_kv_heads == model->num_heads, OT_USAGE,
           "model: num_key_value_heads=%lld; latent attention needs num_attention_heads=%lld",
           (long long)model->num_kv_heads, (long long)model->num_heads);
  return OT_OK;
}

int64_t ot_moe_layers(const ot_model *model) {
  int64_t layers = 0;
  for (int64_t i = 0; i < model->num_layers; i++) layers += model->moe.layer[i];
  return layers;
}

// transformers' load_balancing_loss_func (modeling_mixtral.py) counts slots per token, k times the
// fraction of slots, and averages over the layers.
double ot_moe_aux_weight(const ot_model *model) {
  const ot_moe *const moe = &model->moe;
  if (moe->aux_scale == OT_MOE_AUX_LAYERS) return moe->aux_coefficient;
  const double k = (double)moe->experts_per_token;
  return moe->aux_coefficient * k / (double)ot_moe_layers(model);
}

int64_t ot_moe_elements(const ot_model *model, int64_t experts) {
  const ot_moe *const moe = &model->moe;
  const int64_t mlps = experts * moe->expert_size + moe->shared_size;
  const int64_t weights = model->hidden_size * (moe->num_experts + moe->shared_gate + 3 * mlps);
  if (!moe->biases) return weights;
  return weights + moe->num_experts + experts * (2 * moe->expert_size + model->hidden_size);
}

int64_t ot_mla_elements(const ot_model *model) {
  const ot_mla *const mla = &model->mla;
  const int64_t C = model->hidden_size, H = model->num_heads;
  const int64_t q = H * model->head_dim;
  int64_t n = mla->q_rank > 0 ? C * mla->q_rank + mla->q_rank + mla->q_rank * q : C * q;
  n += C * (mla->kv_rank + mla->rope_dim) + mla->kv_rank;
  n += mla->kv_rank * H * (mla->nope_dim + mla->v_dim) + H * mla->v_dim * C;
  if (!model->output_bias) return n;
  return n + (mla->q_rank > 0 ? mla->q_rank : 0) + mla->kv_rank + mla->rope_dim + C;
}
