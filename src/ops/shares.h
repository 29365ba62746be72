// SPDX-License-Identifier: Apache-2.0
// The number of threads of a call: as many as have enough work to be worth waking. Shared by
// kernels and cost models. Pure.
#pragma once

#include <stdint.h>

enum {
  // Fewer elements than this are processed by one thread: waking others costs more time.
  OT_SINGLE_THREAD_ELEMENTS = 65536,
  // Multiply-adds of a GEMM per thread that make waking it worthwhile. Also above the size up to
  // which OpenBLAS uses another code path with another order of sums (28 * 512 * 512).
  OT_THREAD_MULTIPLY_ADDS = 8 << 20,
};

static inline int ot_threads_for_elements(int64_t elements, int threads) {
  return elements < OT_SINGLE_THREAD_ELEMENTS ? 1 : threads;
}

// For a GEMM of `multiply_adds`.
static inline int ot_threads_for_gemm(double multiply_adds, int threads) {
  const double affordable = multiply_adds / OT_THREAD_MULTIPLY_ADDS;
  return affordable < threads ? (affordable < 1 ? 1 : (int)affordable) : threads;
}
