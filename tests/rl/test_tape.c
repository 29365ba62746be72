// SPDX-License-Identifier: Apache-2.0
// run: alone. A tape on a disk that becomes full ends with the last update that it has as a whole.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "files/disk.h"
#include "rl/tape.h"
#include "support/scratch.h"

static ot_status write_update(ot_tape *tape, int64_t version, int events) {
  const int64_t word = ot_tape_word(OT_TAPE_STEPS, 1);
  for (int i = 0; i < events; i++) ot_tape_write_events(tape, 0, &word, 1);
  const ot_tape_figures figures = {.time_s = 1.5, .hash = 77};
  ot_tape_write_update(tape, version, NULL, 0, &figures);
  return ot_tape_flush(tape);
}

static void limit_files(rlim_t bytes) {
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = bytes;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_tape_on_a_full_disk_ends_with_a_whole_update(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  const char *const path = scratch_path(directory, "tape.txt");
  ot_tape *tape;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(ot_tape_create(path, 1, false, &tape), OT_OK);
  assert_int_equal(write_update(tape, 1, 3), OT_OK);
  assert_int_equal(write_update(tape, 2, 3), OT_OK);
  limit_files(1000);
  assert_int_equal(write_update(tape, 3, 500), OT_ENVIRONMENT);
  assert_non_null(strstr(ot_fail_message(), "tape.txt"));
  limit_files(RLIM_INFINITY);
  ot_tape_destroy(&tape);

  ot_tape_reader *reader;
  ot_tape_line line = {.kind = 'g'};
  int generators, lines = 0;
  int64_t update = 0;
  assert_int_equal(ot_tape_reader_create(path, &reader, &generators), OT_OK);
  for (;; lines++) {
    assert_int_equal(ot_tape_reader_next(reader, &line), OT_OK);
    if (line.kind == 0) break;
    if (line.kind == 'u') update = line.number;
  }
  assert_int_equal(lines, 8);
  assert_int_equal(update, 2);
  ot_tape_reader_destroy(&reader);
  scratch_destroy(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_tape_on_a_full_disk_ends_with_a_whole_update),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
