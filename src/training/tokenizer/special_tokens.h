// SPDX-License-Identifier: Apache-2.0
// The special tokens of a model's texts and its chat template: one answer for tokenizing, training,
// evaluation, sampling, serving, rewards and what is saved. The directory of a tokenizer states
// them, in tokenizer_config.json, special_tokens_map.json, chat_template.jinja, config.json and
// generation_config.json; ot_tokenizer_create reads these files once.
#pragma once

#include "describe/model.h"
#include "tokenizer/tokenizer.h"

// Ids below the vocabulary of the model; -1: none.
typedef struct ot_special_tokens {
  int32_t eos;     // ends documents
  int32_t bos;     // begins texts
  int32_t pad;     // fills rows
  int32_t prefix;  // what the first token of a text is scored after: bos, else eos, as
                   // lm-evaluation-harness chooses it (prefix_token_id)
  int num_ends;
  int32_t ends[OT_MAX_EOS];  // [num_ends] end a generated text, eos first
} ot_special_tokens;

// eos: that of ot_tokenizer_eos, else the first of the ends. bos and pad:
// bos_token and pad_token of the files next to the tokenizer; an id in a model's configuration
// makes no text begin with it. ends: eos, eos_token_id of
// config.json and generation_config.json next to the tokenizer, and eos_token_id of the model. Ids
// of the model count only if the tokenizer adds these tokens: a configuration may have been made
// for another vocabulary. Pure.
ot_special_tokens ot_special_tokens_of(const ot_tokenizer *tokenizer, const ot_model *model);

// Whether `id` is an added token.
bool ot_tokenizer_is_added(const ot_tokenizer *tokenizer, int64_t id);

// The files next to a tokenizer that describe it, for those who save it.
typedef enum ot_tokenizer_file_kind {
  OT_TOKENIZER_CONFIG,      // tokenizer_config.json
  OT_TOKENIZER_TOKENS_MAP,  // special_tokens_map.json
  OT_TOKENIZER_TEMPLATE,    // chat_template.jinja
  OT_TOKENIZER_FILES,
} ot_tokenizer_file_kind;

typedef struct ot_tokenizer_file {
  const char *name;  // "tokenizer_config.json", ...
  const char *text;  // [length], or null: there is none
  int64_t length;
} ot_tokenizer_file;

// [OT_TOKENIZER_FILES], valid until destroy.
const ot_tokenizer_file *ot_tokenizer_files(const ot_tokenizer *tokenizer);

// The chat template: chat_template.jinja, else `chat_template` of tokenizer_config.json (of a list
// the one called "default"); null: none. Valid until destroy.
const char *ot_tokenizer_chat_template(const ot_tokenizer *tokenizer);

// A sentence on the tokens of the tokenizer that a model with `vocab_size` rows lacks, and on ids
// that differ from those in the file; null: nothing to say. In `arena`.
const char *ot_tokenizer_note(const ot_tokenizer *tokenizer, int64_t vocab_size, ot_arena *arena);
