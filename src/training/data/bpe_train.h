// SPDX-License-Identifier: Apache-2.0
// Trains a byte-level BPE on files and writes it as a tokenizer.json with which HF tokenizers
// produce the same ids: GPT-2's pre-tokenizer, `<|endoftext|>` as the last id. The result depends
// on files and size only, not on threads. In a document split into several windows a word at a
// border may be counted twice; <|endoftext|> in the text is not counted.
#pragma once

#include <stdint.h>

#include "base/status.h"
#include "data/corpus.h"
#include "tokenizer/bpe_learn.h"
#include "tokenizer/buffer.h"

typedef struct ot_bpe_train_request {
  const char *const *paths;  // [num_paths] see ot_corpus_request
  int64_t num_paths;
  const char *key;  // of lines of JSON; null = "text"
  ot_corpus_format format;
  bool skips_bad_lines;  // of JSON; else the first is an error
  int64_t vocab_size;    // >= 257, with <|endoftext|>; fewer if the text has no more pairs
  int num_threads;       // 0 = all processors of this process
  const char *out;       // path of the tokenizer.json
} ot_bpe_train_request;

ot_status ot_bpe_train_run(const ot_bpe_train_request *request);

// Appends `learned` as a tokenizer.json with GPT-2's pre-tokenizer.
ot_status ot_tokenizer_write_learned(const ot_learned_bpe *learned, ot_buffer *json);
