// SPDX-License-Identifier: Apache-2.0
// Muon (Jordan et al. 2024): the momentum is replaced by the nearest semi-orthogonal matrix,
// approximated by five Newton-Schulz steps, which are GEMMs. The Gram matrix contracts the longer
// side, so a tall matrix needs no transpose.
#include <math.h>
#include <stddef.h>

#include "kernels/cpu_tables.h"
#include "kernels/matrix.h"
#include "kernels/tiles.h"
#include "kernels/update_sums.h"
#include "ops/optimizer.h"
#include "workspace/blocks.h"
#include "workspace/muon_layout.h"

// The quintic X -> a X + (b A + c A^2) X, A = X X^T, of Jordan et al.
static const ot_real first_power = (ot_real)3.4445;
static const ot_real third_power = (ot_real)-4.7750;
static const ot_real fifth_power = (ot_real)2.0315;

typedef struct muon_call {
  const ot_kernel_call *call;
  int threads;
  int64_t rows, columns, elements, blocks;
  int64_t side;  // of the Gram matrix: the shorter of rows and columns
  ot_real *x, *y, *a, *b;
  ot_update_sums *sums;  // [blocks]
} muon_call;

static muon_call muon_call_of(const ot_kernel_call *call) {
  const ot_tensor_type *const g = &call->in[0].type;
  const int64_t rows = g->dim[0];
  const int64_t columns = g->dim[1];
  const ot_muon_layout layout = ot_muon_layout_of(rows, columns, OT_REAL_DTYPE);
  char *const base = call->workspace;
  return (muon_call){
      .call = call,
      .threads = ot_threads_for(call, rows * columns),
      .rows = rows,
      .columns = columns,
      .elements = rows * columns,
      .blocks = ot_flat_blocks(rows * columns),
      .side = rows < columns ? rows : columns,
      .x = (ot_real *)(base + layout.x),
      .y = (ot_real *)(base + layout.y),
      .a = (ot_real *)(base + layout.a),
      .b = (ot_real *)(base + layout.b),
      .sums = (ot_update_sums *)(base + layout.sums),
  };
}

// The momentum and, in x, the Nesterov direction u of elements [begin, end); returns the sum of
// u^2.
static double momentum_block(const muon_call *muon, int64_t begin, int64_t end) {
  ot_real g_scratch[OT_TILE];
  ot_real m_scratch[OT_TILE];
  const ot_kernel_call *const call = muon->call;
  const double *const scalars = call->in[1].data;
  const ot_real factor = (ot_real)scalars[OT_SCALAR_CLIP_FACTOR];
  const ot_real beta = (ot_real)call->attributes->beta1;
  const ot_real rest = (ot_real)(1 - call->attributes->beta1);
  double sum = 0;
  for (int64_t first = begin; first < end; first += OT_TILE) {
    const int64_t n = end - first < OT_TILE ? end - first : OT_TILE;
    const ot_real *const g = ot_tile_in(&call->in[0], first, n, g_scratch);
    ot_real *const m = ot_tile_both(&call->out[1], first, n, m_scratch);
    ot_real *const u = muon->x + first;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
      const ot_real fresh = rest * factor * g[i];
      m[i] = beta * m[i] + fresh;
      u[i] = beta * m[i] + fresh;
      sum += (double)u[i] * (double)u[i];
    }
    ot_tile_done(&call->out[1], first, m, n);
  }
  return sum;
}

// Updates the momentum and leaves u / (|u| + 1e-7) in x.
static void start(const muon_call *muon) {
#pragma omp parallel for num_threads(muon->threads) schedule(static)
  for (int64_t block = 0; block < muon->blocks; block++) {
    const int64_t begin = ot_block_begin(muon->elements, muon->blocks, block);
    const int64_t end = ot_block_begin(muon->elements, muon->blocks, block + 1);
    muon->sums[block] = (ot_update_sums){.update = momentum_block(muon, begin, end)};
  }
  double total[2];
  ot_update_sums_total(muon->sums, muon->blocks, total);
  const ot_real factor = (ot_real)(1 / (sqrt(total[0]) + 1e-7));
#pragma omp parallel for simd num_threads(muon->threads) schedule(static)
  for (int64_t i = 0; i < muon->elements; i++) muon->x[i] *= factor;
}

// b = first_power I + third_power a + fifth_power a a
static void form_polynomial(const muon_call *muon) {
  const int64_t side = muon->side;
#pragma omp parallel for num_threads(muon->threads) schedule(static)
  for (int64_t row = 0; row < side; row++) {
#pragma omp simd
    for (int64_t i = 0; i < side; i++) {
      muon->b[row * side + i] = third_power * muon->a[row * side + i];
    }
    muon->b[row * side + row] += first_power;
  }
  const ot_gemm square = {.rows = side,
                          .columns = side,
                          .depth = side,
                          .a = {.data = muon->a, .stride = side},
                          .b = {.data = muon->a, .stride = side},
                          .c = muon->b,
                          .c_stride = side,
                          .alpha = fifth_power,
                          .beta = 1};
  OT_KERNEL(ot_matrix_multiply)(&square, muon->threads);
}

// y = b x, or x b for a tall matrix, then swaps x and y.
static void iterate(muon_call *muon) {
  const bool wide = muon->rows <= muon->columns;
  const ot_factor x = {.data = muon->x, .stride = muon->columns};
  const ot_factor x_transposed = {.data = muon->x, .stride = muon->columns, .transposed = true};
  const ot_factor b = {.data = muon->b, .stride = muon->side};
  const ot_gemm gram = {.rows = muon->side,
                        .columns = muon->side,
                        .depth = wide ? muon->columns : muon->rows,
                        .a = wide ? x : x_transposed,
                        .b = wide ? x_transposed : x,
                        .c = muon->a,
                        .c_stride = muon->side,
                        .alpha = 1};
  const ot_gemm next = {.rows = muon->rows,
                        .columns = muon->columns,
                        .depth = muon->side,
                        .a = wide ? b : x,
                        .b = wide ? x : b,
                        .c = muon->y,
                        .c_stride = muon->columns,
                        .alpha = 1};
  OT_KERNEL(ot_matrix_multiply)(&gram, muon->threads);
  form_polynomial(muon);
  OT_KERNEL(ot_matrix_multiply)(&next, muon->threads);
  ot_real *const previous = muon->x;
  muon->x = muon->y;
  muon->y = previous;
}

// p = p - d, d = step * x + decay * p, for elements [begin, end).
static ot_update_sums update_block(const muon_call *muon, int64_t begin, int64_t end) {
  ot_real scratch[OT_TILE];
  const ot_kernel_call *const call = muon->call;
  const ot_op_attributes *const attributes = call->attributes;
  const double *const scalars = call->in[1].data;
  const double rate = scalars[OT_SCALAR_LEARNING_RATE] * attributes->learning_rate_factor;
  const int64_t longer = muon->rows + muon->columns - muon->side;
  // Liu et al. 2025 (Moonlight), sec. 2.2: matches the RMS of AdamW's updates, about 0.2.
  const ot_real step = (ot_real)(rate * 0.2 * sqrt((double)longer));
  const ot_real decay = (ot_real)(rate * attributes->weight_decay);
  const ot_tensor *const p = &call->out[0];
  const ot_tensor *const master = &call->out[2];
  const ot_tensor *const weight = master->data ? master : p;
  ot_update_sums sums = {0};
  for (int64_t first = begin; first < end; first += OT_TILE) {
    const int64_t n = end - first < OT_TILE ? end - first : OT_TILE;
    const ot_real *const x = muon->x + first;
    ot_real *const w = ot_tile_both(weight, first, n, scratch);
    double sum_update = 0;
    double sum_weight = 0;
#pragma omp simd reduction(+ : sum_update, sum_weight)
    for (int64_t i = 0; i < n; i++) {
      const ot_real update = step * x[i] + decay * w[i];
      w[i] -= update;
      sum_update += (double)update * (double)update;
      sum_weight += (double)w[i] * (double)w[i];
    }
    ot_tile_done(weight, first, w, n);
    if (master->data) ot_store_row(p->data, p->type.dtype, first, w, n);
    sums.update += sum_update;
    sums.weight += sum_weight;
  }
  return sums;
}

static void muon_update(const ot_kernel_call *call) {
  if (ot_update_is_skipped(call, call->out[3].data)) return;
  muon_call muon = muon_call_of(call);
  start(&muon);
  for (int i = 0; i < OT_MUON_ITERATIONS; i++) iterate(&muon);
#pragma omp parallel for num_threads(muon.threads) schedule(static)
  for (int64_t block = 0; block < muon.blocks; block++) {
    muon.sums[block] = update_block(&muon, ot_block_begin(muon.elements, muon.blocks, block),
                                    ot_block_begin(muon.elements, muon.blocks, block + 1));
  }
  ot_update_sums_total(muon.sums, muon.blocks, call->out[3].data);
}

const ot_kernel_entry OT_KERNEL(ot_muon_cpu)[] = {
    {OT_OP_MUON, muon_update},
    {OT_OP_COUNT, NULL},
};
