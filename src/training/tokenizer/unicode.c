// SPDX-License-Identifier: Apache-2.0
// UTF-8 by the table of well-formed sequences (Unicode 15, table 3-7); ASCII eight bytes at a time.
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

// Number of leading ASCII bytes of `text`.
static int64_t ascii_run(const uint8_t *text, int64_t length) {
  int64_t i = 0;
  for (; i + 8 <= length; i += 8) {
    uint64_t word;
    memcpy(&word, text + i, sizeof word);
    if (word & 0x8080808080808080u) break;
  }
  while (i < length && text[i] < 0x80) i++;
  return i;
}

static int width_of_lead(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

static bool second_is_valid(uint8_t lead, uint8_t second) {
  switch (lead) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return (second & 0xC0) == 0x80;
  }
}

// The width of the valid character at `text` [length > 0]; 0 if there is none, -1 if the end of
// `text` truncates a character that is valid so far.
static int valid_width(const uint8_t *text, int64_t length) {
  const int width = width_of_lead(text[0]);
  for (int i = 1; i < width; i++) {
    if (i == length) return -1;
    const bool valid = i == 1 ? second_is_valid(text[0], text[1]) : (text[i] & 0xC0) == 0x80;
    if (!valid) return 0;
  }
  return width;
}

int64_t ot_unicode_valid_prefix(const uint8_t *text, int64_t length, bool *truncated) {
  int64_t i = 0;
  int width = 1;
  while (i < length) {
    i += ascii_run(text + i, length - i);
    if (i == length) break;
    width = valid_width(text + i, length - i);
    if (width <= 0) break;
    i += width;
  }
  if (truncated) *truncated = i < length && width < 0;
  return i;
}

int64_t ot_unicode_invalid_bytes(const uint8_t *text, int64_t length) {
  int64_t count = 0;
  for (int64_t i = 0; i < length; i++) {
    i += ot_unicode_valid_prefix(text + i, length - i, NULL);
    count += i < length;
  }
  return count;
}

uint32_t ot_unicode_first(const uint8_t *text, int64_t length, int *width) {
  utf8proc_int32_t code = 0;
  *width = (int)utf8proc_iterate(text, length, &code);
  OT_ASSERT(*width > 0);
  return (uint32_t)code;
}

uint32_t ot_unicode_last(const uint8_t *text, int64_t length, int *width) {
  int64_t start = length - 1;
  while (start > 0 && (text[start] & 0xC0) == 0x80) start--;
  return ot_unicode_first(text + start, length - start, width);
}

bool ot_unicode_is_space(uint32_t code) {
  if (code <= 0xFF) return (code >= 9 && code <= 13) || code == 32 || code == 0x85 || code == 0xA0;
  return code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool ot_unicode_is_white(uint32_t code) {
  return ot_unicode_is_space(code) || (code >= 0x1C && code <= 0x1F);
}

bool ot_unicode_is_word(uint32_t code) {
  switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    case UTF8PROC_CATEGORY_SO:  // circled and squared letters are Alphabetic
      return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
             (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
    default:
      return code == 0x200C || code == 0x200D;
  }
}

bool ot_unicode_is_ascii(const uint8_t *text, int64_t length) {
  return ascii_run(text, length) == length;
}

static ot_status append_normalized(const uint8_t *text, int64_t length, ot_buffer *out) {
  utf8proc_uint8_t *normal = NULL;
  const utf8proc_ssize_t n =
      utf8proc_map(text, length, &normal, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  OT_CHECK(n >= 0, OT_ENVIRONMENT, "cannot normalize text: %s", utf8proc_errmsg(n));
  const ot_status status = ot_buffer_append(out, normal, n);
  free(normal);
  return status;
}

ot_status ot_unicode_append_nfc(const uint8_t *text, int64_t length, ot_buffer *out) {
  int64_t i = 0;
  while (i < length) {
    int64_t run = ascii_run(text + i, length - i);
    // The last ASCII character before a mark may compose with it.
    if (run > 0 && i + run < length) run--;
    OT_TRY(ot_buffer_append(out, text + i, run));
    i += run;
    int64_t end = i < length ? i + 1 : i;
    while (end < length && text[end] >= 0x80) end++;
    if (end > i) OT_TRY(append_normalized(text + i, end - i, out));
    i = end;
  }
  return OT_OK;
}
