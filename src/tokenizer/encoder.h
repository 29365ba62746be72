// SPDX-License-Identifier: Apache-2.0
// Encoding a window of a longer text, for readers that do not hold whole documents. Whole texts:
// ot_encoder_encode in tokenizer.h.
#pragma once

#include "tokenizer/tokenizer.h"

typedef struct ot_text_window {
  const uint8_t *text;
  int64_t length;
  int64_t stop;  // encode up to here; text[stop..length) is only looked at
  bool final;    // the document ends at `length`; then stop == length
} ot_text_window;

// True when encoding may begin at any boundary between pieces, so that windows can be encoded
// apart: no added token looks back, no pattern has anchors or look-behind, no space is put before
// text, and the normalizer works on both sides of an ASCII character apart.
bool ot_tokenizer_is_splittable(const ot_tokenizer *tokenizer);

// Encodes text[0..stop) as the part of a longer text whose pieces begin at text[0], appending to
// `ids`. `reached` is set when a piece ends exactly at `stop`: then what follows may be encoded
// from there. Otherwise the ids appended are of no use: try again with more text.
ot_status ot_encoder_encode_window(ot_encoder *encoder, const ot_text_window *window,
                                   ot_token_list *ids, bool *reached);

// What receives pieces instead of the model, for counting them.
typedef ot_status (*ot_piece_sink)(void *context, const uint8_t *piece, int64_t length);

// As ot_encoder_encode_window, but hands each piece to `sink`; added tokens are passed over.
ot_status ot_encoder_split_window(ot_encoder *encoder, const ot_text_window *window,
                                  ot_piece_sink sink, void *context, bool *reached);
