// SPDX-License-Identifier: Apache-2.0
// Inside of a tokenizer, for the files that build it (tokenizer_*.c) and the one that runs it
// (encoder.c). Text goes through: added tokens, normalizer, added tokens of normalized text, split
// steps, BPE.
#pragma once

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/split_pattern.h"
#include "tokenizer/tokenizer.h"

enum { OT_MAX_SPLIT_STEPS = 12, OT_TOKENIZER_BYTES_MAX = 1 << 30 };

typedef struct ot_split_step {
  ot_split_pattern *pattern;  // null: the step puts a space before text that has none
  bool drop_unmatched;        // text between matches is dropped, not a piece
} ot_split_step;

struct ot_tokenizer {
  ot_bpe *bpe;                 // tokens that merging can give, by their bytes
  ot_added_tokens *raw;        // looked for in the text as it is; null when there are none
  ot_added_tokens *of_normal;  // looked for in normalized text; null when there are none
  ot_split_step steps[OT_MAX_SPLIT_STEPS];
  int num_steps;
  bool ignore_merges;    // a piece that is a token is that token
  bool normalize;        // NFC
  ot_bpe_token *tokens;  // [vocab_size] by id, for decoding; bytes null where there is none
  uint8_t *bytes;        // that `tokens` points into
  int64_t vocab_size;
  int32_t eos;  // -1: none
  char *json;   // [json_length] and a zero
  int64_t json_length;
};

// What a tokenizer is made of, gathered by a reader. Added tokens may repeat ids of `vocab`.
typedef struct ot_tokenizer_entry {
  const char *text;  // spelling in the byte alphabet
  int64_t length;
  int64_t id;
} ot_tokenizer_entry;

typedef struct ot_tokenizer_description {
  const char *name;                 // of the file, for messages
  const ot_tokenizer_entry *vocab;  // [num_vocab], ids differ
  int64_t num_vocab;
  const ot_bpe_merge *merges;  // [num_merges]
  int64_t num_merges;
  const ot_added_token *added;  // [num_added]
  int64_t num_added;
} ot_tokenizer_description;

// Fills bpe, raw, of_normal, tokens, bytes, vocab_size of a zeroed tokenizer whose `normalize` is
// set. On failure the tokenizer is still fit for destroy.
ot_status ot_tokenizer_fill(ot_tokenizer *tokenizer, const ot_tokenizer_description *description);

// tokenizer_json.c: fills everything but json and eos from the text of a tokenizer.json.
ot_status ot_tokenizer_read_json(const char *json, int64_t length, const char *name,
                                 ot_tokenizer *tokenizer);

// tokenizer_gpt2.c: appends the tokenizer.json that stands for a GPT-2 pair.
ot_status ot_tokenizer_convert_gpt2(const char *vocab_path, const char *merges_path,
                                    ot_buffer *json);

// tokenizer_write.c: appends the tokenizer.json of `bytes`.
ot_status ot_tokenizer_write_bytes(ot_buffer *json);
// Appends a tokenizer.json up to and with the opening brace of its vocabulary; `end_of_text` is the
// id of the added token <|endoftext|>, -1: none; `use_regex`: text is split as by GPT-2.
ot_status ot_tokenizer_write_head(int64_t end_of_text, bool use_regex, ot_buffer *json);
// Appends `text` [length], in the byte alphabet, as a JSON string.
ot_status ot_tokenizer_write_key(const char *text, int64_t length, ot_buffer *json);
