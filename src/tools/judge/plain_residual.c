// SPDX-License-Identifier: Apache-2.0
// The input of a sub-layer. Ordinarily it is the one residual sum. With Attention Residuals (Kimi
// Team 2026, arXiv 2603.15031) it is a mix of the embedding, the outputs of finished blocks of
// sub-layers and the partial sum of the current block, v_i:
//   r_i = 1 / sqrt(mean(v_i^2) + epsilon), a = softmax_i(query . v_i r_i), y = sum_i a_i v_i
//   t_i = dy . v_i, ds_i = a_i (t_i - sum_k a_k t_k), dquery += the sum of ds_i r_i v_i
//   dv_i += a_i dy + ds_i r_i (query - v_i (query . v_i) r_i^2 / C)
#include "describe/residuals.h"
#include "judge/plain_parts.h"

ot_plain_stream OT_KERNEL(ot_plain_enter)(ot_plain_state *s, const void *x, void *dx) {
  const int64_t layer = s->layer < 0 ? s->model->num_layers : s->layer, size = s->R * s->C;
  const ot_residual_position at = ot_residual_position_of(s->model, layer);
  const bool ordinary = at.finished == 0;
  ot_plain_stream stream = {.count = ordinary ? 1 : (int)at.finished + at.begun,
                            .sum = ordinary || at.begun};
  if (dx) memset(dx, 0, (size_t)(stream.count * size) * sizeof(ot_real));
  for (int i = 0; i < stream.count; i++) {
    stream.part[i] = OT_KERNEL(ot_plain_take)(s, sizeof(ot_plain_value));
    *stream.part[i] = (ot_plain_value){.x = (ot_real *)x + i * size,
                                       .d = dx ? (ot_real *)dx + i * size : NULL,
                                       .rows = s->R,
                                       .width = s->C};
  }
  return stream;
}

typedef struct mix_settings {
  ot_plain_stream stream;
  ot_plain_weight query;
} mix_settings;

// A token's mix.
typedef struct mix {
  double weight[OT_PLAIN_MOST_PARTS], inverse[OT_PLAIN_MOST_PARTS], product[OT_PLAIN_MOST_PARTS];
} mix;

static void mix_row(const ot_plain_state *s, const mix_settings *of, int64_t row, mix *m) {
  const int count = of->stream.count;
  const ot_real *const query = of->query.value;
  double largest = -INFINITY, sum = 0;
  for (int i = 0; i < count; i++) {
    const ot_real *const v = of->stream.part[i]->x + row * s->C;
    double squares = 0, product = 0;
    for (int64_t c = 0; c < s->C; c++) squares += (double)v[c] * v[c];
    for (int64_t c = 0; c < s->C; c++) product += (double)query[c] * v[c];
    m->inverse[i] = 1 / sqrt(squares / (double)s->C + s->model->norm_epsilon);
    m->product[i] = product;
    m->weight[i] = product * m->inverse[i];
    largest = m->weight[i] > largest ? m->weight[i] : largest;
  }
  for (int i = 0; i < count; i++) sum += m->weight[i] = exp(m->weight[i] - largest);
  for (int i = 0; i < count; i++) m->weight[i] /= sum;
}

// Terms [C] of the query's gradient, and the gradients of the parts.
static void mix_row_back(const ot_plain_state *s, const ot_plain_op *op, int64_t row,
                         ot_real *terms) {
  const mix_settings *const of = op->settings;
  const ot_real *const query = of->query.value, *const dy = op->out->d + row * s->C;
  double t[OT_PLAIN_MOST_PARTS], mean = 0;
  mix m;
  mix_row(s, of, row, &m);
  memset(terms, 0, (size_t)s->C * sizeof *terms);
  for (int i = 0; i < of->stream.count; i++) {
    const ot_real *const v = of->stream.part[i]->x + row * s->C;
    t[i] = 0;
    for (int64_t c = 0; c < s->C; c++) t[i] += (double)dy[c] * v[c];
    mean += m.weight[i] * t[i];
  }
  for (int i = 0; i < of->stream.count; i++) {
    const ot_real *const v = of->stream.part[i]->x + row * s->C;
    ot_real *const dv = of->stream.part[i]->d + row * s->C;
    const double d = m.weight[i] * (t[i] - mean) * m.inverse[i];
    const double along = m.product[i] * m.inverse[i] * m.inverse[i] / (double)s->C;
    for (int64_t c = 0; c < s->C; c++) {
      terms[c] += (ot_real)(d * v[c]);
      const double sum = m.weight[i] * dy[c] + d * (query[c] - v[c] * along);
      dv[c] = ot_plain_keep(s, dv[c] + (ot_real)sum);
    }
  }
}

static void mix_back(ot_plain_state *s, const ot_plain_op *op) {
  const mix_settings *const of = op->settings;
  ot_real *const terms = OT_KERNEL(ot_plain_reals)(s, s->R * s->C);
#pragma omp parallel for num_threads(s->threads)
  for (int64_t row = 0; row < s->R; row++) mix_row_back(s, op, row, terms + row * s->C);
  OT_KERNEL(ot_plain_add_rows)(s, terms, s->R, of->query);
}

ot_plain_value *OT_KERNEL(ot_plain_mix)(ot_plain_state *s, const ot_plain_stream *stream,
                                        const char *name) {
  const mix_settings of = {*stream, OT_KERNEL(ot_plain_find)(s, name, "weight")};
  if (!of.query.value) return stream->part[0];
  ot_plain_value *const y = OT_KERNEL(ot_plain_make)(s, s->R, s->C);
#pragma omp parallel for num_threads(s->threads)
  for (int64_t row = 0; row < s->R; row++) {
    mix m;
    mix_row(s, &of, row, &m);
    for (int64_t c = row * s->C; c < (row + 1) * s->C; c++) {
      double sum = 0;
      for (int i = 0; i < stream->count; i++) sum += m.weight[i] * stream->part[i]->x[c];
      y->x[c] = ot_plain_keep(s, (ot_real)sum);
    }
  }
  OT_KERNEL(ot_plain_record)(s, (ot_plain_op){mix_back, y, {NULL}, NULL}, &of, sizeof of);
  return y;
}
