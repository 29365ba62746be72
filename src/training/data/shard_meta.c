// SPDX-License-Identifier: Apache-2.0
// Reads a shard's meta.json.
#include "data/shard_meta.h"

#include <string.h>

#include "base/text.h"
#include "files/disk.h"
#include "files/json_file.h"
#include "host/heap.h"

enum { META_BYTES_MAX = 1 << 20 };

static ot_status copy_text(const char *where, const json_t *object, const char *key,
                           ot_arena *arena, const char **out) {
  const char *text;
  OT_TRY(ot_json_member_text(where, object, key, &text));
  *out = ot_arena_text(arena, text, (int64_t)strlen(text));
  return OT_OK;
}

static ot_status read_root(const char *path, const json_t *root, ot_arena *arena,
                           ot_shard_origin *out) {
  json_t *tokenizer = NULL;
  OT_TRY(ot_json_member_object(path, root, "tokenizer", &tokenizer));
  OT_TRY(copy_text(path, root, "tool", arena, &out->tool));
  OT_TRY(copy_text(path, tokenizer, "path", arena, &out->tokenizer));
  OT_TRY(copy_text(path, tokenizer, "xxh3_128", arena, &out->tokenizer_hash));
  OT_TRY(copy_text(path, root, "bin_xxh3_128", arena, &out->bin_hash));
  OT_TRY(ot_json_member_count(path, root, "vocab_size", &out->vocab_size));
  OT_TRY(ot_json_member_count(path, root, "text_bytes", &out->text_bytes));
  const json_t *const eod = json_object_get(root, "eod");
  OT_CHECK(json_is_integer(eod), OT_ENVIRONMENT, "%s: key \"eod\" is not a whole number", path);
  out->eod = json_integer_value(eod);
  return OT_OK;
}

ot_status ot_shard_origin_read(const char *bin_path, ot_arena *arena, ot_shard_origin *out) {
  *out = (ot_shard_origin){.eod = -1};
  const int64_t length = (int64_t)strlen(bin_path);
  const bool suffix = ot_text_ends_with(bin_path, ".bin") || ot_text_ends_with(bin_path, ".idx");
  const int64_t stem = suffix ? length - 4 : length;
  const char *const path = ot_arena_format(arena, "%.*s.meta.json", (int)stem, bin_path);
  if (!ot_disk_is_file(path)) return OT_OK;
  out->path = path;
  json_t *root;
  OT_TRY(ot_json_load(path, META_BYTES_MAX, &root));
  const ot_status status = read_root(path, root, arena, out);
  json_decref(root);
  out->found = status == OT_OK;
  return status;
}

static ot_status check_hash(const char *bin_path, const char *hash, ot_arena *arena) {
  ot_shard_origin origin;
  OT_TRY(ot_shard_origin_read(bin_path, arena, &origin));
  if (!origin.found || ot_text_equal(origin.bin_hash, hash)) return OT_OK;
  ot_fail(OT_ENVIRONMENT, "%s: its content (hash %s) is not what was written (hash %s in %s)",
          bin_path, hash, origin.bin_hash, origin.path);
  return ot_fail_hint(OT_ENVIRONMENT,
                      "restore the file or tokenize again; if the change is intended, remove %s",
                      origin.path);
}

ot_status ot_shard_check_hash(const char *bin_path, const char *hash) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = check_hash(bin_path, hash, &arena);
  ot_heap_release(&heap);
  return status;
}
