// SPDX-License-Identifier: Apache-2.0
// Each syntax has a list of what needs no quotes; all else is quoted.
#include "base/quote.h"

#include <stddef.h>

#include "base/json_writer.h"
#include "base/status.h"
#include "base/text.h"

// Whether all of `text` is letters, digits and `marks`; false for an empty text.
static bool consists_of(const char *text, const char *marks) {
  for (const char *at = text; *at != '\0'; at++) {
    if (!ot_is_letter(*at) && !ot_is_digit(*at) && !ot_text_has(marks, *at)) return false;
  }
  return text[0] != '\0';
}

void ot_quote_shell(ot_text_builder *out, const char *word) {
  if (consists_of(word, "_-./:=,@%+")) {
    ot_text_put(out, word);
    return;
  }
  ot_text_put(out, "'");
  for (const char *at = word; *at != '\0'; at++) {
    if (*at == '\'') {
      ot_text_put(out, "'\\''");
    } else {
      ot_text_append(out, at, 1);
    }
  }
  ot_text_put(out, "'");
}

// Marks of direction are U+061C, U+200E, U+200F, U+202A to U+202E and U+2066 to U+2069.
static bool turns_text(const unsigned char *c, int64_t bytes) {
  if (bytes == 2) return c[0] == 0xd8 && c[1] == 0x9c;
  if (bytes != 3 || c[0] != 0xe2) return false;
  if (c[1] == 0x81) return c[2] >= 0xa6 && c[2] <= 0xa9;
  return c[1] == 0x80 && (c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xaa && c[2] <= 0xae));
}

void ot_quote_comment(ot_text_builder *out, const char *text) {
  int64_t left = ot_text_length(text);
  for (const char *at = text; left > 0;) {
    const int64_t bytes = ot_text_character_bytes(at, left);
    const bool bad =
        bytes == 0 || ot_text_is_control(at, bytes) || turns_text((const unsigned char *)at, bytes);
    ot_text_append(out, bad ? "?" : at, bad ? 1 : bytes);
    at += bytes > 0 ? bytes : 1;
    left -= bytes > 0 ? bytes : 1;
  }
}

void ot_quote_comment_line(ot_text_builder *out, const char *text) {
  ot_text_put(out, "# ");
  ot_quote_comment(out, text);
  ot_text_put(out, "\n");
}

static bool is_word_of(const char *text, const char *word) {
  for (; *text != '\0' && *word != '\0'; text++, word++) {
    const char small = *text >= 'A' && *text <= 'Z' ? (char)(*text - 'A' + 'a') : *text;
    if (small != *word) return false;
  }
  return *text == *word;
}

static bool is_plain_yaml(const char *text) {
  static const char *const reserved[] = {"null", "true", "false", "yes", "no",
                                         "on",   "off",  "y",     "n"};
  for (int i = 0; i < OT_COUNT(reserved); i++) {
    if (is_word_of(text, reserved[i])) return false;
  }
  const bool begins = ot_is_letter(text[0]) || text[0] == '/' || text[0] == '_' ||
                      ot_text_starts_with(text, "./") || ot_text_starts_with(text, "../");
  return begins && consists_of(text, "_-./+");
}

void ot_quote_yaml(ot_text_builder *out, const char *text) {
  if (is_plain_yaml(text)) {
    ot_text_put(out, text);
  } else {
    ot_quote_string(out, text);
  }
}

void ot_quote_string(ot_text_builder *out, const char *text) {
  ot_json_writer string = ot_json_begin(out->arena, 0);
  ot_json_text(&string, NULL, text);
  ot_text_append(out, string.text, string.length);
}
