// SPDX-License-Identifier: Apache-2.0
// Converts keys to a model: properties fixed by the family, the rotary parameters in the spellings
// of transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters), and the window of each
// layer.
#include "base/math.h"
#include "base/text.h"
#include "describe/family.h"
#include "describe/model_keys.h"
#include "describe/residuals.h"
#include "describe/run_keys.h"

// State of one conversion.
typedef struct reading {
  const ot_model_keys *keys;
  const ot_node *tree;  // null: all defaults
  const ot_family_row *family;
  ot_arena *arena;
  ot_model *out;
} reading;

const ot_node *ot_model_given(const ot_node *map, const char *key) {
  const ot_node *const node = map ? ot_node_child(map, key) : NULL;
  return node && node->kind != OT_NODE_NULL ? node : NULL;
}

static const char *place(const reading *r, const ot_node *node) {
  return ot_node_place(r->arena, node);
}

// ---- Shape ----

// Completes the sizes that the keys leave to a default.
static void fill_shape(ot_model *out, const ot_family_row *family) {
  if (out->intermediate_size == 0) out->intermediate_size = 4 * out->hidden_size;
  if (out->num_kv_heads == 0) out->num_kv_heads = out->num_heads;
  if (out->head_dim == 0) out->head_dim = out->hidden_size / out->num_heads;
  if (family->latent_attention) out->head_dim = out->mla.nope_dim + out->mla.rope_dim;
}

static ot_status check_shape(const reading *r) {
  const ot_model *const model = r->out;
  const bool latent = r->family->latent_attention;
  OT_CHECK(!latent || model->head_dim == 0 || model->head_dim == model->mla.rope_dim, OT_USAGE,
           "model: head_dim=%lld; in model_type %s it is qk_rope_head_dim=%lld (%s)",
           (long long)model->head_dim, r->family->model_type, (long long)model->mla.rope_dim,
           place(r, ot_model_given(r->tree, "head_dim")));
  OT_CHECK(latent || model->head_dim > 0 || model->hidden_size % model->num_heads == 0, OT_USAGE,
           "model: num_attention_heads=%lld does not divide hidden_size=%lld, and head_dim is not "
           "given (%s)",
           (long long)model->num_heads, (long long)model->hidden_size,
           r->tree ? place(r, r->tree) : "defaults");
  return OT_OK;
}

static int64_t part_of_head(const ot_model *model, double share) {
  return (int64_t)(share * (double)model->head_dim);
}

static void fill_mathematics(reading *r) {
  const ot_model_keys *const keys = r->keys;
  const ot_family_row *const family = r->family;
  ot_model *const out = r->out;
  out->gated_mlp = family->gated_mlp;
  out->sinks = family->sinks;
  out->output_bias = family->all_biases || out->output_bias;
  out->qkv_bias = family->qkv_biases || out->qkv_bias || out->output_bias;
  out->mlp_bias = family->all_biases || out->mlp_bias;
  out->norm = family->norm;
  out->norm_placement = family->norm_placement;
  out->norm_offset = family->norm_offset;
  out->qk_norm = keys->use_qk_norm ? OT_QK_NORM_HEAD : family->qk_norm;
  out->embedding_scale = family->scaled_embedding ? ot_sqrt((double)out->hidden_size) : 1;
  const double scalar = keys->query_scalar > 0 ? keys->query_scalar : (double)out->head_dim;
  const bool unscaled = ot_model_given(r->tree, "scale_attn_weights") && !keys->scale_attention;
  out->attention_scale = unscaled ? 1 : 1 / ot_sqrt(scalar);
  out->learned_positions = family->learned_positions;
  out->rotary_dim = out->mla.kv_rank > 0 ? out->mla.rope_dim : out->head_dim;
  if (keys->partial_rotary > 0) out->rotary_dim = part_of_head(out, keys->partial_rotary);
  if (family->learned_positions) out->rotary_dim = 0;
}

// An id beyond the vocabulary is invalid: it occurs when a small model uses a family's defaults.
static int64_t known_token(const ot_model *model, int64_t id) {
  return id < model->vocab_size ? id : -1;
}

static ot_status fill_tokens(reading *r) {
  const ot_model_keys *const keys = r->keys;
  ot_model *const out = r->out;
  out->bos_id = known_token(out, out->bos_id);
  out->pad_id = known_token(out, out->pad_id);
  OT_CHECK(keys->num_eos <= OT_MAX_EOS, OT_USAGE,
           "model: eos_token_id has %lld entries; allowed: up to %d (%s)", (long long)keys->num_eos,
           OT_MAX_EOS, place(r, ot_model_given(r->tree, "eos_token_id")));
  for (int64_t i = 0; i < keys->num_eos; i++) {
    const int64_t id = known_token(out, keys->eos_id[i]);
    if (id >= 0) out->eos_id[out->num_eos++] = id;
  }
  return OT_OK;
}

// ---- Rotary parameters ----

// Files may give yarn's magnitude factor, although it follows from other keys (ops/rope.c).
static ot_status check_growth(const reading *r, const ot_rope_keys *keys, const ot_rope *rope,
                              const ot_node *node) {
  const bool both = rope->mscale > 0 && rope->mscale_all > 0;
  const double above = 1 + 0.1 * (both ? rope->mscale : 1) * ot_log(rope->factor);
  const double growth = above / (both ? 1 + 0.1 * rope->mscale_all * ot_log(rope->factor) : 1);
  const double difference = keys->attention_factor / growth - 1;
  const bool follows = rope->type == OT_ROPE_YARN && difference > -1e-9 && difference < 1e-9;
  OT_CHECK(keys->attention_factor == 0 || follows, OT_USAGE,
           "model: attention_factor=%.9g is not supported; allowed: null%s (%s)",
           keys->attention_factor,
           rope->type == OT_ROPE_YARN ? " or the value implied by factor" : "",
           place(r, ot_model_given(node, "attention_factor")));
  return OT_OK;
}

// The share of a head that rotates, in the spelling of transformers 5.
static ot_status read_rotary_share(const reading *r, const ot_rope_keys *keys,
                                   const ot_node *node) {
  const ot_node *const share = ot_model_given(node, "partial_rotary_factor");
  const bool partial = r->keys->partial_rotary > 0;
  OT_CHECK(!share || partial || keys->partial_rotary == 1, OT_USAGE,
           "model: partial_rotary_factor=%.9g is not supported: whole heads rotate; allowed: 1, "
           "null (%s)",
           keys->partial_rotary, place(r, share));
  if (share && partial) r->out->rotary_dim = part_of_head(r->out, keys->partial_rotary);
  return OT_OK;
}

// Parses one set of rotary keys from `node`, null when absent.
static ot_status read_rope(const reading *r, const ot_rope_keys *keys, const ot_node *node,
                           double theta, ot_rope *out) {
  const ot_node *const old_type = ot_model_given(node, "type");
  const bool both = old_type && ot_model_given(node, "rope_type");
  OT_CHECK(!both || keys->type == keys->old_type, OT_USAGE,
           "model: rope_type and type disagree (%s)", place(r, old_type));
  OT_TRY(read_rotary_share(r, keys, node));
  *out = (ot_rope){.type = (ot_rope_type)(old_type ? keys->old_type : keys->type),
                   .theta = ot_model_given(node, "rope_theta") ? keys->theta : theta,
                   .factor = 1};
  if (!node) out->type = OT_ROPE_DEFAULT;
  if (out->type == OT_ROPE_DEFAULT) return OT_OK;
  if (out->type != OT_ROPE_YARN) OT_TRY(check_growth(r, keys, out, node));
  OT_CHECK(ot_model_given(node, "factor"), OT_USAGE, "model: this rope_type needs a factor (%s)",
           place(r, node));
  out->factor = keys->factor;
  if (out->type == OT_ROPE_LINEAR) return OT_OK;
  out->original_positions =
      keys->original_positions > 0 ? keys->original_positions : r->keys->model.max_positions;
  if (out->type == OT_ROPE_YARN) {
    out->beta_fast = keys->beta_fast;
    out->beta_slow = keys->beta_slow;
    out->mscale = keys->mscale;
    out->mscale_all = keys->mscale_all;
    out->exact_ramp = !keys->truncate;
    return check_growth(r, keys, out, node);
  }
  OT_CHECK(ot_model_given(node, "low_freq_factor") && ot_model_given(node, "high_freq_factor"),
           OT_USAGE, "model: rope_type llama3 needs low_freq_factor and high_freq_factor (%s)",
           place(r, node));
  out->low_frequency_factor = keys->low_frequency_factor;
  out->high_frequency_factor = keys->high_frequency_factor;
  return OT_OK;
}

static bool is_nested(const ot_node *node) {
  return ot_node_child(node, "full_attention") || ot_node_child(node, "sliding_attention");
}

// Sources of the rotary parameters of one layer type, in old and new spelling.
typedef struct rope_sources {
  const char *theta_key;   // key of the old spelling
  double theta;            // its value or default
  const ot_node *scaling;  // old, or null
  const ot_rope_keys *scaling_keys;
  const ot_node *parameters;  // new, or null
  const ot_rope_keys *parameters_keys;
} rope_sources;

static ot_status fill_rope(reading *r, const rope_sources *from, ot_rope *out) {
  const ot_node *const old_theta = ot_model_given(r->tree, from->theta_key);
  const ot_node *const new_theta = ot_model_given(from->parameters, "rope_theta");
  const double theta = new_theta ? from->parameters_keys->theta : from->theta;
  OT_CHECK(!old_theta || !new_theta || theta == from->theta, OT_USAGE,
           "model: %s=%.9g and rope_parameters with rope_theta=%.9g disagree (%s)", from->theta_key,
           from->theta, theta, place(r, new_theta));
  ot_rope old;
  ot_rope new;
  OT_TRY(read_rope(r, from->scaling_keys, from->scaling, theta, &old));
  OT_TRY(read_rope(r, from->parameters_keys, from->parameters, theta, &new));
  OT_CHECK(!from->scaling || !from->parameters || ot_rope_same(&old, &new), OT_USAGE,
           "model: rope_scaling and rope_parameters disagree (%s)", place(r, from->parameters));
  *out = from->parameters ? new : old;
  return OT_OK;
}

// DeepSeek-V3 multiplies scores by the square of yarn's magnitude factor (transformers,
// modeling_deepseek_v3: yarn_apply_mscale).
static void scale_scores(ot_model *out) {
  const ot_rope *const rope = &out->rope;
  if (rope->type != OT_ROPE_YARN || rope->mscale_all == 0 || rope->factor <= 1) return;
  const double growth = 0.1 * rope->mscale_all * ot_log(rope->factor) + 1;
  out->attention_scale *= growth * growth;
}

static ot_status fill_ropes(reading *r) {
  const ot_model_keys *const keys = r->keys;
  const ot_node *const scaling = ot_model_given(r->tree, "rope_scaling");
  const ot_node *const parameters = ot_model_given(r->tree, "rope_parameters");
  const bool by_type = r->family->rope_by_type;
  OT_CHECK(!scaling || !is_nested(scaling), OT_USAGE,
           "model: rope_scaling is one set; sets per layer type go to rope_parameters (%s)",
           place(r, scaling));
  OT_CHECK(!parameters || !parameters->first || is_nested(parameters) == by_type, OT_USAGE,
           "model: rope_parameters of %s must be %s (%s)", ot_family_name(keys->model.family),
           by_type ? "a map of full_attention and sliding_attention" : "one set for all layers",
           place(r, parameters));
  rope_sources from = {
      .theta_key = "rope_theta",
      .theta = keys->rope_theta,
      .scaling = scaling,
      .scaling_keys = &keys->rope_scaling.all,
      .parameters = by_type ? ot_model_given(parameters, "full_attention") : parameters,
      .parameters_keys = by_type ? &keys->rope_parameters.full : &keys->rope_parameters.all,
  };
  OT_TRY(fill_rope(r, &from, &r->out->rope));
  if (r->family->usual_rope.type != OT_ROPE_DEFAULT && !scaling && !parameters) {
    r->out->rope = r->family->usual_rope;
    r->out->rope.theta = keys->rope_theta;
  }
  r->out->rope_local = r->out->rope;
  if (r->out->mla.kv_rank > 0) scale_scores(r->out);
  if (!by_type) return OT_OK;
  OT_TRY(read_rotary_share(r, &keys->rope_parameters.all, parameters));
  // Only gemma3 has a key for layers with a window.
  const bool own = keys->rope_local_theta > 0;
  from = (rope_sources){
      .theta_key = own ? "rope_local_base_freq" : "rope_theta",
      .theta = own ? keys->rope_local_theta : keys->rope_theta,
      .scaling_keys = &keys->rope_scaling.all,
      .parameters = ot_model_given(parameters, "sliding_attention"),
      .parameters_keys = &keys->rope_parameters.sliding,
  };
  return fill_rope(r, &from, &r->out->rope_local);
}

// ---- Layers ----

static ot_status fill_no_rope(reading *r) {
  const ot_model_keys *const keys = r->keys;
  const int64_t told = keys->num_rope_layers;
  OT_CHECK(told == 0 || told >= keys->model.num_layers, OT_USAGE,
           "model: no_rope_layers has %lld entries, but there are %lld layers (%s)",
           (long long)told, (long long)keys->model.num_layers,
           place(r, ot_model_given(r->tree, "no_rope_layers")));
  for (int64_t i = 0; i < keys->model.num_layers; i++) {
    const bool every = keys->no_rope_interval > 0 && (i + 1) % keys->no_rope_interval == 0;
    r->out->no_rope[i] = told > 0 ? keys->rope_layers[i] == 0 : every;
  }
  return OT_OK;
}

// True when layer `i` has a window by the rules of its family, without layer_types.
static bool slides(const reading *r, int64_t i, int64_t window) {
  const ot_model_keys *const keys = r->keys;
  switch (r->family->window_rule) {
    case OT_WINDOW_NONE:
      return false;
    case OT_WINDOW_ALL:
      return window > 0;
    case OT_WINDOW_LAST:
      return window > 0 && i >= keys->max_window_layers;
    case OT_WINDOW_EVEN:
      return i % 2 == 0;
    case OT_WINDOW_EVEN_FIRST:
      return window > 0 && i % 2 == 0 && i < keys->max_window_layers;
    case OT_WINDOW_NO_ROPE:
      return window > 0 && r->out->no_rope[i];
    case OT_WINDOW_BUT_FOURTH:
      return (i + 1) % 4 != 0;
    case OT_WINDOW_PATTERN:
      return (i + 1) % keys->sliding_window_pattern != 0;
  }
  OT_UNREACHABLE();
}

static ot_status fill_windows(reading *r) {
  const ot_model_keys *const keys = r->keys;
  const ot_node *const types = ot_model_given(r->tree, "layer_types");
  const bool off = r->family->window_switch && !keys->use_sliding_window;
  const int64_t window = off ? 0 : keys->sliding_window;
  OT_CHECK(keys->num_layer_types == 0 || keys->num_layer_types == keys->model.num_layers, OT_USAGE,
           "model: layer_types has %lld entries, but there are %lld layers (%s)",
           (long long)keys->num_layer_types, (long long)keys->model.num_layers, place(r, types));
  for (int64_t i = 0; i < keys->model.num_layers; i++) {
    const bool told = keys->num_layer_types > 0;
    const bool sliding = told ? keys->layer_types[i] == 1 : slides(r, i, window);
    OT_CHECK(!sliding || window > 0, OT_USAGE,
             "model: layer %lld is sliding_attention, but there is no sliding_window%s (%s)",
             (long long)i, r->family->window_switch ? " (needs use_sliding_window: true, too)" : "",
             types ? place(r, types) : "by default");
    r->out->window[i] = sliding ? window : 0;
  }
  return OT_OK;
}

// ---- Experts ----

static bool has_experts(const ot_model_keys *keys, int64_t layer) {
  if (layer < keys->first_dense) return false;
  if (keys->sparse_step == 0) return true;  // of families without that key
  for (int64_t i = 0; i < keys->num_dense_layers; i++) {
    if (keys->dense_layers[i] == layer) return false;
  }
  return (layer + 1) % keys->sparse_step == 0;
}

static ot_moe_balance balance_of(const reading *r) {
  if (r->keys->balance >= 0) return (ot_moe_balance)r->keys->balance;
  if (r->keys->model.moe.routing == OT_MOE_EXPERT_CHOICE) return OT_MOE_BALANCE_NONE;
  return r->family->score == OT_MOE_SIGMOID ? OT_MOE_BALANCE_BIAS : OT_MOE_BALANCE_AUX_LOSS;
}

static void fill_balance(reading *r) {
  ot_moe *const moe = &r->out->moe;
  moe->balance = balance_of(r);
  const double usual = moe->routing == OT_MOE_EXPERT_CHOICE ? 1 : 1.25;
  if (moe->capacity_factor == 0) moe->capacity_factor = usual;
  const bool asked =
      ot_model_given(r->tree, "router_aux_loss_coef") || ot_model_given(r->tree, "aux_loss_alpha");
  const bool helps =
      moe->balance == OT_MOE_BALANCE_AUX_LOSS || (moe->balance == OT_MOE_BALANCE_BIAS && asked);
  if (!helps) moe->aux_coefficient = 0;
}

static void fill_experts(reading *r) {
  const ot_model_keys *const keys = r->keys;
  ot_moe *const moe = &r->out->moe;
  if (moe->num_experts == 0) return;
  // mixtral, olmoe: intermediate_size is an expert's
  if (moe->expert_size == 0) moe->expert_size = r->out->intermediate_size;
  moe->shared_size += keys->shared_experts * moe->expert_size;
  moe->shared_gate = r->family->shared_gate;
  moe->score = r->family->score;
  moe->biases = r->family->expert_biases;
  moe->renormalise = r->family->renormalise || moe->renormalise;
  // Only experts in groups have keys for the next three.
  if (moe->scale == 0) moe->scale = 1;
  if (moe->num_groups == 0) moe->num_groups = 1;
  if (moe->groups_per_token == 0) moe->groups_per_token = 1;
  for (int64_t i = 0; i < r->out->num_layers; i++) moe->layer[i] = has_experts(keys, i);
  fill_balance(r);
}

// ---- Quantisation ----

static ot_status fill_scale_block(reading *r) {
  const ot_quantization_keys *const keys = &r->keys->quantization;
  const ot_node *const node = ot_model_given(r->tree, "quantization_config");
  if (!node || !node->first) return OT_OK;
  const char *const unreadable = r->family->unreadable;
  if (unreadable && ot_text_equal(keys->method, unreadable)) return OT_OK;
  const bool e4m3 = ot_text_equal(keys->method, "fp8") && ot_text_equal(keys->format, "e4m3");
  if (!e4m3 || keys->num_block != 2) {
    ot_fail(OT_USAGE,
            "model: quantization_config: weights quantised by %s%s are not supported, only fp8 "
            "(e4m3) with a weight_block_size of two numbers (%s)",
            keys->method[0] != '\0' ? keys->method : "an unnamed method",
            e4m3 ? " without blocks" : "", place(r, node));
    return ot_fail_hint(OT_USAGE,
                        "use the unquantised weights; to plan this model or to train it "
                        "from random weights: --set model.quantization_config=null");
  }
  r->out->scale_block[0] = keys->block[0];
  r->out->scale_block[1] = keys->block[1];
  return OT_OK;
}

// ---- Residuals ----

static ot_status fill_residuals(reading *r) {
  const ot_model_keys *const keys = r->keys;
  ot_attention_residuals *const out = &r->out->residuals;
  const bool block = keys->residuals > 0;
  OT_CHECK(block || keys->residual_block_size == 0, OT_USAGE,
           "model: attention_residual_block_size=%lld needs attention_residuals: block (%s)",
           (long long)keys->residual_block_size,
           place(r, ot_model_given(r->tree, "attention_residual_block_size")));
  if (!block) return OT_OK;
  out->block_size = keys->residual_block_size > 0
                        ? keys->residual_block_size
                        : ot_residual_default_size(keys->model.num_layers);
  out->sublayers = 2 * keys->model.num_layers;
  for (int64_t i = 0; i < keys->model.num_layers; i++) out->place[i] = 2 * i;
  return OT_OK;
}

// ---- Names ----

static void fill_names(ot_model *out, const ot_family_row *family) {
  out->model_type = family->model_type;
  out->architecture = family->architecture;
  for (int64_t i = 1; family->mixed_type && i < out->num_layers; i++) {
    if (out->window[i] == out->window[0]) continue;
    out->model_type = family->mixed_type;
    out->architecture = family->mixed_architecture;
  }
}

ot_status ot_model_from_keys(const ot_model_keys *keys, const ot_node *tree, ot_arena *arena,
                             ot_model *out) {
  *out = keys->model;
  reading r = {.keys = keys,
               .tree = tree,
               .family = ot_family_row_of(out->family),
               .arena = arena,
               .out = out};
  OT_TRY(check_shape(&r));
  fill_shape(out, r.family);
  fill_mathematics(&r);
  OT_TRY(fill_tokens(&r));
  if (!out->learned_positions) OT_TRY(fill_ropes(&r));
  if (r.family->check_rope) OT_TRY(r.family->check_rope(keys, tree, arena, out));
  OT_TRY(fill_no_rope(&r));
  OT_TRY(fill_windows(&r));
  fill_experts(&r);
  OT_TRY(fill_residuals(&r));
  OT_TRY(fill_scale_block(&r));
  fill_names(out, r.family);
  return ot_run_place_failure(ot_model_check(out), tree, arena);
}

ot_status ot_model_read(ot_node *tree, ot_arena *arena, ot_model *out) {
  ot_model_keys keys;
  OT_TRY(ot_model_prepare(tree, arena, ""));
  OT_TRY(ot_schema_read(&ot_model_schema, tree, arena, &keys));
  return ot_model_from_keys(&keys, tree, arena, out);
}
