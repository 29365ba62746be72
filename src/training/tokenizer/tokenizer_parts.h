// SPDX-License-Identifier: Apache-2.0
// Internals of a tokenizer, for the files that build it (tokenizer_*.c) and the one that runs it
// (encoder.c). Text passes through added tokens, normalizer, added tokens of normalized text,
// pre-tokenizer and model; ids are decoded once per token at create.
#pragma once

#include "host/heap.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/token_model.h"
#include "tokenizer/tokenizer.h"

enum { OT_TOKENIZER_BYTES_MAX = 1 << 28 };

struct ot_tokenizer {
  ot_heap heap;  // of spellings and of the decoder's texts
  ot_arena arena;
  ot_added_tokens *raw;        // searched in the text as is; null if there are none
  ot_added_tokens *of_normal;  // searched in normalized text; null if there are none
  ot_normalizer *normalizer;
  ot_pre_tokenizer pre_tokenizer;
  ot_token_model model;
  ot_token_decoder decoder;
  const ot_added_token *added;  // [num_added] as in the file
  int64_t num_added;
  ot_spelled_token *spelled;  // [vocab_size] by id, for the decoder; text null: none
  ot_token_text *tokens;      // [vocab_size] by id, decoded within a text
  ot_buffer bytes;            // that `tokens` points into
  int64_t vocab_size;
  int32_t eos;       // -1: none
  const char *note;  // on differences from what the files state, or null; lines "\nnote: " apart
  ot_tokenizer_file files[OT_TOKENIZER_FILES];  // next to it
  const char *chat_template;                    // or null
  int32_t bos, pad;                             // of those files; -1: none
  int num_ends;                                 // eos_token_id of the model's files next to it
  int32_t ends[OT_MAX_EOS];
  char *json;  // [json_length] and a zero
  int64_t json_length;
};

// Added tokens whose ids are not those of the file; the first of them.
typedef struct ot_renumbered_tokens {
  int64_t count;
  const char *text;
  int32_t stated, id;
} ot_renumbered_tokens;

// The description of a tokenizer, filled by a reader. Added tokens may repeat ids of `vocab`.
typedef struct ot_tokenizer_description {
  const char *name;  // of the file, for messages
  ot_vocabulary vocab;
  const ot_added_token *added;  // [num_added] not empty, distinct
  int64_t num_added;
  ot_renumbered_tokens renumbered;
} ot_tokenizer_description;

// Fills raw, of_normal, added, spelled, tokens, bytes, vocab_size of a tokenizer whose other fields
// are set. After a failure destroy is still allowed.
ot_status ot_tokenizer_fill(ot_tokenizer *tokenizer, const ot_tokenizer_description *description);

// tokenizer_json.c: fills everything but json, eos and what stands next to the file from a
// tokenizer.json text.
ot_status ot_tokenizer_read_json(const char *json, int64_t length, const char *name,
                                 ot_tokenizer *tokenizer);

// special_tokens.c: reads the files next to the tokenizer at `path`.
ot_status ot_special_tokens_read(ot_tokenizer *tokenizer, const char *path);

// Adds a note, a text that outlives the tokenizer or is in its arena.
void ot_tokenizer_add_note(ot_tokenizer *tokenizer, const char *note);

// tokenizer_gpt2.c: appends the tokenizer.json equivalent to a GPT-2 pair.
ot_status ot_tokenizer_convert_gpt2(const char *vocab_path, const char *merges_path,
                                    ot_buffer *json);

// tokenizer_write.c: appends the tokenizer.json of `bytes`.
ot_status ot_tokenizer_write_bytes(ot_buffer *json);
// Appends a tokenizer.json up to and including the opening brace of its vocabulary; `end_of_text`
// is the id of the added token <|endoftext|>, -1: none; `use_regex`: splits text as GPT-2 does.
ot_status ot_tokenizer_write_head(int64_t end_of_text, bool use_regex, ot_buffer *json);
// Appends `text` [length], in the byte alphabet, as a JSON string.
ot_status ot_tokenizer_write_key(const char *text, int64_t length, ot_buffer *json);
