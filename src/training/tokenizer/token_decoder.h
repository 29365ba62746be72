// SPDX-License-Identifier: Apache-2.0
// The bytes of the tokens of a vocabulary: the "decoder" of a tokenizer.json. The bytes of a token
// do not depend on context, except for the first of a text, which may lose the space that encoding
// prepended.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/buffer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/split_pattern.h"
#include "tokenizer/tokenizer_reader.h"

enum { OT_MAX_DECODER_STEPS = 8 };

typedef struct ot_token_decoder_step {
  const char *from;  // literal text that is replaced by `to`
  const char *to;
  bool dropped_first;  // in the first token of a text it is removed
} ot_token_decoder_step;

typedef struct ot_token_decoder {
  bool byte_level;     // tokens are written in the byte alphabet
  bool byte_fallback;  // <0x0A> is the byte 10
  bool fused;
  ot_token_decoder_step steps[OT_MAX_DECODER_STEPS];
  int num_steps;
  const char *strip;  // one character removed from the start of a text; null: none
} ot_token_decoder;

// Fills a zeroed decoder for a vocabulary that is `byte_level` or text. Keeps texts of `arena`.
ot_status ot_token_decoder_read(ot_tokenizer_reader *reader, const json_t *json, bool byte_level,
                                ot_arena *arena, ot_token_decoder *out);

// A token as written in its vocabulary.
typedef struct ot_spelled_token {
  const char *text;
  int64_t length;
  bool first;  // first of a text
} ot_spelled_token;

// Appends the bytes of `token`.
ot_status ot_token_decoder_append(const ot_token_decoder *decoder, ot_spelled_token token,
                                  ot_buffer *out);
