// SPDX-License-Identifier: Apache-2.0
// The map is: u32 bytes of the trie, the trie's u32 units, zero-terminated normal forms. A unit of
// the double array (darts-clone) holds a label in bits 0 to 7 and 31, whether a value follows in
// bit 8, and an offset from bit 10, in units of 256 if bit 9 is set; a value has 31 bits.
#include "tokenizer/charsmap.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tokenizer/unicode.h"

enum { WHOLE_CLUSTER_BYTES = 5, GROWTH_MAX = 64, SHORT_BYTES = 1 << 20 };

// The replacement of a text: `length` bytes at `text`; null if the text is unchanged.
typedef struct normal_form {
  const uint8_t *text;
  int64_t length;
} normal_form;

struct ot_charsmap {
  uint8_t *bytes;  // the map; null if empty
  int64_t num_units;
  const uint8_t *forms;  // [forms_length] in `bytes`, the last one zero
  int64_t forms_length;
  normal_form ascii[128];
};

// ---- reading ----

static int digit_of(char c) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *const found = c ? strchr(digits, c) : NULL;
  return found ? (int)(found - digits) : -1;
}

// Decodes base64 into `bytes` [length]; returns their number, -1 if malformed.
static int64_t decode_base64(const char *text, int64_t length, uint8_t *bytes) {
  int64_t n = 0;
  uint32_t bits = 0;
  int num_bits = 0;
  while (length > 0 && text[length - 1] == '=') length--;
  for (int64_t i = 0; i < length; i++) {
    const int digit = digit_of(text[i]);
    if (digit < 0) return -1;
    bits = bits << 6 | (uint32_t)digit;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes[n++] = (uint8_t)(bits >> num_bits);
  }
  return n;
}

static uint32_t load_u32(const uint8_t *bytes) {
  return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static normal_form find_form(const ot_charsmap *map, const uint8_t *text, int64_t length);

static ot_status fill(ot_charsmap *map, const char *base64, int64_t length) {
  if (length == 0) return OT_OK;
  map->bytes = malloc((size_t)length);
  OT_CHECK(map->bytes, OT_ENVIRONMENT, "out of memory (character map)");
  const int64_t size = decode_base64(base64, length, map->bytes);
  OT_CHECK(size >= 0, OT_USAGE, "not base64");
  const int64_t trie = size >= 4 ? (int64_t)load_u32(map->bytes) : -1;
  OT_CHECK(trie >= 4 && trie % 4 == 0 && trie + 4 <= size, OT_USAGE,
           "its %lld bytes are too few for its trie", (long long)size);
  map->num_units = trie / 4;
  map->forms = map->bytes + 4 + trie;
  map->forms_length = size - 4 - trie;
  OT_CHECK(map->forms_length > 0 && map->forms[map->forms_length - 1] == 0, OT_USAGE,
           "its last normal form is not terminated");
  OT_CHECK(ot_unicode_invalid_bytes(map->forms, map->forms_length) == 0, OT_USAGE,
           "its normal forms are not UTF-8");
  for (int c = 1; c < 128; c++) map->ascii[c] = find_form(map, (const uint8_t[]){(uint8_t)c}, 1);
  return OT_OK;
}

ot_status ot_charsmap_create(const char *base64, int64_t length, ot_charsmap **out) {
  *out = calloc(1, sizeof **out);
  OT_CHECK(*out, OT_ENVIRONMENT, "out of memory (character map)");
  const ot_status status = fill(*out, base64, length);
  if (status != OT_OK) ot_charsmap_destroy(out);
  return status;
}

void ot_charsmap_destroy(ot_charsmap **map) {
  if (!*map) return;
  free((*map)->bytes);
  free(*map);
  *map = NULL;
}

// ---- looking up ----

static uint32_t unit_at(const ot_charsmap *map, uint32_t at) {
  return at < map->num_units ? load_u32(map->bytes + 4 + 4 * (int64_t)at) : 0;
}

static uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

// The normal form of the shortest prefix of `text` that has one.
static normal_form find_form(const ot_charsmap *map, const uint8_t *text, int64_t length) {
  const normal_form none = {0};
  if (!map->bytes) return none;
  uint32_t at = offset_of(unit_at(map, 0));
  for (int64_t i = 0; i < length && text[i] != 0; i++) {
    at ^= text[i];
    const uint32_t unit = unit_at(map, at);
    if ((unit & (1u << 31 | 0xFF)) != text[i]) return none;
    at ^= offset_of(unit);
    if ((unit >> 8 & 1) == 0) continue;
    const int64_t start = unit_at(map, at) & ~(1u << 31);
    if (start >= map->forms_length) return none;
    const uint8_t *const form = map->forms + start;
    return (normal_form){.text = form, .length = (int64_t)strlen((const char *)form)};
  }
  return none;
}

// ---- applying ----

static ot_status append_form(normal_form form, const uint8_t *text, int64_t length,
                             ot_buffer *out) {
  return form.text ? ot_buffer_append(out, form.text, form.length)
                   : ot_buffer_append(out, text, length);
}

// The length of the grapheme cluster at `text` [length > 0].
static int64_t cluster_length(const uint8_t *text, int64_t length) {
  int width;
  utf8proc_int32_t state = 0;
  uint32_t code = ot_unicode_first(text, length, &width);
  for (int64_t i = width; i < length; i += width) {
    const uint32_t next = ot_unicode_first(text + i, length - i, &width);
    if (utf8proc_grapheme_break_stateful((int32_t)code, (int32_t)next, &state)) return i;
    code = next;
  }
  return length;
}

// `first_bytes` is set to the length of its first character's form.
static ot_status append_cluster(const ot_charsmap *map, ot_token_text cluster, ot_buffer *out,
                                int64_t *first_bytes) {
  const int64_t before = out->length;
  const bool whole = cluster.length <= WHOLE_CLUSTER_BYTES;
  const normal_form form = whole ? find_form(map, cluster.bytes, cluster.length) : (normal_form){0};
  if (form.text) {
    int width = 0;
    (void)ot_unicode_first(cluster.bytes, cluster.length, &width);
    const bool single = width == cluster.length || form.length == 0;
    if (!single) (void)ot_unicode_first(form.text, form.length, &width);
    *first_bytes = single ? form.length : width;
    return ot_buffer_append(out, form.text, form.length);
  }
  int width;
  for (int64_t i = 0; i < cluster.length; i += width) {
    const uint8_t *const text = cluster.bytes + i;
    (void)ot_unicode_first(text, cluster.length - i, &width);
    OT_TRY(append_form(find_form(map, text, width), text, width, out));
    if (i == 0) *first_bytes = out->length - before;
  }
  return OT_OK;
}

// Characters at the start of `text` that are separate clusters and unchanged: ASCII characters
// before other ASCII ones, except the line break \r
// .
static int64_t plain_run(const ot_charsmap *map, const uint8_t *text, int64_t length) {
  int64_t i = 0;
  while (i < length && text[i] < 0x80 && text[i] != '\r' && !map->ascii[text[i]].text) i++;
  return i < length && i > 0 && text[i] >= 0x80 ? i - 1 : i;
}

ot_status ot_charsmap_apply(const ot_charsmap *map, const uint8_t *text, int64_t length,
                            ot_buffer *out, int64_t *first_bytes) {
  *first_bytes = 0;
  for (int64_t i = 0; i < length;) {
    int64_t width = plain_run(map, text + i, length - i);
    int64_t made = 1;
    if (width > 0) {
      OT_TRY(ot_buffer_append(out, text + i, width));
    } else {
      width = cluster_length(text + i, length - i);
      const ot_token_text cluster = {.bytes = text + i, .length = width};
      OT_TRY(append_cluster(map, cluster, out, &made));
    }
    if (i == 0) *first_bytes = made;
    i += width;
    // A file may map one character to megabytes.
    OT_CHECK(out->length <= GROWTH_MAX * length + SHORT_BYTES, OT_USAGE,
             "precompiled_charsmap: it makes a text more than %d times longer", GROWTH_MAX);
  }
  return OT_OK;
}
