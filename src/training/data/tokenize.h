// SPDX-License-Identifier: Apache-2.0
// Text files to a token shard (the verb `tokenize`): read in blocks, encoded by threads, written in
// order. Memory: a few MB per thread, and the largest JSON line. The shard does not depend on the
// number of threads.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/corpus.h"
#include "files/disk.h"

typedef struct ot_tokenize_request {
  const char *tokenizer;     // path or "bytes" (ot_tokenizer_create)
  const char *out;           // prefix of the shard
  const char *const *paths;  // [num_paths] files and directories
  int64_t num_paths;
  const char *key;          // of lines of JSON; null = "text"
  ot_corpus_format format;  // of all files
  int64_t skip_bad_lines;   // most lines of JSON that may be skipped; 0: the first is an error
  const char *eod;          // spelling of the token that ends documents; null = the tokenizer's eos
  bool no_eod;              // append nothing to documents
  int num_threads;          // 0 = all processors of this process
  int64_t window_bytes;     // of text per block; 0 = 1 MiB
  int64_t train_vocab;      // > 0: first train a BPE of this size on the files, into `tokenizer`
} ot_tokenize_request;

typedef struct ot_tokenize_result {
  int64_t documents;
  int64_t tokens;
  int64_t text_bytes;
  int64_t invalid_bytes;               // not valid UTF-8, kept unchanged
  char invalid_path[OT_PATH_BYTES];    // first file with such bytes
  int64_t bad_lines;                   // skipped
  char bad_line[OT_CORPUS_BAD_BYTES];  // what the first of them is
  int64_t skipped_files;               // in folders, not text
  char skipped_path[OT_PATH_BYTES];    // the first of them
  int64_t files;
  int64_t vocab_size;
  int64_t eod;  // -1: none
  char tokenizer_hash[33];
  char note[1024];  // on the tokenizer (ot_tokenizer_note), or empty
} ot_tokenize_result;

// Blocks. A failure leaves no part of the shard.
ot_status ot_tokenize_run(const ot_tokenize_request *request, ot_tokenize_result *result);
