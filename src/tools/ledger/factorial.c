// SPDX-License-Identifier: Apache-2.0
// Full designs up to four changes; above, 16 runs whose further changes are products of the first
// four (Box, Hunter and Hunter 1978, table 12.15): resolution V for five, IV for six to eight.
#include <stdint.h>

#include "ledger/multiplier.h"

// For each further change the first four changes whose product of signs is its sign.
static const unsigned generators[9][4] = {
    [5] = {0xf},                 // E = ABCD
    [6] = {0x7, 0xe},            // E = ABC, F = BCD
    [7] = {0x7, 0xe, 0xd},       // and G = ACD
    [8] = {0xe, 0xd, 0x7, 0xb},  // E = BCD, F = ACD, G = ABC, H = ABD
};

static int ones(unsigned bits) { return __builtin_popcount(bits); }

bool ot_factorial_design(int factors, ot_factorial *out) {
  if (factors < 2 || factors > 8) return false;
  const int first = factors < 4 ? factors : 4;
  *out = (ot_factorial){factors, 1 << first, factors <= 4 ? 0 : factors == 5 ? 5 : 4, {0}};
  for (int r = 0; r < out->runs; r++) {
    unsigned run = (unsigned)r;
    for (int i = first; i < factors; i++) {
      // A product of k signs is +1 if an even number of them is -1; "on" is +1. The sign is chosen
      // such that the run with everything off belongs to the design.
      const unsigned of = generators[factors][i - first] & (unsigned)r;
      if (ones(of) & 1) run |= 1u << i;
    }
    out->run[r] = run;
  }
  return true;
}

double ot_factorial_effect(const ot_factorial *d, unsigned mask, const double *value) {
  double sum = 0;
  for (int r = 0; r < d->runs; r++) {
    const int off = ones(mask) - ones(mask & d->run[r]);
    sum += (off & 1) ? -value[r] : value[r];
  }
  return sum / d->runs * (1 << ones(mask));
}

// Whether the signs of two masks agree in all runs, or differ in all.
static bool same_contrast(const ot_factorial *d, unsigned a, unsigned b) {
  int equal = 0;
  for (int r = 0; r < d->runs; r++)
    equal += (ones(a & ~d->run[r]) & 1) == (ones(b & ~d->run[r]) & 1);
  return equal == 0 || equal == d->runs;
}

unsigned long long ot_factorial_aliases(const ot_factorial *d, unsigned mask) {
  unsigned long long found = 0;
  for (int j = 1; j < d->factors; j++) {
    for (int i = 0; i < j; i++) {
      const unsigned pair = 1u << i | 1u << j;
      if (pair != mask && same_contrast(d, mask, pair)) found |= 1ull << (j * 8 + i);
    }
  }
  return found;
}
