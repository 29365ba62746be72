// SPDX-License-Identifier: Apache-2.0
// One rule: the unit that keeps a number below 1000, and a fixed number of digits; and one grammar
// that reads what is printed.
#include "base/quantity.h"

#include <stddef.h>

#include "base/number.h"
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
  if (seconds < 0.9995) return ot_text_format(out, capacity, "%.3g ms", 1e3 * seconds);
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

const char *ot_figure_time(ot_arena *arena, double seconds) {
  static const struct {
    double from, unit;
    const char *name;
  } units[] = {{730 * 86400.0, 31557600, "years"},
               {2 * 86400.0, 86400, "days"},
               {2 * 3600.0, 3600, "h"},
               {120, 60, "min"}};
  for (int i = 0; i < (int)(sizeof units / sizeof units[0]); i++) {
    const double count = seconds / units[i].unit;
    if (!(seconds >= units[i].from)) continue;
    return ot_arena_format(arena, count < 999.5 ? "%.3g %s" : "%.0f %s", count, units[i].name);
  }
  return ot_figure_seconds(arena, seconds);
}

const char *ot_figure_share(ot_arena *arena, double share) {
  return ot_arena_format(arena, "%.1f%%", 100 * share);
}

// ---- reading ----

enum { WORD_BYTES = 64 };

// The length of the number at `text`: digits, points, and an exponent with digits.
static int64_t number_length(const char *text) {
  int64_t n = 0;
  while (ot_is_digit(text[n]) || text[n] == '.') n++;
  if (n == 0 || (text[n] != 'e' && text[n] != 'E')) return n;
  const int64_t sign = text[n + 1] == '-' || text[n + 1] == '+';
  if (!ot_is_digit(text[n + 1 + sign])) return n;
  for (n += 1 + sign; ot_is_digit(text[n]);) n++;
  return n;
}

static double time_unit(const char *name, int64_t length) {
  static const struct {
    const char *name;
    double s;
  } units[] = {{"us", 1e-6},     {"\u00b5s", 1e-6}, {"ms", 1e-3},       {"s", 1},
               {"min", 60},      {"m", 60},         {"h", 3600},        {"hours", 3600},
               {"d", 86400},     {"day", 86400},    {"days", 86400},    {"w", 604800},
               {"week", 604800}, {"weeks", 604800}, {"year", 31557600}, {"years", 31557600}};
  for (int i = 0; i < (int)(sizeof units / sizeof units[0]); i++) {
    if (ot_text_length(units[i].name) == length && ot_text_starts_with(name, units[i].name))
      return units[i].s;
  }
  return 0;
}

bool ot_quantity_parse_time(const char *text, double *seconds) {
  double sum = 0, largest = 0;
  for (const char *at = text; *at != '\0';) {
    char number[WORD_BYTES];
    const int64_t digits = number_length(at);
    double value;
    if (digits == 0 || digits >= WORD_BYTES) return false;
    ot_text_format(number, sizeof number, "%.*s", (int)digits, at);
    if (!ot_number_parse(number, false, &value)) return false;
    at += digits + (at[digits] == ' ');
    int64_t length = 0;
    while (at[length] != '\0' && !ot_is_digit(at[length]) && at[length] != '.') length++;
    const double unit = time_unit(at, length);
    // The units of several descend.
    if (unit == 0 || (largest > 0 && unit >= largest)) return false;
    largest = unit;
    sum += value * unit;
    at += length;
  }
  if (largest == 0) return false;
  *seconds = sum;
  return true;
}

// Copies `text` without one of the words that may follow a size.
static void drop_word(const char *text, char *out) {
  static const char *const words[] = {"FLOP/s", "FLOPs", "FLOP", "bytes/s", "/s"};
  int64_t length = ot_text_length(text);
  for (int i = 0; i < (int)(sizeof words / sizeof words[0]); i++) {
    if (!ot_text_ends_with(text, words[i])) continue;
    length -= ot_text_length(words[i]);
    break;
  }
  while (length > 0 && text[length - 1] == ' ') length--;
  ot_text_format(out, WORD_BYTES, "%.*s", (int)length, text);
}

bool ot_quantity_parse(const char *text, const char *unit, double *value) {
  char word[WORD_BYTES];
  double seconds;
  if (ot_number_parse(text, false, value)) return true;
  if (ot_text_length(text) >= WORD_BYTES) return false;
  if (unit && ot_text_starts_with(unit, "dollars") && text[0] == '$') text++;
  if (unit && ot_text_equal(unit, "percent") && ot_text_ends_with(text, "%")) {
    const int64_t end = ot_text_length(text) - 1;
    ot_text_format(word, sizeof word, "%.*s", (int)(end - (end > 0 && text[end - 1] == ' ')), text);
    return ot_number_parse(word, false, value);
  }
  const double time = !unit                            ? 0
                      : ot_text_equal(unit, "seconds") ? 1
                                                       : time_unit(unit, ot_text_length(unit));
  if (time > 0) {
    if (!ot_quantity_parse_time(text, &seconds)) return false;
    *value = seconds / time;
    return true;
  }
  drop_word(text, word);
  return ot_number_parse_scaled(word, value);
}
