// SPDX-License-Identifier: Apache-2.0
// One rule: the unit that keeps a number below 1000, and a fixed number of digits.
#include "base/quantity.h"

#include <stddef.h>

#include "base/text.h"

int64_t ot_duration_print(char *out, int64_t capacity, double seconds) {
  if (!(seconds > -1e15 && seconds < 1e15)) return ot_text_format(out, capacity, "%.3gs", seconds);
  const int64_t whole = (int64_t)(seconds + 0.5);
  const long long days = whole / 86400, hours = whole / 3600 % 24;
  const long long minutes = whole / 60 % 60, rest = whole % 60;
  if (days > 0) return ot_text_format(out, capacity, "%lldd%02lldh", days, hours);
  if (hours > 0) return ot_text_format(out, capacity, "%lldh%02lldm", hours, minutes);
  if (minutes > 0) return ot_text_format(out, capacity, "%lldm%02llds", minutes, rest);
  return ot_text_format(out, capacity, "%llds", rest);
}

int64_t ot_seconds_print(char *out, int64_t capacity, double seconds) {
  if (seconds < 1) return ot_text_format(out, capacity, "%.3g ms", 1e3 * seconds);
  if (seconds < 60) return ot_text_format(out, capacity, "%.3g s", seconds);
  return ot_duration_print(out, capacity, seconds);
}

int64_t ot_rate_print(char *out, int64_t capacity, double value) {
  static const char *const units[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  while (unit < 4 && value >= 999.5) {
    value /= 1000;
    unit++;
  }
  // Three digits: the rounding must not add a fourth.
  const int decimals = value >= 99.95 || unit == 0 ? 0 : value >= 9.995 ? 1 : 2;
  if (decimals == 0) return ot_text_format(out, capacity, "%.0f%s", value, units[unit]);
  if (decimals == 1) return ot_text_format(out, capacity, "%.1f%s", value, units[unit]);
  return ot_text_format(out, capacity, "%.2f%s", value, units[unit]);
}

enum { BYTE_DIGITS = 4, MOST_DIGITS = 15 };

// `value` with `digits` digits, in the unit that keeps it below 1000 after rounding.
static const char *scaled(ot_arena *arena, double value, const char *const *units, int digits) {
  const char *const sign = value < 0 ? "-" : "";
  double v = value < 0 ? -value : value, half = 0.5;
  for (int i = 3; i < digits; i++) half /= 10;
  int unit = 0;
  while (units[unit + 1] && v >= 1000 - half) {
    v /= 1000;
    unit++;
  }
  if (v >= 1000 - half) return ot_arena_format(arena, "%s%.0f%s", sign, v, units[unit]);
  return ot_arena_format(arena, "%s%.*g%s", sign, digits, v, units[unit]);
}

static const char *const byte_units[] = {" bytes", " kB", " MB", " GB", " TB", " PB", " EB", NULL};

const char *ot_figure_bytes(ot_arena *arena, double bytes) {
  return scaled(arena, bytes, byte_units, BYTE_DIGITS);
}

const char *ot_figure_need(ot_arena *arena, double bytes, double capacity) {
  const char *need, *has;
  int digits = BYTE_DIGITS;
  do {
    need = scaled(arena, bytes, byte_units, digits);
    has = scaled(arena, capacity, byte_units, digits);
  } while (bytes > capacity && ot_text_equal(need, has) && ++digits <= MOST_DIGITS);
  return ot_arena_format(arena, "%s of %s", need, has);
}

const char *ot_figure_count(ot_arena *arena, double count) {
  static const char *const units[] = {"", "k", "M", "B", "T", "P", "E", NULL};
  return scaled(arena, count, units, 3);
}

const char *ot_figure_flops(ot_arena *arena, double flops) {
  static const char *const units[] = {" FLOP",  " kFLOP", " MFLOP", " GFLOP",
                                      " TFLOP", " PFLOP", " EFLOP", NULL};
  return scaled(arena, flops, units, 3);
}

const char *ot_figure_seconds(ot_arena *arena, double seconds) {
  static const char *const units[] = {" us", " ms", " s", NULL};
  return scaled(arena, seconds * 1e6, units, 3);
}

const char *ot_figure_share(ot_arena *arena, double share) {
  return ot_arena_format(arena, "%.1f%%", 100 * share);
}
