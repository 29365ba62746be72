// SPDX-License-Identifier: Apache-2.0
// Normal numbers as in ot_rng_normal, in loops that the compiler vectorises for the processor of
// the kernels (CMakeLists.txt): Philox and conversions in blocks that stay in the first cache, then
// Box-Muller. Wider vectors change no bit (base/math_lanes.h).
#include "base/math_lanes.h"
#include "base/rng.h"

enum { BLOCK = 512 };

static const uint64_t low_half = 0xffffffffu;

// The 53 upper bits of high << 32 | low, which are the halves of 64-bit lanes: by two numbers below
// 2^27, because not every processor converts 64-bit integers.
static inline double upper_bits(uint64_t high, uint64_t low, int added) {
  const uint64_t word = high << 32 | (low & low_half);
  const int top = (int)(word >> 37), rest = (int)(word >> 11 & 0x3ffffff);
  return (double)top * 0x1p26 + (double)(rest + added);
}

// One block of Philox (base/rng.c) in 64-bit lanes whose upper halves are ignored; u in (0, 1], v
// in [0, 1).
static inline void draw(uint64_t key, uint64_t counter, double *u, double *v) {
  uint64_t key0 = key & low_half, key1 = key >> 32;
  uint64_t c0 = counter & low_half, c1 = counter >> 32, c2 = 0, c3 = 0;
  for (int round = 0; round < 10; round++) {
    const uint64_t product0 = (c0 & low_half) * 0xd2511f53u;
    const uint64_t product1 = (c2 & low_half) * 0xcd9e8d57u;
    c0 = product1 >> 32 ^ c1 ^ key0;
    c1 = product1;
    c2 = product0 >> 32 ^ c3 ^ key1;
    c3 = product0;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  *u = upper_bits(c1, c0, 1) * 0x1p-53;
  *v = upper_bits(c3, c2, 0) * 0x1p-53;
}

static void make(uint64_t key, const ot_rng_counters *at, int64_t n, double *normals) {
  double u[BLOCK], v[BLOCK];
#pragma omp simd
  for (int64_t i = 0; i < n; i++) draw(key, at->first + (uint64_t)i * at->step, &u[i], &v[i]);
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    normals[i] = __builtin_sqrt(-2 * log_positive(u[i])) * circular(0x1.921fb54442d18p+2 * v[i], 1);
  }
}

void ot_rng_normals(const ot_rng_counters *counters, int64_t n, double *normals) {
  const uint64_t key = ot_rng_key(counters->seed, counters->stream);
  for (int64_t done = 0; done < n; done += BLOCK) {
    ot_rng_counters at = *counters;
    at.first += (uint64_t)done * at.step;
    make(key, &at, n - done < BLOCK ? n - done : BLOCK, normals + done);
  }
}
