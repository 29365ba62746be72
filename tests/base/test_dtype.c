// SPDX-License-Identifier: Apache-2.0
// run: alone. Spellings of element types; bf16 rounding against a search for the nearest bf16.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "base/rng.h"

static void names_read_back_in_both_spellings(void **state) {
  (void)state;
  static const char *const hf_names[] = {
      [OT_F32] = "float32", [OT_F64] = "float64", [OT_BF16] = "bfloat16", [OT_F16] = "float16",
      [OT_I32] = "int32",   [OT_I64] = "int64",   [OT_U8] = "uint8",      [OT_F8] = "float8_e4m3fn",
  };
  static const int64_t bytes[] = {[OT_F32] = 4, [OT_F64] = 8, [OT_BF16] = 2, [OT_F16] = 2,
                                  [OT_I32] = 4, [OT_I64] = 8, [OT_U8] = 1,   [OT_F8] = 1};
  for (int i = 0; i < OT_DTYPE_COUNT; i++) {
    ot_dtype dtype = OT_DTYPE_COUNT;
    assert_true(ot_dtype_parse(ot_dtype_name((ot_dtype)i), &dtype));
    assert_int_equal(dtype, i);
    dtype = OT_DTYPE_COUNT;
    assert_true(ot_dtype_parse(hf_names[i], &dtype));
    assert_int_equal(dtype, i);
    assert_int_equal(ot_dtype_bytes((ot_dtype)i), bytes[i]);
    assert_int_equal(ot_dtype_is_real((ot_dtype)i), i <= OT_F16);
  }
  ot_dtype dtype;
  assert_false(ot_dtype_parse("fp7", &dtype));
  assert_false(ot_dtype_parse("", &dtype));
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// The closest bf16 in exact arithmetic; ties to even; infinite beyond half a step above the largest
// finite value.
static uint16_t nearest_by_search(float value) {
  const uint32_t bits = bits_of(value);
  const uint16_t around = (uint16_t)(bits >> 16);
  uint16_t best = around;
  double best_distance = INFINITY;
  for (int step = -1; step <= 1; step++) {
    const uint16_t candidate = (uint16_t)(around + step);
    if ((candidate ^ around) & 0x8000) continue;
    const bool infinite = (candidate & 0x7fff) == 0x7f80;
    if ((candidate & 0x7fff) > 0x7f80) continue;
    const double there = infinite ? copysign(0x1p128, value) : ot_bf16_to_float(candidate);
    const double distance = fabs(there - value);
    if (distance < best_distance || (distance == best_distance && candidate % 2 == 0)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

static void rounds_to_the_nearest_bf16_with_ties_to_even(void **state) {
  (void)state;
  // Every upper half of a float, with the lower halves at which rounding switches.
  static const uint32_t lower_halves[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (uint32_t upper = 0; upper < 0x10000; upper++) {
    for (size_t i = 0; i < sizeof lower_halves / sizeof lower_halves[0]; i++) {
      const float value = float_of(upper << 16 | lower_halves[i]);
      if (!isfinite(value)) continue;
      const uint16_t ours = ot_bf16_from_float(value);
      if (ours != nearest_by_search(value)) fail_msg("%a becomes %04x", value, ours);
    }
  }
  for (uint64_t i = 0; i < 200000; i++) {
    const float value = float_of(ot_rng_philox(1, 0, i, 0).word[0]);
    if (!isfinite(value)) continue;
    assert_int_equal(ot_bf16_from_float(value), nearest_by_search(value));
  }
}

static void bf16_values_round_trip_through_float(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    const float value = ot_bf16_to_float((uint16_t)bits);
    const uint16_t back = ot_bf16_from_float(value);
    if (isnan(value)) {
      assert_true(isnan(ot_bf16_to_float(back)));
    } else {
      assert_int_equal(back, bits);
    }
  }
}

static void infinities_and_nan_stay_what_they_are(void **state) {
  (void)state;
  assert_int_equal(ot_bf16_from_float(INFINITY), 0x7f80);
  assert_int_equal(ot_bf16_from_float(-INFINITY), 0xff80);
  // A NaN whose set bits are all in the dropped half.
  assert_true(isnan(ot_bf16_to_float(ot_bf16_from_float(float_of(0x7f800001)))));
  assert_true(isnan(ot_bf16_to_float(ot_bf16_from_float(float_of(0xffffffff)))));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_read_back_in_both_spellings),
      cmocka_unit_test(rounds_to_the_nearest_bf16_with_ties_to_even),
      cmocka_unit_test(bf16_values_round_trip_through_float),
      cmocka_unit_test(infinities_and_nan_stay_what_they_are),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
