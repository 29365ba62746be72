// SPDX-License-Identifier: Apache-2.0
// Consistency checks of a model, its size, and its stable text and hash.
#include "describe/model.h"

#include <stddef.h>

#include "base/number.h"
#include "base/text.h"
#include "describe/moe.h"
#include "describe/residuals.h"

enum { PRINT_BYTES = 16384 };

bool ot_rope_same(const ot_rope *a, const ot_rope *b) {
  return a->type == b->type && a->theta == b->theta && a->factor == b->factor &&
         a->low_frequency_factor == b->low_frequency_factor &&
         a->high_frequency_factor == b->high_frequency_factor &&
         a->original_positions == b->original_positions && a->beta_fast == b->beta_fast &&
         a->beta_slow == b->beta_slow && a->mscale == b->mscale && a->mscale_all == b->mscale_all &&
         a->exact_ramp == b->exact_ramp;
}

// ---- Check ----

static ot_status check_size(const char *key, int64_t value, int64_t maximum) {
  OT_CHECK(value >= 1 && value <= maximum, OT_USAGE,
           "model: %s=%lld is out of range; allowed: 1 to %lld", key, (long long)value,
           (long long)maximum);
  return OT_OK;
}

static ot_status check_sizes(const ot_model *model) {
  OT_TRY(check_size("vocab_size", model->vocab_size, INT32_MAX));
  OT_TRY(check_size("hidden_size", model->hidden_size, 1 << 20));
  OT_TRY(check_size("intermediate_size", model->intermediate_size, 1 << 22));
  OT_TRY(check_size("num_hidden_layers", model->num_layers, OT_MAX_LAYERS));
  OT_TRY(check_size("num_attention_heads", model->num_heads, 1 << 16));
  OT_TRY(check_size("num_key_value_heads", model->num_kv_heads, 1 << 16));
  OT_TRY(check_size("head_dim", model->head_dim, 1 << 16));
  OT_TRY(check_size("max_position_embeddings", model->max_positions, INT32_MAX));
  return OT_OK;
}

// "1, 2, 4, 8": the divisors of `n`, as many as fit.
static void print_divisors(int64_t n, char *out, int64_t capacity) {
  int64_t length = 0;
  out[0] = '\0';
  for (int64_t i = 1; i <= n && length + 12 < capacity; i++) {
    if (n % i != 0) continue;
    length += ot_text_format(out + length, capacity - length, length > 0 ? ", %lld" : "%lld",
                             (long long)i);
  }
}

static ot_status check_heads(const ot_model *model) {
  if (model->num_heads % model->num_kv_heads != 0) {
    char divisors[128];
    print_divisors(model->num_heads, divisors, sizeof divisors);
    return ot_fail(OT_USAGE,
                   "model: num_key_value_heads=%lld does not divide num_attention_heads=%lld "
                   "(try %s)",
                   (long long)model->num_kv_heads, (long long)model->num_heads, divisors);
  }
  const int64_t width = model->head_dim * model->num_heads;
  OT_CHECK(width <= 1 << 22, OT_USAGE,
           "model: head_dim=%lld times num_attention_heads=%lld is out of range; allowed: up to %d",
           (long long)model->head_dim, (long long)model->num_heads, 1 << 22);
  // Without table and rotation, positions come from attention (ALiBi) or are absent.
  const bool rotates = !model->learned_positions, latent = model->mla.kv_rank > 0;
  const int64_t rotated = latent ? model->mla.rope_dim : model->head_dim;
  const bool part = !latent && model->rotary_dim > 0 && model->rotary_dim < rotated;
  OT_CHECK(model->rotary_dim == 0 || (rotates && (part || model->rotary_dim == rotated)), OT_USAGE,
           "model: rotary_dim=%lld; a model with %s needs %lld", (long long)model->rotary_dim,
           rotates ? "rotary positions" : "a position table", (long long)(rotates ? rotated : 0));
  OT_CHECK(model->rotary_dim % 2 == 0, OT_USAGE,
           "model: %s=%lld is odd; rotary positions rotate pairs, so it must be even",
           latent ? "qk_rope_head_dim"
           : part ? "partial_rotary_factor of head_dim"
                  : "head_dim",
           (long long)model->rotary_dim);
  return OT_OK;
}

static ot_status check_yarn(const ot_rope *rope) {
  OT_CHECK(rope->beta_slow > 0 && rope->beta_fast >= rope->beta_slow, OT_USAGE,
           "model: beta_slow=%.9g must be above 0 and at most beta_fast=%.9g", rope->beta_slow,
           rope->beta_fast);
  OT_CHECK(rope->mscale >= 0 && rope->mscale_all >= 0, OT_USAGE,
           "model: mscale=%.9g and mscale_all_dim=%.9g; allowed: at least 0", rope->mscale,
           rope->mscale_all);
  return OT_OK;
}

static ot_status check_rope(const char *layers, const ot_rope *rope) {
  OT_CHECK(rope->theta > 0, OT_USAGE, "model: rope_theta=%.9g of %s layers; allowed: above 0",
           rope->theta, layers);
  OT_CHECK(rope->factor >= 1, OT_USAGE,
           "model: the rope factor=%.9g of %s layers is out of range; allowed: at least 1",
           rope->factor, layers);
  if (rope->type == OT_ROPE_DEFAULT || rope->type == OT_ROPE_LINEAR) return OT_OK;
  OT_CHECK(rope->original_positions >= 1, OT_USAGE,
           "model: original_max_position_embeddings=%lld is out of range; allowed: at least 1",
           (long long)rope->original_positions);
  if (rope->type == OT_ROPE_YARN) return check_yarn(rope);
  OT_CHECK(
      rope->low_frequency_factor > 0 && rope->high_frequency_factor > rope->low_frequency_factor,
      OT_USAGE, "model: low_freq_factor=%.9g must be above 0 and below high_freq_factor=%.9g",
      rope->low_frequency_factor, rope->high_frequency_factor);
  return OT_OK;
}

static ot_status check_share(const char *what, double share) {
  OT_CHECK(share >= 0 && share < 1, OT_USAGE,
           "model: the %s dropout %.9g is out of range; allowed: at least 0 and below 1", what,
           share);
  return OT_OK;
}

static ot_status check_positive(const char *what, double value) {
  OT_CHECK(value > 0 && value - value == 0, OT_USAGE,
           "model: %s=%.9g is out of range; allowed: above 0", what, value);
  return OT_OK;
}

static ot_status check_tokens(const ot_model *model) {
  for (int i = 0; i < model->num_eos; i++) {
    OT_CHECK(model->eos_id[i] >= 0 && model->eos_id[i] < model->vocab_size, OT_USAGE,
             "model: eos_token_id=%lld is not below vocab_size=%lld", (long long)model->eos_id[i],
             (long long)model->vocab_size);
  }
  OT_CHECK(model->bos_id >= -1 && model->bos_id < model->vocab_size, OT_USAGE,
           "model: bos_token_id=%lld is not below vocab_size=%lld", (long long)model->bos_id,
           (long long)model->vocab_size);
  return OT_OK;
}

ot_status ot_model_check(const ot_model *model) {
  OT_TRY(check_sizes(model));
  OT_TRY(check_heads(model));
  OT_TRY(ot_moe_check(model));
  OT_TRY(ot_mla_check(model));
  OT_TRY(ot_residuals_check(model));
  if (!model->learned_positions) {
    OT_TRY(check_rope("global", &model->rope));
    OT_TRY(check_rope("sliding", &model->rope_local));
  }
  for (int64_t i = 0; i < model->num_layers; i++) {
    OT_CHECK(model->window[i] >= 0, OT_USAGE, "model: the window of layer %lld is %lld tokens",
             (long long)i, (long long)model->window[i]);
  }
  OT_TRY(check_share("embedding", model->embedding_dropout));
  OT_TRY(check_share("attention", model->attention_dropout));
  OT_TRY(check_share("residual", model->residual_dropout));
  OT_TRY(check_positive("the norms' epsilon", model->norm_epsilon));
  OT_TRY(check_positive("initializer_range", model->initializer_range));
  OT_TRY(check_positive("the scale of embeddings", model->embedding_scale));
  OT_TRY(check_positive("the scale of attention", model->attention_scale));
  return check_tokens(model);
}

// ---- Size ----

static int64_t norm_elements(const ot_model *model, int64_t width) {
  return model->norm == OT_NORM_LAYERNORM ? 2 * width : width;
}

static int64_t attention_elements(const ot_model *model) {
  if (model->mla.kv_rank > 0) return ot_mla_elements(model);
  const int64_t q = model->num_heads * model->head_dim;
  const int64_t kv = model->num_kv_heads * model->head_dim;
  int64_t n = model->hidden_size * (q + 2 * kv) + q * model->hidden_size;
  if (model->qkv_bias) n += q + 2 * kv;
  if (model->output_bias) n += model->hidden_size;
  if (model->sinks) n += model->num_heads;
  if (model->qk_norm == OT_QK_NORM_HEAD) n += 2 * model->head_dim;
  if (model->qk_norm == OT_QK_NORM_ROW) n += q + kv;
  return n;
}

static int64_t mlp_elements(const ot_model *model) {
  const int64_t up = model->gated_mlp ? 2 : 1;
  int64_t n = (up + 1) * model->hidden_size * model->intermediate_size;
  if (model->mlp_bias) n += up * model->intermediate_size + model->hidden_size;
  return n;
}

// With `experts` routed experts in each MoE layer.
static int64_t count_elements(const ot_model *model, int64_t experts) {
  const int64_t table = model->vocab_size * model->hidden_size;
  const int64_t norms = model->norm_placement == OT_NORM_SANDWICH ? 4 : 2;
  const int64_t layer =
      attention_elements(model) + norms * norm_elements(model, model->hidden_size);
  int64_t n = table + model->num_layers * layer + norm_elements(model, model->hidden_size);
  for (int64_t i = 0; i < model->num_layers; i++) {
    n += model->moe.layer[i] ? ot_moe_elements(model, experts) : mlp_elements(model);
  }
  n += ot_residual_elements(model, model->num_layers);
  if (!model->tie_word_embeddings) n += table;
  if (model->learned_positions) n += model->max_positions * model->hidden_size;
  return n;
}

int64_t ot_model_parameters(const ot_model *model) {
  return count_elements(model, model->moe.num_experts);
}

int64_t ot_model_active_parameters(const ot_model *model) {
  return count_elements(model, model->moe.experts_per_token);
}

static bool same_residuals(const ot_model *model, int layer, int other) {
  const ot_residual_position a = ot_residual_position_of(model, layer);
  const ot_residual_position b = ot_residual_position_of(model, other);
  return a.finished == b.finished && a.begun == b.begun && a.attention_ends == b.attention_ends &&
         a.mlp_ends == b.mlp_ends;
}

bool ot_model_same_layer(const ot_model *model, int layer, int other) {
  return same_residuals(model, layer, other) && model->window[layer] == model->window[other] &&
         model->no_rope[layer] == model->no_rope[other] &&
         model->moe.layer[layer] == model->moe.layer[other];
}

void ot_model_take_layers(const ot_model *model, const int *layers, int count, ot_model *out) {
  *out = *model;
  out->num_layers = count;
  for (int i = 0; i < count; i++) {
    out->window[i] = model->window[layers[i]];
    out->no_rope[i] = model->no_rope[layers[i]];
    out->moe.layer[i] = model->moe.layer[layers[i]];
    out->residuals.place[i] = model->residuals.place[layers[i]];
  }
}

// ---- Text and hash ----

typedef struct printer {
  char *out;
  int64_t capacity;
  int64_t length;
} printer;

static void put_whole(printer *p, const char *name, int64_t value) {
  p->length += ot_text_format(p->out + p->length, p->capacity - p->length, "%s %lld\n", name,
                              (long long)value);
}

static void put_real(printer *p, const char *name, double value) {
  char text[64];
  ot_number_print_shortest(text, sizeof text, value);
  p->length += ot_text_format(p->out + p->length, p->capacity - p->length, "%s %s\n", name, text);
}

static void put_word(printer *p, const char *name, const char *word) {
  p->length += ot_text_format(p->out + p->length, p->capacity - p->length, "%s %s\n", name, word);
}

// A value as it is printed.
typedef enum value_kind { VALUE_WHOLE, VALUE_BOOL, VALUE_REAL, VALUE_WORD } value_kind;

typedef struct printed_value {
  const char *name;
  value_kind kind;
  int32_t offset;
  bool optional;             // not printed when 0
  const char *const *words;  // of WORD: names of an enum
} printed_value;

static void put_value(printer *p, const printed_value *v, const char *at) {
  switch (v->kind) {
    case VALUE_WHOLE: {
      const int64_t whole = *(const int64_t *)(const void *)at;
      if (whole != 0 || !v->optional) put_whole(p, v->name, whole);
      return;
    }
    case VALUE_BOOL: {
      const bool flag = *(const bool *)at;
      if (flag || !v->optional) put_whole(p, v->name, flag);
      return;
    }
    case VALUE_REAL: {
      const double real = *(const double *)(const void *)at;
      if (real != 0 || !v->optional) put_real(p, v->name, real);
      return;
    }
    case VALUE_WORD: {
      const int word = *(const int *)(const void *)at;
      if (word != 0 || !v->optional) put_word(p, v->name, v->words[word]);
      return;
    }
  }
  OT_UNREACHABLE();
}

static void put_values(printer *p, const printed_value *values, int count, const void *object) {
  for (int i = 0; i < count; i++) put_value(p, &values[i], (const char *)object + values[i].offset);
}

static void put_rope(printer *p, const char *name, const ot_rope *rope) {
  static const char *const types[] = {"default", "linear", "llama3", "yarn"};
  static const printed_value all[] = {
      {"  theta", VALUE_REAL, .offset = offsetof(ot_rope, theta)},
      {"  factor", VALUE_REAL, .offset = offsetof(ot_rope, factor)},
      {"  low_frequency_factor", VALUE_REAL, .offset = offsetof(ot_rope, low_frequency_factor)},
      {"  high_frequency_factor", VALUE_REAL, .offset = offsetof(ot_rope, high_frequency_factor)},
      {"  original_positions", VALUE_WHOLE, .offset = offsetof(ot_rope, original_positions)},
  };
  static const printed_value yarn[] = {
      {"  beta_fast", VALUE_REAL, .offset = offsetof(ot_rope, beta_fast)},
      {"  beta_slow", VALUE_REAL, .offset = offsetof(ot_rope, beta_slow)},
      {"  mscale", VALUE_REAL, .offset = offsetof(ot_rope, mscale)},
      {"  mscale_all", VALUE_REAL, .offset = offsetof(ot_rope, mscale_all)},
      {"  exact_ramp", VALUE_BOOL, .offset = offsetof(ot_rope, exact_ramp), .optional = true},
  };
  put_word(p, name, types[rope->type]);
  put_values(p, all, OT_COUNT(all), rope);
  if (rope->type == OT_ROPE_YARN) put_values(p, yarn, OT_COUNT(yarn), rope);
}

// Run lengths of consecutive layers with the same flag; `names` for those without and with it.
static void put_runs(printer *p, const bool *flags, int64_t layers, const char *const names[2]) {
  for (int64_t i = 0, j; i < layers; i = j) {
    for (j = i; j < layers && flags[j] == flags[i];) j++;
    put_whole(p, names[flags[i]], j - i);
  }
}

static void put_moe(printer *p, const ot_model *model) {
  static const char *const scores[] = {"softmax", "sigmoid"};
  static const char *const routings[] = {"dropless", "drop_by_position", "drop_by_score",
                                         "expert_choice"};
  static const char *const balances[] = {"none", "aux_loss", "bias"};
  static const char *const aux_scales[] = {"layers", "transformers"};
  static const printed_value values[] = {
      {"num_experts", VALUE_WHOLE, .offset = offsetof(ot_moe, num_experts)},
      {"experts_per_token", VALUE_WHOLE, .offset = offsetof(ot_moe, experts_per_token)},
      {"expert_size", VALUE_WHOLE, .offset = offsetof(ot_moe, expert_size)},
      {"shared_size", VALUE_WHOLE, .offset = offsetof(ot_moe, shared_size)},
      {"shared_gate", VALUE_BOOL, .offset = offsetof(ot_moe, shared_gate), .optional = true},
      {"biases", VALUE_BOOL, .offset = offsetof(ot_moe, biases), .optional = true},
      {"score", VALUE_WORD, .offset = offsetof(ot_moe, score), .words = scores},
      {"renormalise", VALUE_BOOL, .offset = offsetof(ot_moe, renormalise)},
      {"gate_scale", VALUE_REAL, .offset = offsetof(ot_moe, scale)},
      {"num_groups", VALUE_WHOLE, .offset = offsetof(ot_moe, num_groups)},
      {"groups_per_token", VALUE_WHOLE, .offset = offsetof(ot_moe, groups_per_token)},
      {"routing", VALUE_WORD, .offset = offsetof(ot_moe, routing), .words = routings},
      {"capacity_factor", VALUE_REAL, .offset = offsetof(ot_moe, capacity_factor)},
      {"balance", VALUE_WORD, .offset = offsetof(ot_moe, balance), .words = balances},
      {"aux_coefficient", VALUE_REAL, .offset = offsetof(ot_moe, aux_coefficient)},
      {"aux_scale", VALUE_WORD, .offset = offsetof(ot_moe, aux_scale), .optional = true,
       .words = aux_scales},
      {"z_coefficient", VALUE_REAL, .offset = offsetof(ot_moe, z_coefficient)},
      {"bias_rate", VALUE_REAL, .offset = offsetof(ot_moe, bias_rate)},
  };
  static const char *const names[] = {"layers_without_experts", "layers_with_experts"};
  if (model->moe.num_experts == 0) return;
  put_values(p, values, OT_COUNT(values), &model->moe);
  put_runs(p, model->moe.layer, model->num_layers, names);
}

static void put_mla(printer *p, const ot_mla *mla) {
  static const printed_value values[] = {
      {"kv_rank", VALUE_WHOLE, .offset = offsetof(ot_mla, kv_rank)},
      {"q_rank", VALUE_WHOLE, .offset = offsetof(ot_mla, q_rank)},
      {"nope_dim", VALUE_WHOLE, .offset = offsetof(ot_mla, nope_dim)},
      {"rope_dim", VALUE_WHOLE, .offset = offsetof(ot_mla, rope_dim)},
      {"v_dim", VALUE_WHOLE, .offset = offsetof(ot_mla, v_dim)},
      {"interleaved", VALUE_BOOL, .offset = offsetof(ot_mla, interleaved)},
  };
  if (mla->kv_rank > 0) put_values(p, values, OT_COUNT(values), mla);
}

static void put_no_rope(printer *p, const ot_model *model) {
  static const char *const names[] = {"layers_with_rope", "layers_without_rope"};
  bool any = false;
  for (int64_t i = 0; i < model->num_layers; i++) any = any || model->no_rope[i];
  if (any) put_runs(p, model->no_rope, model->num_layers, names);
}

// Windows as runs: "window 0x5 512x1".
static void put_windows(printer *p, const ot_model *model) {
  p->length += ot_text_format(p->out + p->length, p->capacity - p->length, "window");
  for (int64_t i = 0; i < model->num_layers;) {
    int64_t j = i;
    while (j < model->num_layers && model->window[j] == model->window[i]) j++;
    p->length += ot_text_format(p->out + p->length, p->capacity - p->length, " %lldx%lld",
                                (long long)model->window[i], (long long)(j - i));
    i = j;
  }
  p->length += ot_text_format(p->out + p->length, p->capacity - p->length, "\n");
}

static const char *const activations[] = {"gelu", "gelu_tanh", "silu", "relu"};
static const char *const norms[] = {"layernorm", "rmsnorm"};
static const char *const placements[] = {"pre", "post", "sandwich"};
static const char *const qk_norms[] = {"none", "head", "row"};

// A new value is optional: the hash of a model without it then stays as it is.
static const printed_value shape_values[] = {
    {"vocab_size", VALUE_WHOLE, .offset = offsetof(ot_model, vocab_size)},
    {"hidden_size", VALUE_WHOLE, .offset = offsetof(ot_model, hidden_size)},
    {"intermediate_size", VALUE_WHOLE, .offset = offsetof(ot_model, intermediate_size)},
    {"num_layers", VALUE_WHOLE, .offset = offsetof(ot_model, num_layers)},
    {"num_heads", VALUE_WHOLE, .offset = offsetof(ot_model, num_heads)},
    {"num_kv_heads", VALUE_WHOLE, .offset = offsetof(ot_model, num_kv_heads)},
    {"head_dim", VALUE_WHOLE, .offset = offsetof(ot_model, head_dim)},
    {"max_positions", VALUE_WHOLE, .offset = offsetof(ot_model, max_positions)},
};

static const printed_value mathematics_values[] = {
    {"activation", VALUE_WORD, .offset = offsetof(ot_model, activation), .words = activations},
    {"gated_mlp", VALUE_BOOL, .offset = offsetof(ot_model, gated_mlp)},
    {"glu_alpha", VALUE_REAL, .offset = offsetof(ot_model, glu_alpha), .optional = true},
    {"glu_limit", VALUE_REAL, .offset = offsetof(ot_model, glu_limit), .optional = true},
    {"qkv_bias", VALUE_BOOL, .offset = offsetof(ot_model, qkv_bias)},
    {"output_bias", VALUE_BOOL, .offset = offsetof(ot_model, output_bias)},
    {"mlp_bias", VALUE_BOOL, .offset = offsetof(ot_model, mlp_bias)},
    {"sinks", VALUE_BOOL, .offset = offsetof(ot_model, sinks), .optional = true},
    {"tie_word_embeddings", VALUE_BOOL, .offset = offsetof(ot_model, tie_word_embeddings)},
    {"norm", VALUE_WORD, .offset = offsetof(ot_model, norm), .words = norms},
    {"norm_placement", VALUE_WORD, .offset = offsetof(ot_model, norm_placement),
     .words = placements},
    {"norm_epsilon", VALUE_REAL, .offset = offsetof(ot_model, norm_epsilon)},
    {"norm_offset", VALUE_REAL, .offset = offsetof(ot_model, norm_offset)},
    {"qk_norm", VALUE_WORD, .offset = offsetof(ot_model, qk_norm), .words = qk_norms},
    {"embedding_scale", VALUE_REAL, .offset = offsetof(ot_model, embedding_scale)},
    {"attention_scale", VALUE_REAL, .offset = offsetof(ot_model, attention_scale)},
    {"score_soft_cap", VALUE_REAL, .offset = offsetof(ot_model, score_soft_cap), .optional = true},
    {"logit_soft_cap", VALUE_REAL, .offset = offsetof(ot_model, logit_soft_cap), .optional = true},
    {"learned_positions", VALUE_BOOL, .offset = offsetof(ot_model, learned_positions)},
    {"rotary_dim", VALUE_WHOLE, .offset = offsetof(ot_model, rotary_dim)},
};

static const printed_value random_values[] = {
    {"embedding_dropout", VALUE_REAL, .offset = offsetof(ot_model, embedding_dropout)},
    {"attention_dropout", VALUE_REAL, .offset = offsetof(ot_model, attention_dropout)},
    {"residual_dropout", VALUE_REAL, .offset = offsetof(ot_model, residual_dropout)},
    {"initializer_range", VALUE_REAL, .offset = offsetof(ot_model, initializer_range)},
};

static void put_shape(printer *p, const ot_model *model) {
  put_word(p, "model_type", model->model_type);
  put_values(p, shape_values, OT_COUNT(shape_values), model);
  put_moe(p, model);
  put_mla(p, &model->mla);
  if (model->residuals.block_size > 0) {
    put_whole(p, "residual_block", model->residuals.block_size);
    put_whole(p, "sublayers", model->residuals.sublayers);
  }
}

static void put_mathematics(printer *p, const ot_model *model) {
  put_values(p, mathematics_values, OT_COUNT(mathematics_values), model);
  put_rope(p, "rope", &model->rope);
  put_rope(p, "rope_local", &model->rope_local);
  put_no_rope(p, model);
  put_windows(p, model);
  put_values(p, random_values, OT_COUNT(random_values), model);
}

uint64_t ot_model_hash(const ot_model *model) {
  char text[PRINT_BYTES];
  printer p = {.out = text, .capacity = sizeof text};
  put_shape(&p, model);
  put_mathematics(&p, model);
  return ot_hash_text(OT_HASH_START, text);
}
