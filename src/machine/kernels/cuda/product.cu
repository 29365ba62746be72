// SPDX-License-Identifier: Apache-2.0
// Matrix products of any combination of real types, for what cuBLASLt does not have.
#include "kernels/cuda/product_tile.cuh"

extern "C" {
#include "kernels/cuda/matmul.h"
}

namespace {

template <class R>
__global__ void __launch_bounds__(OT_PRODUCT_THREADS) product_kernel(ot_product<R> p) {
  ot_multiply_tile(p, (int64_t)blockIdx.y * OT_PRODUCT_TILE, (int64_t)blockIdx.x * OT_PRODUCT_TILE);
}

template <class R>
ot_operand<R> operand_of(const ot_cuda_matrix &x) {
  const ot_any<R> at = {(void *)x.data, x.dtype};
  return {at, x.transposed ? 1 : x.stride, x.transposed ? x.stride : 1, 0};
}

template <class R>
void multiply(void *stream, const ot_cuda_product *p) {
  const ot_product<R> product = {p->rows,
                                 p->columns,
                                 p->depth,
                                 operand_of<R>(p->a),
                                 operand_of<R>(p->b),
                                 operand_of<R>(p->y),
                                 operand_of<R>(p->addend),
                                 operand_of<R>(p->bias)};
  const dim3 grid(ot_blocks(p->columns, OT_PRODUCT_TILE), ot_blocks(p->rows, OT_PRODUCT_TILE));
  OT_LAUNCH(product_kernel<R>, grid, OT_PRODUCT_THREADS, 0, stream, product);
}

}  // namespace

extern "C" void ot_cuda_multiply_generic(void *stream, const ot_cuda_product *product) {
  if (product->compute == OT_F64) {
    multiply<double>(stream, product);
  } else {
    multiply<float>(stream, product);
  }
}
