// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding of one pre-token (Sennrich et al. 2016): repeatedly merges the adjacent pair
// with the lowest rank, leftmost first, until no merge applies. Short pre-tokens by scanning, long
// ones with a heap, in O(n log n). The initial symbols are bytes, or characters that have a token;
// other characters become their byte tokens or unknown.
#pragma once

#include <stdint.h>

#include "tokenizer/token_model.h"

typedef struct ot_bpe ot_bpe;  // immutable, shared by threads

typedef struct ot_bpe_merge {
  int32_t left, right;  // ids of an adjacent pair
  int32_t result;       // the id that replaces the pair
} ot_bpe_merge;

typedef struct ot_bpe_description {
  const ot_token_text *tokens;  // [vocab_size], indexed by id
  int64_t vocab_size;
  const ot_bpe_merge *merges;  // [num_merges], by rank; of duplicate pairs the last is used
  int64_t num_merges;
  bool ignore_merges;  // a pre-token that is a token is not merged
  bool of_characters;  // symbols are characters; else bytes, all 256 with a token
  // With of_characters:
  const int32_t *byte_ids;  // [256] for characters without a token, -1: none; or null
  int32_t unk;              // for characters with neither, -1: there are none
  bool fuse_unk;            // adjacent unknown characters become one token
} ot_bpe_description;

// Copies what it needs. OT_USAGE if a byte or character could not be encoded.
ot_status ot_bpe_create(const ot_bpe_description *description, ot_bpe **out);
void ot_bpe_destroy(ot_bpe **bpe);

// The model's functions, for an ot_bpe.
extern const ot_token_model_kind ot_bpe_kind;

// Parses the "model" of a tokenizer.json; `into` is an ot_token_model_reading.
ot_status ot_bpe_read(ot_tokenizer_reader *reader, const json_t *json, void *into);
