// SPDX-License-Identifier: Apache-2.0
// run: alone. The hash of a file of any size: of all bytes of a small one, of samples of a large
// one.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "files/content_hash.h"
#include "support/scratch.h"

static void hash_of(int file, int64_t bytes, char hex[OT_CONTENT_HASH_BYTES]) {
  assert_int_equal(ot_content_hash_file(file, "file", bytes, hex), OT_OK);
}

static void a_small_file_has_the_hash_of_all_its_bytes(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES], expected[OT_CONTENT_HASH_BYTES], found[OT_CONTENT_HASH_BYTES];
  scratch_create(directory);
  scratch_write(scratch_path(directory, "a"), "some bytes", 10);
  const int file = open(scratch_path(directory, "a"), O_RDONLY);
  ot_content_hash_memory("some bytes", 10, expected);
  hash_of(file, 10, found);
  assert_string_equal(found, expected);
  close(file);
  scratch_destroy(directory);
}

// The file has a hole, so it takes no space.
static void a_large_file_has_a_hash_of_its_size_and_samples(void **state) {
  (void)state;
  const int64_t bytes = (int64_t)OT_CONTENT_WHOLE_BYTES + 12345;
  const int64_t places[] = {0, bytes - 1, (bytes - OT_CONTENT_SAMPLE_BYTES) / 255 * 100 + 7};
  char directory[SCRATCH_BYTES], whole[OT_CONTENT_HASH_BYTES], found[OT_CONTENT_HASH_BYTES];
  scratch_create(directory);
  const int file = open(scratch_path(directory, "a"), O_RDWR | O_CREAT, 0600);
  assert_int_equal(ftruncate(file, bytes + 1), 0);
  hash_of(file, bytes + 1, found);
  assert_int_equal(ftruncate(file, bytes), 0);
  hash_of(file, bytes, whole);
  assert_string_not_equal(found, whole);
  for (int i = 0; i < OT_COUNT(places); i++) {
    assert_int_equal(pwrite(file, "x", 1, places[i]), 1);
    hash_of(file, bytes, found);
    assert_string_not_equal(found, whole);
    assert_int_equal(pwrite(file, "", 1, places[i]), 1);
    hash_of(file, bytes, found);
    assert_string_equal(found, whole);
  }
  close(file);
  scratch_destroy(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_small_file_has_the_hash_of_all_its_bytes),
      cmocka_unit_test(a_large_file_has_a_hash_of_its_size_and_samples),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
