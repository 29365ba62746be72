// SPDX-License-Identifier: Apache-2.0
// Partial sums of blocks into the workspace, then their sum.
#include "kernels/cuda/kernel.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "workspace/cuda_workspace.h"
#include "ops/checksum.h"
}

namespace {

enum { THREADS = 256 };

typedef unsigned long long word;

__device__ word term_of(word bits, int64_t i) {
  word z = bits + ((word)i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

template <class BITS>
__global__ void __launch_bounds__(THREADS) terms_kernel(const BITS *x, int64_t n, word *sums) {
  __shared__ word shared[THREADS / 32];
  word sum = 0;
  const int64_t step = (int64_t)gridDim.x * THREADS;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
    sum += term_of(x[i], i);
  }
  sum = ot_block_sum<THREADS>(sum, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS)
    checksum_total_kernel(const word *sums, int parts, word *total, bool accumulate) {
  __shared__ word shared[THREADS / 32];
  word sum = 0;
  for (int i = threadIdx.x; i < parts; i += THREADS) sum += sums[i];
  sum = ot_block_sum<THREADS>(sum, shared);
  if (threadIdx.x == 0) *total = accumulate ? *total + sum : sum;
}

template <class BITS>
void add_terms(const ot_kernel_call *call, int parts) {
  OT_LAUNCH(terms_kernel<BITS>, parts, THREADS, 0, ot_cuda_stream_of(call),
            (const BITS *)call->in[0].data, ot_type_elements(&call->in[0].type),
            (word *)call->workspace);
}

void checksum(const ot_kernel_call *call) {
  const int parts = (int)ot_cuda_flat_blocks(ot_type_elements(&call->in[0].type));
  switch (ot_dtype_bytes(call->in[0].type.dtype)) {
    case 2:
      add_terms<uint16_t>(call, parts);
      break;
    case 4:
      add_terms<uint32_t>(call, parts);
      break;
    default:
      add_terms<uint64_t>(call, parts);
  }
  OT_LAUNCH(checksum_total_kernel, 1, THREADS, 0, ot_cuda_stream_of(call),
            (const word *)call->workspace, parts, (word *)call->out[0].data,
            call->attributes->accumulate);
}

}  // namespace

extern "C" const ot_kernel_entry ot_checksum_cuda_f32[] = {{OT_OP_CHECKSUM, checksum}, {}};
extern "C" const ot_kernel_entry ot_checksum_cuda_f64[] = {{OT_OP_CHECKSUM, checksum}, {}};
