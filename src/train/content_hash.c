// SPDX-License-Identifier: Apache-2.0
// The xxhash library's streaming state behind a handle.
#include "train/content_hash.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/text.h"
#include "train/disk.h"

enum { BLOCK_BYTES = 1 << 20 };

struct ot_content_hash {
  XXH3_state_t *state;
};

static void print_hash(XXH128_hash_t hash, char hex[OT_CONTENT_HASH_BYTES]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  for (int i = 0; i < 16; i++) ot_text_format(hex + 2 * i, 3, "%02x", canonical.digest[i]);
}

ot_status ot_content_hash_create(ot_content_hash **out) {
  ot_content_hash *hash = calloc(1, sizeof *hash);
  if (hash != NULL) hash->state = XXH3_createState();
  if (hash == NULL || hash->state == NULL) {
    free(hash);
    return ot_fail(OT_ENVIRONMENT, "out of memory for a hash");
  }
  XXH3_128bits_reset(hash->state);
  *out = hash;
  return OT_OK;
}

void ot_content_hash_destroy(ot_content_hash **hash) {
  if (*hash == NULL) return;
  XXH3_freeState((*hash)->state);
  free(*hash);
  *hash = NULL;
}

void ot_content_hash_update(ot_content_hash *hash, const void *data, int64_t bytes) {
  XXH3_128bits_update(hash->state, data, (size_t)bytes);
}

void ot_content_hash_print(const ot_content_hash *hash, char hex[OT_CONTENT_HASH_BYTES]) {
  print_hash(XXH3_128bits_digest(hash->state), hex);
}

void ot_content_hash_memory(const void *data, int64_t bytes, char hex[OT_CONTENT_HASH_BYTES]) {
  print_hash(XXH3_128bits(data, (size_t)bytes), hex);
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

static ot_status hash_file(ot_content_hash *hash, int file, const char *path) {
  struct stat info;
  if (fstat(file, &info) != 0) return ot_disk_fail("read", path, errno);
  return ot_content_hash_range(hash, file, path, 0, info.st_size);
}

ot_status ot_content_hash_file(const char *path, char hex[OT_CONTENT_HASH_BYTES]) {
  int file = -1;
  OT_TRY(ot_disk_open(path, &file));
  ot_content_hash *hash = NULL;
  ot_status status = ot_content_hash_create(&hash);
  if (status == OT_OK) status = hash_file(hash, file, path);
  if (status == OT_OK) ot_content_hash_print(hash, hex);
  ot_content_hash_destroy(&hash);
  close(file);
  return status;
}
