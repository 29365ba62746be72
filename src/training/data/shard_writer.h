// SPDX-License-Identifier: Apache-2.0
// Writes a token shard that Megatron-LM reads: PREFIX.bin (tokens), PREFIX.idx (sequences and
// documents) and PREFIX.meta.json (origin). The set is complete or absent: the index is renamed
// last. Memory use does not grow with the number of tokens or documents.
#pragma once

#include <stdint.h>

#include "base/status.h"

typedef struct ot_shard_writer ot_shard_writer;

// The contents of meta.json that the writer does not count itself.
typedef struct ot_shard_meta {
  const char *tokenizer;       // path, or "bytes"
  const char *tokenizer_hash;  // 32 hexadecimal digits
  int64_t vocab_size;
  int64_t eod;                 // id appended to each document, -1: none
  const char *const *sources;  // [num_sources] as given by the user
  int64_t num_sources;
  int64_t num_files;
  int64_t text_bytes;
} ot_shard_meta;

// `prefix` may end in .bin or .idx, which are removed. Ids must be below `vocab_size`.
ot_status ot_shard_writer_create(const char *prefix, int64_t vocab_size, ot_shard_writer **out);

// Without a commit before, removes all files.
void ot_shard_writer_destroy(ot_shard_writer **writer);

// Appends to the current document.
ot_status ot_shard_writer_append(ot_shard_writer *writer, const int32_t *ids, int64_t count);

// Ends the current document, even an empty one.
ot_status ot_shard_writer_end_document(ot_shard_writer *writer);

int64_t ot_shard_writer_documents(const ot_shard_writer *writer);
int64_t ot_shard_writer_tokens(const ot_shard_writer *writer);

// Writes index and metadata, syncs, and replaces all three files.
ot_status ot_shard_writer_commit(ot_shard_writer *writer, const ot_shard_meta *meta);
