// SPDX-License-Identifier: Apache-2.0
// run: any machine. Updates that are made here by PyTorch's formula of AdamW, sound and with each
// kind of fault, in fp32 and bf16 weights.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "judge/adamw.h"

enum { ELEMENTS = 4000 };

static double before[ELEMENTS], after[ELEMENTS], first[ELEMENTS], second[ELEMENTS],
    gradient[ELEMENTS];
static double first_before[ELEMENTS], second_before[ELEMENTS];

static const ot_adamw_settings usual = {
    .rate = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .step = 1};

static uint64_t seed;

// Uniform in [-1, 1).
static double draw(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (double)(seed >> 11) / 4503599627370496.0 - 1;
}

static double to_bf16(double x) {
  int exponent;
  const double fraction = frexp(x, &exponent);
  return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

// The step of `s` with gradients times `clip`; earlier steps had other gradients.
static void step(const ot_adamw_settings *s, double clip, bool narrow) {
  seed = 3;
  for (int i = 0; i < ELEMENTS; i++) {
    before[i] = narrow ? to_bf16(0.05 * draw()) : (double)(float)(0.05 * draw());
    double m = 0, v = 0;
    for (int64_t t = 1; t <= s->step; t++) {
      gradient[i] = 0.01 * draw();
      first_before[i] = (double)(float)m;
      second_before[i] = (double)(float)v;
      m = s->beta1 * m + (1 - s->beta1) * clip * gradient[i];
      v = s->beta2 * v + (1 - s->beta2) * clip * clip * gradient[i] * gradient[i];
    }
    const double t = (double)s->step;
    const double root = sqrt(v) / sqrt(1 - pow(s->beta2, t)) + s->epsilon;
    const double new =
        before[i] * (1 - s->rate * s->decay) - s->rate / (1 - pow(s->beta1, t)) * m / root;
    after[i] = narrow ? to_bf16(new) : (double)(float)new;
    first[i] = (double)(float)m;
    second[i] = (double)(float)v;
  }
}

static ot_adamw_result judge(const ot_adamw_settings *as, bool narrow) {
  ot_adamw_sums sums = {0};
  const int half = ELEMENTS / 2;
  ot_adamw_measure(as, &(ot_adamw_values){before, after, first, second, gradient, NULL, NULL}, half,
                   &sums);
  ot_adamw_measure(as,
                   &(ot_adamw_values){before + half, after + half, first + half, second + half,
                                      gradient + half, NULL, NULL},
                   ELEMENTS - half, &sums);
  assert_int_equal(sums.elements, ELEMENTS);
  const ot_adamw_units units = {.weights = narrow ? 0x1p-9 : 0x1p-24};
  return ot_adamw_judge(as, &sums, &units);
}

// The same with the moments before the step, which are rounded.
static ot_adamw_result judge_moments(const ot_adamw_settings *as) {
  ot_adamw_sums sums = {0};
  const ot_adamw_values values = {before,   after,        first,        second,
                                  gradient, first_before, second_before};
  ot_adamw_measure(as, &values, ELEMENTS, &sums);
  return ot_adamw_judge(as, &sums, &(ot_adamw_units){0x1p-24, 0x1p-24});
}

static void sound_updates_agree(void **state) {
  (void)state;
  for (int k = 0; k < 4; k++) {
    ot_adamw_settings s = usual;
    s.step = k < 2 ? 1 : 7;
    step(&s, 1, k % 2);
    const ot_adamw_result r = judge(&s, k % 2);
    assert_true(r.ratio < 1 && r.rest < 1);
    assert_float_equal(r.rate, s.rate, s.rate * (k % 2 ? 0.05 : 1e-5));
    assert_float_equal(r.decay, s.decay, (k % 2 ? 0.2 : 1e-3));
    assert_true(isnan(r.clip) == (s.step > 1));
  }
}

static void clipping_shows_in_the_first_moments(void **state) {
  (void)state;
  step(&usual, 0.37, false);
  const ot_adamw_result r = judge(&usual, false);
  assert_true(r.ratio < 1);
  assert_float_equal(r.clip, 0.37, 1e-6);
  assert_true(r.clip_rest < 1e-6);
  assert_float_equal(r.square, 1, 1e-6);
}

static void later_steps_show_what_they_add_to_the_moments(void **state) {
  (void)state;
  ot_adamw_settings s = usual;
  s.step = 7;
  step(&s, 0.37, false);
  ot_adamw_result r = judge_moments(&s);
  assert_float_equal(r.clip, 0.37, 1e-5);
  assert_true(r.clip_noise > 1e-8 && r.clip_rest < 8 * r.clip_noise);
  assert_true(fabs(r.square - 1) < 8 * r.square_noise);
  s.beta1 = 0.91;
  r = judge_moments(&s);
  assert_true(r.clip_rest > 1000 * r.clip_noise);
  s = usual;
  s.step = 7;
  s.beta2 = 0.951;
  r = judge_moments(&s);
  assert_true(fabs(r.square - 1) > 1000 * r.square_noise);
}

static void faults_show_their_sizes(void **state) {
  (void)state;
  ot_adamw_settings told = usual;
  step(&usual, 1, false);
  told.decay = 0;  // the norm of a model, say, that is decayed against its settings
  ot_adamw_result r = judge(&told, false);
  assert_true(r.ratio > 10 && r.rest < 1);
  assert_float_equal(r.decay, 0.1, 1e-3);
  told = usual;
  told.rate = 2e-3;
  r = judge(&told, false);
  assert_true(r.ratio > 10);
  assert_float_equal(r.rate, 1e-3, 1e-8);
  told = usual;
  told.beta2 = 0.999;  // then the second moments are not those of the gradient
  r = judge(&told, false);
  assert_true(fabs(r.square - 1) > 0.5);
  told = usual;
  told.epsilon = 1e-3;
  r = judge(&told, false);
  assert_true(r.ratio > 10 && r.rest > 10);
}

// A wrong rate or decay shows from the error on that the units say, and not below.
static void units_say_which_errors_show(void **state) {
  (void)state;
  for (int narrow = 0; narrow < 2; narrow++) {
    step(&usual, 1, narrow);
    const ot_adamw_result sound = judge(&usual, narrow);
    for (int k = 0; k < 2; k++) {
      const double roundings = k == 0 ? 2 : 6;
      ot_adamw_settings rate = usual, decay = usual;
      rate.rate *= 1 + roundings * sound.rate_unit;
      decay.decay += roundings * sound.decay_unit;
      assert_true((judge(&rate, narrow).ratio > 4) == (k == 1));
      assert_true((judge(&decay, narrow).ratio > 4) == (k == 1));
    }
    assert_true((4 * sound.decay_unit > usual.decay) == narrow);
  }
}

static void missing_corrections_are_a_factor_of_the_rate(void **state) {
  (void)state;
  ot_adamw_settings s = usual;
  s.step = 5;
  step(&s, 1, false);
  ot_adamw_settings one = s;
  one.step = 100000;  // corrections of 1
  const ot_adamw_result r = judge(&one, false);
  const double factor = sqrt(1 - pow(s.beta2, 5)) / (1 - pow(s.beta1, 5));
  assert_true(r.ratio > 10 && r.rest < 4);
  assert_float_equal(r.rate, s.rate * factor, 1e-5 * s.rate);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sound_updates_agree),
      cmocka_unit_test(clipping_shows_in_the_first_moments),
      cmocka_unit_test(later_steps_show_what_they_add_to_the_moments),
      cmocka_unit_test(faults_show_their_sizes),
      cmocka_unit_test(units_say_which_errors_show),
      cmocka_unit_test(missing_corrections_are_a_factor_of_the_rate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
