// SPDX-License-Identifier: Apache-2.0
// Encodes a pre-token: the "model" of a tokenizer.json. Each kind is a table of functions; the rest
// of the tokenizer accesses models only through it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/buffer.h"
#include "tokenizer/tokenizer_reader.h"

// The vocabulary as written in its file, for the tables of the whole tokenizer.
typedef struct ot_vocabulary_entry {
  const char *text;
  int64_t length;
  int64_t id;
} ot_vocabulary_entry;

typedef struct ot_vocabulary {
  const ot_vocabulary_entry *entries;  // [count], distinct ids, in the arena of the reader
  int64_t count;
} ot_vocabulary;

typedef struct ot_token_model ot_token_model;

typedef struct ot_token_model_kind {
  void (*destroy)(void **self);

  // The token with the text `text`, or -1.
  int32_t (*find)(const void *self, ot_token_text text);

  // Writes the tokens of `piece` [length > 0], valid UTF-8 or one invalid byte, into `ids` [length]
  // and their number into `count`. `scratch` is work memory of this thread.
  ot_status (*encode)(const void *self, ot_token_text piece, ot_buffer *scratch, int32_t *ids,
                      int64_t *count);

  // The first byte from `from` on where a pre-token may be split and its parts encoded separately,
  // with the same ids; its length if there is none. Null: nowhere.
  int64_t (*next_cut)(const void *self, ot_token_text piece, int64_t from);
} ot_token_model_kind;

struct ot_token_model {
  const ot_token_model_kind *kind;
  void *self;
  bool cut_pieces;  // pre-tokens are long, and faster to encode in the parts that next_cut allows
};

// Reads the object `json`, for a vocabulary that is `byte_level` or text.
ot_status ot_token_model_read(ot_tokenizer_reader *reader, const json_t *json, bool byte_level,
                              ot_vocabulary *vocabulary, ot_token_model *out);
void ot_token_model_destroy(ot_token_model *model);

// The `into` of a kind's reader.
typedef struct ot_token_model_reading {
  bool byte_level;
  ot_vocabulary *vocabulary;
  ot_token_model *model;
} ot_token_model_reading;

enum { OT_VOCABULARY_MAX = 1 << 24 };

// Ids of a vocabulary of `count` entries must be below this, since tables have a row for each id up
// to the largest: a short file could ask for gigabytes.
int64_t ot_vocabulary_id_bound(int64_t count);
