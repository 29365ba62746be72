// SPDX-License-Identifier: Apache-2.0
// The emulated device's version of src/machine/kernels/cuda/hopper.cuh, which see.
#pragma once

#include "hopper.h"
#include "kernels/cuda/machine.cuh"

extern "C" {
#include "kernels/cuda/tensor_map.h"
}

#define OT_GRID_CONSTANT const __grid_constant__
#define OT_SWIZZLED_SHARED(name) unsigned char *const name = shim::dynamic_shared()

static inline void ot_barrier_init(uint64_t *barrier, int count, SHIM_HERE) {
  shim::mbarrier_init(barrier, count, {file, line});
}
static inline void ot_barrier_fence() { shim::mbarrier_fence_init(); }
static inline void ot_barrier_arrive(uint64_t *barrier, SHIM_HERE) {
  shim::mbarrier_arrive(barrier, {file, line});
}
static inline void ot_barrier_expect(uint64_t *barrier, int bytes, SHIM_HERE) {
  shim::mbarrier_expect(barrier, bytes, {file, line});
}
static inline void ot_barrier_wait(uint64_t *barrier, int parity, SHIM_HERE) {
  shim::mbarrier_wait(barrier, parity, {file, line});
}
static inline void ot_named_barrier(int number, int threads, SHIM_HERE) {
  shim::named_barrier(number, threads, {file, line});
}

static inline void ot_copy_tile(void *shared, const ot_tensor_map &map, int column, int row,
                                int sequence, uint64_t *barrier, SHIM_HERE) {
  const int first[] = {column, row, sequence};
  shim::copy_tile(shared, &map, first, 3, barrier, {file, line});
}
static inline void ot_prefetch_map(const ot_tensor_map &) {}

template <int N>
static inline void ot_fewer_registers() {
  static_assert(N >= 24 && N <= 256 && N % 8 == 0, "as setmaxnreg asks");
}
template <int N>
static inline void ot_more_registers() {
  static_assert(N >= 24 && N <= 256 && N % 8 == 0, "as setmaxnreg asks");
}

template <int COLUMNS>
static inline uint64_t ot_operand_by_column(const void *from, int panel) {
  const auto at = static_cast<const unsigned char *>(from) - shim::dynamic_shared();
  const uint64_t stride = 8 * COLUMNS * 2, swizzle = COLUMNS == 64 ? 1 : 2;
  return static_cast<uint64_t>(at) >> 4 | static_cast<uint64_t>(panel) >> 4 << 16 |
         stride >> 4 << 32 | swizzle << 62;
}
template <int COLUMNS>
static inline uint64_t ot_operand_by_depth(const void *from) {
  return ot_operand_by_column<COLUMNS>(from, 16);
}

static inline void ot_products_begin(SHIM_HERE) { shim::wgmma_fence({file, line}); }
static inline void ot_products_end(SHIM_HERE) { shim::wgmma_commit({file, line}); }
template <int N>
static inline void ot_products_wait(SHIM_HERE) {
  shim::wgmma_wait(N, {file, line});
}

template <int N>
static inline void ot_products_hold(float (&)[N][4]) {}

template <int N>
static inline void ot_multiply(float (&d)[N][4], uint64_t a, uint64_t b, bool add, SHIM_HERE) {
  shim::wgmma({d[0], 8 * N, nullptr, a, b, add, false}, {file, line});
}
template <int N>
static inline void ot_multiply_add(float (&d)[N][4], const uint32_t (&a)[4], uint64_t b,
                                   SHIM_HERE) {
  shim::wgmma({d[0], 8 * N, a, 0, b, true, true}, {file, line});
}
