// SPDX-License-Identifier: Apache-2.0
// XXH3-128 of file contents, for manifests: 32 lower-case hex digits of the canonical form, as
// printed by `xxhsum -H2`. It detects damage, not tampering.
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

enum { OT_CONTENT_HASH_BYTES = 33 };  // 32 digits and a zero

// XXH3-64 of the blocks of a file, to locate damage. At most 1024 blocks, of at least 4 KiB.
typedef struct ot_content_blocks {
  int64_t bytes;         // per block; the last may be shorter; 0: unknown
  int64_t count;         // blocks of the file
  const uint64_t *hash;  // [count]
} ot_content_blocks;

// One file of a directory in a manifest.
typedef struct ot_content_record {
  const char *name;  // plain name, no directory
  int64_t bytes;
  char hash[OT_CONTENT_HASH_BYTES];
  ot_content_blocks pieces;
} ot_content_record;

typedef struct ot_content_hash ot_content_hash;

// Creates a streaming hash.
ot_status ot_content_hash_create(ot_content_hash **out);

// The same for a file of `file_bytes` bytes, with hashes of its blocks.
ot_status ot_content_hash_create_blocks(int64_t file_bytes, ot_content_hash **out);
void ot_content_hash_destroy(ot_content_hash **hash);
void ot_content_hash_update(ot_content_hash *hash, const void *data, int64_t bytes);

// The hash of all bytes so far; more may follow.
void ot_content_hash_print(const ot_content_hash *hash, char hex[OT_CONTENT_HASH_BYTES]);

// The block hashes, in `arena`, after all bytes of the file were added.
ot_content_blocks ot_content_hash_blocks(const ot_content_hash *hash, ot_arena *arena);

// The hash of `bytes` bytes at `data`.
void ot_content_hash_memory(const void *data, int64_t bytes, char hex[OT_CONTENT_HASH_BYTES]);

// The hash of a block of `bytes` bytes.
uint64_t ot_content_hash_block(const void *data, int64_t bytes);

// The hash of the open file of `bytes` bytes, to compare files of any size in bounded time. Up to
// OT_CONTENT_WHOLE_BYTES it is the hash of all bytes; beyond, of the size and of OT_CONTENT_SAMPLES
// blocks of OT_CONTENT_SAMPLE_BYTES at equal distances, the first and the last block included: a
// change between these blocks is not noticed.
enum {
  OT_CONTENT_WHOLE_BYTES = 256 << 20,
  OT_CONTENT_SAMPLES = 256,
  OT_CONTENT_SAMPLE_BYTES = 1 << 16,
};
ot_status ot_content_hash_file(int file, const char *path, int64_t bytes,
                               char hex[OT_CONTENT_HASH_BYTES]);

// The record of the file at `path`, no link, except for its name; block hashes are allocated in
// `arena`.
ot_status ot_content_record_read(ot_arena *arena, const char *path, ot_content_record *record);

// Adds bytes [first, first + bytes) of the open file to `hash`.
ot_status ot_content_hash_range(ot_content_hash *hash, int file, const char *path, int64_t first,
                                int64_t bytes);
