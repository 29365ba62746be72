// SPDX-License-Identifier: Apache-2.0
// Rewrites text before it is split: the "normalizer" of a tokenizer.json, as a list of steps of a
// few kinds, each with its meaning in HF tokenizers.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/buffer.h"
#include "tokenizer/split_pattern.h"
#include "tokenizer/tokenizer_reader.h"

typedef struct ot_normalizer ot_normalizer;  // immutable, shared by threads

// `json` may be null: the identity.
ot_status ot_normalizer_read(ot_tokenizer_reader *reader, const json_t *json, ot_normalizer **out);
void ot_normalizer_destroy(ot_normalizer **normalizer);

// True if every text is unchanged; every ASCII text; if text may be split between two ASCII
// characters and its parts normalized separately.
bool ot_normalizer_is_identity(const ot_normalizer *normalizer);
bool ot_normalizer_keeps_ascii(const ot_normalizer *normalizer);
bool ot_normalizer_is_local(const ot_normalizer *normalizer);

typedef struct ot_normal_text {
  const uint8_t *text;  // valid UTF-8
  int64_t length;
  int64_t first_bytes;  // length at its start of the form of a document's first character; 0: none
} ot_normal_text;

// Replaces `text` by its normal form, which is in `work` unless unchanged.
ot_status ot_normalizer_apply(const ot_normalizer *normalizer, ot_split_matcher *matcher,
                              ot_normal_text *text, ot_buffer work[2]);
