// SPDX-License-Identifier: Apache-2.0
// The emulated device's version of src/kernels/cuda/machine.cuh, which see.
#pragma once

#include <cuda_runtime.h>

#include <tuple>

namespace shim {

// As in CUDA, arguments are converted and copied when the kernel is queued.
template <class... Parameters, class... Arguments>
void launch_with(const char *name, const launch_shape &shape, void *stream,
                 void (*kernel)(Parameters...), Arguments... arguments) {
  const std::tuple<Parameters...> copies{static_cast<Parameters>(arguments)...};
  launch(name, kernel, shape.grid, shape.block, shape.shared_bytes, (cudaStream_t)stream,
         [=] { std::apply(kernel, copies); });
}

}  // namespace shim

#define OT_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                             \
  shim::launch_with(#kernel, {#kernel, (grid), (block), (size_t)(shared_bytes)}, (stream), \
                    (kernel), __VA_ARGS__)

#define OT_DYNAMIC_SHARED(type, name) type *const name = (type *)shim::dynamic_shared()

static inline uint16_t ot_round_to_bf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
