// SPDX-License-Identifier: Apache-2.0
// Row by row: the sources of a token are read once for their scores and, from cache, a second time
// for their mix or their gradients. Gradients of the query are summed by blocks of rows in the
// workspace, each block by one thread, and the blocks are added in order.
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/tiles.h"
#include "kernels/vector_math.h"
#include "ops/residual.h"

// Substitute for an absent query.
static const ot_real zeros[OT_TILE];

// The sources of a call.
typedef struct sources {
  const ot_kernel_call *call;
  const ot_tensor *stack, *last;  // last->data may be null
  int64_t count, rows, columns;
} sources;

static sources sources_of(const ot_kernel_call *call, int first) {
  sources s = {.call = call, .stack = &call->in[first], .last = &call->in[first + 1]};
  const int64_t *const dim = s.stack->type.dim;
  s.count = dim[0] + (s.last->data ? 1 : 0);
  s.rows = dim[1];
  s.columns = dim[2];
  return s;
}

// Source `i` of the tensors `stack` and `last`, and its element (row, 0).
static const ot_tensor *source_at(const ot_tensor *stack, const ot_tensor *last, int64_t i,
                                  int64_t row, int64_t *first) {
  const bool on_stack = i < stack->type.dim[0];
  const int64_t rows = stack->type.dim[1], columns = stack->type.dim[2];
  *first = ((on_stack ? i * rows : 0) + row) * columns;
  return on_stack ? stack : last;
}

static int64_t tile_size(int64_t c, int64_t columns) {
  return columns - c < OT_TILE ? columns - c : OT_TILE;
}

// ---- forward ----

typedef struct source_sums {
  ot_real squares, product;
} source_sums;

static inline void add_sums(const ot_real *v, const ot_real *query, int64_t n, source_sums *sums) {
  ot_real squares = 0, product = 0;
#pragma omp simd reduction(+ : squares, product)
  for (int64_t i = 0; i < n; i++) {
    squares += v[i] * v[i];
    product += v[i] * query[i];
  }
  sums->squares += squares;
  sums->product += product;
}

static source_sums sums_of(const sources *s, int64_t source, int64_t row) {
  ot_real scratch[2][OT_TILE];
  int64_t first;
  const ot_tensor *const from = source_at(s->stack, s->last, source, row, &first);
  const ot_tensor *const query = &s->call->in[2];
  source_sums sums = {0, 0};
  for (int64_t c = 0; c < s->columns; c += OT_TILE) {
    const int64_t n = tile_size(c, s->columns);
    add_sums(ot_tile_in(from, first + c, n, scratch[0]),
             query->data ? ot_tile_in(query, c, n, scratch[1]) : zeros, n, &sums);
  }
  return sums;
}

static void softmax(ot_real *score, int64_t n) {
  ot_real largest = score[0], sum = 0;
  for (int64_t i = 1; i < n; i++) largest = score[i] > largest ? score[i] : largest;
  for (int64_t i = 0; i < n; i++) {
    score[i] = OT_KERNEL(ot_exp)(score[i] - largest);
    sum += score[i];
  }
  for (int64_t i = 0; i < n; i++) score[i] /= sum;
}

static void mix(const sources *s, const ot_real *weights, int64_t row, int64_t c) {
  ot_real scratch[OT_TILE], sum[OT_TILE];
  const int64_t n = tile_size(c, s->columns);
  memset(sum, 0, (size_t)n * sizeof *sum);
  for (int64_t i = 0; i < s->count; i++) {
    int64_t first;
    const ot_tensor *const from = source_at(s->stack, s->last, i, row, &first);
    const ot_real *const v = ot_tile_in(from, first + c, n, scratch);
    const ot_real weight = weights[i];
#pragma omp simd
    for (int64_t k = 0; k < n; k++) sum[k] += weight * v[k];
  }
  const ot_tensor *const y = &s->call->out[0];
  ot_store_row(y->data, y->type.dtype, row * s->columns + c, sum, n);
}

static void mix_row(const sources *s, int64_t row) {
  ot_real *const weights = (ot_real *)s->call->out[1].data + row * s->count;
  ot_real *const rstd = (ot_real *)s->call->out[2].data + row * s->count;
  const ot_real epsilon = (ot_real)s->call->attributes->epsilon;
  for (int64_t i = 0; i < s->count; i++) {
    const source_sums sums = sums_of(s, i, row);
    rstd[i] = 1 / ot_real_sqrt(sums.squares / (ot_real)s->columns + epsilon);
    weights[i] = sums.product * rstd[i];
  }
  softmax(weights, s->count);
  for (int64_t c = 0; c < s->columns; c += OT_TILE) mix(s, weights, row, c);
}

static void residual_attention(const ot_kernel_call *call) {
  const sources s = sources_of(call, 0);
  const int threads = ot_threads_for(call, s.count * s.rows * s.columns);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t row = 0; row < s.rows; row++) mix_row(&s, row);
}

// ---- gradient ----

typedef struct mix_grad {
  sources s;
  const ot_tensor *partial_stack, *dy, *partial_last;
  const ot_real *weights, *rstd;  // [R, N]
  const ot_real *query;           // [C] widened
  int64_t blocks;
  ot_real *parts;  // [blocks, C + 2 N]
} mix_grad;

// Gradient of one source of one row: dv = weight * dy + along * query - back * v.
typedef struct source_grad {
  int64_t source, row;
  ot_real weight, along, back;
} source_grad;

// dy . v and query . v of each source.
static void products_of(const mix_grad *g, int64_t row, ot_real *with_dy, ot_real *with_query) {
  ot_real scratch[2][OT_TILE];
  const int64_t columns = g->s.columns;
  for (int64_t i = 0; i < g->s.count; i++) {
    int64_t first;
    const ot_tensor *const from = source_at(g->s.stack, g->s.last, i, row, &first);
    ot_real by_dy = 0, by_query = 0;
    for (int64_t c = 0; c < columns; c += OT_TILE) {
      const int64_t n = tile_size(c, columns);
      const ot_real *const v = ot_tile_in(from, first + c, n, scratch[0]);
      const ot_real *const dy = ot_tile_in(g->dy, row * columns + c, n, scratch[1]);
      const ot_real *const query = g->query + c;
#pragma omp simd reduction(+ : by_dy, by_query)
      for (int64_t k = 0; k < n; k++) {
        by_dy += dy[k] * v[k];
        by_query += query[k] * v[k];
      }
    }
    with_dy[i] = by_dy;
    with_query[i] = by_query;
  }
}

static void source_tile(const mix_grad *g, const source_grad *grad, int64_t c, ot_real *dquery) {
  ot_real scratch[3][OT_TILE], made[OT_TILE];
  const int64_t n = tile_size(c, g->s.columns);
  int64_t first;
  const ot_tensor *const from = source_at(g->s.stack, g->s.last, grad->source, grad->row, &first);
  const ot_tensor *const to =
      source_at(&g->s.call->out[0], &g->s.call->out[1], grad->source, grad->row, &first);
  const ot_tensor *const before =
      grad->source < g->s.stack->type.dim[0] ? g->partial_stack : g->partial_last;
  const ot_real *const v = ot_tile_in(from, first + c, n, scratch[0]);
  const ot_real *const dy = ot_tile_in(g->dy, grad->row * g->s.columns + c, n, scratch[1]);
  const ot_real *const query = g->query + c;
  if (before->data) {
    const ot_real *const partial = ot_tile_in(before, first + c, n, scratch[2]);
    memcpy(made, partial, (size_t)n * sizeof *made);
  } else {
    memset(made, 0, (size_t)n * sizeof *made);
  }
#pragma omp simd
  for (int64_t k = 0; k < n; k++) {
    made[k] += grad->weight * dy[k] + (grad->along * query[k] - grad->back * v[k]);
    dquery[c + k] += grad->along * v[k];
  }
  if (to->data) ot_store_row(to->data, to->type.dtype, first + c, made, n);
}

static void grad_row(const mix_grad *g, int64_t row, ot_real *dquery, ot_real *products) {
  const int64_t count = g->s.count;
  const ot_real *const weights = g->weights + row * count;
  const ot_real *const rstd = g->rstd + row * count;
  ot_real *const with_dy = products, *const with_query = products + count;
  ot_real mean = 0;
  products_of(g, row, with_dy, with_query);
  for (int64_t i = 0; i < count; i++) mean += weights[i] * with_dy[i];
  for (int64_t i = 0; i < count; i++) {
    const ot_real along = weights[i] * (with_dy[i] - mean) * rstd[i];
    const source_grad grad = {
        .source = i,
        .row = row,
        .weight = weights[i],
        .along = along,
        .back = along * with_query[i] * rstd[i] * rstd[i] / (ot_real)g->s.columns};
    for (int64_t c = 0; c < g->s.columns; c += OT_TILE) {
      source_tile(g, &grad, c, dquery);
    }
  }
}

static void grad_block(const mix_grad *g, int64_t block) {
  ot_real *const dquery = g->parts + block * (g->s.columns + 2 * g->s.count);
  const int64_t end = ot_block_begin(g->s.rows, g->blocks, block + 1);
  memset(dquery, 0, (size_t)g->s.columns * sizeof *dquery);
  for (int64_t row = ot_block_begin(g->s.rows, g->blocks, block); row < end; row++) {
    grad_row(g, row, dquery, dquery + g->s.columns);
  }
}

static void residual_attention_grad(const ot_kernel_call *call) {
  ot_real *const query = call->workspace;
  mix_grad g = {.s = sources_of(call, 2),
                .partial_stack = &call->in[0],
                .dy = &call->in[1],
                .partial_last = &call->in[7],
                .weights = call->in[5].data,
                .rstd = call->in[6].data,
                .query = query};
  g.blocks = ot_row_blocks(g.s.rows);
  g.parts = query + g.s.columns;
  if (call->in[4].data) {
    ot_load_row(query, call->in[4].data, call->in[4].type.dtype, 0, g.s.columns);
  } else {
    memset(query, 0, (size_t)g.s.columns * sizeof *query);
  }
  const int threads = ot_threads_for(call, g.s.count * g.s.rows * g.s.columns);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t block = 0; block < g.blocks; block++) grad_block(&g, block);
  if (!call->out[2].data) return;
  const ot_block_sums sums = {.parts = g.parts,
                              .blocks = g.blocks,
                              .stride = g.s.columns + 2 * g.s.count,
                              .n = g.s.columns,
                              .out = &call->out[2],
                              .accumulate = call->attributes->accumulate};
  ot_block_sums_add(call, &sums);
}

const ot_kernel_entry OT_KERNEL(ot_residual_cpu)[] = {
    {OT_OP_RESIDUAL_ATTENTION, residual_attention},
    {OT_OP_RESIDUAL_ATTENTION_GRAD, residual_attention_grad},
    {OT_OP_COUNT, NULL},
};
