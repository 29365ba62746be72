// SPDX-License-Identifier: Apache-2.0
// Learns a byte-level BPE from word counts (Sennrich et al. 2016, algorithm 1, with incremental
// counts): repeatedly the most frequent adjacent pair of tokens becomes a token. Ties are resolved
// by the smaller left id, then the smaller right id, as in HF BpeTrainer, so the result depends
// only on the counts.
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "tokenizer/bpe.h"
#include "tokenizer/word_count.h"

// Ids 0 to 255 are the bytes in the order of their characters in the byte alphabet (as in GPT-2's
// vocabulary); then tokens in the order in which they were learned.
typedef struct ot_learned_bpe {
  ot_token_text *tokens;  // [num_tokens]
  int64_t num_tokens;
  ot_bpe_merge *merges;  // [num_merges], by rank; more than new tokens if two pairs spell one
  int64_t num_merges;
} ot_learned_bpe;

// Learns until there are `num_tokens` (256 or more) tokens, or no pair is left. The result is in
// `arena`. Time and memory are about linear in the bytes of distinct words.
ot_status ot_bpe_learn(const ot_word_count *words, int64_t num_tokens, ot_arena *arena,
                       ot_learned_bpe *out);
