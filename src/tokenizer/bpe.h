// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding of one piece of text (Sennrich et al. 2016): of all adjacent pairs the one
// with the lowest rank is merged, the leftmost first, until none can be. Short pieces by scanning,
// long ones with a heap, in O(n log n). Knows nothing of pre-tokenizing or of text encodings.
#pragma once

#include <stdint.h>

#include "base/status.h"
#include "tokenizer/buffer.h"

typedef struct ot_bpe ot_bpe;  // immutable, shared by threads

typedef struct ot_bpe_token {
  const uint8_t *bytes;  // null when no token has this id
  int64_t length;
} ot_bpe_token;

typedef struct ot_bpe_merge {
  int32_t left, right;  // ids of an adjacent pair
  int32_t result;       // the id that takes its place
} ot_bpe_merge;

typedef struct ot_bpe_description {
  const ot_bpe_token *tokens;  // [vocab_size], indexed by id; each single byte must be among them
  int64_t vocab_size;
  const ot_bpe_merge *merges;  // [num_merges], by rank; a pair that comes twice: the last counts
  int64_t num_merges;
} ot_bpe_description;

// Copies what it needs. OT_USAGE when a byte has no token.
ot_status ot_bpe_create(const ot_bpe_description *description, ot_bpe **out);
void ot_bpe_destroy(ot_bpe **bpe);

// The token whose bytes are `bytes` [length], or -1.
int32_t ot_bpe_find(const ot_bpe *bpe, const uint8_t *bytes, int64_t length);

// The bytes of a token; bytes null when there is none with this id (any value).
ot_bpe_token ot_bpe_token_of(const ot_bpe *bpe, int64_t id);

int64_t ot_bpe_num_merges(const ot_bpe *bpe);

// Writes the tokens of `piece` [length > 0] into `ids` [length] and their number into `count`.
// `scratch` is working memory of this thread.
ot_status ot_bpe_encode(const ot_bpe *bpe, ot_bpe_token piece, ot_buffer *scratch, int32_t *ids,
                        int64_t *count);
