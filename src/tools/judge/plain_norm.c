// SPDX-License-Identifier: Apache-2.0
// RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016). With
// h = (x - mean) / sqrt(mean((x - mean)^2) + epsilon), where RMSNorm has no mean:
//   y = h (w + offset) + b
//   dx = (g - mean(g) - h mean(g h)) / sqrt(...) with g = dy (w + offset), RMSNorm without mean(g)
//   dw += the sum of dy h, db += the sum of dy
// In bf16 h is rounded as well as y, as in transformers' LlamaRMSNorm.
#include "judge/plain_parts.h"

ot_plain_norm OT_KERNEL(ot_plain_norm_of)(const ot_plain_state *s, const char *name) {
  return (ot_plain_norm){.weight = OT_KERNEL(ot_plain_find)(s, name, "weight"),
                         .bias = OT_KERNEL(ot_plain_find)(s, name, "bias"),
                         .epsilon = s->model->norm_epsilon,
                         .offset = s->model->norm_offset,
                         .centred = s->model->norm == OT_NORM_LAYERNORM};
}

typedef struct moments {
  double mean, inverse;  // 1 / sqrt(variance + epsilon)
} moments;

static moments moments_of(const ot_plain_norm *n, const ot_real *x) {
  const int64_t width = n->weight.rows;
  double sum = 0, squares = 0;
  for (int64_t i = 0; n->centred && i < width; i++) sum += x[i];
  const double mean = sum / (double)width;
  for (int64_t i = 0; i < width; i++) squares += (x[i] - mean) * (x[i] - mean);
  return (moments){mean, 1 / sqrt(squares / (double)width + n->epsilon)};
}

static ot_real normalised(moments m, ot_real x) { return (ot_real)((x - m.mean) * m.inverse); }

static ot_real stored(const ot_plain_state *s, const ot_plain_norm *n, ot_real h) {
  return n->centred ? h : ot_plain_keep(s, h);
}

static ot_real gain(const ot_plain_norm *n, int64_t i) {
  return n->weight.value[i] + (ot_real)n->offset;
}

// The run from element `at` on: adds the gradient of x; terms [width] receives that of the weight.
static void run_back(const ot_plain_state *s, const ot_plain_op *op, int64_t at, ot_real *terms) {
  const ot_plain_norm *const n = op->settings;
  const int64_t width = n->weight.rows;
  const ot_real *const x = op->in[0]->x + at, *const dy = op->out->d + at;
  ot_real *const dx = op->in[0]->d + at;
  const moments m = moments_of(n, x);
  double sum = 0, product = 0;
  for (int64_t i = 0; i < width; i++) {
    const ot_real g = ot_plain_keep(s, dy[i] * gain(n, i)), h = normalised(m, x[i]);
    sum += n->centred ? g : 0;
    product += (double)g * h;
    terms[i] = dy[i] * stored(s, n, h);
  }
  sum /= (double)width;
  product /= (double)width;
  for (int64_t i = 0; i < width; i++) {
    const ot_real g = ot_plain_keep(s, dy[i] * gain(n, i)), h = normalised(m, x[i]);
    const ot_real d = ot_plain_keep(s, (ot_real)((g - sum - h * product) * m.inverse));
    dx[i] = ot_plain_keep(s, dx[i] + d);
  }
}

static void norm_back(ot_plain_state *s, const ot_plain_op *op) {
  const ot_plain_norm *const n = op->settings;
  const int64_t width = n->weight.rows, size = op->out->rows * op->out->width;
  ot_real *const terms = OT_KERNEL(ot_plain_reals)(s, size);
#pragma omp parallel for num_threads(s->threads)
  for (int64_t at = 0; at < size; at += width) run_back(s, op, at, terms + at);
  OT_KERNEL(ot_plain_add_rows)(s, terms, size / width, n->weight);
  if (n->bias.value) OT_KERNEL(ot_plain_add_rows)(s, op->out->d, size / width, n->bias);
}

ot_plain_value *OT_KERNEL(ot_plain_norm)(ot_plain_state *s, ot_plain_value *x,
                                         const ot_plain_norm *n) {
  if (!n->weight.value) return x;
  ot_plain_value *const y = OT_KERNEL(ot_plain_make)(s, x->rows, x->width);
  const int64_t width = n->weight.rows;
#pragma omp parallel for num_threads(s->threads)
  for (int64_t at = 0; at < x->rows * x->width; at += width) {
    const moments m = moments_of(n, x->x + at);
    for (int64_t i = 0; i < width; i++) {
      const ot_real h = stored(s, n, normalised(m, x->x[at + i]));
      y->x[at + i] = ot_plain_keep(s, h * gain(n, i) + (n->bias.value ? n->bias.value[i] : 0));
    }
  }
  OT_KERNEL(ot_plain_record)(s, (ot_plain_op){norm_back, y, {x}, NULL}, n, sizeof *n);
  return y;
}
