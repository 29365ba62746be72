// SPDX-License-Identifier: Apache-2.0
// An open token shard, shared by token_shard.c and token_shard_open.c. Private to these.
#pragma once

#include "data/shard_meta.h"
#include "data/token_shard.h"
#include "files/disk.h"
#include "files/steady_file.h"

enum { OT_TOKEN_SHARD_BLOCK = 2048 };  // tokens or values that are read at once

struct ot_token_shard {
  ot_token_shard_info about;
  char bin_path[OT_PATH_BYTES];
  char idx_path[OT_PATH_BYTES];
  ot_steady_file bin;
  ot_steady_file idx;
  int64_t data_start;  // byte of the first token in .bin
  ot_shard_type type;
  int64_t vocab_size;      // 0: unknown
  int64_t document_table;  // position of the document table in .idx
  int64_t offset_table;    // position of the byte offsets in .idx
  bool plain_documents;    // document d is sequence d
};

// Opens the files of the request, checks headers, sizes and index, and sets `about` but for
// boundary and hash.
ot_status ot_token_shard_open_files(ot_token_shard *shard, const ot_token_shard_request *request);
