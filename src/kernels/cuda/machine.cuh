// SPDX-License-Identifier: Apache-2.0
// What CUDA C++ spells in its own syntax or in PTX. A test build finds its own file of this name,
// for an emulated device, first.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

// Template kernels with several arguments are written in parentheses.
#define OT_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  (kernel)<<<(grid), (block), (shared_bytes), (cudaStream_t)(stream)>>>(__VA_ARGS__)

// Dynamic shared memory, 128-byte aligned.
#define OT_DYNAMIC_SHARED(type, name)                             \
  extern __shared__ __align__(128) unsigned char ot_shared_bytes[]; \
  type *const name = (type *)ot_shared_bytes

// To nearest even.
__device__ __forceinline__ uint16_t ot_round_to_bf16(float x) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
