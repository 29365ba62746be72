// SPDX-License-Identifier: Apache-2.0
// Exact conversion between doubles and decimal text with plain big integers.
//   Printing: value = m * 2^e is an integer over a power of ten (2^-k = 5^k / 10^k), so its decimal
//   expansion is finite; all of it is produced, then rounded half to even at the requested digit.
//   Parsing: a first guess in double arithmetic is moved, one double at a time, until the text is
//   between its two midpoints; midpoints are compared as big integers (after Clinger 1990, "How to
//   read floating point numbers accurately", AlgorithmR).
// Speed is secondary: a few microseconds for typical values.
#include "base/number.h"

#include <string.h>

#include "base/text.h"

enum {
  CHUNK = 1000000000,  // decimal limb
  CHUNK_DIGITS = 9,
  CHUNKS_MAX = 90,  // 5^1074 * 2^53 has 767 digits
  DIGITS_MAX = CHUNKS_MAX * CHUNK_DIGITS,
  LIMBS_MAX = 160,        // 5120 bits; parsing needs 3800
  SIGNIFICANT_MAX = 780,  // decimal digits read exactly; a midpoint has at most 767
  SHORTEST_EXPONENT_MAX = 17,
};

// ---- decomposing doubles ----

static uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static double double_of(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static const uint64_t fraction_mask = (1ULL << 52) - 1;
static const uint64_t infinity_bits = 0x7ffULL << 52;

// value = mantissa * 2^exponent, for the finite double with these bits (sign ignored).
static void split_number(uint64_t bits, uint64_t *mantissa, int *exponent) {
  const int biased = (int)(bits >> 52 & 0x7ff);
  *mantissa = (bits & fraction_mask) | (biased > 0 ? 1ULL << 52 : 0);
  *exponent = (biased > 0 ? biased : 1) - 1075;
}

// ---- the exact decimal expansion ----

// 0.d1 d2 d3 ... * 10^point; d1 is not zero unless the value is; `count` may be 0.
typedef struct decimal {
  char digit[DIGITS_MAX + 1];  // '0'..'9'
  int count;
  int point;
} decimal;

static int chunks_multiply(uint32_t *chunk, int count, uint32_t factor) {
  uint64_t carry = 0;
  for (int i = 0; i < count; i++) {
    const uint64_t product = (uint64_t)chunk[i] * factor + carry;
    chunk[i] = (uint32_t)(product % CHUNK);
    carry = product / CHUNK;
  }
  if (carry > 0) chunk[count++] = (uint32_t)carry;
  return count;
}

// Multiplies by base^power, in steps of base^per_step = `step` < 2^30.
static int chunks_scale(uint32_t *chunk, int count, uint32_t base, int power) {
  uint32_t step = 1;
  int per_step = 0;
  while (step < (1u << 30) / base) {
    step *= base;
    per_step++;
  }
  for (; power >= per_step; power -= per_step) count = chunks_multiply(chunk, count, step);
  for (; power > 0; power--) count = chunks_multiply(chunk, count, base);
  return count;
}

static void expand(uint64_t bits, decimal *d) {
  uint64_t mantissa;
  int exponent;
  split_number(bits, &mantissa, &exponent);
  while (exponent < 0 && mantissa > 0 && mantissa % 2 == 0) {
    mantissa /= 2;
    exponent++;
  }
  uint32_t chunk[CHUNKS_MAX];
  int count = 0;
  for (uint64_t rest = mantissa; rest > 0; rest /= CHUNK) chunk[count++] = (uint32_t)(rest % CHUNK);
  const int fraction_digits = exponent < 0 ? -exponent : 0;
  count = exponent < 0 ? chunks_scale(chunk, count, 5, -exponent)
                       : chunks_scale(chunk, count, 2, exponent);
  d->count = 0;
  for (int i = count - 1; i >= 0; i--) {
    uint32_t rest = chunk[i];
    for (int j = CHUNK_DIGITS - 1; j >= 0; j--, rest /= 10) {
      d->digit[d->count + j] = (char)('0' + rest % 10);
    }
    d->count += CHUNK_DIGITS;
  }
  int zeros = 0;
  while (zeros < d->count && d->digit[zeros] == '0') zeros++;
  d->count -= zeros;
  memmove(d->digit, d->digit + zeros, (size_t)d->count);
  d->point = d->count - fraction_digits;
}

// Adds one unit in the last digit.
static void decimal_increment(decimal *d) {
  int i = d->count - 1;
  while (i >= 0 && d->digit[i] == '9') d->digit[i--] = '0';
  if (i >= 0) {
    d->digit[i]++;
    return;
  }
  memmove(d->digit + 1, d->digit, (size_t)d->count);
  d->digit[0] = '1';
  d->count++;
  d->point++;
}

// Keeps the first `keep` digits (may be < 0), rounded half to even.
static void decimal_round(decimal *d, int keep) {
  if (keep >= d->count) return;
  bool up = false;
  if (keep >= 0) {
    bool tail = false;
    for (int i = keep + 1; i < d->count; i++) tail |= d->digit[i] != '0';
    const bool odd = keep > 0 && (d->digit[keep - 1] - '0') % 2 == 1;
    up = d->digit[keep] > '5' || (d->digit[keep] == '5' && (tail || odd));
  }
  d->count = keep > 0 ? keep : 0;
  if (up) decimal_increment(d);
}

static void decimal_strip(decimal *d) {
  while (d->count > 0 && d->digit[d->count - 1] == '0') d->count--;
}

// ---- printing ----

typedef struct writer {
  char *out;
  int64_t capacity;
  int64_t length;
} writer;

static void write_char(writer *w, char c) {
  if (w->length + 1 < w->capacity) w->out[w->length++] = c;
}

// Digits [from, to) of the expansion, padded with zeros.
static void write_digits(writer *w, const decimal *d, int from, int to) {
  for (int i = from; i < to; i++) write_char(w, i >= 0 && i < d->count ? d->digit[i] : '0');
}

static int64_t write_end(writer *w) {
  w->out[w->length] = '\0';
  return w->length;
}

static int64_t print_special(char *out, uint64_t bits) {
  const bool negative = bits >> 63 != 0;
  const char *const text = bits & fraction_mask ? "nan" : negative ? "-inf" : "inf";
  const int64_t length = ot_text_length(text);
  memcpy(out, text, (size_t)length + 1);
  return length;
}

static void write_exponent(writer *w, int exponent) {
  write_char(w, 'e');
  write_char(w, exponent < 0 ? '-' : '+');
  const int magnitude = exponent < 0 ? -exponent : exponent;
  if (magnitude >= 100) write_char(w, (char)('0' + magnitude / 100));
  write_char(w, (char)('0' + magnitude / 10 % 10));
  write_char(w, (char)('0' + magnitude % 10));
}

// The style of %g for a rounded expansion; exponents outside [-4, exponent_max) are written out.
static int64_t print_general(char *out, int64_t capacity, bool negative, decimal *d,
                             int exponent_max) {
  writer w = {.out = out, .capacity = capacity};
  decimal_strip(d);
  if (negative) write_char(&w, '-');
  const int exponent = d->point - 1;
  if (d->count == 0) {
    write_char(&w, '0');
  } else if (exponent < -4 || exponent >= exponent_max) {
    write_digits(&w, d, 0, 1);
    if (d->count > 1) write_char(&w, '.');
    write_digits(&w, d, 1, d->count);
    write_exponent(&w, exponent);
  } else if (d->point <= 0) {
    write_char(&w, '0');
    write_char(&w, '.');
    write_digits(&w, d, d->point, d->count);
  } else {
    write_digits(&w, d, 0, d->point);
    if (d->count > d->point) write_char(&w, '.');
    write_digits(&w, d, d->point, d->count);
  }
  return write_end(&w);
}

int64_t ot_number_print(char *out, int64_t capacity, double value, int digits) {
  const uint64_t bits = bits_of(value);
  if ((bits & infinity_bits) == infinity_bits) return print_special(out, bits);
  decimal d;
  expand(bits, &d);
  decimal_round(&d, digits);
  return print_general(out, capacity, bits >> 63 != 0, &d, digits);
}

static bool reads_back(const char *text, int64_t length, double value) {
  char copy[40];
  memcpy(copy, text, (size_t)length + 1);
  double read;
  return ot_number_parse(copy, false, &read) && bits_of(read) == bits_of(value);
}

// Writes the `digits` digits nearest to the expansion, or the next larger, if they parse back.
static int64_t print_if_exact(char *out, int64_t capacity, double value, const decimal *exact,
                              int digits) {
  const bool negative = bits_of(value) >> 63 != 0;
  decimal d = *exact;
  decimal_round(&d, digits);
  int64_t length = print_general(out, capacity, negative, &d, SHORTEST_EXPONENT_MAX);
  if (reads_back(out, length, value)) return length;
  // Below a power of two doubles are closer: the nearest text may miss where the next parses back.
  d = *exact;
  d.count = digits < d.count ? digits : d.count;
  decimal_increment(&d);
  length = print_general(out, capacity, negative, &d, SHORTEST_EXPONENT_MAX);
  return reads_back(out, length, value) ? length : 0;
}

int64_t ot_number_print_shortest(char *out, int64_t capacity, double value) {
  const uint64_t bits = bits_of(value);
  if ((bits & infinity_bits) == infinity_bits) return print_special(out, bits);
  decimal exact;
  expand(bits, &exact);
  // 15 digits round-trip any normal double, so a shorter text that parses back is the 15-digit one
  // without its trailing zeros. Subnormals have fewer digits.
  const bool subnormal = (bits & infinity_bits) == 0;
  for (int digits = subnormal ? 1 : 15; digits < 17; digits++) {
    const int64_t length = print_if_exact(out, capacity, value, &exact, digits);
    if (length > 0) return length;
  }
  decimal_round(&exact, 17);
  return print_general(out, capacity, bits >> 63 != 0, &exact, SHORTEST_EXPONENT_MAX);
}

int64_t ot_number_print_fixed(char *out, int64_t capacity, double value, int decimals) {
  const uint64_t bits = bits_of(value);
  if ((bits & infinity_bits) == infinity_bits) return print_special(out, bits);
  decimal d;
  expand(bits, &d);
  decimal_round(&d, d.point + decimals);
  // A value that rounds to zero has no digits, and its point is meaningless.
  if (d.count == 0) d.point = 0;
  writer w = {.out = out, .capacity = capacity};
  if (bits >> 63 != 0) write_char(&w, '-');
  if (d.point <= 0) write_char(&w, '0');
  write_digits(&w, &d, 0, d.point);
  if (decimals > 0) write_char(&w, '.');
  write_digits(&w, &d, d.point, d.point + decimals);
  return write_end(&w);
}

// ---- big integers in binary, for parsing ----

typedef struct big {
  uint32_t limb[LIMBS_MAX];
  int count;
} big;

static void big_multiply_add(big *b, uint32_t factor, uint32_t addend) {
  uint64_t carry = addend;
  for (int i = 0; i < b->count; i++) {
    const uint64_t product = (uint64_t)b->limb[i] * factor + carry;
    b->limb[i] = (uint32_t)product;
    carry = product >> 32;
  }
  if (carry > 0) b->limb[b->count++] = (uint32_t)carry;
}

static void big_scale_five(big *b, int power) {
  for (; power >= 13; power -= 13) big_multiply_add(b, 1220703125u, 0);
  for (; power > 0; power--) big_multiply_add(b, 5, 0);
}

static void big_shift_left(big *b, int bits) {
  if (b->count == 0) return;
  const int limbs = bits / 32;
  memmove(b->limb + limbs, b->limb, (size_t)b->count * sizeof b->limb[0]);
  memset(b->limb, 0, (size_t)limbs * sizeof b->limb[0]);
  b->count += limbs;
  big_multiply_add(b, 1u << bits % 32, 0);
}

static int big_compare(const big *a, const big *b) {
  if (a->count != b->count) return a->count < b->count ? -1 : 1;
  for (int i = a->count - 1; i >= 0; i--) {
    if (a->limb[i] != b->limb[i]) return a->limb[i] < b->limb[i] ? -1 : 1;
  }
  return 0;
}

// ---- parsing ----

// digits * 10^exponent, as read from text.
typedef struct significand {
  char digit[SIGNIFICANT_MAX + 1];  // '0'..'9', the first not '0'
  int count;
  int exponent;
} significand;

// Compares the text with the midpoint (mantissa + 1/2) * 2^exponent.
static int compare_with_midpoint(const significand *s, uint64_t mantissa, int exponent) {
  big left = {.count = 0};
  for (int i = 0; i < s->count; i++) big_multiply_add(&left, 10, (uint32_t)(s->digit[i] - '0'));
  const uint64_t odd = 2 * mantissa + 1;
  big right = {.limb = {(uint32_t)odd, (uint32_t)(odd >> 32)}, .count = odd >> 32 ? 2 : 1};
  big_scale_five(&left, s->exponent > 0 ? s->exponent : 0);
  big_scale_five(&right, s->exponent < 0 ? -s->exponent : 0);
  // The powers of two missing on the left side.
  const int twos = s->exponent - (exponent - 1);
  big_shift_left(&left, twos > 0 ? twos : 0);
  big_shift_left(&right, twos < 0 ? -twos : 0);
  return big_compare(&left, &right);
}

static double scale_by_ten(double value, int power) {
  static const double exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                 1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  for (; power > 22; power -= 22) value *= exact[22];
  for (; power < -22; power += 22) value /= exact[22];
  return power < 0 ? value / exact[-power] : value * exact[power];
}

// The double nearest to the text, ties to even; infinity when it is too large.
static double nearest_double(const significand *s) {
  const int magnitude = s->count + s->exponent;  // value < 10^magnitude
  if (s->count == 0 || magnitude < -330) return 0;
  if (magnitude > 310) return double_of(infinity_bits);
  uint64_t leading = 0;
  const int taken = s->count < 19 ? s->count : 19;
  for (int i = 0; i < taken; i++) leading = leading * 10 + (uint64_t)(s->digit[i] - '0');
  const int exponent = s->exponent + s->count - taken;
  const double guess = scale_by_ten((double)leading, exponent);
  // Clinger's fast path: both factors are exact, so the product is correctly rounded.
  if (s->count <= 15 && exponent >= -22 && exponent <= 22) return guess;
  uint64_t bits = bits_of(guess);
  if (bits > infinity_bits - 1) bits = infinity_bits - 1;
  for (;;) {
    uint64_t mantissa;
    int power;
    split_number(bits, &mantissa, &power);
    const int above = compare_with_midpoint(s, mantissa, power);
    if (above > 0 || (above == 0 && mantissa % 2 == 1)) {
      if (++bits == infinity_bits) return double_of(bits);
      continue;
    }
    if (bits == 0) return 0;
    split_number(bits - 1, &mantissa, &power);
    const int below = compare_with_midpoint(s, mantissa, power);
    if (below > 0 || (below == 0 && mantissa % 2 == 1)) return double_of(bits);
    bits--;
  }
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static void significand_add(significand *s, char digit) {
  if (s->count == 0 && digit == '0') return;
  if (s->count < SIGNIFICANT_MAX) {
    s->digit[s->count++] = digit;
    return;
  }
  // Only whether the rest is zero matters: it is kept as one last digit.
  s->exponent++;
  if (digit != '0') s->digit[SIGNIFICANT_MAX - 1] |= 1;
}

// Reads an exponent's sign and digits, capped far beyond the valid range.
static bool read_exponent(const char **text, int *exponent) {
  const bool negative = **text == '-';
  if (**text == '-' || **text == '+') (*text)++;
  if (!ot_is_digit(**text)) return false;
  int value = 0;
  for (; ot_is_digit(**text); (*text)++)
    value = value < 100000 ? value * 10 + (**text - '0') : value;
  *exponent += negative ? -value : value;
  return true;
}

// Whether an exponent begins at `text`; else an 'E' there is a unit.
static bool has_exponent(const char *text) {
  if (lower(text[0]) != 'e') return false;
  const bool sign = text[1] == '-' || text[1] == '+';
  return ot_is_digit(text[1 + sign]);
}

// Whether the separator at `p`, in the number from `first`, stands where one may: '_' between
// digits; ',' before each group of three, of a number of at least four digits.
static bool separates(const char *first, const char *p, bool point) {
  if (p == first || !ot_is_digit(p[-1])) return false;
  if (*p == '_') return ot_is_digit(p[1]);
  if (*p != ',' || point || *first == '0') return false;
  const bool three = ot_is_digit(p[1]) && ot_is_digit(p[2]) && ot_is_digit(p[3]);
  if (!three || ot_is_digit(p[4])) return false;
  int64_t before = 1;
  while (p - before > first && ot_is_digit(p[-1 - before])) before++;
  return before == 3 || (before < 3 && p - before == first);
}

// Reads digits, point and exponent, without a sign; advances `text` past them. Accepts separators
// when `separated`.
static bool read_significand(const char **text, bool separated, significand *s) {
  const char *p = *text;
  s->count = 0;
  s->exponent = 0;
  bool any = false;
  bool point = false;
  for (;; p++) {
    if (*p == '.' && !point) {
      point = true;
    } else if (ot_is_digit(*p)) {
      any = true;
      s->exponent -= point;
      significand_add(s, *p);
    } else if (!separated || !separates(*text, p, point)) {
      break;
    }
  }
  if (!any) return false;
  if (has_exponent(p)) {
    p++;
    if (!read_exponent(&p, &s->exponent)) return false;
  }
  *text = p;
  return true;
}

static bool equal_in_any_case(const char *text, const char *lower_case) {
  while (*lower_case != '\0') {
    if (lower(*text++) != *lower_case++) return false;
  }
  return *text == '\0';
}

bool ot_number_parse(const char *text, bool allow_special, double *value) {
  const bool negative = *text == '-';
  if (*text == '-' || *text == '+') text++;
  const uint64_t sign = (uint64_t)negative << 63;
  if (allow_special && (equal_in_any_case(text, "inf") || equal_in_any_case(text, "infinity"))) {
    *value = double_of(sign | infinity_bits);
    return true;
  }
  if (allow_special && equal_in_any_case(text, "nan")) {
    *value = double_of(infinity_bits | 1ULL << 51);
    return true;
  }
  significand s;
  if (!read_significand(&text, false, &s) || *text != '\0') return false;
  const uint64_t bits = bits_of(nearest_double(&s));
  if (bits == infinity_bits && !allow_special) return false;
  *value = double_of(sign | bits);
  return true;
}

typedef struct size_unit {
  const char *name;
  int twos;  // exponents of two and of ten of the unit
  int tens;
} size_unit;

// A blank may stand before the unit. B is a billion alone, and bytes after another unit.
static bool find_unit(const char *text, size_unit *unit) {
  static const size_unit units[] = {
      {"", 0, 0},    {"k", 0, 3},   {"K", 0, 3},   {"M", 0, 6},   {"G", 0, 9},     {"B", 0, 9},
      {"T", 0, 12},  {"P", 0, 15},  {"E", 0, 18},  {"Ki", 10, 0}, {"ki", 10, 0},   {"Mi", 20, 0},
      {"Gi", 30, 0}, {"Ti", 40, 0}, {"Pi", 50, 0}, {"Ei", 60, 0}, {"bytes", 0, 0},
  };
  if (text[0] == ' ' && text[1] != '\0' && text[1] != 't') text++;
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    const char *const name = units[i].name;
    if (!ot_text_starts_with(text, name)) continue;
    const char *const rest = text + ot_text_length(name);
    const bool bytes = ot_text_equal(rest, "B") && *name != '\0' && *name != 'B' && *name != 'b';
    if (*rest != '\0' && !bytes && !ot_text_equal(rest, " tokens")) continue;
    *unit = units[i];
    return true;
  }
  return false;
}

// coefficient * 2^twos * 10^tens, if it is an integer that fits.
static bool whole_product(uint64_t coefficient, int twos, int tens, uint64_t *value) {
  uint64_t product = coefficient;
  if (product == 0) tens = twos = 0;
  for (; tens < 0; tens++, twos--) {
    if (product % 5 != 0) return false;
    product /= 5;
  }
  for (; twos < 0; twos++) {
    if (product % 2 != 0) return false;
    product /= 2;
  }
  for (; tens > 0; tens--) {
    if (__builtin_mul_overflow(product, (uint64_t)10, &product)) return false;
  }
  for (; twos > 0; twos--) {
    if (__builtin_mul_overflow(product, (uint64_t)2, &product)) return false;
  }
  *value = product;
  return true;
}

bool ot_number_parse_size(const char *text, int64_t *value) {
  const bool negative = *text == '-';
  if (*text == '-' || *text == '+') text++;
  significand s;
  size_unit unit;
  if (!read_significand(&text, true, &s) || !find_unit(text, &unit)) return false;
  while (s.count > 0 && s.digit[s.count - 1] == '0') {
    s.count--;
    s.exponent++;
  }
  if (s.count > 19) return false;
  uint64_t magnitude = 0;
  for (int i = 0; i < s.count; i++) magnitude = magnitude * 10 + (uint64_t)(s.digit[i] - '0');
  if (!whole_product(magnitude, unit.twos, s.exponent + unit.tens, &magnitude)) return false;
  if (magnitude > (uint64_t)INT64_MAX + negative) return false;
  *value = (int64_t)(negative ? 0 - magnitude : magnitude);
  return true;
}

bool ot_number_parse_scaled(const char *text, double *value) {
  const bool negative = *text == '-';
  if (*text == '-' || *text == '+') text++;
  significand s;
  size_unit unit;
  if (!read_significand(&text, true, &s) || !find_unit(text, &unit)) return false;
  s.exponent += unit.tens;
  const double read = nearest_double(&s) * (double)(1ULL << unit.twos);
  if (bits_of(read) == infinity_bits) return false;
  *value = negative ? -read : read;
  return true;
}
