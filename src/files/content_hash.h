// SPDX-License-Identifier: Apache-2.0
// XXH3-128 of file contents, as manifests keep it: 32 lower-case hex digits of the canonical form,
// what `xxhsum -H2` prints. It finds damage, not malice.
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

enum { OT_CONTENT_HASH_BYTES = 33 };  // 32 digits and a zero

// XXH3-64 of the pieces of a file, by which damage is located. At most 1024, of 4 KiB at least.
typedef struct ot_content_pieces {
  int64_t bytes;         // of each but the last, which may have fewer; 0: none are known
  int64_t count;         // that make up the file
  const uint64_t *hash;  // [count]
} ot_content_pieces;

// One file of a directory, as a manifest lists it.
typedef struct ot_content_record {
  const char *name;  // plain name, no directory
  int64_t bytes;
  char hash[OT_CONTENT_HASH_BYTES];
  ot_content_pieces pieces;
} ot_content_record;

typedef struct ot_content_hash ot_content_hash;

// A running hash of no bytes yet.
ot_status ot_content_hash_create(ot_content_hash **out);

// The same for a file of `file_bytes` bytes, of which pieces are hashed, too.
ot_status ot_content_hash_create_pieces(int64_t file_bytes, ot_content_hash **out);
void ot_content_hash_destroy(ot_content_hash **hash);
void ot_content_hash_update(ot_content_hash *hash, const void *data, int64_t bytes);

// The hash of all bytes so far; more may follow.
void ot_content_hash_print(const ot_content_hash *hash, char hex[OT_CONTENT_HASH_BYTES]);

// Those of the pieces, in `arena`, once all bytes of the file were given.
ot_content_pieces ot_content_hash_pieces(const ot_content_hash *hash, ot_arena *arena);

// Of `bytes` bytes at `data`.
void ot_content_hash_memory(const void *data, int64_t bytes, char hex[OT_CONTENT_HASH_BYTES]);

// What a record says of the whole file at `path`, but for its name; the pieces live in `arena`.
ot_status ot_content_record_read(ot_arena *arena, const char *path, ot_content_record *record);

// Feeds bytes [first, first + bytes) of the open file to `hash`.
ot_status ot_content_hash_range(ot_content_hash *hash, int file, const char *path, int64_t first,
                                int64_t bytes);
