// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint. A text without "checksum" gets the right one, so that mutations
// reach what stands behind that check.
#include <string.h>

#include "base/text.h"
#include "checkpoint/manifest.h"
#include "fuzz/fuzz.h"

static const char *complete(const uint8_t *data, size_t size, ot_arena *arena) {
  char hash[OT_CONTENT_HASH_BYTES];
  ot_content_hash_memory(data, (int64_t)size, hash);
  const char *const tail = ot_arena_format(arena, ",\"checksum\": \"%s\"}", hash);
  char *const text = ot_arena_take(arena, (int64_t)size + ot_text_length(tail) + 1);
  memcpy(text, data, size);
  memcpy(text + size, tail, (size_t)ot_text_length(tail));
  return text;
}

static void require_plain_names(const ot_manifest *manifest) {
  for (int i = 0; i < manifest->num_files; i++) {
    const char *const name = manifest->files[i].name;
    fuzz_require(name[0] != '\0' && name[0] != '.' && !strchr(name, '/'),
                 "a manifest names files beside it");
  }
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  static const char key[] = "\"checksum\"";
  ot_manifest manifest, again;
  const bool whole = size > 0 && memmem(data, size, key, sizeof key - 1);
  const char *const text =
      whole ? ot_arena_text(arena, (const char *)data, (int64_t)size) : complete(data, size, arena);
  const int64_t bytes = whole ? (int64_t)size : (int64_t)size + ot_text_length(text + size);
  OT_TRY(ot_manifest_build(arena, "input", text, bytes, &manifest));
  require_plain_names(&manifest);
  const char *const printed = ot_manifest_print(arena, &manifest);
  fuzz_require(ot_manifest_build(arena, "again", printed, ot_text_length(printed), &again) == OT_OK,
               "a manifest that is printed is read again");
  return OT_OK;
}
