// SPDX-License-Identifier: Apache-2.0
// Attention of queries over the keys that they see, head by head and for some queries at a time.
// For query i and visible key j, with s = scale q_i . k_j or, under a soft cap c, c tanh(that / c):
//   p_ij = exp(s_ij) / (sum over j of exp(s_ij) + exp(sink)), o_i = sum over j of p_ij v_j
//   ds_ij = p_ij (do_i . v_j - sum over j of p_ij do_i . v_j), times 1 - (s / c)^2 under a soft cap
//   dq_i = scale sum over j of ds_ij k_j, dk_j = scale sum over i of ds_ij q_i
//   dv_j = sum over i of p_ij do_i, dsink = sum over i of -p_i,sink (that sum over j)
// Documents and heads of keys are independent of each other: threads share them.
#include <omp.h>

#include "judge/plain_parts.h"

// An attention with its tensors as operands.
typedef struct attention {
  ot_plain_heads shape;
  ot_plain_weight sinks;  // [heads]
  int64_t window;         // 0: all keys
  const ot_real *q, *k, *v;
  ot_real *o;
  // Backward: gradients, and scratch of [rows, heads].
  ot_real *dq, *dk, *dv, *d_sinks;
  const ot_real *d_o;
  ot_real *scratch;  // [threads, 3, OT_PLAIN_QUERY_ROWS, longest]
} attention;

// Some queries of a head and all the keys that any of them may see.
typedef struct tile {
  int64_t head, row, rows;                 // queries
  int64_t key, keys;                       // first key, number of keys
  int64_t q, k, v, o;                      // first elements of the tile in the tensors
  int64_t q_step, k_step, v_step, o_step;  // elements between rows
  ot_real *p, *d, *slope;             // [rows, keys] probabilities; gradients; slope of the cap
  ot_real sink[OT_PLAIN_QUERY_ROWS];  // probability of the sink
} tile;

void OT_KERNEL(ot_plain_heads_create)(ot_plain_state *s, ot_arena *arena) {
  s->document = ot_arena_array(arena, s->R + 1, sizeof *s->document);
  for (int64_t r = 0; r < s->R; r++) {
    if (s->batch->first[r] == r) s->document[s->num_documents++] = r;
  }
  s->document[s->num_documents] = s->R;
  for (int i = 0; i < s->num_documents; i++) {
    const int64_t length = s->document[i + 1] - s->document[i];
    if (length > s->longest) s->longest = length;
  }
}

static int64_t first_key(const ot_plain_state *s, const attention *a, int64_t row) {
  const int64_t first = s->batch->first[row], near = row - a->window + 1;
  return a->window > 0 && near > first ? near : first;
}

static tile make_tile(const ot_plain_state *s, const attention *a, int64_t head, int64_t row,
                      int64_t end) {
  const ot_plain_heads *const h = &a->shape;
  const int64_t kv_head = head / (h->heads / h->kv_heads), size = OT_PLAIN_QUERY_ROWS * s->longest;
  tile t = {.head = head, .row = row, .key = first_key(s, a, row)};
  t.rows = end - row < OT_PLAIN_QUERY_ROWS ? end - row : OT_PLAIN_QUERY_ROWS;
  t.keys = row + t.rows - t.key;
  t.q_step = h->q->width;
  t.k_step = h->k->width;
  t.v_step = h->v->width;
  t.o_step = h->heads * h->value_dim;
  t.q = row * t.q_step + head * h->dim;
  t.k = t.key * t.k_step + kv_head * h->dim;
  t.v = t.key * t.v_step + kv_head * h->value_step + h->value_first;
  t.o = row * t.o_step + head * h->value_dim;
  t.p = a->scratch + omp_get_thread_num() * 3 * size;
  t.d = t.p + size;
  t.slope = t.d + size;
  return t;
}

// ---- probabilities ----

// Query `i` of the tile: scores to probabilities, zero where it sees nothing.
static void normalise(const ot_plain_state *s, const attention *a, tile *t, int64_t i) {
  const ot_real cap = (ot_real)s->model->score_soft_cap;
  const int64_t begin = first_key(s, a, t->row + i) - t->key, end = t->row + i + 1 - t->key;
  ot_real *const p = t->p + i * t->keys, *const slope = t->slope + i * t->keys;
  for (int64_t j = begin; cap > 0 && j < end; j++) {
    const ot_real bent = tanh(p[j] / cap);
    slope[j] = 1 - bent * bent;
    p[j] = cap * bent;
  }
  const ot_real *const sinks = a->sinks.value;
  ot_real largest = sinks ? sinks[t->head] : p[begin];
  for (int64_t j = begin; j < end; j++) largest = p[j] > largest ? p[j] : largest;
  const ot_real sink = sinks ? exp(sinks[t->head] - largest) : 0;
  double sum = sink;
  for (int64_t j = begin; j < end; j++) {
    p[j] = exp(p[j] - largest);
    sum += p[j];
  }
  for (int64_t j = begin; j < end; j++) p[j] = (ot_real)(p[j] / sum);
  for (int64_t j = 0; j < begin; j++) p[j] = 0;
  for (int64_t j = end; j < t->keys; j++) p[j] = 0;
  t->sink[i] = (ot_real)(sink / sum);
}

static void find_probabilities(const ot_plain_state *s, const attention *a, tile *t) {
  const ot_real scale = (ot_real)s->model->attention_scale;
  const ot_factor q = {a->q + t->q, t->q_step, false}, k = {a->k + t->k, t->k_step, true};
  OT_KERNEL(ot_plain_multiply)
  (s, (ot_plain_size){t->rows, t->keys, a->shape.dim}, q, k,
   (ot_plain_target){t->p, t->keys, scale, 0, true});
  for (int64_t i = 0; i < t->rows; i++) normalise(s, a, t, i);
}

// Rounds [rows, keys] as an operand.
static void round_tile(const ot_plain_state *s, const tile *t, ot_real *data) {
  if (!s->narrow && !s->cast) return;
  for (int64_t i = 0; i < t->rows * t->keys; i++) data[i] = ot_plain_bf16(s, data[i]);
}

// ---- tiles ----

static void tile_forward(const ot_plain_state *s, const attention *a, tile *t) {
  const ot_factor p = {t->p, t->keys, false}, v = {a->v + t->v, t->v_step, false};
  find_probabilities(s, a, t);
  round_tile(s, t, t->p);
  OT_KERNEL(ot_plain_multiply)
  (s, (ot_plain_size){t->rows, a->shape.value_dim, t->keys}, p, v,
   (ot_plain_target){a->o + t->o, t->o_step, 1, 0, true});
}

// d: gradients of probabilities to those of products of queries and keys.
static void score_gradients(const ot_plain_state *s, const attention *a, tile *t) {
  for (int64_t i = 0; i < t->rows; i++) {
    const ot_real *const p = t->p + i * t->keys, *const slope = t->slope + i * t->keys;
    ot_real *const d = t->d + i * t->keys;
    double mean = 0;
    for (int64_t j = 0; j < t->keys; j++) mean += (double)p[j] * d[j];
    for (int64_t j = 0; j < t->keys; j++) d[j] = p[j] * (d[j] - (ot_real)mean);
    for (int64_t j = 0; s->model->score_soft_cap > 0 && j < t->keys; j++) {
      d[j] = p[j] > 0 ? d[j] * slope[j] : 0;
    }
    a->d_sinks[(t->row + i) * a->shape.heads + t->head] = -t->sink[i] * (ot_real)mean;
  }
}

static void tile_backward(const ot_plain_state *s, const attention *a, tile *t) {
  const int64_t dim = a->shape.dim, value_dim = a->shape.value_dim;
  const ot_real scale = (ot_real)s->model->attention_scale;
  const ot_factor q = {a->q + t->q, t->q_step, false}, k = {a->k + t->k, t->k_step, false};
  const ot_factor v = {a->v + t->v, t->v_step, true}, d_o = {a->d_o + t->o, t->o_step, false};
  const ot_factor p_over = {t->p, t->keys, true}, d_over = {t->d, t->keys, true};
  find_probabilities(s, a, t);
  OT_KERNEL(ot_plain_multiply)
  (s, (ot_plain_size){t->rows, t->keys, value_dim}, d_o, v,
   (ot_plain_target){t->d, t->keys, 1, 0, true});
  score_gradients(s, a, t);
  round_tile(s, t, t->d);
  round_tile(s, t, t->p);
  OT_KERNEL(ot_plain_multiply)
  (s, (ot_plain_size){t->rows, dim, t->keys}, (ot_factor){t->d, t->keys, false}, k,
   (ot_plain_target){a->dq + t->q, t->q_step, scale, 0, true});
  OT_KERNEL(ot_plain_multiply)
  (s, (ot_plain_size){t->keys, dim, t->rows}, d_over, q,
   (ot_plain_target){a->dk + t->k, t->k_step, scale, 1, true});
  OT_KERNEL(ot_plain_multiply)
  (s, (ot_plain_size){t->keys, value_dim, t->rows}, p_over, d_o,
   (ot_plain_target){a->dv + t->v, t->v_step, 1, 1, true});
}

// ---- all heads ----

// The query heads of a key head in a document.
static void run_group(const ot_plain_state *s, const attention *a, int64_t begin, int64_t end,
                      int64_t kv_head) {
  const int64_t group = a->shape.heads / a->shape.kv_heads;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
    for (int64_t row = begin; row < end; row += OT_PLAIN_QUERY_ROWS) {
      tile t = make_tile(s, a, head, row, end);
      if (a->d_o) {
        tile_backward(s, a, &t);
      } else {
        tile_forward(s, a, &t);
      }
    }
  }
}

static void run(ot_plain_state *s, attention *a) {
  const int64_t kv_heads = a->shape.kv_heads;
  a->scratch =
      OT_KERNEL(ot_plain_reals)(s, (int64_t)s->threads * 3 * OT_PLAIN_QUERY_ROWS * s->longest);
  OT_KERNEL(ot_matrix_prepare)();
#pragma omp parallel for num_threads(s->threads) schedule(dynamic)
  for (int64_t i = 0; i < s->num_documents * kv_heads; i++) {
    const int64_t *const document = s->document + i / kv_heads;
    run_group(s, a, document[0], document[1], i % kv_heads);
  }
}

static ot_real *zeros(ot_plain_state *s, const ot_plain_value *v) {
  ot_real *const d = OT_KERNEL(ot_plain_reals)(s, v->rows * v->width);
  return memset(d, 0, (size_t)(v->rows * v->width) * sizeof *d);
}

static void return_gradient(const ot_plain_state *s, ot_plain_value *v, ot_real *d) {
  OT_KERNEL(ot_plain_round)(s, d, v->rows * v->width);
  OT_KERNEL(ot_plain_give)(s, v, d);
}

static void attend_back(ot_plain_state *s, const ot_plain_op *op) {
  attention a = *(const attention *)op->settings;
  const int64_t size = op->out->rows * op->out->width;
  a.d_o = OT_KERNEL(ot_plain_operand)(s, op->out->d, size);
  a.dq = zeros(s, a.shape.q);
  a.dk = zeros(s, a.shape.k);
  a.dv = zeros(s, a.shape.v);
  a.d_sinks = OT_KERNEL(ot_plain_reals)(s, s->R * a.shape.heads);
  run(s, &a);
  return_gradient(s, a.shape.q, a.dq);
  return_gradient(s, a.shape.k, a.dk);
  return_gradient(s, a.shape.v, a.dv);
  if (a.sinks.value) OT_KERNEL(ot_plain_add_rows)(s, a.d_sinks, s->R, a.sinks);
}

ot_plain_value *OT_KERNEL(ot_plain_attend)(ot_plain_state *s, const ot_plain_heads *h) {
  ot_plain_value *const o = OT_KERNEL(ot_plain_make)(s, s->R, h->heads * h->value_dim);
  attention a = {.shape = *h,
                 .sinks = OT_KERNEL(ot_plain_find)(s, "attention", "sinks"),
                 .window = s->model->window[s->layer],
                 .q = OT_KERNEL(ot_plain_operand)(s, h->q->x, s->R * h->q->width),
                 .k = OT_KERNEL(ot_plain_operand)(s, h->k->x, s->R * h->k->width),
                 .v = OT_KERNEL(ot_plain_operand)(s, h->v->x, s->R * h->v->width),
                 .o = o->x};
  OT_KERNEL(ot_plain_record)(s, (ot_plain_op){attend_back, o, {NULL}, NULL}, &a, sizeof a);
  const ot_plain_mark mark = s->at;
  run(s, &a);
  OT_KERNEL(ot_plain_release)(s, mark);
  OT_KERNEL(ot_plain_round)(s, o->x, s->R * o->width);
  return o;
}
