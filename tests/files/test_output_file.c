// SPDX-License-Identifier: Apache-2.0
// run: alone. User-named output files: links stay, a special file is written to and never replaced,
// a failure leaves everything unchanged.
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "files/output_file.h"
#include "support/scratch.h"

enum { LARGE_BYTES = 3 << 20 };  // many buffers

static mode_t kind_of(const char *path) {
  struct stat info;
  assert_int_equal(lstat(path, &info), 0);
  return info.st_mode & S_IFMT;
}

static void expect_text(const char *path, const char *text) {
  int64_t bytes;
  char *const found = scratch_read(path, &bytes);
  assert_int_equal(bytes, strlen(text));
  assert_memory_equal(found, text, bytes);
  free(found);
}

static void links_stay_and_their_targets_are_replaced(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  const char *const target = scratch_path(directory, "target");
  const char *const link = scratch_path(directory, "link");
  const char *const chain = scratch_path(directory, "folder/chain");
  assert_int_equal(mkdir(scratch_path(directory, "folder"), 0777), 0);
  assert_int_equal(symlink("target", link), 0);
  assert_int_equal(symlink("../link", chain), 0);

  // Creates the target if it does not exist.
  assert_int_equal(ot_output_file_replace(link, "first", 5), OT_OK);
  expect_text(target, "first");
  // Through two links, one of them relative to another folder.
  assert_int_equal(ot_output_file_replace(chain, "second", 6), OT_OK);
  expect_text(target, "second");
  assert_int_equal(kind_of(link), S_IFLNK);
  assert_int_equal(kind_of(chain), S_IFLNK);
  assert_int_equal(kind_of(target), S_IFREG);
  assert_int_not_equal(access(scratch_path(directory, "target.partial"), F_OK), 0);

  // A link to itself has no target.
  const char *const loop = scratch_path(directory, "loop");
  assert_int_equal(symlink("loop", loop), 0);
  assert_int_equal(ot_output_file_replace(loop, "x", 1), OT_ENVIRONMENT);
  assert_message_has("loop");
  assert_int_equal(kind_of(loop), S_IFLNK);
  scratch_destroy(directory);
}

static void a_file_is_unchanged_until_completion(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  const char *const path = scratch_path(directory, "file");
  scratch_write(path, "old", 3);
  ot_output_file *file;
  assert_int_equal(ot_output_file_create(path, &file), OT_OK);
  assert_int_equal(ot_output_file_write(file, "new", 3), OT_OK);
  expect_text(path, "old");
  ot_output_file_destroy(&file);
  expect_text(path, "old");
  assert_int_not_equal(access(scratch_path(directory, "file.partial"), F_OK), 0);
  assert_int_equal(ot_output_file_replace(directory, "x", 1), OT_ENVIRONMENT);
  assert_message_has(directory);
  scratch_destroy(directory);
}

typedef struct reader {
  const char *path;
  char *bytes;     // [LARGE_BYTES]
  int64_t length;  // read
} reader;

static void *read_all(void *context) {
  reader *const r = context;
  const int file = open(r->path, O_RDONLY);
  for (ssize_t done = 1; done > 0 && r->length<LARGE_BYTES; r->length += done> 0 ? done : 0)
    done = read(file, r->bytes + r->length, (size_t)(LARGE_BYTES - r->length));
  close(file);
  return NULL;
}

static void a_fifo_reaches_its_reader_and_stays(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  reader r = {.path = scratch_path(directory, "fifo"), .bytes = malloc(LARGE_BYTES)};
  char *const sent = malloc(LARGE_BYTES);
  for (int i = 0; i < LARGE_BYTES; i++) sent[i] = (char)(i * 31 >> 3);
  assert_int_equal(mkfifo(r.path, 0666), 0);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, read_all, &r), 0);

  ot_output_file *file;
  assert_int_equal(ot_output_file_create(r.path, &file), OT_OK);
  // Some through the buffer, the rest in one write.
  for (int i = 0; i < 1000; i++)
    assert_int_equal(ot_output_file_write(file, sent + 100 * i, 100), OT_OK);
  assert_int_equal(ot_output_file_write(file, sent + 100000, LARGE_BYTES - 100000), OT_OK);
  assert_int_equal(ot_output_file_commit(file), OT_OK);
  ot_output_file_destroy(&file);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(r.length, LARGE_BYTES);
  assert_memory_equal(r.bytes, sent, LARGE_BYTES);
  assert_int_equal(kind_of(r.path), S_IFIFO);
  free(r.bytes);
  free(sent);
  scratch_destroy(directory);
}

// Through links, so that a fault here damages no device of the machine.
static void devices_are_written_to_and_stay(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  const char *const none = scratch_path(directory, "null");
  const char *const full = scratch_path(directory, "full");
  assert_int_equal(symlink("/dev/null", none), 0);
  assert_int_equal(symlink("/dev/full", full), 0);
  assert_int_equal(ot_output_file_replace(none, "x", 1), OT_OK);
  assert_int_equal(ot_output_file_replace(full, "x", 1), OT_ENVIRONMENT);
  assert_message_has("No space left on device (");
  assert_int_equal(kind_of(none), S_IFLNK);
  assert_int_equal(kind_of(full), S_IFLNK);
  assert_int_equal(kind_of("/dev/null"), S_IFCHR);
  assert_int_equal(kind_of("/dev/full"), S_IFCHR);
  assert_true(ot_output_file_is_stream(none));
  assert_false(ot_output_file_is_stream(scratch_path(directory, "absent")));
  scratch_destroy(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(links_stay_and_their_targets_are_replaced),
      cmocka_unit_test(a_file_is_unchanged_until_completion),
      cmocka_unit_test(a_fifo_reaches_its_reader_and_stays),
      cmocka_unit_test(devices_are_written_to_and_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
