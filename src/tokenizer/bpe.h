// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding of one piece of text (Sennrich et al. 2016): of all adjacent pairs the one
// with the lowest rank is merged, the leftmost first, until none can be. Short pieces by scanning,
// long ones with a heap, in O(n log n). What is merged first are bytes, or the characters that have
// a token; other characters are their bytes' tokens or unknown.
#pragma once

#include <stdint.h>

#include "tokenizer/token_model.h"

typedef struct ot_bpe ot_bpe;  // immutable, shared by threads

typedef struct ot_bpe_merge {
  int32_t left, right;  // ids of an adjacent pair
  int32_t result;       // the id that takes its place
} ot_bpe_merge;

typedef struct ot_bpe_description {
  const ot_token_text *tokens;  // [vocab_size], indexed by id
  int64_t vocab_size;
  const ot_bpe_merge *merges;  // [num_merges], by rank; a pair that comes twice: the last counts
  int64_t num_merges;
  bool ignore_merges;  // a piece that is a token is that token
  bool of_characters;  // text is made of characters; else of bytes, all 256 of which have a token
  // Of characters:
  const int32_t *byte_ids;  // [256] for characters that have no token, -1: none; or null
  int32_t unk;              // for characters that have neither, -1: there are no such
  bool fuse_unk;            // unknown characters next to each other are one token
} ot_bpe_description;

// Copies what it needs. OT_USAGE when text would be lost: a byte, or a character, has no token.
ot_status ot_bpe_create(const ot_bpe_description *description, ot_bpe **out);
void ot_bpe_destroy(ot_bpe **bpe);

// The model's functions, for an ot_bpe.
extern const ot_token_model_kind ot_bpe_kind;

// Reads the object of a tokenizer.json; `into` is an ot_token_model_reading.
ot_status ot_bpe_read(ot_tokenizer_reader *reader, const json_t *json, void *into);
