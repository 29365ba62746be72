// SPDX-License-Identifier: Apache-2.0
// Formatting and comparing without libc. A conversion is parsed into a `conversion`, its argument
// becomes a body of characters, and the body is padded into the output; so width and truncation are
// handled once for all conversions.
#include "base/text.h"

#include <stddef.h>

#include "base/number.h"

enum { BODY_BYTES = 352, DISTANCE_MAX = 64, PRECISION_DEFAULT = 6, PRECISION_MAX = 17 };

typedef struct sink {
  char *out;
  int64_t capacity;
  int64_t length;
  int64_t longest;  // texts are shown up to here, by their ends; 0: whole
} sink;

// A long is 64 bits here on every host, WebAssembly too, so that %ld prints an int64_t.
typedef enum integer_size { SIZE_INT, SIZE_LONG, SIZE_LONG_LONG, SIZE_SIZE } integer_size;

typedef struct conversion {
  int64_t width;
  int64_t precision;  // -1 when not given
  integer_size size;
  bool left;
  bool zeros;
  bool plus;
  char kind;
} conversion;

static void put(sink *s, char c) {
  if (s->length + 1 < s->capacity) s->out[s->length++] = c;
}

static void put_many(sink *s, char c, int64_t count) {
  for (int64_t i = 0; i < count && s->length + 1 < s->capacity; i++) put(s, c);
}

static void put_padded(sink *s, const conversion *c, const char *body, int64_t length) {
  const int64_t missing = c->width > length ? c->width - length : 0;
  const bool has_sign = length > 0 && (body[0] == '-' || body[0] == '+');
  const bool zeros = c->zeros && !c->left;
  if (zeros && has_sign) {
    put(s, *body++);
    length--;
  }
  if (!c->left) put_many(s, zeros ? '0' : ' ', missing);
  for (int64_t i = 0; i < length; i++) put(s, body[i]);
  if (c->left) put_many(s, ' ', missing);
}

// Writes the digits of `value` so that they end before `end`; returns where they start.
static char *digits_before(char *end, uint64_t value, unsigned base) {
  do {
    *--end = "0123456789abcdef"[value % base];
    value /= base;
  } while (value > 0);
  return end;
}

static void put_integer(sink *s, const conversion *c, uint64_t magnitude, bool negative) {
  char body[32];
  char *const end = body + sizeof body;
  char *start = digits_before(end, magnitude, c->kind == 'x' ? 16 : 10);
  if (negative) *--start = '-';
  if (!negative && c->plus && c->kind == 'd') *--start = '+';
  put_padded(s, c, start, end - start);
}

static void put_real(sink *s, const conversion *c, double value) {
  char body[BODY_BYTES];
  char *const text = body + 1;
  const int64_t asked = c->precision < 0 ? PRECISION_DEFAULT : c->precision;
  const int precision = (int)(asked > PRECISION_MAX ? PRECISION_MAX : asked);
  const int64_t length =
      c->kind == 'f' ? ot_number_print_fixed(text, sizeof body - 1, value, precision)
                     : ot_number_print(text, sizeof body - 1, value, precision > 0 ? precision : 1);
  const bool plus = c->plus && text[0] != '-';
  body[0] = '+';
  conversion padding = *c;
  padding.zeros = c->zeros && value - value == 0;  // not for inf and nan
  put_padded(s, &padding, plus ? body : text, plus ? length + 1 : length);
}

static void put_string(sink *s, const conversion *c, const char *text) {
  if (!text) text = "(null)";
  int64_t length = 0;
  while ((c->precision < 0 || length < c->precision) && text[length] != '\0') length++;
  conversion padding = *c;
  padding.zeros = false;
  if (s->longest > 0 && length > s->longest) {
    const conversion none = {0};
    put_padded(s, &none, text, s->longest / 2);
    put_padded(s, &none, " ... ", 5);
    put_padded(s, &none, text + length - s->longest / 2, s->longest / 2);
    return;
  }
  put_padded(s, &padding, text, length);
}

// A va_list inside a struct can be passed by address; a bare one cannot on hosts where it is an
// array.
typedef struct argument_list {
  va_list list;
} argument_list;

static int64_t next_signed(argument_list *a, integer_size size) {
  switch (size) {
    case SIZE_INT:
      return va_arg(a->list, int);
    case SIZE_LONG:
      return va_arg(a->list, int64_t);
    case SIZE_LONG_LONG:
      return va_arg(a->list, long long);
    case SIZE_SIZE:
      return va_arg(a->list, ptrdiff_t);
  }
  return 0;
}

static uint64_t next_unsigned(argument_list *a, integer_size size) {
  switch (size) {
    case SIZE_INT:
      return va_arg(a->list, unsigned);
    case SIZE_LONG:
      return va_arg(a->list, uint64_t);
    case SIZE_LONG_LONG:
      return va_arg(a->list, unsigned long long);
    case SIZE_SIZE:
      return va_arg(a->list, size_t);
  }
  return 0;
}

// Reads a count, or takes it from the arguments for a '*'.
static int64_t read_count(const char **format, argument_list *a) {
  if (**format == '*') {
    (*format)++;
    return va_arg(a->list, int);
  }
  int64_t count = 0;
  for (; **format >= '0' && **format <= '9'; (*format)++) count = count * 10 + (**format - '0');
  return count;
}

// Parses the conversion after a '%' and advances `format` past it.
static conversion read_conversion(const char **format, argument_list *a) {
  conversion c = {.precision = -1};
  for (; **format == '-' || **format == '0' || **format == '+'; (*format)++) {
    c.left |= **format == '-';
    c.zeros |= **format == '0';
    c.plus |= **format == '+';
  }
  c.width = read_count(format, a);
  if (c.width < 0) {
    c.left = true;
    c.width = -c.width;
  }
  if (**format == '.') {
    (*format)++;
    c.precision = read_count(format, a);
  }
  for (; **format == 'l'; (*format)++) c.size = c.size == SIZE_INT ? SIZE_LONG : SIZE_LONG_LONG;
  if (**format == 'z') {
    (*format)++;
    c.size = SIZE_SIZE;
  }
  c.kind = **format;
  if (c.kind != '\0') (*format)++;
  return c;
}

static void put_conversion(sink *s, const conversion *c, argument_list *a) {
  switch (c->kind) {
    case 'd': {
      const int64_t value = next_signed(a, c->size);
      put_integer(s, c, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);
      break;
    }
    case 'u':
    case 'x':
      put_integer(s, c, next_unsigned(a, c->size), false);
      break;
    case 'g':
    case 'f':
      put_real(s, c, va_arg(a->list, double));
      break;
    case 's':
      put_string(s, c, va_arg(a->list, const char *));
      break;
    case 'c': {
      const char character = (char)va_arg(a->list, int);
      put_padded(s, &(conversion){.width = c->width, .left = c->left}, &character, 1);
      break;
    }
    case '%':
      put(s, '%');
      break;
    default:  // unknown: copied verbatim, because an error text must not fail
      put(s, '%');
      if (c->kind != '\0') put(s, c->kind);
  }
}

static int64_t format_into(sink s, const char *format, va_list arguments) {
  argument_list a;
  va_copy(a.list, arguments);
  while (*format != '\0') {
    if (*format != '%') {
      put(&s, *format++);
      continue;
    }
    format++;
    const conversion c = read_conversion(&format, &a);
    put_conversion(&s, &c, &a);
  }
  va_end(a.list);
  s.out[s.length] = '\0';
  return s.length;
}

int64_t ot_text_format_list(char *out, int64_t capacity, const char *format, va_list arguments) {
  if (capacity <= 0) return 0;
  return format_into((sink){.out = out, .capacity = capacity}, format, arguments);
}

int64_t ot_text_format_message(char *out, int64_t capacity, const char *format, va_list arguments) {
  const int64_t length = ot_text_format_list(out, capacity, format, arguments);
  if (length + 1 < capacity) return length;
  return format_into((sink){.out = out, .capacity = capacity, .longest = capacity / 8}, format,
                     arguments);
}

int64_t ot_text_format(char *out, int64_t capacity, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int64_t length = ot_text_format_list(out, capacity, format, arguments);
  va_end(arguments);
  return length;
}

int64_t ot_text_length(const char *text) {
  int64_t length = 0;
  while (text[length] != '\0') length++;
  return length;
}

bool ot_text_equal(const char *a, const char *b) { return ot_text_compare(a, b) == 0; }

int ot_text_compare(const char *a, const char *b) {
  while (*a != '\0' && *a == *b) {
    a++;
    b++;
  }
  return (int)(unsigned char)*a - (int)(unsigned char)*b;
}

bool ot_text_starts_with(const char *text, const char *prefix) {
  while (*prefix != '\0') {
    if (*text++ != *prefix++) return false;
  }
  return true;
}

bool ot_text_ends_with(const char *text, const char *suffix) {
  const int64_t length = ot_text_length(text);
  const int64_t suffix_length = ot_text_length(suffix);
  return suffix_length <= length && ot_text_equal(text + length - suffix_length, suffix);
}

bool ot_text_has(const char *text, char c) {
  for (; *text != '\0'; text++) {
    if (*text == c) return true;
  }
  return false;
}

bool ot_is_digit(char c) { return c >= '0' && c <= '9'; }

bool ot_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool ot_is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

const char *ot_text_find(const char *text, const char *part) {
  for (;; text++) {
    if (ot_text_starts_with(text, part)) return text;
    if (*text == '\0') return NULL;
  }
}

bool ot_text_matches(const char *text, const char *pattern) {
  // The last '*' seen and the text position tried for it; a mismatch extends that '*' by one.
  const char *star = NULL;
  const char *tried = NULL;
  while (*text != '\0') {
    if (*pattern == '*') {
      star = pattern++;
      tried = text;
    } else if (*pattern == '?' || *pattern == *text) {
      pattern++;
      text++;
    } else if (star) {
      pattern = star + 1;
      text = ++tried;
    } else {
      return false;
    }
  }
  while (*pattern == '*') pattern++;
  return *pattern == '\0';
}

static int smaller(int a, int b) { return a < b ? a : b; }

static int capped_length(const char *text) {
  const int64_t length = ot_text_length(text);
  return length < DISTANCE_MAX ? (int)length : DISTANCE_MAX;
}

int ot_text_distance(const char *a, const char *b) {
  // Three rows of the table of optimal string alignment: two back, one back, this one.
  int rows[3][DISTANCE_MAX + 1];
  const int na = capped_length(a);
  const int nb = capped_length(b);
  for (int j = 0; j <= nb; j++) rows[0][j] = j;
  for (int i = 1; i <= na; i++) {
    int *const row = rows[i % 3];
    const int *const above = rows[(i + 2) % 3];
    const int *const above_two = rows[(i + 1) % 3];
    row[0] = i;
    for (int j = 1; j <= nb; j++) {
      const int changed = above[j - 1] + (a[i - 1] != b[j - 1]);
      row[j] = smaller(changed, smaller(above[j], row[j - 1]) + 1);
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = smaller(row[j], above_two[j - 2] + 1);
    }
  }
  return rows[na % 3][nb];
}

uint64_t ot_hash_bytes(uint64_t hash, const void *data, int64_t bytes) {
  const unsigned char *const byte = data;
  for (int64_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * 1099511628211ULL;
  return hash;
}

uint64_t ot_hash_text(uint64_t hash, const char *text) {
  return ot_hash_bytes(hash, text, ot_text_length(text));
}

const char *ot_text_plural(int64_t count, const char *ending) { return count == 1 ? "" : ending; }

void ot_text_nearest(const char *name, const char *candidate, const char **nearest, int *best) {
  const int distance = ot_text_distance(name, candidate);
  if (distance >= *best) return;
  *best = distance;
  *nearest = candidate;
}

int64_t ot_text_character_bytes(const char *text, int64_t available) {
  const unsigned char *const s = (const unsigned char *)text;
  if (s[0] < 0x80) return 1;
  if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
  const int64_t length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
  if (length > available) return 0;
  for (int64_t i = 1; i < length; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
  const bool surrogate = s[0] == 0xed && s[1] > 0x9f;
  const bool beyond = s[0] == 0xf4 && s[1] > 0x8f;
  return overlong || surrogate || beyond ? 0 : length;
}

bool ot_text_is_control(const char *text, int64_t bytes) {
  const unsigned char *const c = (const unsigned char *)text;
  if (bytes == 1) return c[0] < ' ' || c[0] == 0x7f;
  if (bytes == 2) return c[0] == 0xc2 && c[1] < 0xa0;
  return bytes == 3 && c[0] == 0xe2 && c[1] == 0x80 && (c[2] == 0xa8 || c[2] == 0xa9);
}

void ot_text_make_printable(char *text) {
  int64_t left = ot_text_length(text), length;
  for (char *c = text; left > 0; c += length, left -= length) {
    length = ot_text_character_bytes(c, left);
    const bool kept = *c == '\n' || *c == '\t';
    const bool bad = length == 0 || (!kept && ot_text_is_control(c, length));
    if (length == 0) length = 1;
    for (int64_t i = 0; bad && i < length; i++) c[i] = '?';
  }
}
