// SPDX-License-Identifier: Apache-2.0
// One rule: the unit in which a number is below 1000, and a fixed number of digits.
#include "plan/figures.h"

#include <stddef.h>

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

const char *ot_figure_bytes(ot_arena *arena, double bytes) {
  static const char *const units[] = {" bytes", " kB", " MB", " GB", " TB", " PB", " EB", NULL};
  return scaled(arena, bytes, units, 4);
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
