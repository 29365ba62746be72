// SPDX-License-Identifier: Apache-2.0
// The files next to a shard's tokens. PREFIX.meta.json: its origin, written by shard_writer.c;
// shards of other tools have none. PREFIX.idx: its layout.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct ot_shard_origin {
  bool found;                  // false: no such file; the rest is null, 0 and -1
  const char *path;            // of the file
  const char *tool;            // name and version
  const char *tokenizer;       // path, or "bytes"
  const char *tokenizer_hash;  // 32 hexadecimal digits
  int64_t vocab_size;
  int64_t eod;           // id that ends each document, -1: none
  int64_t text_bytes;    // of the text that was tokenized
  const char *bin_hash;  // of PREFIX.bin
} ot_shard_origin;

// Reads the file of the tokens in `bin_path` (or its prefix, or PREFIX.idx). Texts are in `arena`.
// OT_ENVIRONMENT if the file exists and cannot be read.
ot_status ot_shard_origin_read(const char *bin_path, ot_arena *arena, ot_shard_origin *out);

// OT_ENVIRONMENT if that file records another hash of the tokens in `bin_path` than `hash`, that of
// all their bytes.
ot_status ot_shard_check_hash(const char *bin_path, const char *hash);

// ---- Megatron's .idx ----

// Magic (9 bytes), u64 version, u8 type of the tokens, u64 S sequences, u64 D entries of the
// document table; then, from byte 34 and unaligned, i32 lengths [S], i64 byte offsets into .bin
// [S], i64 first sequence of each document [D] with S as the last. Little-endian. Our writer gives
// each document one sequence, more above 2^30 tokens.
static const uint8_t ot_shard_magic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};

enum {
  OT_SHARD_VERSION = 1,
  OT_SHARD_VERSION_AT = 9,
  OT_SHARD_TYPE_AT = 17,
  OT_SHARD_SEQUENCES_AT = 18,
  OT_SHARD_DOCUMENTS_AT = 26,
  OT_SHARD_HEADER_BYTES = 34,
};

// Codes of token types.
typedef enum ot_shard_type {
  OT_SHARD_U8 = 1,
  OT_SHARD_I8 = 2,
  OT_SHARD_I16 = 3,
  OT_SHARD_I32 = 4,
  OT_SHARD_I64 = 5,
  OT_SHARD_U16 = 8,
  OT_SHARD_U32 = 100,  // not Megatron's: llm.c's Llama-3 files
} ot_shard_type;

// Vocabularies below this size are written as u16, others as i32 (Megatron's rule).
enum { OT_SHARD_U16_BELOW = 65500 };
