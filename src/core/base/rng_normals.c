// SPDX-License-Identifier: Apache-2.0
// Normal numbers as in ot_rng_normal, in loops that the compiler vectorises for the processor of
// the kernels (CMakeLists.txt): Philox and conversions in blocks that stay in the first cache, then
// Box-Muller. Wider vectors change no bit (base/math_lanes.h).
#include "base/math_lanes.h"
#include "base/philox_lanes.h"
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

// u in (0, 1], v in [0, 1) from one block.
static inline void draw(uint64_t key, uint64_t counter, double *u, double *v) {
  uint64_t word[4] = {counter & low_half, counter >> 32, 0, 0};
  ot_philox_lanes(key, word);
  *u = upper_bits(word[1], word[0], 1) * 0x1p-53;
  *v = upper_bits(word[3], word[2], 0) * 0x1p-53;
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
