// SPDX-License-Identifier: Apache-2.0
// Writes JSON into a growing text in an arena. The same calls give the same bytes everywhere:
// doubles in their shortest form, NaN and infinities as null, U+FFFD for each byte that is not
// UTF-8; control characters and line ends of Unicode are escaped, so that a string is one of TOML
// and YAML, too. Misuse (a key in an array, an end without a begin) is a bug and panics.
//   ot_json_writer w = ot_json_begin(&arena, 0);
//   ot_json_object(&w, NULL);
//   ot_json_integer(&w, "step", 7);
//   ot_json_end(&w);
//   use w.text [w.length]
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

enum { OT_JSON_DEPTH_MAX = 64 };

typedef struct ot_json_writer {
  ot_arena *arena;
  char *text;  // [length], ends in zero; a streaming caller writes it out and sets length to 0
  int64_t length;
  int64_t capacity;
  int indent;        // spaces per level; 0: everything on one line without spaces
  int depth;         // open objects and arrays
  uint64_t objects;  // bit d: level d is an object
  uint64_t filled;   // bit d: level d has an element
} ot_json_writer;

ot_json_writer ot_json_begin(ot_arena *arena, int indent);

// `key` in every call below: the member's name inside an object, null inside an array and at the
// top level.
void ot_json_object(ot_json_writer *w, const char *key);
void ot_json_array(ot_json_writer *w, const char *key);
// Ends the innermost object or array.
void ot_json_end(ot_json_writer *w);

void ot_json_integer(ot_json_writer *w, const char *key, int64_t value);
void ot_json_real(ot_json_writer *w, const char *key, double value);
void ot_json_boolean(ot_json_writer *w, const char *key, bool value);
void ot_json_null(ot_json_writer *w, const char *key);
// A null `text` is written as null.
void ot_json_text(ot_json_writer *w, const char *key, const char *text);
// Like ot_json_text, for bytes that may contain zeros.
void ot_json_text_bytes(ot_json_writer *w, const char *key, const char *text, int64_t length);
// `json` is one complete JSON value, copied verbatim.
void ot_json_raw(ot_json_writer *w, const char *key, const char *json);
