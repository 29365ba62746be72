// SPDX-License-Identifier: Apache-2.0
// run: alone. Philox against the known answers of the Random123 distribution (kat_vectors); the
// distributions against their theoretical moments and limits.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"

static void philox_gives_the_published_answers(void **state) {
  (void)state;
  static const struct {
    uint32_t counter[4], key[2], answer[4];
  } known[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    const uint32_t *const c = known[i].counter;
    const ot_rng_block block =
        ot_rng_philox((uint64_t)known[i].key[1] << 32 | known[i].key[0], 0,
                      (uint64_t)c[1] << 32 | c[0], (uint64_t)c[3] << 32 | c[2]);
    for (int j = 0; j < 4; j++) assert_int_equal(block.word[j], known[i].answer[j]);
  }
}

static void streams_and_seeds_differ(void **state) {
  (void)state;
  const uint32_t first = ot_rng_philox(1, 0, 0, 0).word[0];
  assert_int_not_equal(first, ot_rng_philox(1, 1, 0, 0).word[0]);
  assert_int_not_equal(first, ot_rng_philox(2, 0, 0, 0).word[0]);
  assert_int_not_equal(first, ot_rng_philox(1, 0, 1, 0).word[0]);
}

enum { DRAWS = 400000, NORMAL_DRAWS = 10 * DRAWS };

// Bounds are five standard errors of each estimate.
static void many_normals_have_the_bits_of_single_ones(void **state) {
  (void)state;
  enum { MOST = 1300 };
  static double many[MOST + 1];
  static const uint64_t steps[] = {1, 768, 0x1000000001};
  for (int n = 0; n <= MOST; n = 2 * n + 1) {
    for (int k = 0; k < OT_COUNT(steps); k++) {
      const ot_rng_counters at = {5, 9 + (uint64_t)n, 0xfffffff0, steps[k]};
      many[n] = 7;
      ot_rng_normals(&at, n, many);
      for (int i = 0; i < n; i++) {
        const double one = ot_rng_normal(at.seed, at.stream, at.first + (uint64_t)i * at.step);
        assert_memory_equal(&many[i], &one, sizeof one);
      }
      assert_true(many[n] == 7);
    }
  }
}

static void normal_has_the_moments_of_a_standard_normal(void **state) {
  (void)state;
  double sum[5] = {0};
  for (uint64_t i = 0; i < NORMAL_DRAWS; i++) {
    const double x = ot_rng_normal(3, 9, i);
    double power = 1;
    for (int k = 1; k <= 4; k++) sum[k] += power *= x;
  }
  const double n = NORMAL_DRAWS;
  assert_true(fabs(sum[1] / n) < 5 * sqrt(1 / n));
  assert_true(fabs(sum[2] / n - 1) < 5 * sqrt(2 / n));
  assert_true(fabs(sum[3] / n) < 5 * sqrt(15 / n));
  assert_true(fabs(sum[4] / n - 3) < 5 * sqrt(96 / n));
}

static void normal_has_the_distribution_of_a_standard_normal(void **state) {
  (void)state;
  enum { BINS = 64 };
  int64_t count[BINS] = {0};
  for (uint64_t i = 0; i < DRAWS; i++) {
    const double p = 0.5 * erfc(-ot_rng_normal(4, 2, i) / sqrt(2.0));
    const int bin = (int)(p * BINS);
    count[bin < BINS ? bin : BINS - 1]++;
  }
  double chi_squared = 0;
  for (int b = 0; b < BINS; b++) {
    const double expected = (double)DRAWS / BINS;
    chi_squared += (count[b] - expected) * (count[b] - expected) / expected;
  }
  // 63 degrees of freedom: mean 63, standard deviation 11.2.
  if (!(chi_squared > 20 && chi_squared < 125)) fail_msg("chi squared %g", chi_squared);
}

static void uniform_and_bounded_draws_stay_inside(void **state) {
  (void)state;
  double sum = 0;
  int64_t count[10] = {0};
  for (uint64_t i = 0; i < DRAWS; i++) {
    const double u = ot_rng_uniform(5, 6, i);
    assert_true(u >= 0 && u < 1);
    sum += u;
    count[ot_rng_below(5, 7, i, 10)]++;
    assert_true(ot_rng_below(5, 8, i, UINT64_MAX) < UINT64_MAX);
    assert_int_equal(ot_rng_below(5, 9, i, 1), 0);
  }
  assert_true(fabs(sum / DRAWS - 0.5) < 5 * sqrt(1.0 / 12 / DRAWS));
  for (int k = 0; k < 10; k++) assert_true(fabs(count[k] - DRAWS / 10.0) < 5 * sqrt(DRAWS * 0.09));
}

static void check_permutation(uint64_t n) {
  uint8_t *const seen = calloc((size_t)n, 1);
  assert_non_null(seen);
  for (uint64_t i = 0; i < n; i++) {
    const uint64_t to = ot_rng_permute(11, 12, i, n);
    if (to >= n || seen[to])
      fail_msg("n=%llu: %llu", (unsigned long long)n, (unsigned long long)to);
    seen[to] = 1;
  }
  free(seen);
}

static void permutation_takes_every_place_once(void **state) {
  (void)state;
  for (uint64_t n = 1; n < 200; n++) check_permutation(n);
  check_permutation(65536);
  check_permutation(65537);
  check_permutation(100003);
}

static void permutation_moves_nearly_everything_and_depends_on_its_key(void **state) {
  (void)state;
  enum { N = 10000 };
  int fixed = 0, same = 0, ascending = 0;
  for (uint64_t i = 0; i < N; i++) {
    const uint64_t to = ot_rng_permute(1, 2, i, N);
    fixed += to == i;
    same += to == ot_rng_permute(1, 3, i, N);
    ascending += ot_rng_permute(1, 2, (i + 1) % N, N) > to;
  }
  assert_in_range(fixed, 0, 8);
  assert_in_range(same, 0, 8);
  assert_in_range(ascending, N / 2 - 200, N / 2 + 200);
  assert_true(ot_rng_permute(1, 2, 5, UINT64_MAX) < UINT64_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(philox_gives_the_published_answers),
      cmocka_unit_test(streams_and_seeds_differ),
      cmocka_unit_test(many_normals_have_the_bits_of_single_ones),
      cmocka_unit_test(normal_has_the_moments_of_a_standard_normal),
      cmocka_unit_test(normal_has_the_distribution_of_a_standard_normal),
      cmocka_unit_test(uniform_and_bounded_draws_stay_inside),
      cmocka_unit_test(permutation_takes_every_place_once),
      cmocka_unit_test(permutation_moves_nearly_everything_and_depends_on_its_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
