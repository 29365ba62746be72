// SPDX-License-Identifier: Apache-2.0
// Unicode functions for tokenization: validity of UTF-8, normalization form C (utf8proc), and the
// two character classes that added tokens need.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/buffer.h"

// The length of the longest valid UTF-8 prefix of `text` [length]. `truncated` (may be null) is set
// if a character follows that the end of `text` truncates.
int64_t ot_unicode_valid_prefix(const uint8_t *text, int64_t length, bool *truncated);

// Bytes of `text` [length] that belong to no valid character.
int64_t ot_unicode_invalid_bytes(const uint8_t *text, int64_t length);

// The code point of the character that starts at `text` / ends before `text + length`; its bytes in
// `width`. `text` [length > 0] is valid UTF-8.
uint32_t ot_unicode_first(const uint8_t *text, int64_t length, int *width);
uint32_t ot_unicode_last(const uint8_t *text, int64_t length, int *width);

// The width given by the first byte of the character at `text` [length > 0], at most `length`; 1
// for an invalid first byte.
static inline int64_t ot_unicode_width(const uint8_t *text, int64_t length) {
  const uint8_t lead = text[0];
  const int64_t width = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return width < length ? width : length;
}

// White_Space.
bool ot_unicode_is_space(uint32_t code);
// White space of Python's texts (str.strip, \s): White_Space and U+001C to U+001F.
bool ot_unicode_is_white(uint32_t code);
// A letter, mark, decimal digit, letter number, connector or joiner: \w of Unicode's UTS 18.
bool ot_unicode_is_word(uint32_t code);

// True if `text` [length] has no byte above 127.
bool ot_unicode_is_ascii(const uint8_t *text, int64_t length);

// Appends normalization form C of valid UTF-8 `text` [length] to `out`. Runs of ASCII are copied:
// an ASCII character never composes with its predecessor.
ot_status ot_unicode_append_nfc(const uint8_t *text, int64_t length, ot_buffer *out);
