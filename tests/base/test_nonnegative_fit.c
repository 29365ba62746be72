// SPDX-License-Identifier: Apache-2.0
// run: any machine. Recovers the constants that generated timings: exact, with noise, and with
// outliers; a term without cost gets zero.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/nonnegative_fit.h"
#include "base/rng.h"
#include "host/heap.h"

enum { COUNT = 24 };

// A call of 5 us, 80 GFLOP/s and 12 GB/s: cost of GEMMs of many shapes.
static const double truth[OT_FIT_TERMS] = {5e-6, 1 / 80e9, 0, 1 / 12e9};

static void make_samples(ot_fit_sample samples[COUNT]) {
  for (int i = 0; i < COUNT; i++) {
    const double rows = 32 << i % 6, columns = 48 << i / 6 % 4, depth = 64 * (1 + i % 5);
    ot_fit_sample *const s = &samples[i];
    *s = (ot_fit_sample){.term = {1, 2 * rows * columns * depth, rows * columns,
                                  4 * (rows * depth + depth * columns + rows * columns)}};
    for (int k = 0; k < OT_FIT_TERMS; k++) s->value += truth[k] * s->term[k];
  }
}

static void expect_near(const ot_fit *fit, double tolerance) {
  for (int k = 0; k < OT_FIT_TERMS; k++) {
    if (truth[k] == 0) continue;
    if (fabs(fit->x[k] / truth[k] - 1) > tolerance) {
      fail_msg("term %d: %g, not %g", k, fit->x[k], truth[k]);
    }
  }
}

static ot_fit fit_above(const ot_fit_sample *samples, int count, const double *least) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_fit fit = ot_fit_nonnegative(samples, count, least, &arena);
  ot_heap_release(&heap);
  return fit;
}

static ot_fit fit_to(const ot_fit_sample *samples, int count) {
  return fit_above(samples, count, NULL);
}

static void finds_the_constants_of_exact_timings(void **state) {
  (void)state;
  ot_fit_sample samples[COUNT];
  make_samples(samples);
  const ot_fit fit = fit_to(samples, COUNT);
  expect_near(&fit, 1e-3);
  assert_true(fit.x[2] == 0 && fit.x[4] == 0 && fit.x[5] == 0);
  assert_true(fit.residual < 1e-3);
  assert_true(fabs(ot_fit_value(&fit, &samples[7]) / samples[7].value - 1) < 1e-3);
}

static void says_how_far_noisy_timings_are(void **state) {
  (void)state;
  ot_fit_sample samples[COUNT];
  make_samples(samples);
  for (int i = 0; i < COUNT; i++) {
    samples[i].value *= 1 + 0.1 * (ot_rng_uniform(1, 2, (uint64_t)i) - 0.5);
  }
  const ot_fit fit = fit_to(samples, COUNT);
  expect_near(&fit, 0.3);
  assert_true(fit.residual > 0.005 && fit.residual < 0.05);
}

// Two sizes cannot tell FLOPs from bytes: without the bound, a disturbed one gives a rate that no
// processor has.
static void no_constant_is_below_its_least(void **state) {
  (void)state;
  const ot_fit_sample two[] = {{.term = {1, 50e9, 0, 120e6}, .value = 181e-6},
                               {.term = {1, 25e9, 0, 140e6}, .value = 194e-6}};
  const double least[OT_FIT_TERMS] = {0, 1 / 800e12};
  assert_true(fit_to(two, 2).x[1] < least[1]);
  const ot_fit fit = fit_above(two, 2, least);
  assert_true(fit.x[1] >= least[1]);
  assert_true(fit.residual < 0.1);
  ot_fit_sample samples[COUNT];
  make_samples(samples);
  const double faster[OT_FIT_TERMS] = {0, 1 / 160e9};
  const ot_fit same = fit_above(samples, COUNT, faster);
  expect_near(&same, 1e-3);
}

static void a_few_disturbed_timings_change_little(void **state) {
  (void)state;
  ot_fit_sample samples[COUNT];
  make_samples(samples);
  samples[3].value *= 4;
  samples[11].value *= 9;
  samples[17].value *= 2;
  const ot_fit fit = fit_to(samples, COUNT);
  expect_near(&fit, 0.05);
}

static void negative_rates_are_clamped_to_zero(void **state) {
  (void)state;
  ot_fit_sample samples[3] = {{{1, 10}, 9}, {{1, 20}, 19}, {{1, 40}, 39}};
  const ot_fit fit = fit_to(samples, 3);
  assert_true(fit.x[0] == 0);  // -1 would fit
  assert_true(fit.x[1] >= 0.9 && fit.x[1] <= 0.975);
}

static void one_timing_determines_its_last_term(void **state) {
  (void)state;
  const ot_fit_sample sample = {{1, 0, 0, 200}, 50e-6};
  const ot_fit fit = fit_to(&sample, 1);
  assert_true(fabs(fit.x[3] / (50e-6 / 200) - 1) < 1e-9);
  assert_true(fit.x[0] == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(finds_the_constants_of_exact_timings),
      cmocka_unit_test(says_how_far_noisy_timings_are),
      cmocka_unit_test(no_constant_is_below_its_least),
      cmocka_unit_test(a_few_disturbed_timings_change_little),
      cmocka_unit_test(negative_rates_are_clamped_to_zero),
      cmocka_unit_test(one_timing_determines_its_last_term),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
