// SPDX-License-Identifier: Apache-2.0
// RFC 8259, parsed in place. Strings without escapes are not copied.
#include "files/json_reader.h"

#include <string.h>
#include <utf8proc.h>

#include "base/text.h"

enum { ESCAPE_DIGITS = 4 };

bool ot_json_string_equal(ot_json_string string, const char *text) {
  return string.length == ot_text_length(text) &&
         memcmp(string.text, text, (size_t)string.length) == 0;
}

// Fails with "NAME:LINE:COLUMN: not valid JSON: WHAT" for the current position.
static ot_status fail_here(const ot_json_reader *reader, const char *what) {
  int line = 1, column = 1;
  for (int64_t i = 0; i < reader->at && i < reader->length; i++) {
    column = reader->text[i] == '\n' ? 1 : column + 1;
    line += reader->text[i] == '\n';
  }
  return ot_fail(OT_ENVIRONMENT, "%s:%d:%d: not valid JSON: %s", reader->name, line, column, what);
}

// The next byte, 0 at the end.
static char peek(const ot_json_reader *reader) {
  return reader->at < reader->length ? reader->text[reader->at] : '\0';
}

static void skip_space(ot_json_reader *reader) {
  while (peek(reader) == ' ' || peek(reader) == '\n' || peek(reader) == '\t' ||
         peek(reader) == '\r')
    reader->at++;
}

bool ot_json_reader_next(ot_json_reader *reader, char mark) {
  skip_space(reader);
  if (peek(reader) != mark || reader->at == reader->length) return false;
  reader->at++;
  return true;
}

ot_status ot_json_reader_take(ot_json_reader *reader, char mark) {
  if (ot_json_reader_next(reader, mark)) return OT_OK;
  char what[] = "'?' is expected";
  what[1] = mark;
  return fail_here(reader, what);
}

ot_status ot_json_reader_more(ot_json_reader *reader, char end, bool *first, bool *more) {
  *more = !ot_json_reader_next(reader, end);
  if (*more && !*first) OT_TRY(ot_json_reader_take(reader, ','));
  *first = false;
  return OT_OK;
}

// ---- strings ----

bool ot_json_reader_at_string(ot_json_reader *reader) {
  skip_space(reader);
  return peek(reader) == '"';
}

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The four digits after "\u"; -1 when invalid.
static int32_t read_unit(ot_json_reader *reader) {
  int32_t unit = 0;
  for (int i = 0; i < ESCAPE_DIGITS; i++) {
    const int digit = digit_of(peek(reader));
    if (digit < 0) return -1;
    unit = 16 * unit + digit;
    reader->at++;
  }
  return unit;
}

// The code point of an escape after its "\u", including the second half of a surrogate pair; -1
// when invalid or zero.
static int32_t read_point(ot_json_reader *reader) {
  const int32_t unit = read_unit(reader);
  if (unit <= 0 || (unit >= 0xdc00 && unit < 0xe000)) return -1;
  if (unit < 0xd800 || unit >= 0xe000) return unit;
  if (peek(reader) != '\\') return -1;
  reader->at++;
  if (peek(reader) != 'u') return -1;
  reader->at++;
  const int32_t low = read_unit(reader);
  if (low < 0xdc00 || low >= 0xe000) return -1;
  return 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
}

// Decodes one escape after its backslash to `out`; returns the bytes written, 0 when invalid.
static int64_t read_escape(ot_json_reader *reader, char *out) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  const char c = peek(reader);
  reader->at++;
  if (c == 'u') {
    const int32_t point = read_point(reader);
    return point < 0 ? 0 : utf8proc_encode_char(point, (utf8proc_uint8_t *)out);
  }
  const char *const found = c == '\0' ? NULL : strchr(from, c);
  if (found == NULL) return 0;
  *out = to[found - from];
  return 1;
}

// Bytes of the next unescaped character; 0 when it is invalid in a string.
static int64_t measure_character(const ot_json_reader *reader) {
  const unsigned char c = (unsigned char)peek(reader);
  if (c < 0x80) return c >= 0x20;
  utf8proc_int32_t point;
  const utf8proc_ssize_t bytes = utf8proc_iterate(
      (const utf8proc_uint8_t *)reader->text + reader->at, reader->length - reader->at, &point);
  return bytes > 0 ? bytes : 0;
}

// Parses the rest of a string that begins at `start`, from its first escape. No escape is longer
// decoded than encoded.
static ot_status read_escaped(ot_json_reader *reader, int64_t start, ot_json_string *string) {
  int64_t end = reader->at;
  while (end < reader->length && reader->text[end] != '"') end += reader->text[end] == '\\' ? 2 : 1;
  char *const out = ot_arena_take(reader->arena, end - start + 1);
  int64_t length = reader->at - start;
  memcpy(out, reader->text + start, (size_t)length);
  while (peek(reader) != '"') {
    const bool escaped = peek(reader) == '\\';
    reader->at += escaped;
    const int64_t bytes = escaped ? read_escape(reader, out + length) : measure_character(reader);
    if (bytes == 0) return fail_here(reader, "an invalid character in a string");
    if (!escaped) memcpy(out + length, reader->text + reader->at, (size_t)bytes);
    if (!escaped) reader->at += bytes;
    length += bytes;
  }
  reader->at++;
  *string = (ot_json_string){out, length};
  return OT_OK;
}

ot_status ot_json_reader_string(ot_json_reader *reader, ot_json_string *string) {
  OT_TRY(ot_json_reader_take(reader, '"'));
  const int64_t start = reader->at;
  while (peek(reader) != '"') {
    if (peek(reader) == '\\') return read_escaped(reader, start, string);
    const int64_t bytes = measure_character(reader);
    if (bytes == 0) return fail_here(reader, "an invalid character in a string");
    reader->at += bytes;
  }
  *string = (ot_json_string){reader->text + start, reader->at - start};
  reader->at++;
  return OT_OK;
}

// ---- numbers ----

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

ot_status ot_json_reader_integer(ot_json_reader *reader, int64_t *value, bool *whole) {
  skip_space(reader);
  const int64_t start = reader->at;
  const bool negative = peek(reader) == '-';
  reader->at += negative;
  *whole = is_digit(peek(reader));
  *value = 0;
  if (*whole && peek(reader) == '0' && reader->at + 1 < reader->length &&
      is_digit(reader->text[reader->at + 1]))
    return fail_here(reader, "a number that begins with 0");
  for (; is_digit(peek(reader)); reader->at++) {
    const int64_t digit = peek(reader) - '0';
    if (__builtin_mul_overflow(*value, 10, value) ||
        __builtin_add_overflow(*value, negative ? -digit : digit, value))
      return fail_here(reader, "too big integer");
  }
  const char next = peek(reader);
  if (next == '.' || next == 'e' || next == 'E') *whole = false;
  if (!*whole) reader->at = start;
  return OT_OK;
}

ot_status ot_json_reader_finish(ot_json_reader *reader) {
  skip_space(reader);
  return reader->at == reader->length ? OT_OK : fail_here(reader, "text after its end");
}
