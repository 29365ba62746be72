// SPDX-License-Identifier: Apache-2.0
// run: alone. What each function prints is read back as the value that it shows.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "answer/plan_cost.h"
#include "base/number.h"
#include "base/quantity.h"
#include "base/rng.h"
#include "support/arena_fixture.h"

typedef const char *figure(ot_arena *arena, double value);

// Values from `from` to `to`, even in their logarithm, and those next to a change of unit.
static double value_at(int i, double from, double to) {
  static const double edges[] = {0.9994, 0.9996, 1, 9.996, 99.96, 999.4, 999.6};
  if (i < 70) {
    const double value = edges[i % 7] * pow(1000, i / 7 - 3);
    return value >= from && value <= to ? value : from;
  }
  return from * pow(to / from, ot_rng_uniform(7, 0, (uint64_t)i));
}

static void check_figure(figure *print, const char *unit, double from, double to) {
  for (int i = 0; i < 2000; i++) {
    const double value = value_at(i, from, to);
    const char *const text = print(&arena, value);
    double read = -1;
    if (!ot_quantity_parse(text, unit, &read)) fail_msg("\"%s\" is not read", text);
    // Three digits are shown at least.
    if (fabs(read - value) > 0.0051 * value) fail_msg("\"%s\" is read as %.9g", text, read);
    assert_string_equal(print(&arena, read), text);
  }
}

static const char *rate(ot_arena *a, double value) {
  char text[32];
  ot_rate_print(text, sizeof text, value);
  return ot_arena_format(a, "%s", text);
}

static const char *seconds(ot_arena *a, double value) {
  char text[32];
  ot_seconds_print(text, sizeof text, value);
  return ot_arena_format(a, "%s", text);
}

static const char *percent(ot_arena *a, double value) { return ot_figure_share(a, value / 100); }

static void figures_are_read_as_what_they_show(void **state) {
  (void)state;
  check_figure(ot_figure_bytes, NULL, 1000, 1e20);
  check_figure(ot_figure_count, NULL, 1000, 1e20);
  check_figure(rate, NULL, 1000, 1e14);
  check_figure(ot_figure_flops, NULL, 1, 1e23);
  check_figure(ot_figure_dollars, "dollars of a device hour", 10, 1e14);
  check_figure(ot_figure_seconds, "seconds", 1e-6, 1e9);
  check_figure(ot_figure_time, "seconds", 1e-6, 1e12);
  check_figure(seconds, "s", 1e-3, 50);
  check_figure(percent, "percent", 10, 100);
}

static void whole_figures_are_sizes(void **state) {
  (void)state;
  for (int i = 0; i < 2000; i++) {
    const double value = floor(value_at(i, 1, 9e17));
    const char *const texts[] = {ot_figure_bytes(&arena, value), ot_figure_count(&arena, value)};
    for (int k = 0; k < 2; k++) {
      int64_t read = -1;
      if (!ot_number_parse_size(texts[k], &read)) fail_msg("\"%s\" is no size", texts[k]);
      assert_true(fabs((double)read - value) <= 0.0051 * value);
    }
  }
}

static void durations_are_read_to_the_second(void **state) {
  (void)state;
  for (int i = 0; i < 2000; i++) {
    const double value = value_at(i, 1, 1e9);
    char text[32];
    double read = -1;
    ot_duration_print(text, sizeof text, value);
    if (!ot_quantity_parse_time(text, &read)) fail_msg("\"%s\" is not read", text);
    // Two units are shown.
    assert_true(fabs(read - value) <= (value >= 86400 ? 3600 : value >= 3600 ? 60 : 1));
  }
}

static void units_follow_the_key(void **state) {
  (void)state;
  static const struct {
    const char *text, *unit;
    double value;
  } known[] = {
      {"45.6 ms", "seconds", 0.0456},
      {"7.8us", "s", 7.8e-6},
      {"250ms", "ms", 250},
      {"1.5 s", "ms", 1500},
      {"2d", "hours", 48},
      {"30d", "seconds", 2592000},
      {"2d04h", "s", 187200},
      {"1h30min", "s", 5400},
      {"2 weeks", "s", 1209600},
      {"0.5", "seconds", 0.5},
      {"3e-4", NULL, 3e-4},
      {"989.5 TFLOP/s", NULL, 989.5e12},
      {"3.35 TB/s", NULL, 3.35e12},
      {"25G", "bytes", 25e9},
      {"80 GB", NULL, 80e9},
      {"8 %", "percent", 8},
      {"41.2%", "percent", 41.2},
      {"$2.50", "dollars", 2.5},
      {"0.1k", NULL, 100},
      {"-2.5M", NULL, -2500000},
      {"1.5Ki", NULL, 1536},
  };
  for (int i = 0; i < OT_COUNT(known); i++) {
    double read = -1;
    if (!ot_quantity_parse(known[i].text, known[i].unit, &read))
      fail_msg("\"%s\" is not read", known[i].text);
    assert_true(fabs(read - known[i].value) <= 1e-12 * fabs(known[i].value));
  }
}

static void what_is_no_quantity_is_refused(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"", NULL},         {"k", NULL},      {"10x", NULL},     {"5 %", NULL},  {"1 s", NULL},
      {"10B", "seconds"}, {"s", "seconds"}, {"1 s s", "s"},    {"1h2h", "s"},  {"1s2h", "s"},
      {"3 m s", "s"},     {"-1 s", "s"},    {"nan", NULL},     {"inf s", "s"}, {"1e999", NULL},
      {"1e400k", NULL},   {"$5", NULL},     {"5%%", "percent"}};
  for (int i = 0; i < OT_COUNT(texts); i++) {
    double value = 7;
    if (ot_quantity_parse(texts[i][0], texts[i][1], &value))
      fail_msg("\"%s\" is accepted as %g", texts[i][0], value);
    assert_float_equal(value, 7, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(figures_are_read_as_what_they_show),
      cmocka_unit_test(whole_figures_are_sizes),
      cmocka_unit_test(durations_are_read_to_the_second),
      cmocka_unit_test(units_follow_the_key),
      cmocka_unit_test(what_is_no_quantity_is_refused),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
