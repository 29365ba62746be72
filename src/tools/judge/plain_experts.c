// SPDX-License-Identifier: Apache-2.0
// A mixture of experts, one expert after another: its tokens are gathered, its MLP applied, the
// result times the gate added to each token. Backward each expert is computed again. The shared
// experts are an ordinary MLP, multiplied by the sigmoid of a gate of the token where the model has
// one.
#include "judge/plain_parts.h"

// The tokens of an expert and its outputs for them.
typedef struct expert_rows {
  ot_plain_value *x, *y;
  int64_t *slot;  // [x->rows] in [R, k]
} expert_rows;

static expert_rows run_expert(ot_plain_state *s, const ot_plain_value *u, int64_t expert) {
  const ot_moe *const moe = &s->model->moe;
  const int64_t k = moe->experts_per_token, C = s->C, F = moe->expert_size;
  expert_rows e = {.slot = OT_KERNEL(ot_plain_take)(s, s->R * (int64_t)sizeof *e.slot)};
  int64_t n = 0;
  for (int64_t i = 0; i < s->R * k; i++) {
    if (s->router.choices[i] == expert) e.slot[n++] = i;
  }
  e.x = OT_KERNEL(ot_plain_make)(s, n, C);
  for (int64_t i = 0; i < n; i++) {
    memcpy(e.x->x + i * C, u->x + e.slot[i] / k * C, (size_t)C * sizeof(ot_real));
  }
  const ot_plain_mlp mlp = {.gate = {"experts.gate_up", expert * 2 * F, F, false},
                            .up = {"experts.gate_up", (expert * 2 + 1) * F, F, false},
                            .down = {"experts.down", expert * C, C, false}};
  e.y = OT_KERNEL(ot_plain_feed)(s, e.x, &mlp);
  return e;
}

// to [n] += factor * from
static void add_times(const ot_plain_state *s, ot_real *to, ot_real factor, const ot_real *from) {
  for (int64_t c = 0; c < s->C; c++) {
    to[c] = ot_plain_keep(s, to[c] + ot_plain_keep(s, factor * from[c]));
  }
}

static ot_real dot(const ot_real *a, const ot_real *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
  return (ot_real)sum;
}

// in: tokens, gates.
static void experts_back(ot_plain_state *s, const ot_plain_op *op) {
  const int64_t k = s->model->moe.experts_per_token, C = s->C;
  ot_plain_value *const u = op->in[0], *const gates = op->in[1];
  for (int64_t expert = 0; expert < s->model->moe.num_experts; expert++) {
    const ot_plain_mark mark = s->at;
    const expert_rows e = run_expert(s, u, expert);
    for (int64_t i = 0; i < e.x->rows; i++) {
      const ot_real *const d = op->out->d + e.slot[i] / k * C;
      gates->d[e.slot[i]] = ot_plain_keep(s, dot(d, e.y->x + i * C, C));
      add_times(s, e.y->d + i * C, gates->x[e.slot[i]], d);
    }
    OT_KERNEL(ot_plain_run_back)(s, mark);
    for (int64_t i = 0; i < e.x->rows; i++)
      add_times(s, u->d + e.slot[i] / k * C, 1, e.x->d + i * C);
    OT_KERNEL(ot_plain_release)(s, mark);
  }
}

static ot_plain_value *routed(ot_plain_state *s, ot_plain_value *u, ot_plain_value *gates) {
  const int64_t k = s->model->moe.experts_per_token, C = s->C;
  ot_plain_value *const y = OT_KERNEL(ot_plain_make)(s, s->R, C);
  memset(y->x, 0, (size_t)(s->R * C) * sizeof *y->x);
  for (int64_t expert = 0; expert < s->model->moe.num_experts; expert++) {
    const ot_plain_mark mark = s->at;
    const expert_rows e = run_expert(s, u, expert);
    for (int64_t i = 0; i < e.x->rows; i++) {
      add_times(s, y->x + e.slot[i] / k * C, gates->x[e.slot[i]], e.y->x + i * C);
    }
    OT_KERNEL(ot_plain_release)(s, mark);
  }
  OT_KERNEL(ot_plain_record)(s, (ot_plain_op){experts_back, y, {u, gates}, NULL}, NULL, 0);
  return y;
}

// ---- shared experts ----

static ot_real open_gate(const ot_plain_state *s, ot_real logit) {
  return ot_plain_keep(s, 1 / (1 + exp(-logit)));
}

// in: outputs [R, C], logits [R, 1].
static void gate_back(ot_plain_state *s, const ot_plain_op *op) {
  const int64_t C = s->C;
  for (int64_t r = 0; r < s->R; r++) {
    const ot_real open = open_gate(s, op->in[1]->x[r]), *const d = op->out->d + r * C;
    op->in[1]->d[r] = ot_plain_keep(s, open * (1 - open) * dot(d, op->in[0]->x + r * C, C));
    add_times(s, op->in[0]->d + r * C, open, d);
  }
}

static ot_plain_value *gate(ot_plain_state *s, ot_plain_value *x, ot_plain_value *logits) {
  ot_plain_value *const y = OT_KERNEL(ot_plain_make)(s, s->R, s->C);
  for (int64_t i = 0; i < s->R * s->C; i++) {
    y->x[i] = ot_plain_keep(s, open_gate(s, logits->x[i / s->C]) * x->x[i]);
  }
  OT_KERNEL(ot_plain_record)(s, (ot_plain_op){gate_back, y, {x, logits}, NULL}, NULL, 0);
  return y;
}

ot_plain_value *OT_KERNEL(ot_plain_experts)(ot_plain_state *s, ot_plain_value *u) {
  const int64_t F = s->model->moe.shared_size;
  const ot_plain_mlp mlp = {.gate = {"shared.gate_up", 0, F, false},
                            .up = {"shared.gate_up", F, F, false},
                            .down = {.name = "shared.down"}};
  ot_plain_value *const y = routed(s, u, OT_KERNEL(ot_plain_route)(s, u));
  if (F == 0) return y;
  ot_plain_value *shared = OT_KERNEL(ot_plain_feed)(s, u, &mlp);
  if (s->model->moe.shared_gate) {
    shared =
        gate(s, shared, OT_KERNEL(ot_plain_linear)(s, u, (ot_plain_slice){.name = "shared.gate"}));
  }
  return OT_KERNEL(ot_plain_add)(s, y, shared);
}
