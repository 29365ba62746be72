// SPDX-License-Identifier: Apache-2.0
// Files that grow with a run: others may remove, replace and cut them, and disks may be full.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "files/log_file.h"
#include "support/faults.h"
#include "support/scratch.h"

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  char path[SCRATCH_BYTES + 16];
  ot_log_file *log;
} fixture;

static int set_up(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  scratch_create(f->directory);
  snprintf(f->path, sizeof f->path, "%s/log", f->directory);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *const f = *state;
  ot_log_file_destroy(&f->log);
  scratch_destroy(f->directory);
  free(f);
  return 0;
}

static void open_log(fixture *f, const char *head) {
  const ot_log_request request = {
      .path = f->path, .head = head, .head_bytes = (int64_t)strlen(head), .flags = O_CREAT};
  if (ot_log_file_create(&request, 0, &f->log) != OT_OK) fail_msg("%s", ot_fail_message());
}

static void append(fixture *f, const char *piece) {
  ot_log_file_append(f->log, piece, (int64_t)strlen(piece));
}

static void expect_content(const fixture *f, const char *expected) {
  int64_t bytes;
  char *const text = scratch_read(f->path, &bytes);
  assert_int_equal(bytes, strlen(expected));
  assert_memory_equal(text, expected, (size_t)bytes);
  free(text);
}

static void expect_news(fixture *f, const char *words) {
  const char *const news = ot_log_file_news(f->log);
  if (!news || !strstr(news, words)) fail_msg("the news are %s, not %s", news, words);
  assert_null(ot_log_file_news(f->log));
}

static void notices_that_the_file_was_removed(void **state) {
  fixture *const f = *state;
  open_log(f, "");
  append(f, "1\n");
  assert_null(ot_log_file_news(f->log));
  unlink(f->path);
  append(f, "2\n");
  expect_news(f, "was removed");
  append(f, "3\n");
  expect_content(f, "2\n3\n");
  assert_int_equal(ot_log_file_lost(f->log), 0);
}

static void goes_on_behind_a_file_that_took_its_place(void **state) {
  fixture *const f = *state;
  open_log(f, "");
  append(f, "1\n");
  scratch_write(scratch_path(f->directory, "other"), "other\ntorn", 10);
  rename(scratch_path(f->directory, "other"), f->path);
  append(f, "2\n");
  expect_news(f, "was replaced");
  expect_content(f, "other\n2\n");
}

static void leaves_no_zeros_in_a_file_that_was_cut(void **state) {
  fixture *const f = *state;
  open_log(f, "");
  append(f, "1\n");
  append(f, "2\n");
  assert_int_equal(truncate(f->path, 3), 0);
  append(f, "3\n");
  expect_news(f, "was cut to 2 bytes");
  expect_content(f, "1\n3\n");
  assert_int_equal(truncate(f->path, 0), 0);
  append(f, "4\n");
  expect_content(f, "4\n");
}

static void begins_a_new_file_with_its_head(void **state) {
  fixture *const f = *state;
  open_log(f, "head");
  append(f, "1");
  expect_content(f, "head1");
  unlink(f->path);
  append(f, "2");
  expect_content(f, "head2");
  assert_int_equal(truncate(f->path, 2), 0);
  append(f, "3");
  expect_content(f, "head3");
}

static void counts_what_a_full_disk_loses_and_writes_again(void **state) {
  fixture *const f = *state;
  open_log(f, "head");
  append(f, "1");
  faults_arm(1, ENOSPC);
  append(f, "2");
  faults_arm(0, 0);
  expect_news(f, "No space left on device");
  faults_arm(2, EIO);  // the open, after a close
  append(f, "3");
  faults_arm(0, 0);
  assert_null(ot_log_file_news(f->log));
  append(f, "4");
  expect_news(f, "2 of its lines are lost");
  assert_int_equal(ot_log_file_lost(f->log), 2);
  expect_content(f, "head14");
}

static void reports_a_sync_that_fails(void **state) {
  fixture *const f = *state;
  open_log(f, "");
  append(f, "1\n");
  faults_arm(1, EDQUOT);
  ot_log_file_sync(f->log);
  faults_arm(0, 0);
  expect_news(f, "cannot sync");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(notices_that_the_file_was_removed, set_up, tear_down),
      cmocka_unit_test_setup_teardown(goes_on_behind_a_file_that_took_its_place, set_up, tear_down),
      cmocka_unit_test_setup_teardown(leaves_no_zeros_in_a_file_that_was_cut, set_up, tear_down),
      cmocka_unit_test_setup_teardown(begins_a_new_file_with_its_head, set_up, tear_down),
      cmocka_unit_test_setup_teardown(counts_what_a_full_disk_loses_and_writes_again, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(reports_a_sync_that_fails, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
