// SPDX-License-Identifier: Apache-2.0
// Parts of matrices as ot_real, for kernels that pass them to a GEMM: the tensor's own memory if
// stored as ot_real, else a widened copy in scratch.
#pragma once

#include <stddef.h>

#include "kernels/real.h"
#include "ops/kernel.h"

// A part of a tensor [*, columns of the tensor].
typedef struct ot_matrix_part {
  int64_t row, rows, column, columns;
} ot_matrix_part;

typedef struct ot_view {
  ot_real *data;
  int64_t stride;  // elements between rows
} ot_view;

// The address of offset `elements` in the kernel's workspace; null for -1, an unused region.
static inline ot_real *ot_scratch_at(const ot_kernel_call *call, int64_t elements) {
  return elements < 0 ? NULL : (ot_real *)call->workspace + elements;
}

// The element of `tensor` at the start of row `row` of `part`.
static inline int64_t ot_matrix_part_element(const ot_tensor *tensor, const ot_matrix_part *part,
                                             int64_t row) {
  return (part->row + row) * tensor->type.dim[1] + part->column;
}

// The view of `part`; scratch [rows * columns] is undefined so far, and unused for a tensor of
// ot_real.
static inline ot_view ot_view_of(const ot_tensor *tensor, ot_matrix_part part, ot_real *scratch) {
  if (tensor->type.dtype != OT_REAL_DTYPE) return (ot_view){scratch, part.columns};
  return (ot_view){(ot_real *)tensor->data + ot_matrix_part_element(tensor, &part, 0),
                   tensor->type.dim[1]};
}

// Like ot_view_of, with the tensor's values.
static inline ot_view ot_view_read(const ot_tensor *tensor, ot_matrix_part part, ot_real *scratch,
                                   int threads) {
  const ot_view view = ot_view_of(tensor, part, scratch);
  if (tensor->type.dtype == OT_REAL_DTYPE) return view;
#pragma omp parallel for num_threads(threads)
  for (int64_t r = 0; r < part.rows; r++) {
    ot_load_row(view.data + r * view.stride, tensor->data, tensor->type.dtype,
                ot_matrix_part_element(tensor, &part, r), part.columns);
  }
  return view;
}

// Rounds a view in scratch into the tensor; nothing to do for a tensor of ot_real.
static inline void ot_view_write(const ot_tensor *tensor, ot_matrix_part part, ot_view view,
                                 int threads) {
  if (tensor->type.dtype == OT_REAL_DTYPE) return;
#pragma omp parallel for num_threads(threads)
  for (int64_t r = 0; r < part.rows; r++) {
    ot_store_row(tensor->data, tensor->type.dtype, ot_matrix_part_element(tensor, &part, r),
                 view.data + r * view.stride, part.columns);
  }
}
