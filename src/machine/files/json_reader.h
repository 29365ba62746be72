// SPDX-License-Identifier: Apache-2.0
// A streaming JSON reader for callers that know the expected structure: for texts of many values of
// one kind (headers of tensor files), in time and memory linear in the text. It has no recursion,
// so nesting cannot overflow the stack. Trees: json_file.h.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct ot_json_reader {
  const char *name;  // of the text, in messages
  const char *text;  // [length], not necessarily zero-terminated
  int64_t length;
  int64_t at;       // bytes read
  ot_arena *arena;  // of strings with escapes
} ot_json_reader;

// A string: UTF-8 without zero bytes, escapes decoded. Points into the text or the arena.
typedef struct ot_json_string {
  const char *text;  // [length]
  int64_t length;
} ot_json_string;

bool ot_json_string_equal(ot_json_string string, const char *text);

// Skips white space. If `mark` follows, consumes it and returns true.
bool ot_json_reader_next(ot_json_reader *reader, char mark);

// The same, but anything else is a failure.
ot_status ot_json_reader_take(ot_json_reader *reader, char mark);

// Iterates over the members of a map or list after its first mark: true when another follows, false
// after `end` is consumed. *first must be true before the first call, and is set to false.
ot_status ot_json_reader_more(ot_json_reader *reader, char end, bool *first, bool *more);

// True when a string follows.
bool ot_json_reader_at_string(ot_json_reader *reader);
ot_status ot_json_reader_string(ot_json_reader *reader, ot_json_string *string);

// Parses a number without fraction and exponent; *whole is false when anything else follows. An
// overflow of 64 bits is a failure.
ot_status ot_json_reader_integer(ot_json_reader *reader, int64_t *value, bool *whole);

// Fails unless only white space is left.
ot_status ot_json_reader_finish(ot_json_reader *reader);
