// SPDX-License-Identifier: Apache-2.0
// How many threads share the work of a call: as many as have enough to do to be worth waking. One
// place for kernels, which do so, and for prices. Pure.
#pragma once

#include <stdint.h>

enum {
  // Fewer elements than this are done by one thread: waking others takes longer.
  OT_ALONE_ELEMENTS = 65536,
  // Multiply-adds of a matrix product that a thread must have to be worth waking. Also above the
  // size up to which OpenBLAS takes another code path with another order of sums (28 * 512 * 512).
  OT_PIECE_MULTIPLY_ADDS = 8 << 20,
};

static inline int ot_threads_for_elements(int64_t elements, int threads) {
  return elements < OT_ALONE_ELEMENTS ? 1 : threads;
}

// For a product of so many multiply-adds.
static inline int ot_threads_for_product(double multiply_adds, int threads) {
  const double affordable = multiply_adds / OT_PIECE_MULTIPLY_ADDS;
  return affordable < threads ? (affordable < 1 ? 1 : (int)affordable) : threads;
}
