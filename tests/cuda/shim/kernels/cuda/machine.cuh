// SPDX-License-Identifier: Apache-2.0
// The emulated device's version of src/kernels/cuda/machine.cuh, which see.
#pragma once

#include <cuda_runtime.h>

#define OT_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                           \
  shim::launch(#kernel, (grid), (block), (shared_bytes), (cudaStream_t)(stream),            \
               [=] { kernel(__VA_ARGS__); })

#define OT_DYNAMIC_SHARED(type, name) type *const name = (type *)shim::dynamic_shared()

static inline uint16_t ot_round_to_bf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
