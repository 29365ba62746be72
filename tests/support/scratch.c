// SPDX-License-Identifier: Apache-2.0
// Temporary files of tests.
#include "support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "files/disk.h"

void scratch_create(char path[SCRATCH_BYTES]) {
  const char *root = getenv("TMPDIR");
  if (root == NULL) root = ot_disk_is_directory("/dev/shm") ? "/dev/shm" : "/tmp";
  snprintf(path, SCRATCH_BYTES, "%s/ot-test-XXXXXX", root);
  assert_non_null(mkdtemp(path));
  char *const resolved = realpath(path, NULL);
  assert_non_null(resolved);
  snprintf(path, SCRATCH_BYTES, "%s", resolved);
  free(resolved);
}

void scratch_destroy(const char *path) { assert_int_equal(ot_disk_remove(path), OT_OK); }

static char *path_slot(void) {
  enum { SLOTS = 64 };
  static char paths[SLOTS][OT_PATH_BYTES];
  static int next;
  next = (next + 1) % SLOTS;
  return paths[next];
}

const char *scratch_path(const char *directory, const char *name) {
  char *const path = path_slot();
  snprintf(path, OT_PATH_BYTES, "%s/%s", directory, name);
  return path;
}

const char *source_directory(void) {
  const char *const given = getenv("OT_TEST_SOURCE");
  return given ? given : OT_SOURCE_DIR;
}

const char *fixture_path(const char *name) {
  char *const path = path_slot();
  snprintf(path, OT_PATH_BYTES, "%s/tests/fixtures/%s", source_directory(), name);
  return path;
}

char *scratch_read(const char *path, int64_t *bytes) {
  FILE *const file = fopen(path, "rb");
  if (file == NULL) fail_msg("cannot open %s", path);
  fseek(file, 0, SEEK_END);
  *bytes = ftell(file);
  rewind(file);
  char *const data = malloc((size_t)(*bytes > 0 ? *bytes : 1));
  assert_non_null(data);
  assert_int_equal(fread(data, 1, (size_t)*bytes, file), *bytes);
  fclose(file);
  return data;
}

void scratch_write(const char *path, const void *data, int64_t bytes) {
  FILE *const file = fopen(path, "wb");
  if (file == NULL) fail_msg("cannot create %s", path);
  assert_int_equal(fwrite(data, 1, (size_t)bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

void assert_files_equal(const char *path, const char *expected_path) {
  int64_t bytes, expected_bytes;
  char *const data = scratch_read(path, &bytes);
  char *const expected = scratch_read(expected_path, &expected_bytes);
  assert_int_equal(bytes, expected_bytes);
  assert_memory_equal(data, expected, (size_t)bytes);
  free(data);
  free(expected);
}

void assert_message_has(const char *part) {
  if (strstr(ot_fail_message(), part) == NULL)
    fail_msg("message \"%s\" lacks \"%s\"", ot_fail_message(), part);
}
