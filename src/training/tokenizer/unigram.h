// SPDX-License-Identifier: Apache-2.0
// The unigram language model of SentencePiece (Kudo 2018): the tokenization of a pre-token with the
// largest sum of log probabilities, by Viterbi's algorithm. A character without a token is unknown,
// with a score 10 below the lowest; adjacent unknown ones become one token, or the tokens of their
// bytes.
#pragma once

#include "tokenizer/token_model.h"

// Reads {"unk_id", "vocab": [[TEXT, SCORE], ...], "byte_fallback"}; `into` is an
// ot_token_model_reading.
ot_status ot_unigram_read(ot_tokenizer_reader *reader, const json_t *json, void *into);
