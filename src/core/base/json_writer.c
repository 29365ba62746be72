// SPDX-License-Identifier: Apache-2.0
// The state of an open document is two bits per level: object or array, empty or not. They
// determine the separators, so no call needs to know what follows.
#include "base/json_writer.h"

#include <stddef.h>
#include <string.h>

#include "base/number.h"
#include "base/status.h"
#include "base/text.h"

static void append(ot_json_writer *w, const char *bytes, int64_t count) {
  const int64_t needed = w->length + count + 1;
  if (needed > w->capacity) {
    const int64_t larger = needed > 2 * w->capacity ? needed + 256 : 2 * w->capacity;
    char *const grown = ot_arena_take(w->arena, larger);
    if (w->length > 0) memcpy(grown, w->text, (size_t)w->length);
    w->text = grown;
    w->capacity = larger;
  }
  memcpy(w->text + w->length, bytes, (size_t)count);
  w->length += count;
  w->text[w->length] = '\0';
}

static void append_text(ot_json_writer *w, const char *text) {
  append(w, text, ot_text_length(text));
}

static uint64_t level_bit(const ot_json_writer *w) { return (uint64_t)1 << (w->depth - 1); }

static void append_line_break(ot_json_writer *w) {
  if (w->indent == 0) return;
  append(w, "\n", 1);
  for (int i = 0; i < w->indent * w->depth; i++) append(w, " ", 1);
}

static void append_escape(ot_json_writer *w, unsigned c) {
  static const char letters[] = "\"\"\\\\\bb\ff\nn\rr\tt";
  for (const char *pair = letters; *pair != '\0'; pair += 2) {
    if ((unsigned char)pair[0] != c) continue;
    append(w, (const char[]){'\\', pair[1]}, 2);
    return;
  }
  char escape[8];
  append(w, escape, ot_text_format(escape, sizeof escape, "\\u%04x", c));
}

// The code point of a control character, which is one of at most three bytes.
static unsigned code_of(const unsigned char *s, int64_t bytes) {
  if (bytes == 1) return s[0];
  if (bytes == 2) return (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
  return (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
}

static void append_quoted(ot_json_writer *w, const char *text, int64_t length) {
  const unsigned char *const s = (const unsigned char *)text;
  append(w, "\"", 1);
  for (int64_t i = 0; i < length;) {
    const int64_t sequence = ot_text_character_bytes(text + i, length - i);
    if (sequence == 0) {
      append_text(w, "\xef\xbf\xbd");
    } else if (s[i] == '"' || s[i] == '\\' || ot_text_is_control(text + i, sequence)) {
      append_escape(w, code_of(s + i, sequence));
    } else {
      append(w, text + i, sequence);
    }
    i += sequence > 0 ? sequence : 1;
  }
  append(w, "\"", 1);
}

// Writes the separator, line break and key before a value.
static void begin_value(ot_json_writer *w, const char *key) {
  const bool in_object = w->depth > 0 && (w->objects & level_bit(w)) != 0;
  OT_ASSERT(in_object == (key != NULL));
  if (w->depth > 0) {
    if (w->filled & level_bit(w)) append(w, ",", 1);
    w->filled |= level_bit(w);
    append_line_break(w);
  }
  if (!key) return;
  append_quoted(w, key, ot_text_length(key));
  append_text(w, w->indent > 0 ? ": " : ":");
}

static void open_level(ot_json_writer *w, const char *key, bool object) {
  begin_value(w, key);
  OT_ASSERT(w->depth < OT_JSON_DEPTH_MAX);
  w->depth++;
  w->objects = (w->objects & ~level_bit(w)) | (object ? level_bit(w) : 0);
  w->filled &= ~level_bit(w);
  append_text(w, object ? "{" : "[");
}

ot_json_writer ot_json_begin(ot_arena *arena, int indent) {
  ot_json_writer w = {.arena = arena, .indent = indent};
  append(&w, "", 0);
  return w;
}

void ot_json_object(ot_json_writer *w, const char *key) { open_level(w, key, true); }

void ot_json_array(ot_json_writer *w, const char *key) { open_level(w, key, false); }

void ot_json_end(ot_json_writer *w) {
  OT_ASSERT(w->depth > 0);
  const bool object = (w->objects & level_bit(w)) != 0;
  const bool filled = (w->filled & level_bit(w)) != 0;
  w->depth--;
  if (filled) append_line_break(w);
  append_text(w, object ? "}" : "]");
}

void ot_json_integer(ot_json_writer *w, const char *key, int64_t value) {
  char text[32];
  begin_value(w, key);
  append(w, text, ot_text_format(text, sizeof text, "%lld", (long long)value));
}

void ot_json_real(ot_json_writer *w, const char *key, double value) {
  if (value - value != 0) {
    ot_json_null(w, key);
    return;
  }
  char text[40];
  begin_value(w, key);
  append(w, text, ot_number_print_shortest(text, sizeof text, value));
}

void ot_json_boolean(ot_json_writer *w, const char *key, bool value) {
  ot_json_raw(w, key, value ? "true" : "false");
}

void ot_json_null(ot_json_writer *w, const char *key) { ot_json_raw(w, key, "null"); }

void ot_json_text(ot_json_writer *w, const char *key, const char *text) {
  if (!text) {
    ot_json_null(w, key);
    return;
  }
  ot_json_text_bytes(w, key, text, ot_text_length(text));
}

void ot_json_text_bytes(ot_json_writer *w, const char *key, const char *text, int64_t length) {
  begin_value(w, key);
  append_quoted(w, text, length);
}

void ot_json_raw(ot_json_writer *w, const char *key, const char *json) {
  begin_value(w, key);
  append_text(w, json);
}
