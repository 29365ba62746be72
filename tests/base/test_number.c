// SPDX-License-Identifier: Apache-2.0
// run: alone. Numbers as text against glibc's strtod and printf, which are exact, over random bit
// patterns of every exponent, and over inputs known to break weaker conversions.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"

enum { RANDOM_CASES = 40000 };

static uint64_t random_state = 88172645463325252ULL;

static uint64_t random_bits(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static double double_of(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Any finite double; one in four subnormal, one in four of everyday magnitude, one in eight a power
// of 2.
static double random_double(void) {
  const uint64_t bits = random_bits();
  const uint64_t sign_and_fraction = bits & 0x800fffffffffffffULL;
  switch (random_bits() % 8) {
    case 0:
    case 1:
      return double_of(sign_and_fraction);
    case 2:
    case 3:
      return double_of(sign_and_fraction | (1023 - 30 + random_bits() % 60) << 52);
    case 4:
      return double_of((bits & 0x8000000000000000ULL) | (random_bits() % 2047) << 52);
    case 5:
      return (double)(int64_t)(bits % 2000000) / 100.0;
    default:
      return double_of(sign_and_fraction | (random_bits() % 2047) << 52);
  }
}

static const double hard_values[] = {
    0.0,
    -0.0,
    5e-324,
    2.2250738585072011e-308,
    2.2250738585072014e-308,
    1.7976931348623157e308,
    9e15,
    0.1,
    0.5,
    1.5,
    2.5,
    1e22,
    1e23,
    9007199254740993.0,
    0.00001,
    0.0001,
    123456,
    1234567,
    9.5,
    99.5,
    999999.5,
    0.3,
    5.684341886080802e-14,
    0x1p-44,
    0x1p-1022,
    0x1p-1074,
    0x1.fffffffffffffp-1023,
    0x1p1023,
};

static void check_print(double value, int digits) {
  char ours[64];
  char theirs[64];
  const int64_t length = ot_number_print(ours, sizeof ours, value, digits);
  snprintf(theirs, sizeof theirs, "%.*g", digits, value);
  assert_string_equal(ours, theirs);
  assert_int_equal(length, strlen(theirs));
}

static void prints_significant_digits_as_glibc(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof hard_values / sizeof hard_values[0]; i++) {
    for (int digits = 1; digits <= 17; digits++) check_print(hard_values[i], digits);
  }
  for (int i = 0; i < RANDOM_CASES; i++)
    check_print(random_double(), 1 + (int)(random_bits() % 17));
}

static void check_fixed(double value, int decimals) {
  char ours[352];
  char theirs[352];
  const int64_t length = ot_number_print_fixed(ours, sizeof ours, value, decimals);
  snprintf(theirs, sizeof theirs, "%.*f", decimals, value);
  assert_string_equal(ours, theirs);
  assert_int_equal(length, strlen(theirs));
}

static void prints_fixed_decimals_as_glibc(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof hard_values / sizeof hard_values[0]; i++) {
    for (int decimals = 0; decimals <= 17; decimals++) check_fixed(hard_values[i], decimals);
  }
  for (int i = 0; i < RANDOM_CASES; i++) check_fixed(random_double(), (int)(random_bits() % 18));
}

static void prints_special_values(void **state) {
  (void)state;
  char text[32];
  ot_number_print(text, sizeof text, NAN, 3);
  assert_string_equal(text, "nan");
  ot_number_print_fixed(text, sizeof text, -INFINITY, 3);
  assert_string_equal(text, "-inf");
  ot_number_print_shortest(text, sizeof text, INFINITY);
  assert_string_equal(text, "inf");
}

static int significant_digits(const char *text) {
  int count = 0;
  int trailing_zeros = 0;
  for (; *text != '\0' && *text != 'e'; text++) {
    if (*text < '0' || *text > '9' || (count == 0 && *text == '0')) continue;
    count++;
    trailing_zeros = *text == '0' ? trailing_zeros + 1 : 0;
  }
  return count - trailing_zeros;
}

// No shorter text reads back: tries glibc's nearest one and its two neighbours.
static void check_shortest(double value) {
  char ours[40];
  ot_number_print_shortest(ours, sizeof ours, value);
  if (memcmp(&(double){strtod(ours, NULL)}, &value, sizeof value) != 0) {
    fail_msg("%s does not read back as %.17g", ours, value);
  }
  const int digits = significant_digits(ours);
  if (digits <= 1) return;
  char nearest[40];
  snprintf(nearest, sizeof nearest, "%.*e", digits - 2, value);
  if (strtod(nearest, NULL) == value) fail_msg("%s is shorter than %s", nearest, ours);
}

static void prints_the_shortest_text_that_reads_back(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof hard_values / sizeof hard_values[0]; i++) {
    check_shortest(hard_values[i]);
  }
  for (int i = 0; i < RANDOM_CASES; i++) check_shortest(random_double());
}

static void prints_shortest_of_known_values(void **state) {
  (void)state;
  static const struct {
    double value;
    const char *text;
  } known[] = {
      {0.1, "0.1"},
      {1e22, "1e+22"},
      {1e16, "10000000000000000"},
      {5e-324, "5e-324"},
      {3e-4, "0.0003"},
      {1e-5, "1e-05"},
      {-0.0, "-0"},
      {0.1 + 0.2, "0.30000000000000004"},
      {1.0 / 3, "0.3333333333333333"},
      {1e23, "1e+23"},
      {4096, "4096"},
      {0x1p-1017, "7.120236347223045e-307"},  // the nearest 16 digits do not read back
      {9.5367431640625e-7, "9.5367431640625e-07"},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    char text[40];
    ot_number_print_shortest(text, sizeof text, known[i].value);
    assert_string_equal(text, known[i].text);
  }
}

static void check_parse(const char *text) {
  double ours = -1;
  const double theirs = strtod(text, NULL);
  if (!ot_number_parse(text, true, &ours)) fail_msg("%s is rejected", text);
  if (memcmp(&ours, &theirs, sizeof ours) != 0) {
    fail_msg("%s: %.17g, glibc %.17g", text, ours, theirs);
  }
}

static void parses_random_texts_as_glibc(void **state) {
  (void)state;
  char text[1200];
  for (int i = 0; i < RANDOM_CASES; i++) {
    snprintf(text, sizeof text, "%.*e", (int)(random_bits() % 25), random_double());
    check_parse(text);
    snprintf(text, sizeof text, "%llu%llue%d", (unsigned long long)random_bits(),
             (unsigned long long)random_bits(), (int)(random_bits() % 700) - 380);
    check_parse(text);
  }
}

// Texts exactly between two doubles, and one digit below and above.
static void parses_midpoints_to_even(void **state) {
  (void)state;
  char text[1200];
  for (int i = 0; i < 2000; i++) {
    const double low = fabs(random_double());
    const double high = nextafter(low, INFINITY);
    if (isinf(high)) continue;
    const long double middle = ((long double)low + (long double)high) / 2;
    const int length = snprintf(text, sizeof text - 2, "%.800Le", middle);
    check_parse(text);
    char *const mark = strchr(text, 'e');
    const int digits = (int)(mark - text);
    mark[-1] = '1';
    check_parse(text);
    assert_true(length > digits);
  }
}

static void parses_known_hard_texts(void **state) {
  (void)state;
  static const char *const texts[] = {
      "0",
      "-0",
      "+1",
      ".5",
      "5.",
      "1e5",
      "1E-5",
      "1e+05",
      "000123.4500",
      "1e400",
      "1e-400",
      "1e99999999999",
      "1e-99999999999",
      "0e99999999999",
      "2.2250738585072011e-308",
      "2.2250738585072012e-308",
      "4.9406564584124654e-324",
      "2.4703282292062327e-324",
      "2.4703282292062328e-324",
      "1.7976931348623158e308",
      "1.7976931348623159e308",
      "17976931348623158079372897140530341507993413271003782693617377898044496829276475094664901797"
      "7"
      "58720709633028641669288791094655554785194040263065748867150582068190890200070838367627385484"
      "5"
      "81771153176447573027006985557136695962284291481986083493647529271907416844436551070434271155"
      "9"
      "699508093042880",
      "9007199254740993",
      "9007199254740993.00000000000000000000000000000001",
      "6.631236846766476e-316",
      "3.2378839133029012895883524125015321748630094900299e-319",
      "8.98846567431158e307",
      "1.00000000000000011102230246251565404236316680908203125",
      "1.00000000000000011102230246251565404236316680908203124",
      "1.00000000000000011102230246251565404236316680908203126",
      "inf",
      "-Infinity",
      "0.000e10",
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) check_parse(texts[i]);
}

static void refuses_what_is_not_a_number(void **state) {
  (void)state;
  static const char *const texts[] = {"",      "-",     ".",   "e5",  "1e",  "1e+",
                                      "1.2.3", " 1",    "1 ",  "0x1", "1_0", "nan",
                                      "inf",   "1e400", "--1", "+-1", "1f",  "1,5"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    double value = 7;
    if (ot_number_parse(texts[i], false, &value))
      fail_msg("'%s' is accepted as %g", texts[i], value);
    assert_float_equal(value, 7, 0);
  }
  double value = 0;
  assert_true(ot_number_parse("NaN", true, &value));
  assert_true(isnan(value));
}

static void reads_sizes_with_units(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t value;
  } known[] = {
      {"0", 0},
      {"17", 17},
      {"-3", -3},
      {"4k", 4000},
      {"1M", 1000000},
      {"2GiB", 2147483648},
      {"2Gi", 2147483648},
      {"15T", 15000000000000},
      {"80GB", 80000000000},
      {"1.5k", 1500},
      {"3e9", 3000000000},
      {"0.5Ki", 512},
      {"1.25MiB", 1310720},
      {"1_000_000", 1000000},
      {"7P", 7000000000000000},
      {"4Pi", 4503599627370496},
      {"12000e-3", 12},
      {"10B", 10000000000},
      {"161B tokens", 161000000000},
      {"512 tokens", 512},
      {"31.2B", 31200000000},
      {"8G", 8000000000},
      {"1.5E", 1500000000000000000},
      {"4 k", 4000},
      {"80.72 GB", 80720000000},
      {"12 bytes", 12},
      {"16,384", 16384},
      {"1,048,576", 1048576},
      {"9223372036854775807", INT64_MAX},
      {"-9223372036854775808", INT64_MIN},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    int64_t value = -1;
    if (!ot_number_parse_size(known[i].text, &value)) fail_msg("%s is rejected", known[i].text);
    assert_int_equal(value, known[i].value);
  }
}

static void refuses_sizes_that_are_not_whole_or_too_large(void **state) {
  (void)state;
  static const char *const texts[] = {
      "",       "k",        "1.5",         "1.0001k", "1KB2",
      "4kk",    "4  k",     "4 ",          "1,00",    "1,0000",
      "0,100",  "1234,567", "1,234.5,678", "10BB",    "4k bytes",
      "1__0",   "_1",       "1_",          "1e-1",    "9223372036854775808",
      "10000P", "8192Pi",   "0.3Ki",       "1e19",    "-9223372036854775809",
      "4m",     "1e",       "inf"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    int64_t value = 0;
    if (ot_number_parse_size(texts[i], &value)) {
      fail_msg("'%s' is accepted as %lld", texts[i], (long long)value);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(prints_significant_digits_as_glibc),
      cmocka_unit_test(prints_fixed_decimals_as_glibc),
      cmocka_unit_test(prints_special_values),
      cmocka_unit_test(prints_the_shortest_text_that_reads_back),
      cmocka_unit_test(prints_shortest_of_known_values),
      cmocka_unit_test(parses_random_texts_as_glibc),
      cmocka_unit_test(parses_midpoints_to_even),
      cmocka_unit_test(parses_known_hard_texts),
      cmocka_unit_test(refuses_what_is_not_a_number),
      cmocka_unit_test(reads_sizes_with_units),
      cmocka_unit_test(refuses_sizes_that_are_not_whole_or_too_large),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
