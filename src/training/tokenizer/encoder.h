// SPDX-License-Identifier: Apache-2.0
// Encodes a window of a longer text, for readers that do not hold whole documents. A *piece* is a
// pre-token. Whole texts: ot_encoder_encode in tokenizer.h.
#pragma once

#include "tokenizer/tokenizer.h"

typedef struct ot_text_window {
  const uint8_t *text;
  int64_t length;
  int64_t stop;  // encode up to here; text[stop..length) is context
  bool final;    // the document ends at `length`; then stop == length
} ot_text_window;

// True if encoding may start at any boundary between pre-tokens, so that windows can be encoded
// separately: no added token depends on text before it, no pattern has anchors or lookbehind, no
// space is prepended, and the normalizer treats both sides of an ASCII character separately.
bool ot_tokenizer_is_splittable(const ot_tokenizer *tokenizer);

// Encodes text[0..stop) as part of a longer text with a pre-token boundary at text[0], appending to
// `ids`. `reached` is set if a pre-token ends exactly at `stop`: the following text may then be
// encoded from there. Otherwise the appended ids are invalid: retry with more text.
ot_status ot_encoder_encode_window(ot_encoder *encoder, const ot_text_window *window,
                                   ot_token_list *ids, bool *reached);

// Receives pre-tokens instead of the model, to count them.
typedef ot_status (*ot_pre_token_sink)(void *context, const uint8_t *piece, int64_t length);

// As ot_encoder_encode_window, but passes each pre-token to `sink`; added tokens are skipped.
ot_status ot_encoder_split_window(ot_encoder *encoder, const ot_text_window *window,
                                  ot_pre_token_sink sink, void *context, bool *reached);
