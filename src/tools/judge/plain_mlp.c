// SPDX-License-Identifier: Apache-2.0
// The MLP: down(f(up x)) or, gated (Shazeer 2020), down(f(gate x) * up x). The clamped form of
// gpt-oss (OpenAI 2025, sec. 2.2): gate is at most m, up between -m and m plus 1, f is silu of
// slope a; what is clamped has no gradient.
#include "judge/plain_parts.h"

// f(x), its derivative in `slope`.
static ot_real activate(const ot_model *m, ot_real x, ot_real *slope) {
  const ot_real root = (ot_real)0.707106781186547524401, density = (ot_real)0.398942280401432677940;
  const ot_real inner = (ot_real)0.797884560802865355880, cubic = (ot_real)0.044715;
  const ot_real alpha = m->glu_limit > 0 ? (ot_real)m->glu_alpha : 1;
  switch (m->activation) {
    case OT_ACTIVATION_GELU: {
      const ot_real phi = (1 + erf(x * root)) / 2;
      *slope = phi + x * density * exp(-x * x / 2);
      return x * phi;
    }
    case OT_ACTIVATION_GELU_TANH: {
      const ot_real t = tanh(inner * (x + cubic * x * x * x));
      *slope = (1 + t + x * (1 - t * t) * inner * (1 + 3 * cubic * x * x)) / 2;
      return x * (1 + t) / 2;
    }
    case OT_ACTIVATION_SILU: {
      const ot_real y = 1 / (1 + exp(-alpha * x));
      *slope = y * (1 + alpha * x * (1 - y));
      return x * y;
    }
    case OT_ACTIVATION_RELU:
      *slope = x > 0;
      return x > 0 ? x : 0;
  }
  OT_UNREACHABLE();
}

// One element: f(gate), what multiplies it, and the derivatives of both.
typedef struct element {
  ot_real active, factor, active_slope, factor_slope;
} element;

static element element_of(const ot_plain_state *s, ot_real gate, ot_real up) {
  const ot_real limit = (ot_real)s->model->glu_limit;
  const bool over = limit > 0 && gate > limit;
  element e = {.factor = up, .factor_slope = 1};
  e.active = ot_plain_keep(s, activate(s->model, over ? limit : gate, &e.active_slope));
  if (over) e.active_slope = 0;
  if (limit == 0) return e;
  e.factor_slope = up >= -limit && up <= limit;
  e.factor = 1 + (up < -limit ? -limit : up > limit ? limit : up);
  return e;
}

// in[0] is the argument of f, in[1] the factor, or null.
static void activation_back(ot_plain_state *s, const ot_plain_op *op) {
  ot_plain_value *const gate = op->in[0], *const up = op->in[1];
  const ot_real *const d = op->out->d;
#pragma omp parallel for num_threads(s->threads)
  for (int64_t i = 0; i < gate->rows * gate->width; i++) {
    const element e = element_of(s, gate->x[i], up ? up->x[i] : 0);
    const ot_real d_active = up ? ot_plain_keep(s, d[i] * e.factor) : d[i];
    gate->d[i] = ot_plain_keep(s, gate->d[i] + ot_plain_keep(s, d_active * e.active_slope));
    if (up)
      up->d[i] = ot_plain_keep(s, up->d[i] + ot_plain_keep(s, d[i] * e.active) * e.factor_slope);
  }
}

static ot_plain_value *activation(ot_plain_state *s, ot_plain_value *gate, ot_plain_value *up) {
  ot_plain_value *const y = OT_KERNEL(ot_plain_make)(s, gate->rows, gate->width);
#pragma omp parallel for num_threads(s->threads)
  for (int64_t i = 0; i < gate->rows * gate->width; i++) {
    const element e = element_of(s, gate->x[i], up ? up->x[i] : 0);
    y->x[i] = up ? ot_plain_keep(s, e.active * e.factor) : e.active;
  }
  OT_KERNEL(ot_plain_record)(s, (ot_plain_op){activation_back, y, {gate, up}, NULL}, NULL, 0);
  return y;
}

ot_plain_value *OT_KERNEL(ot_plain_feed)(ot_plain_state *s, ot_plain_value *u,
                                         const ot_plain_mlp *m) {
  ot_plain_value *const up = OT_KERNEL(ot_plain_linear)(s, u, m->up);
  ot_plain_value *const gate = m->gate.name ? OT_KERNEL(ot_plain_linear)(s, u, m->gate) : NULL;
  return OT_KERNEL(ot_plain_linear)(s, gate ? activation(s, gate, up) : activation(s, up, NULL),
                                    m->down);
}
