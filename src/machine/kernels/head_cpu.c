// SPDX-License-Identifier: Apache-2.0
// The head, chunk by chunk. A GEMM computes the logits. In one pass over tokens a thread computes
// the maximum, the exponentials and their sum and writes dlogits in place, while the row stays in
// the core's cache. Two GEMMs compute dx and dw. Tokens are independent of each other.
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/head_rows.h"
#include "kernels/largest.h"
#include "kernels/matrix.h"
#include "kernels/view.h"
#include "ops/head.h"
#include "ops/head_draw.h"
#include "workspace/cpu_workspace.h"

typedef struct head {
  const ot_kernel_call *call;
  ot_head_layout layout;
  int64_t R, C, V;
  const int32_t *targets;  // [R]
  ot_real *logits;         // [chunk, stride]
  double *nats;            // [chunk]
  double *data_nats;       // [chunk], of the targets; null without weighted ones
} head;

// Tokens [first, first + n) of the micro-batch, whose logits exist.
typedef struct chunk {
  int64_t first, n;
  ot_view x;  // [n, C]
} chunk;

static head head_of(const ot_kernel_call *call, ot_op_kind kind) {
  ot_op_types types = {0};
  for (int i = 0; i < 2; i++) types.in[i] = call->in[i].type;
  const bool weighted = kind == OT_OP_HEAD_LOSS && call->in[5].data != NULL;
  if (weighted) types.in[5] = call->in[5].type;
  // An absent output has no memory, although its type is set.
  for (int i = 0; i < 2; i++) {
    if (call->out[i].data) types.out[i] = call->out[i].type;
  }
  head h = {.call = call,
            .layout = ot_head_layout_of(kind, call->attributes, &types),
            .R = types.in[0].dim[0],
            .C = types.in[0].dim[1],
            .V = types.in[1].dim[0],
            .targets = call->in[2].data};
  h.logits = ot_scratch_at(call, h.layout.logits);
  h.nats = (double *)ot_scratch_at(call, h.layout.nats);
  if (weighted) h.data_nats = h.nats + h.layout.chunk;
  return h;
}

// ---- GEMMs ----

static ot_view weight_block(const head *h, int64_t first, int64_t *n) {
  *n = h->V - first < h->layout.block ? h->V - first : h->layout.block;
  return ot_view_read(&h->call->in[1], (ot_matrix_part){first, *n, 0, h->C},
                      ot_scratch_at(h->call, h->layout.w), h->call->attributes->threads);
}

// Writes logits [n, V] of tokens from `first` on to `logits` with the layout's stride.
static chunk project(const head *h, int64_t first, ot_real *logits) {
  const int threads = h->call->attributes->threads;
  const int64_t n = h->R - first < h->layout.chunk ? h->R - first : h->layout.chunk;
  const ot_view x = ot_view_read(&h->call->in[0], (ot_matrix_part){first, n, 0, h->C},
                                 ot_scratch_at(h->call, h->layout.x), threads);
  for (int64_t v = 0; v < h->V; v += h->layout.block) {
    int64_t columns;
    const ot_view w = weight_block(h, v, &columns);
    const ot_gemm product = {.rows = n,
                             .columns = columns,
                             .depth = h->C,
                             .a = {x.data, x.stride, false},
                             .b = {w.data, w.stride, true},
                             .c = logits + v,
                             .c_stride = h->layout.stride,
                             .alpha = 1,
                             .beta = 0,
                             .independent_rows = h->call->attributes->independent_rows};
    OT_KERNEL(ot_matrix_multiply)(&product, threads);
  }
  const ot_real cap = (ot_real)h->call->attributes->soft_cap;
#pragma omp parallel for num_threads(threads) if (cap > 0)
  for (int64_t r = 0; r < n; r++) ot_soft_cap(logits + r * h->layout.stride, h->V, cap);
  return (chunk){.first = first, .n = n, .x = x};
}

static void input_gradient(const head *h, const chunk *rows) {
  const ot_tensor *const dx = &h->call->out[0];
  const int threads = h->call->attributes->threads;
  const ot_matrix_part part = {rows->first, rows->n, 0, h->C};
  const ot_view dxs = ot_view_of(dx, part, ot_scratch_at(h->call, h->layout.dx));
  for (int64_t v = 0; v < h->V; v += h->layout.block) {
    int64_t depth;
    const ot_view w = weight_block(h, v, &depth);
    const ot_gemm product = {.rows = rows->n,
                             .columns = h->C,
                             .depth = depth,
                             .a = {h->logits + v, h->layout.stride, false},
                             .b = {w.data, w.stride, false},
                             .c = dxs.data,
                             .c_stride = dxs.stride,
                             .alpha = 1,
                             .beta = v > 0 ? 1 : 0};
    OT_KERNEL(ot_matrix_multiply)(&product, threads);
  }
  ot_view_write(dx, part, dxs, threads);
}

// Rows `part` of dw.
static void weight_gradient_part(const head *h, const chunk *rows, ot_matrix_part part) {
  const ot_tensor *const dw = &h->call->out[1];
  const int threads = h->call->attributes->threads;
  const bool adds = rows->first > 0 || h->call->attributes->accumulate;
  ot_real *const scratch = ot_scratch_at(h->call, h->layout.w);
  const ot_view dws =
      adds ? ot_view_read(dw, part, scratch, threads) : ot_view_of(dw, part, scratch);
  const ot_gemm product = {.rows = part.rows,
                           .columns = h->C,
                           .depth = rows->n,
                           .a = {h->logits + part.row, h->layout.stride, true},
                           .b = {rows->x.data, rows->x.stride, false},
                           .c = dws.data,
                           .c_stride = dws.stride,
                           .alpha = 1,
                           .beta = adds ? 1 : 0};
  OT_KERNEL(ot_matrix_multiply)(&product, threads);
  ot_view_write(dw, part, dws, threads);
}

static void weight_gradient(const head *h, const chunk *rows) {
  const bool widens = h->call->out[1].type.dtype != OT_REAL_DTYPE;
  const int64_t block = widens ? h->layout.block : h->V;
  for (int64_t v = 0; v < h->V; v += block) {
    weight_gradient_part(h, rows,
                         (ot_matrix_part){v, h->V - v < block ? h->V - v : block, 0, h->C});
  }
}

// ---- rows of logits ----

static double row_sum_of_exponentials(const ot_real *restrict row, int64_t n, ot_real largest) {
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += OT_TILE) {
    const int64_t end = n - begin < OT_TILE ? n : begin + OT_TILE;
    ot_real tile = 0;
#pragma omp simd reduction(+ : tile)
    for (int64_t i = begin; i < end; i++) tile += OT_KERNEL(ot_exp)(row[i] - largest);
    sum += (double)tile;
  }
  return sum;
}

// Replaces row `r` of the chunk's logits by its gradient, and writes its losses in nats.
static void row_loss(const head *h, const chunk *rows, int64_t r) {
  const int64_t n = h->V, index = rows->first + r;
  ot_real *const restrict row = h->logits + r * h->layout.stride;
  const ot_tensor *const in = h->call->in;
  const double inverse_tokens = *(const double *)in[3].data;
  const ot_real cap = (ot_real)h->call->attributes->soft_cap;
  const int32_t target = h->targets[index];
  h->nats[r] = 0;
  if (h->data_nats) h->data_nats[r] = 0;
  if (target < 0) {
    memset(row, 0, (size_t)n * sizeof *row);
    return;
  }
  const ot_head_targets to = ot_head_targets_of(&in[4], &in[5], &in[2], index);
  const ot_real logit = row[target];
  ot_real logits[OT_HEAD_IDS_MAX];
  double weight = 0, pulled = 0;
  for (int64_t k = 0; k < to.num; k++) {
    logits[k] = row[to.ids[k]];
    weight += ot_head_weight(&to, k);
    pulled += ot_head_weight(&to, k) * (double)logits[k];
  }
  const ot_real largest = ot_row_largest(row, n);
  const double sum = ot_row_exponentials(row, n, largest, cap);
  const ot_real factor = (ot_real)(inverse_tokens * weight / sum);
  for (int64_t i = 0; i < n; i++) row[i] *= factor;
  for (int64_t k = 0; k < to.num; k++) {
    const ot_real pull = (ot_real)(inverse_tokens * ot_head_weight(&to, k));
    row[to.ids[k]] -= pull * ot_soft_cap_slope(logits[k], cap);
  }
  h->nats[r] = ot_weighted_nats_of(weight, pulled, (double)largest, sum);
  if (h->data_nats) h->data_nats[r] = ot_nats_of((double)logit, (double)largest, sum);
}

// Adds the losses `nats` of the chunk to `total` in token order.
static double add_nats(const double *nats, int64_t n, double total) {
  for (int64_t r = 0; r < n; r++) total += nats[r];
  return total;
}

// ---- the operators ----

static void head_loss(const ot_kernel_call *call) {
  const head h = head_of(call, OT_OP_HEAD_LOSS);
  const double inverse_tokens = *(const double *)call->in[3].data;
  const int threads = call->attributes->threads;
  double total = 0, data_total = 0;
  for (int64_t first = 0; first < h.R; first += h.layout.chunk) {
    const chunk rows = project(&h, first, h.logits);
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < rows.n; r++) row_loss(&h, &rows, r);
    total = add_nats(h.nats, rows.n, total);
    if (h.data_nats) data_total = add_nats(h.data_nats, rows.n, data_total);
    input_gradient(&h, &rows);
    if (call->out[1].data) weight_gradient(&h, &rows);
  }
  *(double *)call->out[2].data += total * inverse_tokens;
  if (call->out[3].data) *(double *)call->out[3].data += data_total;
}

static void head_evaluate(const ot_kernel_call *call) {
  const head h = head_of(call, OT_OP_HEAD_EVALUATE);
  double total = 0;
  int64_t count = 0;
  for (int64_t first = 0; first < h.R; first += h.layout.chunk) {
    const chunk rows = project(&h, first, h.logits);
#pragma omp parallel for num_threads(call->attributes->threads)
    for (int64_t r = 0; r < rows.n; r++) {
      const ot_real *const row = h.logits + r * h.layout.stride;
      const int32_t target = h.targets[first + r];
      const ot_real largest = ot_row_largest(row, h.V);
      h.nats[r] = 0;
      if (target < 0) continue;
      h.nats[r] = ot_nats_of(row[target], largest, row_sum_of_exponentials(row, h.V, largest));
    }
    total = add_nats(h.nats, rows.n, total);
    for (int64_t r = 0; r < rows.n; r++) count += h.targets[first + r] >= 0;
  }
  *(double *)call->out[0].data += total;
  *(double *)call->out[1].data += (double)count;
}

// The lowest index of `largest`, or -1.
static int32_t row_find(const ot_real *row, int64_t n, ot_real largest) {
  for (int64_t i = 0; i < n; i++) {
    if (row[i] == largest) return (int32_t)i;
  }
  return -1;
}

ot_row_score OT_KERNEL(ot_head_score_row)(const ot_real *row, int64_t V, int32_t target) {
  const ot_real largest = ot_row_largest(row, V);
  const double sum = row_sum_of_exponentials(row, V, largest);
  return (ot_row_score){.logprob = target < 0 ? 0 : -ot_nats_of(row[target], largest, sum),
                        .best = -ot_nats_of(largest, largest, sum),
                        .greedy = row_find(row, V, largest)};
}

// Writes the partial results of one shard of the vocabulary for a row to the outputs.
static void put_shard(const ot_kernel_call *call, int64_t row, const ot_real *logits, int64_t V) {
  const int64_t first = call->attributes->first_vocab;
  const int64_t target = ((const int32_t *)call->in[2].data)[row] - first;
  const ot_real largest = ot_row_largest(logits, V);
  const int32_t greedy = row_find(logits, V, largest);
  const bool mine = target >= 0 && target < V;
  ((double *)call->out[0].data)[row] = mine ? (double)logits[target] : -INFINITY;
  ((int32_t *)call->out[1].data)[row] = greedy < 0 ? -1 : greedy + (int32_t)first;
  ((double *)call->out[2].data)[row] = largest;
  ((double *)call->out[3].data)[row] = row_sum_of_exponentials(logits, V, largest);
}

static void put_score(const ot_kernel_call *call, int64_t row, ot_row_score score) {
  ((double *)call->out[0].data)[row] = score.logprob;
  ((int32_t *)call->out[1].data)[row] = score.greedy;
  if (call->out[2].data) ((double *)call->out[2].data)[row] = score.best;
}

// No row of the chunk has a target.
static bool is_masked(const head *h, int64_t first, int64_t n) {
  for (int64_t r = 0; r < n; r++) {
    if (h->targets[first + r] >= 0) return false;
  }
  return true;
}

static void head_score(const ot_kernel_call *call) {
  const head h = head_of(call, OT_OP_HEAD_SCORE);
  for (int64_t first = 0; first < h.R; first += h.layout.chunk) {
    const int64_t left = h.R - first, n = left < h.layout.chunk ? left : h.layout.chunk;
    if (is_masked(&h, first, n)) {
      for (int64_t r = 0; r < n; r++) put_score(call, first + r, (ot_row_score){.greedy = -1});
      continue;
    }
    project(&h, first, h.logits);
#pragma omp parallel for num_threads(call->attributes->threads)
    for (int64_t r = 0; r < n; r++) {
      const ot_real *const row = h.logits + r * h.layout.stride;
      if (call->out[3].data) {
        put_shard(call, first + r, row, h.V);
      } else {
        put_score(call, first + r, OT_KERNEL(ot_head_score_row)(row, h.V, h.targets[first + r]));
      }
    }
  }
}

// ---- draws ----

// A row of logits whose exponentials, relative to the largest, replaced it.
typedef struct row_law {
  const ot_real *weight;  // [V]
  int64_t V;
  double sum, entropy;
} row_law;

static row_law row_probabilities(ot_real *restrict row, int64_t n, ot_real largest) {
  double sum = 0, below = 0;
  for (int64_t begin = 0; begin < n; begin += OT_TILE) {
    const int64_t end = n - begin < OT_TILE ? n : begin + OT_TILE;
    ot_real tile = 0, tile_below = 0;
#pragma omp simd reduction(+ : tile, tile_below)
    for (int64_t i = begin; i < end; i++) {
      const ot_real difference = row[i] - largest;
      row[i] = OT_KERNEL(ot_exp)(difference);
      tile += row[i];
      tile_below += row[i] * difference;
    }
    sum += (double)tile;
    below += (double)tile_below;
  }
  return (row_law){row, n, sum, ot_log_f64(sum) - below / sum};
}

// Places of draws ascend, so one pass over the cumulative sum finds all.
static int64_t draw_ids(const row_law *law, int64_t draws, uint64_t key, ot_drawn *drawn) {
  int64_t num = 0, id = -1, last = 0;
  double reached = 0;
  for (int64_t j = 0; j < draws; j++) {
    const double place = ot_draw_place(key, j, draws) * law->sum;
    while (reached <= place && id + 1 < law->V) {
      reached += (double)law->weight[++id];
      if (law->weight[id] > 0) last = id;
    }
    if (num == 0 || drawn[num - 1].id != last) drawn[num++] = (ot_drawn){(int32_t)last, 0};
    drawn[num - 1].count++;
  }
  return num;
}

static void put_draws(const ot_kernel_call *call, int64_t row, const row_law *law) {
  const int64_t N = call->attributes->draws, K = call->attributes->draw_ids;
  const uint64_t key = (uint64_t)((const int64_t *)call->in[3].data)[row];
  ot_drawn drawn[OT_DRAWS_MAX];
  const int64_t num = ot_draws_limit(drawn, draw_ids(law, N, key, drawn), K, key);
  for (int64_t k = 0; k < num; k++) {
    ((int32_t *)call->out[0].data)[row * K + k] = drawn[k].id;
    ((float *)call->out[1].data)[row * K + k] = (float)drawn[k].count / (float)N;
  }
}

// The K most probable ids, the first on ties.
static void put_most_probable(const ot_kernel_call *call, int64_t row, const row_law *law) {
  const int64_t K = call->attributes->draw_ids;
  int32_t *const ids = (int32_t *)call->out[0].data + row * K;
  float *const weights = (float *)call->out[1].data + row * K;
  int64_t found = 0;
  for (int64_t i = 0; i < law->V; i++) {
    if (found == K && !(law->weight[i] > law->weight[ids[K - 1]])) continue;
    int64_t at = found < K ? found++ : K - 1;
    for (; at > 0 && law->weight[ids[at - 1]] < law->weight[i]; at--) ids[at] = ids[at - 1];
    ids[at] = (int32_t)i;
  }
  for (int64_t k = 0; k < K; k++) weights[k] = (float)((double)law->weight[ids[k]] / law->sum);
}

static void draw_row(const head *h, const chunk *rows, int64_t r) {
  const ot_kernel_call *const call = h->call;
  const int64_t index = rows->first + r, K = call->attributes->draw_ids;
  const int32_t target = h->targets[index];
  double *const logprob = (double *)call->out[2].data + index;
  double *const entropy = (double *)call->out[3].data + index;
  memset((int32_t *)call->out[0].data + index * K, 0, (size_t)K * sizeof(int32_t));
  memset((float *)call->out[1].data + index * K, 0, (size_t)K * sizeof(float));
  *logprob = *entropy = 0;
  if (target < 0) return;
  ot_real *const row = h->logits + r * h->layout.stride;
  const double logit = (double)row[target];
  const ot_real largest = ot_row_largest(row, h->V);
  const row_law law = row_probabilities(row, h->V, largest);
  *logprob = -ot_nats_of(logit, (double)largest, law.sum);
  *entropy = law.entropy;
  if (call->attributes->draws > 0)
    put_draws(call, index, &law);
  else
    put_most_probable(call, index, &law);
}

static void head_draw(const ot_kernel_call *call) {
  const head h = head_of(call, OT_OP_HEAD_DRAW);
  for (int64_t first = 0; first < h.R; first += h.layout.chunk) {
    const chunk rows = project(&h, first, h.logits);
#pragma omp parallel for num_threads(call->attributes->threads)
    for (int64_t r = 0; r < rows.n; r++) draw_row(&h, &rows, r);
  }
}

static void head_logits(const ot_kernel_call *call) {
  const head h = head_of(call, OT_OP_HEAD_LOGITS);
  project(&h, 0, call->out[0].data);
}

const ot_kernel_entry OT_KERNEL(ot_head_cpu)[] = {
    {OT_OP_HEAD_LOSS, head_loss},   {OT_OP_HEAD_EVALUATE, head_evaluate},
    {OT_OP_HEAD_SCORE, head_score}, {OT_OP_HEAD_LOGITS, head_logits},
    {OT_OP_HEAD_DRAW, head_draw},   {0, NULL},
};
