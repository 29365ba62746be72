// SPDX-License-Identifier: Apache-2.0
// Generated tokens as text: held back until its characters are whole and no stop string can begin
// in it.
#pragma once

#include "tokenizer/tokenizer.h"

enum { OT_MOST_STOPS = 16 };

// A string that ends a text and is not part of it; not empty.
typedef struct ot_stop_text {
  const char *bytes;
  int64_t length;
} ot_stop_text;

typedef struct ot_text_stream {
  const ot_tokenizer *tokenizer;
  const ot_stop_text *stops;  // [num_stops]
  int num_stops;
  bool begins;     // the next token begins a text (ot_tokenizer_decode)
  ot_buffer text;  // everything so far, without the stop string
  int64_t passed;  // bytes of it that may be shown: whole characters that no stop can contain
  bool stopped;    // at a stop string
} ot_text_stream;

// Appends a token, and moves `passed`. An id without text adds nothing.
ot_status ot_text_stream_append(ot_text_stream *stream, int32_t token);

// The text has ended: all of it may be shown.
void ot_text_stream_finish(ot_text_stream *stream);

void ot_text_stream_release(ot_text_stream *stream);

// Bytes at the end of `text` [length] that may begin a character of UTF-8 and lack its rest.
int64_t ot_utf8_unfinished(const uint8_t *text, int64_t length);
