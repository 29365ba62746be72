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
  // Weights of a GEMM per thread, if its rows are few: it takes as long as reading them.
  OT_THREAD_WEIGHTS = 128 << 10,
};

static inline int ot_threads_for_elements(int64_t elements, int threads) {
  return elements < OT_SINGLE_THREAD_ELEMENTS ? 1 : threads;
}

// For a GEMM of `multiply_adds`.
static inline int ot_threads_for_gemm(double multiply_adds, int threads) {
  const double affordable = multiply_adds / OT_THREAD_MULTIPLY_ADDS;
  return affordable < threads ? (affordable < 1 ? 1 : (int)affordable) : threads;
}

// For one of `weights` elements that works on `rows` rows, each as if it were alone.
static inline int ot_threads_for_rows(double weights, double rows, int threads) {
  const double affordable = weights / OT_THREAD_WEIGHTS;
  const int least = affordable < threads ? (affordable < 1 ? 1 : (int)affordable) : threads;
  const int by_work = ot_threads_for_gemm(weights * rows, threads);
  return by_work > least ? by_work : least;
}
