// SPDX-License-Identifier: Apache-2.0
// Writes with the JSON writer, reads with jansson.
#include "checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "files/json_file.h"

enum { PIECE_DIGITS = 16, SMALL_PIECE_BYTES = 4096 };

void ot_manifest_write_mesh(ot_json_writer *json, const ot_manifest_mesh *mesh) {
  ot_json_object(json, "mesh");
  ot_json_integer(json, "pp", mesh->pp);
  ot_json_integer(json, "vpp", mesh->vpp);
  ot_json_integer(json, "dp_replicate", mesh->dp_replicate);
  ot_json_integer(json, "dp_shard", mesh->dp_shard);
  ot_json_integer(json, "cp", mesh->cp);
  ot_json_integer(json, "ep", mesh->ep);
  ot_json_integer(json, "tp", mesh->tp);
  ot_json_integer(json, "ranks", mesh->ranks);
  ot_json_end(json);
}

static void print_pieces(ot_json_writer *json, const ot_content_blocks *pieces) {
  if (pieces->count == 0) return;
  ot_text_builder digits = {.arena = json->arena};
  for (int64_t i = 0; i < pieces->count; i++) {
    char text[PIECE_DIGITS + 1];
    ot_text_format(text, sizeof text, "%08x%08x", (unsigned)(pieces->hash[i] >> 32),
                   (unsigned)pieces->hash[i]);
    ot_text_append(&digits, text, PIECE_DIGITS);
  }
  ot_json_integer(json, "piece_bytes", pieces->bytes);
  ot_json_text(json, "pieces_xxh3_64", ot_text_builder_text(&digits));
}

static void print_files(ot_json_writer *json, const ot_manifest *manifest) {
  ot_json_object(json, "files");
  for (int i = 0; i < manifest->num_files; i++) {
    ot_json_object(json, manifest->files[i].name);
    ot_json_integer(json, "bytes", manifest->files[i].bytes);
    ot_json_text(json, "xxh3_128", manifest->files[i].hash);
    print_pieces(json, &manifest->files[i].pieces);
    ot_json_end(json);
  }
  ot_json_end(json);
}

const char *ot_manifest_print(ot_arena *arena, const ot_manifest *manifest) {
  ot_json_writer json = ot_json_begin(arena, 2);
  ot_json_object(&json, NULL);
  ot_json_integer(&json, "format", OT_MANIFEST_FORMAT);
  ot_json_integer(&json, "step", manifest->step);
  ot_json_raw(&json, "config", manifest->config);
  ot_manifest_write_mesh(&json, &manifest->mesh);
  ot_json_object(&json, "data");
  ot_json_integer(&json, "next_sample", manifest->next_sample);
  ot_json_integer(&json, "tokens", manifest->tokens);
  if (manifest->record != NULL) ot_json_raw(&json, "shards", manifest->record);
  ot_json_end(&json);
  if (manifest->state != NULL) ot_json_raw(&json, "state", manifest->state);
  print_files(&json, manifest);
  char checksum[OT_CONTENT_HASH_BYTES];
  ot_content_hash_memory(json.text, json.length, checksum);
  ot_json_text(&json, "checksum", checksum);
  ot_json_end(&json);
  return json.text;
}

// The checksum covers the text up to the comma before its own key.
static ot_status check_checksum(const char *path, const char *text, const json_t *root) {
  const char *checksum = NULL;
  OT_CHECK(json_is_object(root), OT_ENVIRONMENT, "%s: not an object", path);
  OT_TRY(ot_json_member_text(path, root, "checksum", &checksum));
  const char *end = NULL;
  for (const char *found = text; (found = strstr(found, "\"checksum\"")) != NULL; found++)
    end = found;
  while (end != NULL && end > text && *end != ',') end--;
  char hash[OT_CONTENT_HASH_BYTES] = "";
  if (end != NULL) ot_content_hash_memory(text, end - text, hash);
  OT_CHECK(ot_text_equal(hash, checksum), OT_ENVIRONMENT,
           "%s: its text does not match its checksum", path);
  return OT_OK;
}

static ot_status read_degree(const char *where, const json_t *mesh, const char *key, int *degree) {
  int64_t value = 0;
  OT_TRY(ot_json_member_count(where, mesh, key, &value));
  OT_CHECK(value >= 1 && value <= INT32_MAX, OT_ENVIRONMENT, "%s: key \"%s\" is not in [1, 2^31)",
           where, key);
  *degree = (int)value;
  return OT_OK;
}

static ot_status read_mesh(const char *path, const json_t *root, ot_manifest_mesh *mesh) {
  json_t *object = NULL;
  OT_TRY(ot_json_member_object(path, root, "mesh", &object));
  OT_TRY(read_degree(path, object, "pp", &mesh->pp));
  OT_TRY(read_degree(path, object, "vpp", &mesh->vpp));
  OT_TRY(read_degree(path, object, "dp_replicate", &mesh->dp_replicate));
  OT_TRY(read_degree(path, object, "dp_shard", &mesh->dp_shard));
  OT_TRY(read_degree(path, object, "cp", &mesh->cp));
  OT_TRY(read_degree(path, object, "ep", &mesh->ep));
  OT_TRY(read_degree(path, object, "tp", &mesh->tp));
  return read_degree(path, object, "ranks", &mesh->ranks);
}

// Manifests written before blocks were introduced have none.
static ot_status read_pieces(ot_arena *arena, const char *path, const json_t *entry,
                             ot_content_record *record) {
  ot_content_blocks *const pieces = &record->pieces;
  if (json_object_get(entry, "piece_bytes") == NULL) return OT_OK;
  const char *digits = NULL;
  OT_TRY(ot_json_member_count(path, entry, "piece_bytes", &pieces->bytes));
  OT_TRY(ot_json_member_text(path, entry, "pieces_xxh3_64", &digits));
  pieces->count = ot_text_length(digits) / PIECE_DIGITS;
  // Readers take memory for a block, so it is not more than the file, whose size they have seen.
  const bool fits =
      pieces->bytes > 0 && (pieces->bytes <= SMALL_PIECE_BYTES || pieces->bytes <= record->bytes);
  OT_CHECK(fits && ot_text_length(digits) % PIECE_DIGITS == 0 &&
               pieces->count == (record->bytes - 1) / pieces->bytes + 1,
           OT_ENVIRONMENT, "%s: file %s: its blocks are not %lld bytes", path, record->name,
           (long long)record->bytes);
  uint64_t *const hash = ot_arena_array(arena, pieces->count, sizeof *hash);
  for (int64_t i = 0; i < pieces->count; i++) {
    char text[PIECE_DIGITS + 1] = "";
    memcpy(text, digits + i * PIECE_DIGITS, PIECE_DIGITS);
    hash[i] = strtoull(text, NULL, 16);
  }
  pieces->hash = hash;
  return OT_OK;
}

static ot_status read_file(ot_arena *arena, const char *path, const char *name, const json_t *entry,
                           ot_content_record *record) {
  OT_CHECK(name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL, OT_ENVIRONMENT,
           "%s: \"%s\" is not the plain name of a file", path, name);
  OT_CHECK(json_is_object(entry), OT_ENVIRONMENT, "%s: file %s: not an object", path, name);
  record->name = ot_arena_text(arena, name, ot_text_length(name));
  OT_TRY(ot_json_member_count(path, entry, "bytes", &record->bytes));
  const char *hash = NULL;
  OT_TRY(ot_json_member_text(path, entry, "xxh3_128", &hash));
  OT_CHECK(ot_text_length(hash) == OT_CONTENT_HASH_BYTES - 1, OT_ENVIRONMENT,
           "%s: file %s: its hash is not 32 digits", path, name);
  memcpy(record->hash, hash, OT_CONTENT_HASH_BYTES);
  return read_pieces(arena, path, entry, record);
}

static ot_status read_files(ot_arena *arena, const char *path, const json_t *root,
                            ot_manifest *manifest) {
  json_t *files = NULL;
  OT_TRY(ot_json_member_object(path, root, "files", &files));
  ot_content_record *const records =
      ot_arena_array(arena, (int64_t)json_object_size(files), sizeof *records);
  manifest->files = records;
  const char *name;
  json_t *entry;
  json_object_foreach(files, name, entry)
      OT_TRY(read_file(arena, path, name, entry, &records[manifest->num_files++]));
  return OT_OK;
}

// The JSON text of member `key`, an object.
static ot_status read_object_text(ot_arena *arena, const char *path, const json_t *root,
                                  const char *key, const char **text) {
  json_t *object = NULL;
  OT_TRY(ot_json_member_object(path, root, key, &object));
  const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(17);
  const size_t length = json_dumpb(object, NULL, 0, flags);
  char *const copy = ot_arena_take(arena, (int64_t)length + 1);
  json_dumpb(object, copy, length, flags);
  *text = copy;
  return OT_OK;
}

static ot_status read_root(ot_arena *arena, const char *path, const json_t *root,
                           ot_manifest *manifest) {
  int64_t format = 0;
  OT_TRY(ot_json_member_count(path, root, "format", &format));
  OT_CHECK(format == OT_MANIFEST_FORMAT, OT_ENVIRONMENT,
           "%s: format %lld; this program reads format %d", path, (long long)format,
           OT_MANIFEST_FORMAT);
  OT_TRY(ot_json_member_count(path, root, "step", &manifest->step));
  OT_TRY(read_object_text(arena, path, root, "config", &manifest->config));
  OT_TRY(read_mesh(path, root, &manifest->mesh));
  json_t *data = NULL;
  OT_TRY(ot_json_member_object(path, root, "data", &data));
  OT_TRY(ot_json_member_count(path, data, "next_sample", &manifest->next_sample));
  OT_TRY(ot_json_member_count(path, data, "tokens", &manifest->tokens));
  if (json_object_get(data, "shards") != NULL)
    OT_TRY(read_object_text(arena, path, data, "shards", &manifest->record));
  if (json_object_get(root, "state") != NULL)
    OT_TRY(read_object_text(arena, path, root, "state", &manifest->state));
  return read_files(arena, path, root, manifest);
}

ot_status ot_manifest_build(ot_arena *arena, const char *path, const char *text, int64_t bytes,
                            ot_manifest *manifest) {
  *manifest = (ot_manifest){0};
  const char *const copy = ot_arena_text(arena, text, bytes);
  json_t *root = NULL;
  OT_TRY(ot_json_parse(path, copy, bytes, &root));
  ot_status status = check_checksum(path, copy, root);
  if (status == OT_OK) status = read_root(arena, path, root, manifest);
  json_decref(root);
  return status;
}

const ot_content_record *ot_manifest_find(const ot_manifest *manifest, const char *name) {
  for (int i = 0; i < manifest->num_files; i++)
    if (ot_text_equal(manifest->files[i].name, name)) return &manifest->files[i];
  return NULL;
}
