// SPDX-License-Identifier: Apache-2.0
// run: any machine. Noise with a trend gives no alarm in 10,000 steps; seeded spikes do, at their
// step; z matches its definition.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "runtime/health.h"

enum { STEPS = 10000 };

static double noise(uint64_t stream, int64_t i) { return ot_rng_normal(11, stream, (uint64_t)i); }

// A loss that falls as a power of the steps, plus independent noise.
static double falling(int64_t i) { return 2 + 8 / sqrt(1 + (double)i / 10) + 0.05 * noise(1, i); }

// A gradient norm that grows slowly, with log-normal noise.
static double growing(int64_t i) { return (0.5 + 1e-4 * (double)i) * exp(0.2 * noise(2, i)); }

static double level(int64_t i) { return 3 + 0.01 * noise(3, i); }

static void trends_with_noise_give_no_alarm(void **state) {
  (void)state;
  double (*const series[])(int64_t) = {falling, growing, level};
  for (int k = 0; k < 3; k++) {
    ot_spike_monitor monitor = {0};
    for (int64_t i = 0; i < STEPS; i++) {
      if (ot_spike_add(&monitor, series[k](i))) {
        fail_msg("series %d, step %d: z = %g", k, (int)i, monitor.z);
      }
    }
  }
}

// Alarms at the seeded steps and at no other.
static void seeded_spikes_are_found_at_their_step(void **state) {
  (void)state;
  double (*const series[])(int64_t) = {falling, growing, level};
  const double by[] = {8, 12, 0.5};
  for (int k = 0; k < 3; k++) {
    ot_spike_monitor monitor = {0};
    for (int64_t i = 0; i < STEPS; i++) {
      const bool seeded = i >= 300 && i % 97 == 0;
      const bool alarm = ot_spike_add(&monitor, series[k](i) + (seeded ? by[k] : 0));
      if (alarm != seeded) fail_msg("series %d, step %d: z = %g", k, (int)i, monitor.z);
    }
  }
}

static void a_small_persistent_spike_is_an_alarm(void **state) {
  (void)state;
  ot_spike_monitor monitor = {0};
  for (int64_t i = 0; i < 200; i++) assert_false(ot_spike_add(&monitor, level(i)));
  assert_false(ot_spike_add(&monitor, 3.12));  // about 12 deviations
  assert_true(monitor.z > 8 && monitor.z < 20);
  assert_true(ot_spike_add(&monitor, 3.12));
  assert_false(ot_spike_add(&monitor, 3.0));
  assert_false(ot_spike_add(&monitor, 3.12));
}

// For 1 .. 20 the median is 10.5 and the median deviation 5.
static void z_is_of_median_and_median_deviation(void **state) {
  (void)state;
  ot_spike_monitor monitor = {0};
  for (int i = 1; i <= OT_SPIKE_LEAST; i++) {
    assert_false(ot_spike_add(&monitor, i));
    assert_true(monitor.z == 0);
  }
  assert_false(ot_spike_add(&monitor, 25));
  assert_float_equal(monitor.z, (25 - 10.5) / (1.4826 * 5), 1e-12);
}

static void nonfinite_values_are_omitted(void **state) {
  (void)state;
  ot_spike_monitor monitor = {0};
  for (int64_t i = 0; i < 100; i++) assert_false(ot_spike_add(&monitor, level(i)));
  assert_false(ot_spike_add(&monitor, NAN));
  assert_false(ot_spike_add(&monitor, INFINITY));
  assert_int_equal(monitor.count, 100);
  assert_true(ot_spike_add(&monitor, 30));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trends_with_noise_give_no_alarm),
      cmocka_unit_test(seeded_spikes_are_found_at_their_step),
      cmocka_unit_test(a_small_persistent_spike_is_an_alarm),
      cmocka_unit_test(z_is_of_median_and_median_deviation),
      cmocka_unit_test(nonfinite_values_are_omitted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
