// SPDX-License-Identifier: Apache-2.0
// The matrix product of ot_real, the one thing that kernels take from a BLAS. Threads are ours: a
// product is cut into one piece of C for each thread, and each piece is a serial BLAS call. So the
// number of threads belongs to the call, ranks may be threads of one process, and no setting of the
// BLAS's own thread pool matters (docs/blas.md has the measurements).
#pragma once

#include <stdbool.h>

#include "kernels/real.h"

// A factor of a product, row-major; `transposed` means that the transpose of what is stored counts.
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
} ot_gemm;

// On `threads` OpenMP threads. Call it from serial code.
void OT_KERNEL(ot_matrix_multiply)(const ot_gemm *product, int threads);

// On the calling thread alone; for use inside a parallel region, before which ot_matrix_prepare was
// called.
void OT_KERNEL(ot_matrix_multiply_serial)(const ot_gemm *product);

// Makes the BLAS use the threads that call it and no others; costs nothing the second time.
void OT_KERNEL(ot_matrix_prepare)(void);
