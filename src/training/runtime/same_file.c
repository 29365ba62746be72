// SPDX-License-Identifier: Apache-2.0
// Ranks exchange hashes of the content.
#include "runtime/same_file.h"

#include "base/text.h"
#include "files/content_hash.h"
#include "files/steady_file.h"

static ot_status hash_file(const char *path, uint64_t *hash) {
  char hex[OT_CONTENT_HASH_BYTES] = "";
  ot_steady_file file;
  OT_TRY(ot_steady_file_open(path, &file));
  const ot_status status = ot_content_hash_file(file.descriptor, path, file.bytes, hex);
  ot_steady_file_close(&file);
  *hash = ot_hash_text(OT_HASH_START, hex);
  return status;
}

ot_status ot_same_file_check(ot_world *world, const char *path, bool reads) {
  uint64_t hash = 0;
  OT_TRY(ot_world_agree(world, reads ? hash_file(path, &hash) : OT_OK));
  return ot_world_check_file(world, path, hash);
}
