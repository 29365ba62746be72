// SPDX-License-Identifier: Apache-2.0
// Trains a byte-level BPE on files and writes it as a tokenizer.json that HF tokenizers reads to
// the same ids: GPT-2's pre-tokenizer, `<|endoftext|>` as the last id. The result depends on the
// files and the size alone, not on threads. Of a document in several windows a piece at their
// border may be counted twice; <|endoftext|> in the text is not counted.
#pragma once

#include <stdint.h>

#include "base/status.h"
#include "tokenizer/bpe_learn.h"
#include "tokenizer/buffer.h"

typedef struct ot_bpe_train_request {
  const char *const *paths;  // [num_paths] as of ot_corpus_request
  int64_t num_paths;
  const char *key;     // of .jsonl lines; null = "text"
  int64_t vocab_size;  // >= 257, <|endoftext|> included; fewer when the text has no more pairs
  int num_threads;     // 0 = the processors of this process
  const char *out;     // path of the tokenizer.json
} ot_bpe_train_request;

ot_status ot_bpe_train_run(const ot_bpe_train_request *request);

// Appends `learned` as the text of a tokenizer.json with GPT-2's pre-tokenizer.
ot_status ot_tokenizer_write_learned(const ot_learned_bpe *learned, ot_buffer *json);
