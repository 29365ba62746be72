// SPDX-License-Identifier: Apache-2.0
// Converts models back to HF keys: the inverse of model_read.c, with the same table.
#include "base/math.h"
#include "base/text.h"
#include "describe/family.h"
#include "describe/model_keys.h"

enum { FULL, SLIDING };

// layer_types is written when the family's rules and one window cannot express the layers; for
// mistral only when its layers differ (model_read.c: fill_names).
static bool needs_layer_types(const ot_model *model) {
  return ot_family_row_of(model->family)->writes_layer_types ||
         !ot_text_equal(model->model_type, ot_family_name(model->family));
}

static void fill_windows(const ot_model *model, ot_arena *arena, ot_model_keys *keys) {
  for (int64_t i = 0; i < model->num_layers; i++) {
    if (model->window[i] > keys->sliding_window) keys->sliding_window = model->window[i];
  }
  keys->use_sliding_window = keys->sliding_window > 0;
  keys->max_window_layers = model->num_layers;
  keys->sliding_window_pattern = 6;
  if (!needs_layer_types(model)) return;
  keys->num_layer_types = model->num_layers;
  keys->layer_types = ot_arena_array(arena, model->num_layers, sizeof(int));
  for (int64_t i = 0; i < model->num_layers; i++) {
    keys->layer_types[i] = model->window[i] > 0 ? SLIDING : FULL;
  }
}

static void fill_rope_layers(const ot_model *model, ot_arena *arena, ot_model_keys *keys) {
  keys->no_rope_interval = 4;
  keys->num_rope_layers = model->num_layers;
  keys->rope_layers = ot_arena_array(arena, model->num_layers, sizeof(int64_t));
  for (int64_t i = 0; i < model->num_layers; i++) keys->rope_layers[i] = !model->no_rope[i];
}

static void fill_dense_layers(const ot_model *model, ot_arena *arena, ot_model_keys *keys) {
  keys->dense_layers = ot_arena_array(arena, model->num_layers, sizeof(int64_t));
  keys->sparse_step = 1;
  for (int64_t i = 0; i < model->num_layers; i++) {
    if (model->moe.layer[i]) continue;
    if (keys->first_dense == i) keys->first_dense = i + 1;
    keys->dense_layers[keys->num_dense_layers++] = i;
  }
}

static void fill_experts(const ot_model *model, ot_arena *arena, ot_model_keys *keys) {
  const ot_moe *const moe = &model->moe;
  keys->shared_experts = moe->num_experts > 0 ? moe->shared_size / moe->expert_size : 0;
  keys->balance = (int)moe->balance;
  fill_dense_layers(model, arena, keys);
}

// The integer whose inverse square root is the scale, if there is one, as in configurations.
static double query_scalar(double scale) {
  const double exact = 1 / (scale * scale);
  const double whole = (double)(int64_t)(exact + 0.5);
  return exact < 1e15 && 1 / ot_sqrt(whole) == scale ? whole : exact;
}

// A share of head_dim whose whole part is rotary_dim.
static double rotary_share(const ot_model *model) {
  const double head = (double)model->head_dim, share = (double)model->rotary_dim / head;
  return (int64_t)(share * head) == model->rotary_dim ? share
                                                      : ((double)model->rotary_dim + 0.5) / head;
}

static ot_model_keys keys_of(const ot_model *model, ot_arena *arena) {
  ot_model_keys keys = {
      .model = *model,
      .original_positions = model->max_positions,
      .scale_attention = model->attention_scale != 1,
      .use_qk_norm = model->qk_norm == OT_QK_NORM_HEAD,
      .partial_rotary = rotary_share(model),
      .query_scalar = query_scalar(model->attention_scale),
      .rope_theta = model->rope.theta,
      .rope_local_theta = model->rope_local.theta,
      .num_eos = model->num_eos,
      .residuals = model->residuals.block_size > 0,
      .residual_block_size = model->residuals.block_size,
  };
  keys.eos_id = ot_arena_array(arena, OT_MAX_EOS, sizeof(int64_t));
  for (int i = 0; i < model->num_eos; i++) keys.eos_id[i] = model->eos_id[i];
  fill_rope_layers(model, arena, &keys);
  fill_windows(model, arena, &keys);
  fill_experts(model, arena, &keys);
  return keys;
}

// ---- Trees ----

static void put(ot_arena *arena, ot_node *map, const char *key, ot_node *value) {
  ot_node *const old = ot_node_child(map, key);
  if (old) {
    ot_node_replace(old, value);
  } else {
    ot_node_put(arena, map, key, value);
  }
}

static void drop(ot_node *map, const char *key) {
  const ot_node *const child = ot_node_child(map, key);
  if (child) ot_node_remove(map, child);
}

static ot_node *rope_node(const ot_rope *rope, bool with_theta, ot_arena *arena) {
  static const char *const types[] = {"default", "linear", "llama3", "yarn"};
  ot_node *const map = ot_node_create(arena, OT_NODE_MAP);
  ot_node_put(arena, map, "rope_type", ot_node_text(arena, types[rope->type]));
  if (with_theta) ot_node_put(arena, map, "rope_theta", ot_node_real(arena, rope->theta));
  if (rope->type == OT_ROPE_DEFAULT) return map;
  ot_node_put(arena, map, "factor", ot_node_real(arena, rope->factor));
  if (rope->type == OT_ROPE_LINEAR) return map;
  if (rope->type == OT_ROPE_YARN) {
    ot_node_put(arena, map, "beta_fast", ot_node_real(arena, rope->beta_fast));
    ot_node_put(arena, map, "beta_slow", ot_node_real(arena, rope->beta_slow));
    if (rope->mscale > 0) ot_node_put(arena, map, "mscale", ot_node_real(arena, rope->mscale));
    if (rope->mscale_all > 0) {
      ot_node_put(arena, map, "mscale_all_dim", ot_node_real(arena, rope->mscale_all));
    }
    ot_node_put(arena, map, "original_max_position_embeddings",
                ot_node_integer(arena, rope->original_positions));
    if (rope->exact_ramp) ot_node_put(arena, map, "truncate", ot_node_bool(arena, false));
    return map;
  }
  ot_node_put(arena, map, "low_freq_factor", ot_node_real(arena, rope->low_frequency_factor));
  ot_node_put(arena, map, "high_freq_factor", ot_node_real(arena, rope->high_frequency_factor));
  ot_node_put(arena, map, "original_max_position_embeddings",
              ot_node_integer(arena, rope->original_positions));
  return map;
}

static ot_node *rope_scaling(const ot_model *model, ot_arena *arena) {
  const ot_family_row *const family = ot_family_row_of(model->family);
  const bool silent =
      model->rope.type == OT_ROPE_DEFAULT && family->usual_rope.type == OT_ROPE_DEFAULT;
  return silent ? ot_node_create(arena, OT_NODE_NULL) : rope_node(&model->rope, false, arena);
}

static ot_node *rope_parameters(const ot_model *model, ot_arena *arena) {
  if (!ot_family_row_of(model->family)->rope_by_type) {
    ot_node *const map = rope_node(&model->rope, true, arena);
    const bool rotates = model->mla.kv_rank == 0 && model->rotary_dim > 0;
    if (rotates && model->rotary_dim < model->head_dim) {
      ot_node_put(arena, map, "partial_rotary_factor", ot_node_real(arena, rotary_share(model)));
    }
    return map;
  }
  ot_node *const map = ot_node_create(arena, OT_NODE_MAP);
  ot_node_put(arena, map, "full_attention", rope_node(&model->rope, true, arena));
  ot_node_put(arena, map, "sliding_attention", rope_node(&model->rope_local, true, arena));
  return map;
}

static void write_rope(const ot_model *model, ot_arena *arena, ot_node *map) {
  if (model->learned_positions) return;
  // Scaled sliding layers have no old spelling.
  const ot_family_row *const family = ot_family_row_of(model->family);
  const bool ambiguous = family->ambiguous_theta;
  if (ambiguous || (family->rope_by_type && model->rope_local.type != OT_ROPE_DEFAULT)) {
    drop(map, "rope_scaling");
    if (ambiguous) drop(map, "rope_theta");
    put(arena, map, "rope_parameters", rope_parameters(model, arena));
    return;
  }
  drop(map, "rope_parameters");
  put(arena, map, "rope_scaling", rope_scaling(model, arena));
}

ot_node *ot_model_write(const ot_model *model, ot_arena *arena) {
  const ot_model_keys keys = keys_of(model, arena);
  ot_node *const map =
      ot_schema_write(&ot_model_schema, ot_family_variant(model->family), &keys, arena);
  put(arena, map, "model_type", ot_node_text(arena, model->model_type));
  write_rope(model, arena, map);
  drop(map, "quantization_config");
  drop(map, "num_nextn_predict_layers");
  if (model->mla.kv_rank > 0) drop(map, "head_dim");
  if (model->residuals.block_size == 0) {
    drop(map, "attention_residuals");
    drop(map, "attention_residual_block_size");
  }
  if (keys.num_layer_types == 0) drop(map, "layer_types");
  if (keys.num_layer_types > 0) drop(map, "sliding_window_pattern");
  if (model->num_eos == 0) put(arena, map, "eos_token_id", ot_node_create(arena, OT_NODE_NULL));
  if (model->num_eos == 1) {
    put(arena, map, "eos_token_id", ot_node_integer(arena, model->eos_id[0]));
  }
  return map;
}

ot_node *ot_model_write_config(const ot_model *model, ot_arena *arena) {
  static const char *const dtypes[] = {
      [OT_F32] = "float32", [OT_F64] = "float64", [OT_BF16] = "bfloat16", [OT_F16] = "float16"};
  ot_node *const map = ot_model_write(model, arena);
  ot_node *const architectures = ot_node_create(arena, OT_NODE_LIST);
  // Software that identifies models by this name refuses unknown variants.
  const bool known = model->residuals.block_size == 0;
  ot_node_append(architectures, ot_node_text(arena, known ? model->architecture
                                                          : "AttentionResidualsForCausalLM"));
  ot_node_put(arena, map, "architectures", architectures);
  if (!model->learned_positions) {
    put(arena, map, "rope_parameters", rope_parameters(model, arena));
  }
  const ot_rope *const local = &model->rope_local;
  if (ot_family_row_of(model->family)->ambiguous_theta && local->type == OT_ROPE_DEFAULT &&
      local->theta == model->rope.theta) {
    put(arena, map, "rope_theta", ot_node_real(arena, local->theta));
    put(arena, map, "rope_scaling", rope_scaling(model, arena));
  }
  if (ot_node_child(map, "activation_function") && model->activation == OT_ACTIVATION_GELU_TANH) {
    put(arena, map, "activation_function", ot_node_text(arena, "gelu_new"));
  }
  // transformers 5 accepts only an integer here.
  const int64_t scalar = (int64_t)query_scalar(model->attention_scale);
  if (ot_node_child(map, "query_pre_attn_scalar") &&
      (double)scalar == query_scalar(model->attention_scale)) {
    put(arena, map, "query_pre_attn_scalar", ot_node_integer(arena, scalar));
  }
  drop(map, "dtype");
  ot_node_put(arena, map, "torch_dtype", ot_node_text(arena, dtypes[model->dtype]));
  return map;
}
