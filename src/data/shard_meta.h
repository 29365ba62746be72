// SPDX-License-Identifier: Apache-2.0
// PREFIX.meta.json of a token shard: what made it. Written by shard_writer.c; shards of other tools
// have none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct ot_shard_origin {
  bool found;                  // false: there is no file; the rest is null, 0 and -1
  const char *tool;            // name and version
  const char *tokenizer;       // path, or "bytes"
  const char *tokenizer_hash;  // 32 hexadecimal digits
  int64_t vocab_size;
  int64_t eod;           // id that ends each document, -1: none
  int64_t text_bytes;    // of the text that was tokenized
  const char *bin_hash;  // of PREFIX.bin
} ot_shard_origin;

// Reads the file that belongs to the tokens in `bin_path` (or its prefix, or PREFIX.idx). Texts
// live in `arena`. OT_ENVIRONMENT when there is a file that cannot be read.
ot_status ot_shard_origin_read(const char *bin_path, ot_arena *arena, ot_shard_origin *out);
