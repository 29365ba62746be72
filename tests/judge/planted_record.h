// SPDX-License-Identifier: Apache-2.0
// Copies of the records of tests/fixtures/judge in which a test changes something.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "checkpoint/safetensors.h"
#include "files/disk.h"
#include "support/directory_fixture.h"

static inline const char *fixture(const char *name) {
  return ot_arena_format(&arena, OT_SOURCE_DIR "/tests/fixtures/judge/%s", name);
}

// Changes the values of a tensor; `key` is KIND/NAME. Those of a batch are integers.
typedef void edit(const char *key, float *values, int64_t count);

// A text to replace in a file of the record by one of the same length.
typedef struct planted_text {
  const char *file, *from, *to;
} planted_text;

static inline void planted_read(const char *path, char **text, int64_t *bytes) {
  if (ot_disk_read(&arena, path, 1 << 26, text, bytes) != OT_OK) fail_msg("%s", ot_fail_message());
}

static inline void planted_edit(const char *path, edit *change) {
  int64_t bytes;
  char *data;
  planted_read(path, &data, &bytes);
  ot_safetensors *tensors = NULL;
  if (ot_safetensors_create(path, "", &tensors) != OT_OK) fail_msg("%s", ot_fail_message());
  for (int t = 0; t < ot_safetensors_count(tensors); t++) {
    const ot_safetensors_tensor *const at = ot_safetensors_tensor_at(tensors, t);
    change(at->name, (float *)(data + at->offset), at->elements);
  }
  ot_safetensors_destroy(&tensors);
  scratch_write(path, data, bytes);
}

// The folder `to`, a copy of the record of one rank in the folder `from`, whose tensors `change`
// edits (null: none), and in which `text` is replaced (null: none).
static inline const char *plant_record(const char *from, const char *to, edit *change,
                                       const planted_text *text) {
  static const char *const files[] = {"config.json", "rank-00000.json", "rank-00000.safetensors"};
  if (ot_disk_make_directory(to) != OT_OK) fail_msg("%s", ot_fail_message());
  for (int i = 0; i < OT_COUNT(files); i++) {
    int64_t bytes;
    char *data;
    planted_read(ot_disk_join(&arena, from, files[i]), &data, &bytes);
    if (text && strcmp(text->file, files[i]) == 0) {
      const char *const at = strstr(data, text->from);
      if (at == NULL) fail_msg("%s has no %s", files[i], text->from);
      memcpy(data + (at - data), text->to, strlen(text->to));
    }
    scratch_write(ot_disk_join(&arena, to, files[i]), data, bytes);
  }
  if (change) planted_edit(ot_disk_join(&arena, to, files[2]), change);
  return to;
}
