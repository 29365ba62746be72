// SPDX-License-Identifier: Apache-2.0
// Linear layers: products, and sums over the rows of dy for biases.
#include "kernels/cuda/kernel.cuh"

extern "C" {
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/tables.h"
#include "workspace/blocks.h"
#include "ops/linear.h"
}

namespace {

enum { COLUMNS = 32, LANES = 8 };  // of a block of threads

ot_cuda_matrix matrix_of(const ot_tensor *tensor, bool transposed) {
  return {tensor->data, tensor->type.dtype, tensor->type.dim[1], transposed};
}

ot_cuda_matrix vector_of(const ot_tensor *tensor) {
  return {tensor->data, tensor->type.dtype, 0, false};
}

// y = x w^T + (residual + bias)
void linear(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in;
  const ot_cuda_product product = {.rows = in[0].type.dim[0],
                                   .columns = in[1].type.dim[0],
                                   .depth = in[0].type.dim[1],
                                   .a = matrix_of(&in[0], false),
                                   .b = matrix_of(&in[1], true),
                                   .y = matrix_of(&call->out[0], false),
                                   .addend = matrix_of(&in[3], false),
                                   .bias = vector_of(&in[2]),
                                   .compute = call->attributes->compute};
  ot_cuda_multiply(ot_cuda_context_of(call), &product);
}

// dx = dy w + partial
void linear_dx(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in;
  const ot_cuda_product product = {.rows = in[0].type.dim[0],
                                   .columns = in[1].type.dim[1],
                                   .depth = in[0].type.dim[1],
                                   .a = matrix_of(&in[0], false),
                                   .b = matrix_of(&in[1], false),
                                   .y = matrix_of(&call->out[0], false),
                                   .addend = matrix_of(&in[2], false),
                                   .bias = {},
                                   .compute = call->attributes->compute};
  ot_cuda_multiply(ot_cuda_context_of(call), &product);
}

// ---- sums of rows ----

// Part `blockIdx.y` of the rows, `each` of them: sums[part][column].
template <class R>
__global__ void __launch_bounds__(COLUMNS *LANES)
    sum_rows(ot_any<R> dy, int64_t rows, int64_t columns, int64_t each, R *sums) {
  __shared__ R parts[LANES][COLUMNS + 1];
  const int x = threadIdx.x % COLUMNS, y = threadIdx.x / COLUMNS;
  const int64_t column = (int64_t)blockIdx.x * COLUMNS + x;
  const int64_t begin = blockIdx.y * each;
  const int64_t end = begin + each < rows ? begin + each : rows;
  R sum = 0;
  for (int64_t row = begin + y; row < end && column < columns; row += LANES) {
    sum += dy[row * columns + column];
  }
  parts[y][x] = sum;
  __syncthreads();
  if (y > 0 || column >= columns) return;
#pragma unroll
  for (int i = 1; i < LANES; i++) sum += parts[i][x];
  sums[(int64_t)blockIdx.y * columns + column] = sum;
}

template <class R>
__global__ void add_parts(const R *sums, int parts, int64_t columns, ot_any<R> to,
                          bool accumulate) {
  const int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  R total = 0;
  for (int i = 0; i < parts; i++) total += sums[i * columns + column];
  to.add(column, total, accumulate);
}

template <class R>
void bias_gradient(const ot_kernel_call *call) {
  const ot_tensor *const dy = &call->in[0];
  const int64_t rows = dy->type.dim[0], columns = dy->type.dim[1];
  const int parts = (int)ot_row_blocks(rows);
  R *const sums = (R *)call->workspace;
  void *const stream = ot_cuda_stream_of(call);
  OT_LAUNCH(sum_rows<R>, dim3(ot_blocks(columns, COLUMNS), parts), COLUMNS * LANES, 0, stream,
            ot_any_of<R>(dy), rows, columns, (rows + parts - 1) / parts, sums);
  OT_LAUNCH(add_parts<R>, ot_blocks(columns, 256), 256, 0, stream, (const R *)sums, parts, columns,
            ot_any_of<R>(&call->out[1]), call->attributes->accumulate);
}

// dw (+)= dy^T x, dbias (+)= sum over rows of dy
template <class R>
void linear_dw(const ot_kernel_call *call) {
  const ot_tensor *const dy = &call->in[0], *const x = &call->in[1], *const dw = &call->out[0];
  const bool adds = call->attributes->accumulate;
  const ot_cuda_product product = {.rows = dy->type.dim[1],
                                   .columns = x->type.dim[1],
                                   .depth = dy->type.dim[0],
                                   .a = matrix_of(dy, true),
                                   .b = matrix_of(x, false),
                                   .y = matrix_of(dw, false),
                                   .addend = adds ? matrix_of(dw, false) : ot_cuda_matrix{},
                                   .bias = {},
                                   .compute = call->attributes->compute};
  if (dw->data) ot_cuda_multiply(ot_cuda_context_of(call), &product);
  if (call->out[1].data) bias_gradient<R>(call);
}

}  // namespace

extern "C" const ot_kernel_entry ot_linear_cuda_f32[] = {
    {OT_OP_LINEAR, linear},           {OT_OP_LINEAR_DX, linear_dx},
    {OT_OP_LINEAR_DW, linear_dw<float>}, {OT_OP_LINEAR_WIDE, linear},
    {OT_OP_LINEAR_WIDE_DX, linear_dx},   {}};

extern "C" const ot_kernel_entry ot_linear_cuda_f64[] = {
    {OT_OP_LINEAR, linear},            {OT_OP_LINEAR_DX, linear_dx},
    {OT_OP_LINEAR_DW, linear_dw<double>}, {OT_OP_LINEAR_WIDE, linear},
    {OT_OP_LINEAR_WIDE_DX, linear_dx},    {}};
