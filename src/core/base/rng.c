// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 and the distributions built on it.
#include "base/rng.h"

#include "base/math.h"

// A bijection of 64-bit words that keeps 0 (Stafford 2011, variant 13 of the MurmurHash3
// finalizer).
static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

// Stream 0 leaves the seed unchanged, so the published test vectors apply.
uint64_t ot_rng_key(uint64_t seed, uint64_t stream) { return seed ^ mix(stream); }

ot_rng_block ot_rng_philox(uint64_t seed, uint64_t stream, uint64_t counter_low,
                           uint64_t counter_high) {
  const uint64_t key = ot_rng_key(seed, stream);
  uint32_t key0 = (uint32_t)key;
  uint32_t key1 = (uint32_t)(key >> 32);
  uint32_t c0 = (uint32_t)counter_low;
  uint32_t c1 = (uint32_t)(counter_low >> 32);
  uint32_t c2 = (uint32_t)counter_high;
  uint32_t c3 = (uint32_t)(counter_high >> 32);
  // Salmon et al. 2011, sec. 3.3: ten rounds, key bumped by Weyl constants between them.
  for (int round = 0; round < 10; round++) {
    const uint64_t product0 = (uint64_t)0xd2511f53u * c0;
    const uint64_t product1 = (uint64_t)0xcd9e8d57u * c2;
    c0 = (uint32_t)(product1 >> 32) ^ c1 ^ key0;
    c1 = (uint32_t)product1;
    c2 = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
    c3 = (uint32_t)product0;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return (ot_rng_block){{c0, c1, c2, c3}};
}

static uint64_t join(uint32_t low, uint32_t high) { return (uint64_t)high << 32 | low; }

double ot_rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter) {
  return ot_rng_philox(seed, stream, counter, 0).word[0] * 0x1p-32;
}

double ot_rng_normal(uint64_t seed, uint64_t stream, uint64_t counter) {
  const ot_rng_block block = ot_rng_philox(seed, stream, counter, 0);
  // 53 bits each; the number for the radius is in (0, 1], so that its logarithm exists.
  const double u = (double)((join(block.word[0], block.word[1]) >> 11) + 1) * 0x1p-53;
  const double v = (double)(join(block.word[2], block.word[3]) >> 11) * 0x1p-53;
  return ot_sqrt(-2 * ot_log(u)) * ot_cos(0x1.921fb54442d18p+2 * v);
}

// The upper half of the 128-bit product.
static uint64_t multiply_high(uint64_t a, uint64_t b) {
  const uint64_t a_low = (uint32_t)a;
  const uint64_t a_high = a >> 32;
  const uint64_t b_low = (uint32_t)b;
  const uint64_t b_high = b >> 32;
  const uint64_t middle = a_high * b_low + (a_low * b_low >> 32);
  const uint64_t other = a_low * b_high + (uint32_t)middle;
  return a_high * b_high + (middle >> 32) + (other >> 32);
}

uint64_t ot_rng_below(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t bound) {
  const ot_rng_block block = ot_rng_philox(seed, stream, counter, 0);
  return multiply_high(join(block.word[0], block.word[1]), bound);
}

uint64_t ot_rng_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n) {
  int half_bits = 1;
  while (half_bits < 32 && (n - 1) >> (2 * half_bits) != 0) half_bits++;
  const uint64_t mask = ((uint64_t)1 << half_bits) - 1;
  // The draws above do not use the counter's upper half, so the round keys are distinct words.
  const ot_rng_block keys = ot_rng_philox(seed, stream, n, ~(uint64_t)0);
  do {
    uint64_t left = i >> half_bits;
    uint64_t right = i & mask;
    for (int round = 0; round < 4; round++) {
      const uint64_t next = left ^ (mix(join((uint32_t)right, keys.word[round])) & mask);
      left = right;
      right = next;
    }
    i = left << half_bits | right;
  } while (i >= n);
  return i;
}
