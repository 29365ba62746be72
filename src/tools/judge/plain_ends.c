// SPDX-License-Identifier: Apache-2.0
// The ends of the model. Embedding: y = scale table[id] + places[position]. Head: logits = norm(x)
// w^T, or c tanh(that / c) under a soft cap; loss = the sum over rows of weight times (log(sum of
// exp(logits)) - logits[target]).
#include "judge/plain_parts.h"

static ot_real embedding_scale(const ot_plain_state *s) {
  return ot_plain_keep(s, (ot_real)s->model->embedding_scale);
}

void OT_KERNEL(ot_plain_embed)(const ot_plain_state *s, ot_real *y) {
  const ot_real *const table = OT_KERNEL(ot_plain_find)(s, "tokens", "weight").value;
  const ot_real *const places = OT_KERNEL(ot_plain_find)(s, "positions", "weight").value;
  const ot_real scale = embedding_scale(s);
  for (int64_t i = 0; i < s->R * s->C; i++) {
    const int64_t r = i / s->C, c = i % s->C;
    y[i] = ot_plain_keep(s, scale * table[s->batch->ids[r] * s->C + c]);
    if (places) y[i] = ot_plain_keep(s, y[i] + places[s->batch->positions[r] * s->C + c]);
  }
}

void OT_KERNEL(ot_plain_embed_back)(const ot_plain_state *s, const ot_real *dy) {
  ot_real *const table = OT_KERNEL(ot_plain_find)(s, "tokens", "weight").gradient;
  ot_real *const places = OT_KERNEL(ot_plain_find)(s, "positions", "weight").gradient;
  const ot_real scale = embedding_scale(s);
  for (int64_t i = 0; i < s->R * s->C; i++) {
    const int64_t r = s->reversed ? s->R - 1 - i / s->C : i / s->C, c = i % s->C;
    const ot_real d = dy[r * s->C + c];
    if (table) table[s->batch->ids[r] * s->C + c] += scale * d;
    if (places) places[s->batch->positions[r] * s->C + c] += d;
  }
}

// ---- head ----

static void cap_logits(const ot_plain_state *s, ot_real *logits) {
  const ot_real cap = (ot_real)s->model->logit_soft_cap;
  for (int64_t v = 0; cap > 0 && v < s->model->vocab_size; v++)
    logits[v] = cap * tanh(logits[v] / cap);
}

// The loss of row `row` by its logits [V]; d [V], if wanted, receives their gradient.
static double row_loss(const ot_plain_state *s, int64_t row, ot_real *logits, ot_real *d) {
  const int64_t V = s->model->vocab_size;
  const int32_t target = s->batch->targets[row];
  const double weight = target < 0 ? 0 : s->batch->weights[row];
  const ot_real cap = (ot_real)s->model->logit_soft_cap;
  if (weight == 0) return 0;
  cap_logits(s, logits);
  ot_real largest = logits[0];
  double sum = 0;
  for (int64_t v = 1; v < V; v++) largest = logits[v] > largest ? logits[v] : largest;
  for (int64_t v = 0; v < V; v++) sum += exp(logits[v] - largest);
  for (int64_t v = 0; d && v < V; v++) {
    const ot_real bent = cap > 0 ? logits[v] / cap : 0;
    const double p = exp(logits[v] - largest) / sum - (v == target);
    d[v] = ot_plain_keep(s, (ot_real)(weight * p) * (1 - bent * bent));
  }
  return weight * (log(sum) + largest - logits[target]);
}

// The loss of the rows of x from `first` on, and its gradient.
static double rows_loss(ot_plain_state *s, int64_t first, ot_plain_value x) {
  const int64_t V = s->model->vocab_size;
  const ot_plain_mark mark = s->at;
  const ot_plain_value *const logits =
      OT_KERNEL(ot_plain_linear)(s, &x, (ot_plain_slice){.name = "output"});
  double loss[OT_PLAIN_HEAD_ROWS], sum = 0;
#pragma omp parallel for num_threads(s->threads)
  for (int64_t i = 0; i < x.rows; i++) {
    loss[i] = row_loss(s, first + i, logits->x + i * V, logits->d ? logits->d + i * V : NULL);
  }
  for (int64_t i = 0; i < x.rows; i++) sum += loss[i];
  OT_KERNEL(ot_plain_run_back)(s, mark);
  OT_KERNEL(ot_plain_release)(s, mark);
  return sum;
}

// The input of the output matrix.
static const ot_plain_value *last_norm(ot_plain_state *s, const void *x, void *dx) {
  const ot_plain_stream stream = OT_KERNEL(ot_plain_enter)(s, x, dx);
  const ot_plain_norm norm = OT_KERNEL(ot_plain_norm_of)(s, "final_norm");
  return OT_KERNEL(ot_plain_norm)(s, OT_KERNEL(ot_plain_mix)(s, &stream, "final_residual"), &norm);
}

// As many rows from `first` on as have logits at once.
static ot_plain_value some_rows(const ot_plain_state *s, const ot_plain_value *y, int64_t first) {
  const int64_t left = s->R - first;
  return (ot_plain_value){.x = y->x + first * s->C,
                          .d = s->gradient ? y->d + first * s->C : NULL,
                          .rows = left < OT_PLAIN_HEAD_ROWS ? left : OT_PLAIN_HEAD_ROWS,
                          .width = s->C};
}

double OT_KERNEL(ot_plain_loss)(ot_plain_state *s, const void *x, void *dx) {
  s->gradient = dx && s->losses & OT_PLAIN_MAIN;
  const ot_plain_value *const y = last_norm(s, x, dx);
  double loss = 0;
  for (int64_t first = 0; first < s->R; first += OT_PLAIN_HEAD_ROWS)
    loss += rows_loss(s, first, some_rows(s, y, first));
  OT_KERNEL(ot_plain_run_back)(s, (ot_plain_mark){0});
  return loss;
}

void OT_KERNEL(ot_plain_show)(ot_plain_state *s, const void *x, ot_plain_row *receive,
                              void *context) {
  const int64_t V = s->model->vocab_size;
  const ot_plain_value *const y = last_norm(s, x, NULL);
  double *const row = OT_KERNEL(ot_plain_take)(s, V * (int64_t)sizeof *row);
  for (int64_t first = 0; first < s->R; first += OT_PLAIN_HEAD_ROWS) {
    const ot_plain_mark mark = s->at;
    ot_plain_value some = some_rows(s, y, first);
    const ot_plain_value *const logits =
        OT_KERNEL(ot_plain_linear)(s, &some, (ot_plain_slice){.name = "output"});
    for (int64_t i = 0; i < some.rows; i++) {
      cap_logits(s, logits->x + i * V);
      for (int64_t v = 0; v < V; v++) row[v] = (double)logits->x[i * V + v];
      receive(context, first + i, row);
    }
    OT_KERNEL(ot_plain_release)(s, mark);
  }
}
