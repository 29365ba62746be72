// SPDX-License-Identifier: Apache-2.0
// Three or four digits and a unit.
#include "base/quantity.h"

#include "base/text.h"

int64_t ot_duration_print(char *out, int64_t capacity, double seconds) {
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

const char *ot_bytes_text(ot_arena *arena, int64_t bytes) {
  static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
  double value = (double)bytes;
  int unit = 0;
  while (unit < 4 && value >= 999.95) {
    value /= 1000;
    unit++;
  }
  return ot_arena_format(arena, "%.4g %s", value, units[unit]);
}
