// SPDX-License-Identifier: Apache-2.0
// The GEMM of ot_real, the only use of a BLAS, and one whose rows are independent. Orthant provides
// the threads: a GEMM is partitioned into one block of C per thread, and each block is a serial
// BLAS call. So the number of threads belongs to the call, ranks may be threads of one process, and
// the BLAS's own thread pool is unused (docs/blas.md has the measurements).
#pragma once

#include <stdbool.h>

#include "kernels/real.h"

// A factor of a product, row-major; `transposed`: the transpose of the stored matrix is used.
typedef struct ot_factor {
  const ot_real *data;
  int64_t stride;  // elements between stored rows
  bool transposed;
} ot_factor;

// c = alpha * a b + beta * c with a [rows, depth], b [depth, columns] (after their transposition)
// and c [rows, columns]. c overlaps neither; with beta 0 it is not read. Extents from 0 to 2^31
// - 1.
typedef struct ot_gemm {
  int64_t rows, columns, depth;
  ot_factor a, b;
  ot_real *c;
  int64_t c_stride;
  ot_real alpha, beta;
  bool independent_rows;  // the bits of a row of c do not depend on the number of rows or threads:
                          // no BLAS; a b^T only, alpha 1, beta 0 or 1
} ot_gemm;

// On `threads` OpenMP threads. Call it from serial code.
void OT_KERNEL(ot_matrix_multiply)(const ot_gemm *product, int threads);

// Called by ot_matrix_multiply for independent rows.
void OT_KERNEL(ot_matrix_multiply_rows)(const ot_gemm *product, int threads);

// On the calling thread only; for use inside a parallel region, after a call of ot_matrix_prepare.
void OT_KERNEL(ot_matrix_multiply_serial)(const ot_gemm *product);

// Restricts the BLAS to the calling threads; costs nothing the second time.
void OT_KERNEL(ot_matrix_prepare)(void);
