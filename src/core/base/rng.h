// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
// easy as 1, 2, 3"). A draw is a pure function of (seed, stream, counter), so initialisation, data
// order and dropout are independent of the mesh and of earlier draws.
#pragma once

#include <stdint.h>

typedef struct ot_rng_block {
  uint32_t word[4];
} ot_rng_block;

// The key of `seed` and `stream`, for code that computes many blocks at once.
uint64_t ot_rng_key(uint64_t seed, uint64_t stream);

// The four words at `counter` (two 64-bit halves) of the generator keyed by `seed` and `stream`.
ot_rng_block ot_rng_philox(uint64_t seed, uint64_t stream, uint64_t counter_low,
                           uint64_t counter_high);

// Uniform in [0, 1): 32 random bits over 2^32.
double ot_rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter);

// Standard normal by Box-Muller on the base's own log and cosine: same bits on every host.
double ot_rng_normal(uint64_t seed, uint64_t stream, uint64_t counter);

// The numbers at counters first, first + step, ..., first + (n - 1) step into `normals` [n]: the
// bits of ot_rng_normal, computed many at once.
typedef struct ot_rng_counters {
  uint64_t seed, stream, first, step;
} ot_rng_counters;
void ot_rng_normals(const ot_rng_counters *counters, int64_t n, double *normals);

// Uniform integer in [0, bound), bound > 0, with negligible modulo bias (64-bit product).
uint64_t ot_rng_below(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t bound);

// The i-th element of a permutation of [0, n) keyed by (seed, stream): a Feistel network of four
// rounds over the next even number of bits, iterated until the value is in range. Expected cost
// O(1).
uint64_t ot_rng_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n);
