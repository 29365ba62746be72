// SPDX-License-Identifier: Apache-2.0
// Configurations of other software: torchtitan's TOML, nanotron's YAML, Megatron's flags in a shell
// script or YAML.
#include "files/import_file.h"
#include "fuzz/fuzz.h"

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  static const char *const directories[] = {OT_SOURCE_DIR "/presets"};
  const ot_presets presets = {.directories = directories, .num_directories = 1};
  ot_imported imported;
  OT_TRY(ot_import_read(fuzz_file("config", data, size), &presets, arena, &imported));
  (void)ot_imported_fit(&imported, 64);
  return OT_OK;
}
