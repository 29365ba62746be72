// SPDX-License-Identifier: Apache-2.0
// Rules of Yang et al. 2022 (arXiv 2203.03466, tables 3 and 8) in width and Dey et al. 2025 (arXiv
// 2505.01618, table 1) in depth, for AdamW; for updates of a fixed spectral norm the spectral
// condition of Yang, Simon and Bernstein 2023 (arXiv 2310.17813): the spectral norm of an update to
// a matrix [O, C] is proportional to sqrt(O / C).
#include "graph/parametrize.h"

#include "base/math.h"

// Sizes of the model over those of its base.
typedef struct growth {
  double width, kv_width;  // hidden_size; keys and values of all heads
  double q_rank, kv_rank;  // latents
  double head;             // head_dim
  double branch;           // factor of the outputs of residual branches
  double layers_rate;      // factor of the learning rate inside layers
} growth;

// Factors of one part.
typedef struct rule {
  double initial, rate, decay, epsilon, constant;
} rule;

static double ratio(int64_t size, int64_t base) {
  return base > 0 ? (double)size / (double)base : 1;
}

// x^y, exact where it can be.
static double power(double x, double y) {
  if (y == 0) return 1;
  return y == -1 ? 1 / x : ot_pow(x, y);
}

static growth growth_of(const ot_graph_request *request) {
  const ot_parametrization *const p = request->parametrization;
  const ot_model *const model = request->model;
  const double layers = ratio(model->num_layers, p->base_layers);
  growth g = {.width = ratio(model->hidden_size, p->base_hidden_size),
              .q_rank = ratio(model->mla.q_rank, p->base_q_lora_rank),
              .kv_rank = ratio(model->mla.kv_rank, p->base_kv_lora_rank),
              .head = ratio(model->head_dim, p->base_head_dim),
              .branch = power(layers, -p->depth_alpha),
              .layers_rate = power(layers, p->depth_alpha - 1)};
  const bool own = p->base_kv_heads > 0;
  g.kv_width = own ? ratio(model->num_kv_heads, p->base_kv_heads) * g.head : g.width;
  return g;
}

// ---- roles ----

static bool is_in_layer(ot_role role) {
  switch (role) {
    case OT_ROLE_EMBEDDING:
    case OT_ROLE_POSITIONS:
    case OT_ROLE_FINAL_QUERY:
    case OT_ROLE_FINAL_NORM:
    case OT_ROLE_HEAD:
      return false;
    default:
      return true;
  }
}

// A number of outputs that does not grow with the model, from a wide input.
static bool is_readout(ot_role role) {
  return role == OT_ROLE_ROUTER || role == OT_ROLE_SHARED_GATE;
}

// Vectors whose product with a wide vector is a score.
static bool is_query(ot_role role) {
  return role == OT_ROLE_ATTENTION_QUERY || role == OT_ROLE_MLP_QUERY ||
         role == OT_ROLE_FINAL_QUERY;
}

static bool ends_branch(const ot_model *model, ot_role role) {
  if (model->norm_placement != OT_NORM_PRE) {
    return role == OT_ROLE_ATTENTION_POST_NORM || role == OT_ROLE_MLP_POST_NORM;
  }
  return role == OT_ROLE_ATTENTION_OUTPUT || role == OT_ROLE_DOWN || role == OT_ROLE_EXPERT_DOWN ||
         role == OT_ROLE_SHARED_DOWN;
}

// Whether a parameter scales queries last: their norm, or else the projection that computes them.
static bool scales_queries(const ot_model *model, ot_role role, int part) {
  if (model->qk_norm != OT_QK_NORM_NONE) {
    return role == OT_ROLE_Q_NORM || role == OT_ROLE_Q_ROW_NORM;
  }
  return role == OT_ROLE_Q_UP || (role == OT_ROLE_QKV && part == 0);
}

// ---- rules ----

// Growth of the inputs and of the outputs of a matrix.
static double inputs_of(const ot_model *model, ot_role role, const growth *g) {
  if (role == OT_ROLE_Q_UP && model->mla.q_rank > 0) return g->q_rank;
  return role == OT_ROLE_KV_UP ? g->kv_rank : g->width;
}

static double outputs_of(ot_role role, int part, const growth *g) {
  if (is_readout(role)) return 1;
  if (role == OT_ROLE_Q_DOWN) return g->q_rank;
  if (role == OT_ROLE_KV_DOWN) return g->kv_rank;
  return role == OT_ROLE_QKV && part > 0 ? g->kv_width : g->width;
}

// Without this factor the spectral norm of an update is proportional to sqrt(max(O, C)).
static double spectral_rate(const ot_parameter_part *part, double outputs, double inputs) {
  const double O = (double)part->rows, C = (double)part->hf_cols;
  const double base_O = O / outputs, base_C = C / inputs;
  const double now = O > C ? O : C, base = base_O > base_C ? base_O : base_C;
  return ot_sqrt(outputs / inputs) * ot_sqrt(base / now);
}

// A constant that published rules multiply outputs by, as part of a weight.
static double constant_of(const ot_model *model, ot_role role, int part, const growth *g) {
  const double embedding = model->embedding_scale == 1 ? 1 : 1 / ot_sqrt(g->width);
  const bool tied = model->tie_word_embeddings;
  double c = 1;
  if (ends_branch(model, role)) c *= g->branch;
  if (scales_queries(model, role, part)) c *= 1 / ot_sqrt(g->head);
  if (role == OT_ROLE_EMBEDDING) c *= embedding;  // embedding_scale is sqrt(hidden_size)
  if (role == OT_ROLE_HEAD) c *= 1 / g->width;
  if (role == OT_ROLE_FINAL_NORM && tied) c *= 1 / g->width / embedding;
  return c;
}

static rule rule_of(const ot_graph_request *request, ot_role role, const ot_parameter *parameter,
                    int index) {
  const ot_model *const model = request->model;
  const growth g = growth_of(request);
  rule r = {.initial = 1, .rate = 1, .decay = 1, .epsilon = 1 / g.width};
  if (is_in_layer(role)) {
    r.rate *= g.layers_rate;
    r.epsilon *= g.branch;
  }
  if (is_query(role)) r.rate *= 1 / g.width;
  if (parameter->kind == OT_PARAMETER_MATRIX) {
    const double inputs = inputs_of(model, role, &g);
    const double outputs = outputs_of(role, index, &g);
    const bool spectral = request->optimizer && request->optimizer->spectral_updates;
    const double rate =
        spectral ? spectral_rate(&parameter->parts[index], outputs, inputs) : 1 / inputs;
    r.initial = 1 / (is_readout(role) ? inputs : ot_sqrt(inputs));
    r.rate *= rate;
    r.decay = 1 / rate;
  }
  const double c = constant_of(model, role, index, &g);
  return (rule){r.initial * c, r.rate * c, r.decay / c, r.epsilon / c, c};
}

static double initial_of(const ot_model *model, const ot_parameter *parameter, double factor) {
  switch (parameter->initial) {
    case OT_INITIAL_NORMAL:
      return parameter->initial_std * factor;
    case OT_INITIAL_ZERO:
      return 0;
    case OT_INITIAL_GAIN:
      return factor - model->norm_offset;
  }
  OT_UNREACHABLE();
}

void ot_parametrize(const ot_graph_request *request, ot_role role, ot_parameter *parameter) {
  const bool scales = ot_parametrization_scales(request->parametrization);
  for (int i = 0; i < parameter->num_parts; i++) {
    const rule r = scales ? rule_of(request, role, parameter, i) : (rule){1, 1, 1, 1, 1};
    ot_parameter_part *const part = &parameter->parts[i];
    part->initial = initial_of(request->model, parameter, r.initial);
    part->constant = r.constant;
    part->rate_factor = r.rate;
    part->decay_factor = r.decay;
    part->epsilon_factor = r.epsilon;
  }
}

int64_t ot_parametrization_layers(const ot_graph_request *request) {
  const ot_parametrization *const p = request->parametrization;
  const bool given = ot_parametrization_scales(p) && p->base_layers > 0;
  return given ? p->base_layers : request->model->num_layers;
}
