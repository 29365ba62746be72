// SPDX-License-Identifier: Apache-2.0
// Splits normalized text into pre-tokens, which tokens never cross: the "pre_tokenizer" of a
// tokenizer.json as a list of steps. This file defines the steps; the encoder runs them.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/split_pattern.h"
#include "tokenizer/tokenizer_reader.h"

enum { OT_MAX_SPLIT_STEPS = 12 };

typedef enum ot_split_kind {
  OT_SPLIT_BY_PATTERN,    // matches and the text between are pre-tokens
  OT_SPLIT_PREFIX_SPACE,  // no split: prepends a space to text without one
  OT_SPLIT_METASPACE,     // writes spaces as `mark`, prepends one, splits before each
} ot_split_kind;

typedef enum ot_metaspace_prefix {
  OT_METASPACE_ALWAYS,  // every text that does not start with `mark` gets it
  OT_METASPACE_FIRST,   // only at the start of a document
  OT_METASPACE_NEVER,
} ot_metaspace_prefix;

enum { OT_MARK_BYTES = 5 };

typedef struct ot_split_step {
  ot_split_kind kind;
  // OT_SPLIT_BY_PATTERN
  ot_split_pattern *pattern;
  bool drop_unmatched;        // text between matches is dropped, not a pre-token
  bool drop_matched;          // matches are dropped
  bool joined_with_previous;  // a match is appended to the text before it
  // OT_SPLIT_METASPACE
  char mark[OT_MARK_BYTES];  // one character
  ot_metaspace_prefix prefix;
  bool whole;  // no split
} ot_split_step;

typedef struct ot_pre_tokenizer {
  ot_split_step steps[OT_MAX_SPLIT_STEPS];
  int num_steps;
  bool byte_level;  // tokens are byte strings in the byte alphabet; else text
} ot_pre_tokenizer;

// Fills a zeroed pre-tokenizer, to be released even after a failure. `json` may be null.
ot_status ot_pre_tokenizer_read(ot_tokenizer_reader *reader, const json_t *json,
                                ot_pre_tokenizer *out);
void ot_pre_tokenizer_release(ot_pre_tokenizer *pre_tokenizer);

// True if a text may be split from any pre-token boundary on as if it began there.
bool ot_pre_tokenizer_is_memoryless(const ot_pre_tokenizer *pre_tokenizer);

// The member "replacement" of a Metaspace, one character, as pre-tokenizer or decoder (`place`).
ot_status ot_metaspace_mark_read(ot_tokenizer_reader *reader, const char *place, const json_t *part,
                                 char mark[OT_MARK_BYTES]);
ot_status ot_metaspace_prefix_read(ot_tokenizer_reader *reader, const char *place,
                                   const json_t *part, ot_metaspace_prefix *prefix);
