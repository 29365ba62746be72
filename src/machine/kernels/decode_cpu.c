// SPDX-License-Identifier: Apache-2.0
// Paged KV cache: appending rows, and attention of new tokens. A unit is a key head and a few
// neighbouring tokens of a sequence, which share the reads of keys and values, tile by tile, with
// an online softmax (Milakov and Gimelshein 2018). Tiles begin at multiples of OT_DECODE_KEYS and
// all sums of a query run in the order of its keys, so its bits do not depend on its neighbours.
#include <math.h>
#include <omp.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"
#include "kernels/attention_score.h"
#include "kernels/cpu_tables.h"
#include "kernels/dot_tile.h"
#include "kernels/vector_math.h"
#include "ops/decode.h"
#include "workspace/cpu_workspace.h"

static_assert(OT_DECODE_KEYS % OT_PAGE_SLOTS == 0, "whole pages");

static void check_places(const ot_tensor *sequences) {
  const int32_t *const sequence = sequences[0].data, *const position = sequences[1].data;
  const ot_tensor *const pages = &sequences[2];
  const int64_t S = pages->type.dim[0], slots = ot_paged_slots(&pages->type);
  for (int64_t r = 0; r < sequences->type.dim[0]; r++) {
    const bool there = sequence[r] < S && position[r] >= 0 && position[r] < slots;
    OT_ASSERT(sequence[r] < 0 || there);
  }
}

static void append_kv(const ot_kernel_call *call) {
  const ot_tensor *const qkv = &call->in[0];
  const int32_t *const sequence = call->in[1].data, *const position = call->in[2].data;
  const ot_tensor *const cache = &call->out[0];
  const int64_t width = cache->type.dim[2], rows = qkv->type.dim[0];
  const int64_t skipped = call->attributes->num_heads * call->attributes->head_dim;
  check_places(&call->in[1]);
#pragma omp parallel for num_threads(call->attributes->threads)
  for (int64_t r = 0; r < rows; r++) {
    if (sequence[r] < 0) continue;
    ot_real scratch[OT_TILE];
    const int64_t from = r * qkv->type.dim[1] + skipped;
    const int64_t to = ot_page_row(&call->in[3], sequence[r], position[r]) * width;
    for (int64_t i = 0; i < width; i += OT_TILE) {
      const int64_t count = width - i < OT_TILE ? width - i : OT_TILE;
      ot_load_row(scratch, qkv->data, qkv->type.dtype, from + i, count);
      ot_store_row(cache->data, cache->type.dtype, to + i, scratch, count);
    }
  }
}

typedef struct decode {
  const ot_kernel_call *call;
  ot_decode_layout layout;
  int64_t G, D, heads;       // heads that share a key head
  const int32_t *sequences;  // [R]
  const int32_t *positions;  // [R]
} decode;

// One key head of rows [row, row + rows), neighbouring tokens of a sequence. Query q is head
// q % heads of row q / heads.
typedef struct unit {
  const decode *d;
  int64_t row, rows, g;
  ot_real *queries, *keys, *values, *scores, *sums, *state;
} unit;

// Keys [first, first + count) of the sequence.
typedef struct tile {
  int64_t first, count;
} tile;

// The keys of a tile that a query sees: [low, high).
typedef struct visible {
  int64_t low, high;
} visible;

static int64_t num_queries(const unit *u) { return u->rows * u->d->heads; }

static int64_t query_element(const unit *u, int64_t q) {
  const decode *const d = u->d;
  const int64_t row = u->row + q / d->heads, head = u->g * d->heads + q % d->heads;
  return row * d->call->in[0].type.dim[1] + head * d->D;
}

static void begin(const unit *u) {
  const decode *const d = u->d;
  const ot_tensor *const qkv = &d->call->in[0];
  const int64_t width = d->layout.width, n = num_queries(u);
  memset(u->queries, 0, (size_t)(n * width) * sizeof *u->queries);
  memset(u->sums, 0, (size_t)(n * width) * sizeof *u->sums);
  for (int64_t q = 0; q < n; q++) {
    ot_load_row(u->queries + q * width, qkv->data, qkv->type.dtype, query_element(u, q), d->D);
    const ot_real sink =
        ot_sink_of(d->call->attributes, &d->call->in[5], u->g * d->heads + q % d->heads);
    u->state[2 * q] = sink;
    u->state[2 * q + 1] = sink > -(ot_real)INFINITY ? 1 : 0;
  }
}

static void load_tile(const unit *u, tile t) {
  const decode *const d = u->d;
  const ot_tensor *const cache = &d->call->in[1];
  const int64_t width = d->layout.width, GD = d->G * d->D;
  for (int64_t j = 0; j < t.count; j++) {
    const int64_t row = ot_page_row(&d->call->in[4], d->sequences[u->row], t.first + j);
    const int64_t element = row * 2 * GD + u->g * d->D;
    ot_real *const key = u->keys + j * width, *const value = u->values + j * width;
    ot_load_row(key, cache->data, cache->type.dtype, element, d->D);
    ot_load_row(value, cache->data, cache->type.dtype, element + GD, d->D);
    for (int64_t i = d->D; i < width; i++) key[i] = value[i] = 0;
  }
}

// scores [queries][OT_DECODE_KEYS] = q . k
static void multiply_keys(const unit *u, tile t) {
  const int64_t width = u->d->layout.width, n = num_queries(u);
  ot_real dots[OT_DOT_ROWS][OT_DOT_COLUMNS];
  ot_dot_tile dot = {.depth = width};
  for (int64_t j = 0; j < t.count; j += OT_DOT_COLUMNS) {
    const int64_t columns = t.count - j < OT_DOT_COLUMNS ? t.count - j : OT_DOT_COLUMNS;
    for (int64_t c = 0; c < OT_DOT_COLUMNS; c++) {
      dot.b[c] = u->keys + (j + (c < columns ? c : columns - 1)) * width;
    }
    for (int64_t q = 0; q < n; q += OT_DOT_ROWS) {
      const int64_t rows = n - q < OT_DOT_ROWS ? n - q : OT_DOT_ROWS;
      for (int64_t r = 0; r < rows; r++) dot.a[r] = u->queries + (q + r) * width;
      ot_dot_rows(&dot, (int)rows, dots);
      for (int64_t r = 0; r < rows; r++) {
        ot_real *const to = u->scores + (q + r) * OT_DECODE_KEYS + j;
        for (int64_t c = 0; c < columns; c++) to[c] = dots[r][c];
      }
    }
  }
}

static visible visible_to(const unit *u, tile t, int64_t q) {
  const int64_t window = u->d->call->attributes->window;
  const int64_t position = u->d->positions[u->row] + q / u->d->heads;
  const int64_t high = position + 1 - t.first, low = window > 0 ? high - window : 0;
  return (visible){low > 0 ? low : 0, high < t.count ? high : t.count};
}

// Turns the scores of a query into exponentials, 0 where it sees nothing, and scales what it has
// summed so far.
static void exponentiate(const unit *u, tile t, int64_t q) {
  const decode *const d = u->d;
  ot_real *const score = u->scores + q * OT_DECODE_KEYS, *const state = u->state + 2 * q;
  const visible v = visible_to(u, t, q);
  if (v.low >= v.high) {
    memset(score, 0, OT_DECODE_KEYS * sizeof *score);
    return;
  }
  const ot_query_scores scores = {
      .data = score + v.low, .n = v.high - v.low, .head = u->g * d->heads + q % d->heads};
  for (int64_t j = 0; j < scores.n; j++) scores.data[j] *= (ot_real)d->call->attributes->scale;
  ot_transform_query_scores(d->call->attributes, scores);
  ot_real largest = state[0], sum = 0;
  for (int64_t j = 0; j < scores.n; j++) {
    largest = scores.data[j] > largest ? scores.data[j] : largest;
  }
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < scores.n; j++) {
    scores.data[j] = OT_KERNEL(ot_exp)(scores.data[j] - largest);
    sum += scores.data[j];
  }
  const ot_real factor = state[1] > 0 ? OT_KERNEL(ot_exp)(state[0] - largest) : 0;
  state[0] = largest;
  state[1] = state[1] * factor + sum;
  memset(score, 0, (size_t)v.low * sizeof *score);
  memset(score + v.high, 0, (size_t)(OT_DECODE_KEYS - v.high) * sizeof *score);
  ot_real *const values = u->sums + q * d->layout.width;
  for (int64_t i = 0; i < d->layout.width; i++) values[i] *= factor;
}

enum { VALUE_ROWS = 4 };

// sums [rows][vector `i`] += p values, for `rows` queries from `q` on.
static inline __attribute__((always_inline)) void add_vector(const unit *u, tile t, int64_t q,
                                                             int64_t i, const int rows) {
  const int64_t width = u->d->layout.width;
  ot_vector sum[VALUE_ROWS];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) sum[r] = *(ot_vector *)(u->sums + (q + r) * width + i);
  for (int64_t j = 0; j < t.count; j++) {
    const ot_vector value = *(const ot_vector *)(u->values + j * width + i);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      sum[r] =
          ot_vector_fused(ot_vector_of(u->scores[(q + r) * OT_DECODE_KEYS + j]), value, sum[r]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) *(ot_vector *)(u->sums + (q + r) * width + i) = sum[r];
}

static void add_values(const unit *u, tile t) {
  const int64_t n = num_queries(u);
  for (int64_t i = 0; i < u->d->layout.width; i += OT_VECTOR_LANES) {
    int64_t q = 0;
    for (; q + VALUE_ROWS <= n; q += VALUE_ROWS) add_vector(u, t, q, i, VALUE_ROWS);
    for (; q < n; q++) add_vector(u, t, q, i, 1);
  }
}

static void attend(const unit *u) {
  const decode *const d = u->d;
  const ot_tensor *const o = &d->call->out[0];
  const int64_t window = d->call->attributes->window, first = d->positions[u->row];
  const int64_t low = window > 0 && first >= window ? first - window + 1 : 0;
  const int64_t end = first + u->rows;
  begin(u);
  for (int64_t j = low / OT_DECODE_KEYS * OT_DECODE_KEYS; j < end; j += OT_DECODE_KEYS) {
    const tile t = {j, end - j < OT_DECODE_KEYS ? end - j : OT_DECODE_KEYS};
    load_tile(u, t);
    multiply_keys(u, t);
    for (int64_t q = 0; q < num_queries(u); q++) exponentiate(u, t, q);
    add_values(u, t);
  }
  for (int64_t q = 0; q < num_queries(u); q++) {
    ot_real *const sum = u->sums + q * d->layout.width;
    for (int64_t i = 0; i < d->D; i++) sum[i] /= u->state[2 * q + 1];
    const int64_t row = u->row + q / d->heads, head = u->g * d->heads + q % d->heads;
    ot_store_row(o->data, o->type.dtype, (row * d->G * d->heads + head) * d->D, sum, d->D);
  }
}

// list [R, 2] receives first row and rows of each run of neighbouring tokens; returns their number.
static int64_t find_runs(const decode *d, int32_t *list) {
  const int64_t R = d->call->in[0].type.dim[0];
  int64_t count = 0;
  for (int64_t r = 0, n; r < R; r += n) {
    n = 1;
    while (n < OT_DECODE_ROWS && r + n < R && d->sequences[r + n] == d->sequences[r] &&
           d->positions[r + n] == d->positions[r] + n) {
      n++;
    }
    list[2 * count] = (int32_t)r;
    list[2 * count++ + 1] = (int32_t)n;
  }
  return count;
}

static void run_unit(const decode *d, const int32_t *run, int64_t g, ot_real *scratch) {
  const unit u = {.d = d,
                  .row = run[0],
                  .rows = run[1],
                  .g = g,
                  .queries = scratch + d->layout.queries,
                  .keys = scratch + d->layout.keys,
                  .values = scratch + d->layout.values,
                  .scores = scratch + d->layout.scores,
                  .sums = scratch + d->layout.sums,
                  .state = scratch + d->layout.state};
  const ot_tensor *const o = &d->call->out[0];
  if (d->sequences[u.row] >= 0) {
    attend(&u);
    return;
  }
  const int64_t size = d->heads * d->D * ot_dtype_bytes(o->type.dtype);
  for (int64_t r = 0; r < u.rows; r++) {
    memset((char *)o->data + ((u.row + r) * d->G + g) * size, 0, (size_t)size);
  }
}

static void attention_decode(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const decode d = {.call = call,
                    .layout = ot_decode_layout_of(a),
                    .G = a->num_kv_heads,
                    .D = a->head_dim,
                    .heads = a->num_heads / a->num_kv_heads,
                    .sequences = call->in[2].data,
                    .positions = call->in[3].data};
  const int64_t R = call->in[0].type.dim[0];
  int32_t *const list = call->workspace;
  ot_real *const scratch = (ot_real *)((char *)call->workspace + (R * 8 + 63) / 64 * 64);
  check_places(&call->in[2]);
  const int64_t units = find_runs(&d, list) * d.G;
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->threads)
  for (int64_t i = 0; i < units; i++) {
    run_unit(&d, list + i / d.G * 2, i % d.G, scratch + omp_get_thread_num() * d.layout.elements);
  }
}

const ot_kernel_entry OT_KERNEL(ot_decode_cpu)[] = {
    {OT_OP_APPEND_KV, append_kv},
    {OT_OP_ATTENTION_DECODE, attention_decode},
    {OT_OP_COUNT, NULL},
};
