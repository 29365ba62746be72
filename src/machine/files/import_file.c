// SPDX-License-Identifier: Apache-2.0
// Reads the file, and lends the readers of software/ parsers, presets and files.
#include "files/import_file.h"

#include "base/text.h"
#include "files/disk.h"
#include "files/tree_file.h"

enum { IMPORT_BYTES_MAX = 1 << 18 };

static bool has_preset(const void *context, const char *name, ot_arena *arena) {
  return ot_presets_find(context, OT_PRESET_MODEL, name, arena) != NULL;
}

static ot_status load_preset(const void *context, const char *name, ot_arena *arena,
                             ot_imported *out) {
  const ot_config_request request = {.presets = *(const ot_presets *)context};
  ot_config_model *const read = ot_arena_take(arena, sizeof *read);
  OT_TRY(ot_config_load_model(name, &request, arena, read));
  out->model = read->model;
  out->model_keys = read->keys;
  return OT_OK;
}

static ot_status read_beside(const char *path, ot_arena *arena, const char **text) {
  int64_t bytes;
  char *read;
  OT_TRY(ot_disk_read_own(arena, path, IMPORT_BYTES_MAX, &read, &bytes));
  *text = read;
  return OT_OK;
}

ot_status ot_import_read(const char *path, const ot_presets *presets, ot_arena *arena,
                         ot_imported *out) {
  const ot_import_host host = {.parse_yaml = ot_tree_parse_yaml,
                               .parse_json = ot_tree_parse_json,
                               .has_preset = has_preset,
                               .load_preset = load_preset,
                               .read_beside = read_beside,
                               .context = presets};
  ot_import_request request = {.path = path, .name = ot_disk_base_name(path), .host = &host};
  char *text;
  OT_TRY(ot_disk_read(arena, path, IMPORT_BYTES_MAX, &text, &request.bytes));
  OT_CHECK(ot_text_length(text) == request.bytes, OT_USAGE, "%s: not a text: a zero byte at %lld",
           path, (long long)ot_text_length(text));
  request.text = text;
  return ot_import_text(&request, arena, out);
}
