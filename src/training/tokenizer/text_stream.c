// SPDX-License-Identifier: Apache-2.0
// A stop string is searched where the new bytes can be part of it.
#include "tokenizer/text_stream.h"

#include <string.h>

int64_t ot_utf8_unfinished(const uint8_t *text, int64_t length) {
  for (int64_t back = 1; back <= 3 && back <= length; back++) {
    const uint8_t byte = text[length - back];
    if ((byte & 0xc0) == 0x80) continue;  // inside a character
    const int64_t size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return size > back ? back : 0;
  }
  return 0;
}

// The first place from `begin` on where a stop string is, or -1.
static int64_t find_stop(const ot_text_stream *s, int64_t begin) {
  for (int64_t at = begin; at < s->text.length; at++) {
    for (int i = 0; i < s->num_stops; i++) {
      const ot_stop_text *const stop = &s->stops[i];
      const bool fits = stop->length <= s->text.length - at;
      if (fits && memcmp(s->text.data + at, stop->bytes, (size_t)stop->length) == 0) return at;
    }
  }
  return -1;
}

// Bytes at the end that are the beginning of a stop string.
static int64_t begun_stop(const ot_text_stream *s) {
  int64_t most = 0;
  for (int i = 0; i < s->num_stops; i++) {
    const ot_stop_text *const stop = &s->stops[i];
    int64_t n = stop->length - 1 < s->text.length ? stop->length - 1 : s->text.length;
    while (n > most && memcmp(s->text.data + s->text.length - n, stop->bytes, (size_t)n) != 0) n--;
    if (n > most) most = n;
  }
  return most;
}

static int64_t longest_stop(const ot_text_stream *s) {
  int64_t longest = 1;
  for (int i = 0; i < s->num_stops; i++) {
    if (s->stops[i].length > longest) longest = s->stops[i].length;
  }
  return longest;
}

ot_status ot_text_stream_append(ot_text_stream *stream, int32_t token) {
  ot_text_stream *const s = stream;
  const int64_t before = s->text.length;
  if (token < 0 || token >= ot_tokenizer_vocab_size(s->tokenizer)) return OT_OK;
  const ot_status status = s->begins ? ot_tokenizer_decode(s->tokenizer, &token, 1, &s->text)
                                     : ot_tokenizer_decode_more(s->tokenizer, &token, 1, &s->text);
  if (status == OT_USAGE) s->text.length = before;  // it has no text
  if (status != OT_OK && status != OT_USAGE) return status;
  s->begins = false;
  const int64_t begin = before - longest_stop(s) + 1;
  const int64_t stop = find_stop(s, begin > s->passed ? begin : s->passed);
  if (stop >= 0) {
    s->text.length = stop;
    s->stopped = true;
    s->passed = stop;
    return OT_OK;
  }
  int64_t held = begun_stop(s);
  const int64_t unfinished = ot_utf8_unfinished(s->text.data, s->text.length);
  if (unfinished > held) held = unfinished;
  // A stop string may begin inside a character.
  int64_t shown = s->text.length - held;
  shown -= ot_utf8_unfinished(s->text.data, shown);
  if (shown > s->passed) s->passed = shown;
  return OT_OK;
}

void ot_text_stream_finish(ot_text_stream *stream) { stream->passed = stream->text.length; }

void ot_text_stream_release(ot_text_stream *stream) { ot_buffer_release(&stream->text); }
