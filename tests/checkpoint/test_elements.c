// SPDX-License-Identifier: Apache-2.0
// run: alone. Element conversions: every 16-bit value round-trips; rounding follows its definition:
// the nearest of two neighbours, ties to the one whose last bit is zero.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint/elements.h"

static double to_double(ot_dtype from, uint16_t bits) {
  double value;
  ot_elements_convert(from, &bits, OT_F64, &value, 1);
  return value;
}

static uint16_t from_double(ot_dtype to, double value) {
  uint16_t bits;
  ot_elements_convert(OT_F64, &value, to, &bits, 1);
  return bits;
}

static uint16_t infinity_of(ot_dtype dtype) { return dtype == OT_F16 ? 0x7c00 : 0x7f80; }

static void returns_every_16_bit_value(void **state) {
  (void)state;
  const ot_dtype dtypes[] = {OT_F16, OT_BF16};
  for (int d = 0; d < 2; d++) {
    for (int i = 0; i < 65536; i++) {
      const uint16_t bits = (uint16_t)i;
      const double value = to_double(dtypes[d], bits);
      if ((bits & 0x7fff) > infinity_of(dtypes[d])) {
        assert_true(isnan(value));
        assert_true(isnan(to_double(dtypes[d], from_double(dtypes[d], value))));
        continue;
      }
      assert_int_equal(from_double(dtypes[d], value), bits);
    }
  }
}

static void rounds_to_the_nearest_and_ties_to_even(void **state) {
  (void)state;
  const ot_dtype dtypes[] = {OT_F16, OT_BF16};
  for (int d = 0; d < 2; d++) {
    for (uint16_t bits = 0; bits + 1 < infinity_of(dtypes[d]); bits++) {
      const double low = to_double(dtypes[d], bits);
      const double high = to_double(dtypes[d], (uint16_t)(bits + 1));
      const double middle = 0.5 * (low + high);
      const uint16_t even = (bits & 1) == 0 ? bits : (uint16_t)(bits + 1);
      assert_int_equal(from_double(dtypes[d], middle), even);
      assert_int_equal(from_double(dtypes[d], nextafter(middle, low)), bits);
      assert_int_equal(from_double(dtypes[d], nextafter(middle, high)), bits + 1);
      assert_int_equal(from_double(dtypes[d], -middle), even | 0x8000);
    }
  }
}

// Values of IEEE 754 binary16 and bfloat16 that every reference lists.
static void knows_published_values(void **state) {
  (void)state;
  assert_int_equal(from_double(OT_F16, 65504.0), 0x7bff);
  assert_int_equal(from_double(OT_F16, 65519.99), 0x7bff);
  assert_int_equal(from_double(OT_F16, 65520.0), 0x7c00);
  assert_int_equal(from_double(OT_F16, 0x1p-24), 0x0001);
  assert_int_equal(from_double(OT_F16, 0x1p-25), 0x0000);
  assert_int_equal(from_double(OT_F16, 0x1.000001p-25), 0x0001);
  assert_int_equal(from_double(OT_F16, -0.0), 0x8000);
  assert_int_equal(from_double(OT_F16, 1.0 / 3), 0x3555);
  assert_int_equal(from_double(OT_BF16, 1.0), 0x3f80);
  assert_int_equal(from_double(OT_BF16, 3.14159265358979), 0x4049);
  assert_int_equal(from_double(OT_BF16, 3.4e38), 0x7f80);
  assert_int_equal(from_double(OT_BF16, 1e300), 0x7f80);
  assert_int_equal(from_double(OT_BF16, -INFINITY), 0xff80);
  assert_int_equal(from_double(OT_BF16, 5e-324), 0x0000);
}

// 1 + 2^-8 + 2^-40 exceeds a bf16 tie by less than float resolves: rounding twice would round down.
static void rounds_double_to_bf16_once(void **state) {
  (void)state;
  assert_int_equal(from_double(OT_BF16, 1.0 + 0x1p-8), 0x3f80);
  assert_int_equal(from_double(OT_BF16, 1.0 + 0x1p-8 + 0x1p-40), 0x3f81);
}

static void converts_long_arrays_between_all_real_types(void **state) {
  (void)state;
  enum { N = 3000 };
  static double source[N], back[N];
  static char middle[N * 8], other[N * 8];
  const ot_dtype real[] = {OT_F32, OT_F64, OT_BF16, OT_F16};
  for (int i = 0; i < N; i++) source[i] = i % 256 - 128;
  for (int a = 0; a < 4; a++) {
    for (int b = 0; b < 4; b++) {
      ot_elements_convert(OT_F64, source, real[a], middle, N);
      ot_elements_convert(real[a], middle, real[b], other, N);
      ot_elements_convert(real[b], other, OT_F64, back, N);
      assert_memory_equal(source, back, sizeof source);
    }
  }
  assert_true(ot_elements_convertible(OT_I32, OT_I32));
  assert_false(ot_elements_convertible(OT_I32, OT_F32));
  assert_false(ot_elements_convertible(OT_F32, OT_U8));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(returns_every_16_bit_value),
      cmocka_unit_test(rounds_to_the_nearest_and_ties_to_even),
      cmocka_unit_test(knows_published_values),
      cmocka_unit_test(rounds_double_to_bf16_once),
      cmocka_unit_test(converts_long_arrays_between_all_real_types),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
