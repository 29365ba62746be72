// SPDX-License-Identifier: Apache-2.0
// How normalized text is split into pieces, between which tokens never reach: the "pre_tokenizer"
// of a tokenizer.json as a list of steps. The encoder runs them; here is what they are.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/split_pattern.h"
#include "tokenizer/tokenizer_reader.h"

enum { OT_MAX_SPLIT_STEPS = 12 };

typedef enum ot_split_kind {
  OT_SPLIT_BY_PATTERN,    // matches and what lies between are pieces
  OT_SPLIT_PREFIX_SPACE,  // no split: puts a space before text that has none
  OT_SPLIT_METASPACE,     // writes spaces as `mark`, puts one first, splits before each
} ot_split_kind;

typedef enum ot_metaspace_prefix {
  OT_METASPACE_ALWAYS,  // every text that does not begin with `mark` gets it
  OT_METASPACE_FIRST,   // only at the beginning of a document
  OT_METASPACE_NEVER,
} ot_metaspace_prefix;

enum { OT_MARK_BYTES = 5 };

typedef struct ot_split_step {
  ot_split_kind kind;
  // OT_SPLIT_BY_PATTERN
  ot_split_pattern *pattern;
  bool drop_unmatched;        // text between matches is dropped, not a piece
  bool drop_matched;          // matches are dropped
  bool joined_with_previous;  // a match belongs to the piece of the text before it
  // OT_SPLIT_METASPACE
  char mark[OT_MARK_BYTES];  // one character
  ot_metaspace_prefix prefix;
  bool whole;  // no split after all
} ot_split_step;

typedef struct ot_pre_tokenizer {
  ot_split_step steps[OT_MAX_SPLIT_STEPS];
  int num_steps;
  bool byte_level;  // tokens are byte strings, spelled in the byte alphabet; else text
} ot_pre_tokenizer;

// Fills a zeroed pre-tokenizer, which is released also after a failure. `json` may be null.
ot_status ot_pre_tokenizer_read(ot_tokenizer_reader *reader, const json_t *json,
                                ot_pre_tokenizer *out);
void ot_pre_tokenizer_release(ot_pre_tokenizer *pre_tokenizer);

// True when a text may be split from any border between pieces on as if it began there.
bool ot_pre_tokenizer_is_memoryless(const ot_pre_tokenizer *pre_tokenizer);

// The member "replacement" of a Metaspace, one character, as pre-tokenizer or decoder (`place`).
ot_status ot_metaspace_mark_read(ot_tokenizer_reader *reader, const char *place, const json_t *part,
                                 char mark[OT_MARK_BYTES]);
ot_status ot_metaspace_prefix_read(ot_tokenizer_reader *reader, const char *place,
                                   const json_t *part, ot_metaspace_prefix *prefix);
