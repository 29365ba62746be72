// SPDX-License-Identifier: Apache-2.0
// XXH3-128 of file contents, as manifests keep it: 32 lower-case hex digits of the canonical form,
// what `xxhsum -H2` prints. It finds damage, not malice.
#pragma once

#include <stdint.h>

#include "base/status.h"

enum { OT_CONTENT_HASH_BYTES = 33 };  // 32 digits and a zero

// One file of a directory, as a manifest lists it.
typedef struct ot_content_record {
  const char *name;  // plain name, no directory
  int64_t bytes;
  char hash[OT_CONTENT_HASH_BYTES];
} ot_content_record;

typedef struct ot_content_hash ot_content_hash;

// A running hash of no bytes yet.
ot_status ot_content_hash_create(ot_content_hash **out);
void ot_content_hash_destroy(ot_content_hash **hash);
void ot_content_hash_update(ot_content_hash *hash, const void *data, int64_t bytes);

// The hash of all bytes so far; more may follow.
void ot_content_hash_print(const ot_content_hash *hash, char hex[OT_CONTENT_HASH_BYTES]);

// Of `bytes` bytes at `data`.
void ot_content_hash_memory(const void *data, int64_t bytes, char hex[OT_CONTENT_HASH_BYTES]);

// Of the whole file at `path`.
ot_status ot_content_hash_file(const char *path, char hex[OT_CONTENT_HASH_BYTES]);

// Feeds bytes [first, first + bytes) of the open file to `hash`.
ot_status ot_content_hash_range(ot_content_hash *hash, int file, const char *path, int64_t first,
                                int64_t bytes);
