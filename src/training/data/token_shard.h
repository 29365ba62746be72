// SPDX-License-Identifier: Apache-2.0
// Token shards of several formats: Megatron's .bin with .idx, llm.c's .bin (GPT-2's u16 and
// Llama-3's u32 kind), and headerless u16 or u32 (nanoGPT). A shard is one array of tokens divided
// into documents: by the .idx, or by an end-of-document id that ends or begins each.
//
// Files are read by pread: memory use does not depend on their size, and a file that fails,
// shrinks, is written to, removed or replaced gives an error with its position, not a signal or
// other tokens. Sizes, header and index are checked when a shard is opened; ids are checked against
// the vocabulary whenever they are read, and for shards up to OT_TOKEN_SHARD_CHECKED_BYTES also
// when opened. Safe to read from many threads.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "describe/run.h"
#include "files/content_hash.h"

enum { OT_TOKEN_SHARD_CHECKED_BYTES = 256 << 20 };

typedef struct ot_token_shard ot_token_shard;

typedef struct ot_token_shard_request {
  const char *path;       // PREFIX, PREFIX.bin or PREFIX.idx; or a file of any name
  ot_data_format format;  // OT_DATA_AUTO: by an .idx next to it, or a magic number
  int64_t vocab_size;     // ids must be below; 0 = unknown, ids must fit int32
  int64_t eod;            // end-of-document id without .idx; -1: default of llm.c files (50256,
                          // 128000), none in nanoGPT files
  ot_document_boundary boundary;  // whether that id begins or ends a document
} ot_token_shard_request;

typedef struct ot_token_shard_info {
  ot_data_format format;  // never OT_DATA_AUTO
  const char *bin_path;   // token file
  const char *idx_path;   // null if there is none
  const char *dtype;      // "uint16", "int32", ...
  int64_t token_bytes;    // bytes per token
  int64_t tokens;
  int64_t documents;                 // of the .idx; -1: unknown without reading all tokens
  int64_t sequences;                 // of the .idx; -1
  int64_t eod;                       // without .idx: id that ends or begins a document; -1: none
  ot_document_boundary boundary;     // never OT_BOUNDARY_AUTO
  char hash[OT_CONTENT_HASH_BYTES];  // of the contents of both files (ot_content_hash_file)
} ot_token_shard_info;

// OT_ENVIRONMENT, naming file and offset, if a file is missing, truncated or of another format, if
// its index is inconsistent, or if its tokens do not have the hash in its meta.json, which is
// compared up to OT_CONTENT_WHOLE_BYTES. Reads the files up to that size, else samples of them.
ot_status ot_token_shard_create(const ot_token_shard_request *request, ot_token_shard **out);
void ot_token_shard_destroy(ot_token_shard **tokens);

// Valid until destroy.
const ot_token_shard_info *ot_token_shard_describe(const ot_token_shard *tokens);

// Reads tokens [first, first + count), which must exist, into `ids` [count]. OT_ENVIRONMENT, naming
// shard and position, if an id is out of range.
ot_status ot_token_shard_read(const ot_token_shard *tokens, int64_t first, int64_t count,
                              int32_t *ids);

// Calls `sink` with each document start within tokens (first, first + count), excluding both ends,
// in ascending order.
typedef void (*ot_token_shard_boundary_sink)(void *context, int64_t position);
typedef struct ot_token_shard_span {
  int64_t first, count;
  const int32_t *ids;  // [count - 1] of those tokens, as read
  int32_t last;        // the token after them
} ot_token_shard_span;
ot_status ot_token_shard_boundaries(const ot_token_shard *tokens, const ot_token_shard_span *span,
                                    ot_token_shard_boundary_sink sink, void *context);

// The tokens [first, first + count) of document `document`. Without an .idx, reads all tokens
// before it. OT_USAGE if there is no such document.
ot_status ot_token_shard_document(const ot_token_shard *tokens, int64_t document, int64_t *first,
                                  int64_t *count);

// Calls `sink` for each document in order, until a call fails; without an .idx, reads all tokens.
typedef ot_status (*ot_token_shard_document_sink)(void *context, int64_t document, int64_t first,
                                                  int64_t count);
ot_status ot_token_shard_each_document(const ot_token_shard *tokens,
                                       ot_token_shard_document_sink sink, void *context);

// Compares all bytes of the token file with the hash in its meta.json, if there is one.
// OT_ENVIRONMENT if they differ. Reads the whole file.
ot_status ot_token_shard_verify(const ot_token_shard *tokens);

typedef struct ot_token_shard_scan_result {
  int32_t max_id;     // -1 without tokens
  int64_t documents;  // by .idx or by end-of-document ids
} ot_token_shard_scan_result;

// Reads all tokens; fails as ot_token_shard_read does.
ot_status ot_token_shard_scan(const ot_token_shard *tokens, ot_token_shard_scan_result *result);
