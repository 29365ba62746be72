// SPDX-License-Identifier: Apache-2.0
// What the tokens of a vocabulary stand for: the "decoder" of a tokenizer.json. Each token has its
// bytes whatever stands around it, but for the first of a text, which may lose the space that
// encoding put before the text.
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
  const char *from;  // literal text that becomes `to`
  const char *to;
  bool dropped_first;  // in the first token of a text it becomes nothing
} ot_token_decoder_step;

typedef struct ot_token_decoder {
  bool byte_level;     // tokens are spelled in the byte alphabet
  bool byte_fallback;  // <0x0A> is the byte 10
  bool fused;
  ot_token_decoder_step steps[OT_MAX_DECODER_STEPS];
  int num_steps;
  const char *strip;  // one character that is taken off the beginning of a text; null: none
} ot_token_decoder;

// Fills a zeroed decoder for a tokenizer whose vocabulary is `byte_level` or text. The texts of
// `arena` are kept.
ot_status ot_token_decoder_read(ot_tokenizer_reader *reader, const json_t *json, bool byte_level,
                                ot_arena *arena, ot_token_decoder *out);

// A token as its vocabulary spells it.
typedef struct ot_spelled_token {
  const char *text;
  int64_t length;
  bool first;  // of a text; else it stands within
} ot_spelled_token;

// Appends the bytes that `token` stands for.
ot_status ot_token_decoder_append(const ot_token_decoder *decoder, ot_spelled_token token,
                                  ot_buffer *out);
