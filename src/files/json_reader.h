// SPDX-License-Identifier: Apache-2.0
// A JSON text read value by value by a caller who knows what must come, without a tree: for texts
// of many values of one kind (headers of tensor files), in time and memory linear in the text. No
// recursion, so nothing can nest too deep. Trees: json_file.h.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct ot_json_reader {
  const char *name;  // of the text, for messages
  const char *text;  // [length], need not end in zero
  int64_t length;
  int64_t at;       // bytes read
  ot_arena *arena;  // of strings with escapes
} ot_json_reader;

// A string: UTF-8 without zero bytes, escapes resolved. Points into the text or the arena.
typedef struct ot_json_string {
  const char *text;  // [length]
  int64_t length;
} ot_json_string;

bool ot_json_string_equal(ot_json_string string, const char *text);

// Skips white space. True, and past it, when `mark` comes next.
bool ot_json_reader_next(ot_json_reader *reader, char mark);

// The same; anything else is a failure.
ot_status ot_json_reader_take(ot_json_reader *reader, char mark);

// For the members of a map or list after its first mark: true when one more comes, false past
// `end`. *first is true before the first, and set false.
ot_status ot_json_reader_more(ot_json_reader *reader, char end, bool *first, bool *more);

// True when a string comes next.
bool ot_json_reader_at_string(ot_json_reader *reader);
ot_status ot_json_reader_string(ot_json_reader *reader, ot_json_string *string);

// Reads a number without fraction and exponent; *whole is false when anything else comes next. One
// that 64 bits do not hold is a failure.
ot_status ot_json_reader_integer(ot_json_reader *reader, int64_t *value, bool *whole);

// Fails unless nothing but white space is left.
ot_status ot_json_reader_finish(ot_json_reader *reader);
