// SPDX-License-Identifier: Apache-2.0
// Tokens that are searched in the text itself, before splitting (<|endoftext|> etc.): the leftmost
// first, then the longest, by a trie over bytes. Fields as in HF tokenizers' AddedToken.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ot_added_token {
  const char *content;  // UTF-8
  int64_t length;
  int32_t id;
  bool single_word;  // only if no word character is adjacent
  bool lstrip;       // includes white space before it
  bool rstrip;       // includes white space after it, up to the next token
  bool normalized;   // is searched in normalized text
  bool special;
} ot_added_token;

typedef struct ot_added_tokens ot_added_tokens;  // immutable, shared by threads

// Copies `tokens` [count]. Those with empty content never match.
ot_status ot_added_tokens_create(const ot_added_token *tokens, int64_t count,
                                 ot_added_tokens **out);
void ot_added_tokens_destroy(ot_added_tokens **tokens);

// True if a token depends on the text before it, so that a search cannot start anywhere.
bool ot_added_tokens_look_back(const ot_added_tokens *tokens);

typedef struct ot_added_text {
  const uint8_t *text;  // valid UTF-8
  int64_t length;
  bool final;  // false: more text follows
} ot_added_text;

typedef enum ot_added_outcome {
  OT_ADDED_NONE,       // none from there on
  OT_ADDED_FOUND,      // `id` at [start, stop), stripped space included
  OT_ADDED_UNDECIDED,  // none starts before `start`; one may start there, depending on further text
} ot_added_outcome;

typedef struct ot_added_match {
  ot_added_outcome outcome;
  int64_t start, stop;
  int32_t id;
} ot_added_match;

// The first token at or after byte `from`, which is the end of the previous match, or 0.
ot_added_match ot_added_tokens_next(const ot_added_tokens *tokens, const ot_added_text *text,
                                    int64_t from);
