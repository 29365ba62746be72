// SPDX-License-Identifier: Apache-2.0
// Inside of a token shard, for the files that open one kind each.
#pragma once

#include "data/shard_index.h"
#include "data/tokens.h"
#include "files/disk.h"

struct ot_tokens {
  ot_tokens_about about;
  char bin_path[OT_PATH_BYTES];
  char idx_path[OT_PATH_BYTES];
  int bin;  // descriptor, -1
  int idx;  // descriptor, -1
  int64_t bin_bytes;
  int64_t data_start;  // byte of the first token in .bin
  ot_shard_type type;
  int64_t vocab_size;      // 0: not known
  int64_t document_table;  // byte in .idx of the document table
  int64_t offset_table;    // byte in .idx of the byte offsets
  bool plain_documents;    // document d is sequence d
};

// Sets type, and name and size of it in `about`.
void ot_tokens_set_type(ot_tokens *tokens, ot_shard_type type);

// tokens_index.c: reads and checks the open .idx against .bin.
ot_status ot_tokens_read_index(ot_tokens *tokens);

// The first token of document `document` in [0, documents]; for the last: the number of tokens.
ot_status ot_tokens_document_start(const ot_tokens *tokens, int64_t document, int64_t *start);

// The last document that starts at or before token `position`.
ot_status ot_tokens_find_document(const ot_tokens *tokens, int64_t position, int64_t *document);
