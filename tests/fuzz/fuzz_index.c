// SPDX-License-Identifier: Apache-2.0
// model.safetensors.index.json of a directory with two files of one tensor each.
#include <string.h>

#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "files/disk.h"
#include "fuzz/fuzz.h"

enum { FILE_BYTES = 128 };

static void write_tensor(const char *file, const char *tensor) {
  char bytes[FILE_BYTES] = {0};
  const int64_t length =
      ot_text_format(bytes + 8, sizeof bytes - 8,
                     "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", tensor);
  bytes[0] = (char)length;
  fuzz_file(file, bytes, 8 + (size_t)length + 4);
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  static bool written;
  if (!written) {
    write_tensor("1.safetensors", "a");
    write_tensor("2.safetensors", "b");
  }
  written = true;
  fuzz_file("model.safetensors.index.json", data, size);
  ot_safetensors *set = NULL;
  OT_TRY(ot_safetensors_create(fuzz_directory(), "model", &set));
  for (int i = 0; i < ot_safetensors_num_files(set); i++) {
    const char *const path = ot_safetensors_file_path(set, i);
    const char *const beside = ot_disk_join(arena, fuzz_directory(), ot_disk_base_name(path));
    fuzz_require(strcmp(path, beside) == 0, "an index names files beside it");
  }
  ot_safetensors_destroy(&set);
  return OT_OK;
}
