// SPDX-License-Identifier: Apache-2.0
// Matrix products on a stream: by cuBLASLt where it has the combination of types, else by a kernel
// of our own (product.cu); with OT_PRODUCTS=own in the environment, all by that kernel. Matrices
// are in row-major order.
#pragma once

#include "base/arena.h"
#include "kernels/cuda/cuda_context.h"

typedef struct ot_cuda_matrix {
  const void *data;
  ot_dtype dtype;
  int64_t stride;   // elements between rows, as stored
  bool transposed;  // stored as its transpose
} ot_cuda_matrix;

// y [rows, columns] = a [rows, depth] b [depth, columns] + addend + bias, accumulated in `compute`.
// Our own kernel adds (addend + bias) to the product and rounds once. cuBLASLt adds the two in an
// order of its own; if there is an addend, it rounds the product, alone or with the bias, to the
// type of y before it adds the rest and rounds again.
typedef struct ot_cuda_product {
  int64_t rows, columns, depth;
  ot_cuda_matrix a, b;
  ot_cuda_matrix y;       // not transposed; written
  ot_cuda_matrix addend;  // data null: none; may be y
  ot_cuda_matrix bias;    // [columns], data null: none
  ot_dtype compute;       // OT_F32 or OT_F64
} ot_cuda_product;

ot_status ot_cuda_matmul_create(ot_cuda_matmul **matmul);
void ot_cuda_matmul_destroy(ot_cuda_matmul **matmul);

// Queues the product. Failures stay in the context until ot_stream_synchronize.
void ot_cuda_multiply(const ot_cuda_context *context, const ot_cuda_product *product);

// The algorithms of all products so far, as text in `arena`. (gemm_table.c)
const char *ot_cuda_matmul_print(const ot_cuda_matmul *matmul, ot_arena *arena);

// Takes over the algorithms of such a text. Returns a note, in `arena`, that products may have
// other bits than where it was written; null: they have the same. (gemm_table.c)
const char *ot_cuda_matmul_read(ot_cuda_matmul *matmul, const char *text, ot_arena *arena);

// The refusals of the library so far, as ot_kernel_algorithms_refused. (gemm_table.c)
void ot_cuda_matmul_refusals(const ot_cuda_matmul *matmul, int *own, int *replaced);

// Times the algorithms that the library proposes for each product so far, takes the fastest, and
// returns the times as JSON in `arena`; null: there is no library. Allocates device memory, waits
// for `stream`. (gemm_race.c)
const char *ot_cuda_matmul_race(ot_cuda_matmul *matmul, void *stream, int repeats, ot_arena *arena);

// The kernel of our own: any combination of real types. (product.cu)
void ot_cuda_multiply_generic(void *stream, const ot_cuda_product *product);
