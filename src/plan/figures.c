// SPDX-License-Identifier: Apache-2.0
// One rule: the unit in which a number is below 1000, and a fixed number of digits.
#include "plan/figures.h"

#include <stddef.h>

#include "base/text.h"

enum { BYTE_DIGITS = 4, MOST_DIGITS = 15 };

// `value` with so many digits, in the unit that leaves it below 1000.
static const char *scaled(ot_arena *arena, double value, const char *const *units, int digits) {
  const char *const sign = value < 0 ? "-" : "";
  double v = value < 0 ? -value : value;
  int unit = 0;
  while (units[unit + 1] && v >= 999.5) {
    v /= 1000;
    unit++;
  }
  if (v >= 999.5) return ot_arena_format(arena, "%s%.0f%s", sign, v, units[unit]);
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
