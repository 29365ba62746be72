// SPDX-License-Identifier: Apache-2.0
// The two loops of most kernels: over the elements of flat tensors in tiles, and over column sums
// by blocks of rows. Every thread processes consecutive tiles.
#pragma once

#include <string.h>

#include "kernels/real.h"
#include "ops/kernel.h"
#include "ops/shares.h"
#include "workspace/blocks.h"

// The threads worth waking for work on `elements` elements.
static inline int ot_threads_for(const ot_kernel_call *call, int64_t elements) {
  return ot_threads_for_elements(elements, call->attributes->threads);
}

// Processes elements [first, first + n) of an elementwise op, n <= OT_TILE.
typedef void (*ot_tile_function)(const ot_kernel_call *call, int64_t first, int64_t n);

static inline void ot_for_tiles(const ot_kernel_call *call, int64_t elements,
                                ot_tile_function run) {
#pragma omp parallel for num_threads(ot_threads_for(call, elements)) schedule(static)
  for (int64_t first = 0; first < elements; first += OT_TILE) {
    run(call, first, elements - first < OT_TILE ? elements - first : OT_TILE);
  }
}

// Like ot_row_in, ot_row_out and ot_row_done, for elements of an operand.
static inline const ot_real *ot_tile_in(const ot_tensor *tensor, int64_t first, int64_t n,
                                        ot_real *scratch) {
  return ot_row_in(tensor->data, tensor->type.dtype, first, n, scratch);
}

static inline ot_real *ot_tile_out(const ot_tensor *tensor, int64_t first, ot_real *scratch) {
  return ot_row_out(tensor->data, tensor->type.dtype, first, scratch);
}

// A tile that is read and written: the tensor's own memory, or `scratch`, filled.
static inline ot_real *ot_tile_both(const ot_tensor *tensor, int64_t first, int64_t n,
                                    ot_real *scratch) {
  if (tensor->type.dtype == OT_REAL_DTYPE) return (ot_real *)tensor->data + first;
  ot_load_row(scratch, tensor->data, tensor->type.dtype, first, n);
  return scratch;
}

static inline void ot_tile_done(const ot_tensor *tensor, int64_t first, const ot_real *row,
                                int64_t n) {
  ot_row_done(tensor->data, tensor->type.dtype, first, row, n);
}

// Reduces `parts` [blocks, stride], of which the first `n` columns are used, in block order: added
// to `out` [n], or stored there when not `accumulate`; rounded once.
enum { OT_SUM_COLUMNS = 64 };

typedef struct ot_block_sums {
  const ot_real *parts;
  int64_t blocks, stride, n;
  const ot_tensor *out;
  bool accumulate;
} ot_block_sums;

static inline void ot_block_sums_columns(const ot_block_sums *sums, int64_t first, int64_t n) {
  ot_real total[OT_SUM_COLUMNS] = {0}, scratch[OT_SUM_COLUMNS];
  for (int64_t block = 0; block < sums->blocks; block++) {
    const ot_real *const part = sums->parts + block * sums->stride + first;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) total[i] += part[i];
  }
  if (sums->accumulate) {
    const ot_real *const before = ot_tile_in(sums->out, first, n, scratch);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) total[i] += before[i];
  }
  ot_store_row(sums->out->data, sums->out->type.dtype, first, total, n);
}

static inline void ot_block_sums_add(const ot_kernel_call *call, const ot_block_sums *sums) {
  const int64_t width = OT_SUM_COLUMNS;
  const int threads = ot_threads_for(call, sums->n * sums->blocks);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t first = 0; first < sums->n; first += width) {
    ot_block_sums_columns(sums, first, sums->n - first < width ? sums->n - first : width);
  }
}
