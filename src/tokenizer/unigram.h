// SPDX-License-Identifier: Apache-2.0
// The unigram language model of SentencePiece (Kudo 2018): of all ways to write a piece as tokens
// the one whose log probabilities have the largest sum, by Viterbi's algorithm. A character that no
// token stands for is unknown, at a score 10 below the lowest; unknown ones next to each other are
// one token, or the tokens of their bytes.
#pragma once

#include "tokenizer/token_model.h"

// Reads {"unk_id", "vocab": [[TEXT, SCORE], ...], "byte_fallback"}; `into` is an
// ot_token_model_reading.
ot_status ot_unigram_read(ot_tokenizer_reader *reader, const json_t *json, void *into);
