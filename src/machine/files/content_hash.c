// SPDX-License-Identifier: Apache-2.0
// The xxhash library's streaming states behind a handle.
#include "files/content_hash.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/text.h"
#include "files/disk.h"

enum { BLOCK_BYTES = 1 << 20, PIECES_MAX = 1024, PIECE_BYTES_MIN = 4096 };

struct ot_content_hash {
  XXH3_state_t *state;
  XXH3_state_t *piece;  // of the current block; null: blocks are not hashed
  int64_t seen;         // bytes so far
  int64_t file_bytes;
  int64_t piece_bytes;  // 0: blocks are not hashed
  uint64_t *pieces;     // [file_bytes / piece_bytes, rounded up]
};

static void print_hash(XXH128_hash_t hash, char hex[OT_CONTENT_HASH_BYTES]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  for (int i = 0; i < 16; i++) ot_text_format(hex + 2 * i, 3, "%02x", canonical.digest[i]);
}

static int64_t num_pieces(const ot_content_hash *hash) {
  if (hash->piece_bytes == 0) return 0;
  return (hash->file_bytes + hash->piece_bytes - 1) / hash->piece_bytes;
}

// Allocates block states when piece_bytes is set.
static bool allocate_memory(ot_content_hash *hash) {
  hash->state = XXH3_createState();
  if (hash->state == NULL || hash->piece_bytes == 0) return hash->state != NULL;
  hash->piece = XXH3_createState();
  hash->pieces = calloc((size_t)num_pieces(hash) + 1, sizeof *hash->pieces);
  return hash->piece != NULL && hash->pieces != NULL;
}

static ot_status create(ot_content_hash kind, ot_content_hash **out) {
  ot_content_hash *hash = calloc(1, sizeof *hash);
  if (hash != NULL) *hash = kind;
  if (hash == NULL || !allocate_memory(hash)) {
    ot_content_hash_destroy(&hash);
    return ot_fail(OT_ENVIRONMENT, "out of memory for a hash");
  }
  XXH3_128bits_reset(hash->state);
  if (hash->piece != NULL) XXH3_64bits_reset(hash->piece);
  *out = hash;
  return OT_OK;
}

ot_status ot_content_hash_create(ot_content_hash **out) {
  return create((ot_content_hash){0}, out);
}

ot_status ot_content_hash_create_blocks(int64_t file_bytes, ot_content_hash **out) {
  int64_t piece_bytes = PIECE_BYTES_MIN;
  while (piece_bytes * PIECES_MAX < file_bytes) piece_bytes *= 2;
  return create((ot_content_hash){.file_bytes = file_bytes, .piece_bytes = piece_bytes}, out);
}

ot_content_blocks ot_content_hash_blocks(const ot_content_hash *hash, ot_arena *arena) {
  const int64_t count = num_pieces(hash);
  uint64_t *const copy = ot_arena_array(arena, count, sizeof *copy);
  if (count > 0) memcpy(copy, hash->pieces, (size_t)count * sizeof *copy);
  return (ot_content_blocks){hash->piece_bytes, count, copy};
}

void ot_content_hash_destroy(ot_content_hash **hash) {
  if (*hash == NULL) return;
  XXH3_freeState((*hash)->state);
  XXH3_freeState((*hash)->piece);
  free((*hash)->pieces);
  free(*hash);
  *hash = NULL;
}

static void update_pieces(ot_content_hash *hash, const unsigned char *data, int64_t bytes) {
  while (bytes > 0) {
    const int64_t room = hash->piece_bytes - hash->seen % hash->piece_bytes;
    const int64_t part = bytes < room ? bytes : room;
    XXH3_64bits_update(hash->piece, data, (size_t)part);
    hash->seen += part;
    data += part;
    bytes -= part;
    if (part < room && hash->seen < hash->file_bytes) return;
    hash->pieces[(hash->seen - 1) / hash->piece_bytes] = XXH3_64bits_digest(hash->piece);
    XXH3_64bits_reset(hash->piece);
  }
}

void ot_content_hash_update(ot_content_hash *hash, const void *data, int64_t bytes) {
  XXH3_128bits_update(hash->state, data, (size_t)bytes);
  if (hash->piece_bytes > 0) update_pieces(hash, data, bytes);
}

void ot_content_hash_print(const ot_content_hash *hash, char hex[OT_CONTENT_HASH_BYTES]) {
  print_hash(XXH3_128bits_digest(hash->state), hex);
}

void ot_content_hash_memory(const void *data, int64_t bytes, char hex[OT_CONTENT_HASH_BYTES]) {
  print_hash(XXH3_128bits(data, (size_t)bytes), hex);
}

uint64_t ot_content_hash_block(const void *data, int64_t bytes) {
  return XXH3_64bits(data, (size_t)bytes);
}

ot_status ot_content_hash_range(ot_content_hash *hash, int file, const char *path, int64_t first,
                                int64_t bytes) {
  unsigned char *const block = malloc(BLOCK_BYTES);
  OT_CHECK(block != NULL, OT_ENVIRONMENT, "out of memory while hashing (%s)", path);
  ot_status status = OT_OK;
  for (int64_t done = 0; done < bytes && status == OT_OK;) {
    const int64_t part = bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES;
    status = ot_disk_read_at(file, path, first + done, block, part);
    if (status == OT_OK) ot_content_hash_update(hash, block, part);
    done += part;
  }
  free(block);
  return status;
}

static ot_status add_samples(ot_content_hash *hash, int file, const char *path, int64_t bytes) {
  const int64_t last = bytes - OT_CONTENT_SAMPLE_BYTES;
  ot_content_hash_update(hash, &bytes, sizeof bytes);
  for (int64_t i = 0; i < OT_CONTENT_SAMPLES; i++) {
    const int64_t first = last / (OT_CONTENT_SAMPLES - 1) * i;
    OT_TRY(ot_content_hash_range(hash, file, path, i + 1 < OT_CONTENT_SAMPLES ? first : last,
                                 OT_CONTENT_SAMPLE_BYTES));
  }
  return OT_OK;
}

ot_status ot_content_hash_file(int file, const char *path, int64_t bytes,
                               char hex[OT_CONTENT_HASH_BYTES]) {
  ot_content_hash *hash = NULL;
  OT_TRY(ot_content_hash_create(&hash));
  const ot_status status = bytes <= OT_CONTENT_WHOLE_BYTES
                               ? ot_content_hash_range(hash, file, path, 0, bytes)
                               : add_samples(hash, file, path, bytes);
  ot_content_hash_print(hash, hex);
  ot_content_hash_destroy(&hash);
  return status;
}

static ot_status read_open(ot_arena *arena, int file, const char *path, ot_content_record *record) {
  ot_content_hash *hash = NULL;
  OT_TRY(ot_disk_size(file, path, INT64_MAX, &record->bytes));
  OT_TRY(ot_content_hash_create_blocks(record->bytes, &hash));
  const ot_status status = ot_content_hash_range(hash, file, path, 0, record->bytes);
  ot_content_hash_print(hash, record->hash);
  record->pieces = ot_content_hash_blocks(hash, arena);
  ot_content_hash_destroy(&hash);
  return status;
}

ot_status ot_content_record_read(ot_arena *arena, const char *path, ot_content_record *record) {
  int file = -1;
  OT_TRY(ot_disk_open_own(path, &file));
  const ot_status status = read_open(arena, file, path, record);
  close(file);
  return status;
}
