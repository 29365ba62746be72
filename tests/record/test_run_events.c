// SPDX-License-Identifier: Apache-2.0
// run: alone. events.jsonl: every kind reads back as written, whole lines after a crash or a full
// disk and from concurrent writers, unknown events and keys, one clear error for a damaged line.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/heap.h"
#include "record/run_events.h"
#include "support/faults.h"
#include "support/scratch.h"

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  char path[SCRATCH_BYTES + 16];
  ot_heap heap;
  ot_arena arena;
} fixture;

static int set_up(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  scratch_create(f->directory);
  snprintf(f->path, sizeof f->path, "%s/events.jsonl", f->directory);
  f->arena = ot_heap_arena_create(&f->heap);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *const f = *state;
  scratch_destroy(f->directory);
  ot_heap_release(&f->heap);
  free(f);
  return 0;
}

static void expect_content(const fixture *f, const char *expected) {
  int64_t bytes;
  char *const text = scratch_read(f->path, &bytes);
  char *const ended = calloc(1, (size_t)bytes + 1);
  memcpy(ended, text, (size_t)bytes);
  assert_string_equal(ended, expected);
  free(text);
  free(ended);
}

static void append(const fixture *f, ot_run_event event) {
  if (ot_run_event_append(f->path, &event) != OT_OK) fail_msg("%s", ot_fail_message());
}

static ot_run_event_list read_all(fixture *f) {
  ot_run_event_list list;
  if (ot_run_events_read(&f->arena, f->path, &list) != OT_OK) fail_msg("%s", ot_fail_message());
  return list;
}

static void expect_damage(fixture *f, const char *text, const char *message) {
  ot_run_event_list list;
  scratch_write(f->path, text, (int64_t)strlen(text));
  assert_int_equal(ot_run_events_read(&f->arena, f->path, &list), OT_ENVIRONMENT);
  assert_message_has(message);
}

static void writes_the_keys_of_a_kind(void **state) {
  const fixture *const f = *state;
  append(f, (ot_run_event){.kind = OT_RUN_EVENT_START,
                           .time_s = 1700000000.25,
                           .step = 4,
                           .attempt = 2,
                           .ranks = 8,
                           .from = "checkpoint",
                           .last_step = 6,
                           .lost_s = 1.5,
                           .load_s = 0.5,
                           .bytes = 77});
  append(f, (ot_run_event){.kind = OT_RUN_EVENT_FAILURE,
                           .time_s = 1700000001,
                           .attempt = 2,
                           .failure = "rank",
                           .rank = 3,
                           .host = "n\"1",
                           .exit = 9,
                           .detail = NULL});
  append(f, (ot_run_event){
                .kind = OT_RUN_EVENT_SAVE, .time_s = 1700000002, .step = 8, .seconds = NAN});
  expect_content(f,
                 "{\"event\":\"start\",\"time\":1700000000.25,\"step\":4,\"attempt\":2,"
                 "\"ranks\":8,\"from\":\"checkpoint\",\"last_step\":6,\"lost_seconds\":1.5,"
                 "\"load_seconds\":0.5}\n"
                 "{\"event\":\"failure\",\"time\":1700000001,\"attempt\":2,\"kind\":\"rank\","
                 "\"rank\":3,\"host\":\"n\\\"1\",\"exit\":9,\"detail\":null}\n"
                 "{\"event\":\"save\",\"time\":1700000002,\"step\":8,\"seconds\":null,"
                 "\"blocked_seconds\":0,\"bytes\":0,\"every\":0}\n");
}

// All members differ, so a key that is read to another member shows.
static void reads_what_was_written(void **state) {
  fixture *const f = *state;
  const ot_run_event all = {.time_s = 12.5,
                            .step = 1,
                            .attempt = 2,
                            .ranks = 3,
                            .last_step = 4,
                            .lost_s = 5.5,
                            .load_s = 6.5,
                            .seconds = 7.5,
                            .blocked_s = 8.5,
                            .waited_s = 9.5,
                            .slowdown = 10.5,
                            .z = 11.5,
                            .bytes = 12,
                            .every = 17,
                            .first_sample = 13,
                            .last_sample = 14,
                            .rank = 15,
                            .exit = 16,
                            .from = "memory",
                            .reason = "because",
                            .failure = "hang",
                            .host = "n1",
                            .detail = "no progress",
                            .name = "loss",
                            .action = "skip"};
  for (int i = OT_RUN_EVENT_OTHER; i < OT_RUN_EVENT_KINDS; i++) {
    ot_run_event event = all;
    event.kind = (ot_run_event_kind)i;
    append(f, event);
  }
  const ot_run_event_list list = read_all(f);
  assert_int_equal(list.count, OT_RUN_EVENT_KINDS);
  for (int i = 0; i < OT_RUN_EVENT_KINDS; i++) {
    assert_int_equal(list.event[i].kind, i);
    assert_true(list.event[i].time_s == 12.5);
  }
  const ot_run_event *const start = &list.event[OT_RUN_EVENT_START];
  assert_int_equal(start->step, 1);
  assert_int_equal(start->attempt, 2);
  assert_int_equal(start->ranks, 3);
  assert_int_equal(start->last_step, 4);
  assert_true(start->lost_s == 5.5 && start->load_s == 6.5);
  assert_string_equal(start->from, "memory");
  const ot_run_event *const save = &list.event[OT_RUN_EVENT_SAVE];
  assert_true(save->seconds == 7.5 && save->blocked_s == 8.5);
  assert_int_equal(save->bytes, 12);
  assert_int_equal(save->every, 17);
  assert_true(isnan(save->z));
  assert_int_equal(save->rank, -1);
  assert_string_equal(save->reason, "");
  const ot_run_event *const failure = &list.event[OT_RUN_EVENT_FAILURE];
  assert_string_equal(failure->failure, "hang");
  assert_string_equal(failure->host, "n1");
  assert_string_equal(failure->detail, "no progress");
  assert_int_equal(failure->rank, 15);
  assert_int_equal(failure->exit, 16);
  assert_true(list.event[OT_RUN_EVENT_RESTART].waited_s == 9.5);
  assert_true(list.event[OT_RUN_EVENT_STRAGGLER].slowdown == 10.5);
  assert_string_equal(list.event[OT_RUN_EVENT_STOP].reason, "because");
  const ot_run_event *const spike = &list.event[OT_RUN_EVENT_SPIKE];
  assert_true(spike->z == 11.5);
  assert_int_equal(spike->first_sample, 13);
  assert_int_equal(spike->last_sample, 14);
  assert_string_equal(spike->name, "loss");
  assert_string_equal(spike->action, "skip");
}

static void dates_an_event_when_it_is_appended(void **state) {
  fixture *const f = *state;
  const double before = (double)time(NULL);
  append(f, (ot_run_event){.kind = OT_RUN_EVENT_FIRST_STEP, .step = 1});
  const ot_run_event_list list = read_all(f);
  assert_true(list.event[0].time_s >= before && list.event[0].time_s < before + 60);
}

static void removes_a_line_that_was_not_written_whole(void **state) {
  fixture *const f = *state;
  static const char whole[] = "{\"event\":\"first_step\",\"time\":1,\"step\":1}\n";
  // Longer than a block of the search for its start.
  char *const torn = calloc(1, 10000);
  memset(torn, 'x', 9999);
  memcpy(torn, whole, sizeof whole - 1);
  scratch_write(f->path, torn, 9999);
  free(torn);
  assert_int_equal(read_all(f).count, 1);
  append(f, (ot_run_event){.kind = OT_RUN_EVENT_STOP, .time_s = 2, .step = 1, .reason = "end"});
  expect_content(f,
                 "{\"event\":\"first_step\",\"time\":1,\"step\":1}\n"
                 "{\"event\":\"stop\",\"time\":2,\"step\":1,\"reason\":\"end\"}\n");
}

static void ends_with_a_whole_line_after_a_full_disk(void **state) {
  fixture *const f = *state;
  append(f, (ot_run_event){.kind = OT_RUN_EVENT_FIRST_STEP, .time_s = 1, .step = 1});
  const ot_run_event stop = {.kind = OT_RUN_EVENT_STOP, .step = 1, .reason = "end"};
  faults_short_writes(5);
  faults_arm(4, ENOSPC);
  const ot_status status = ot_run_event_append(f->path, &stop);
  faults_short_writes(0);
  faults_arm(0, 0);
  assert_int_equal(status, OT_ENVIRONMENT);
  assert_message_has("No space left on device");
  assert_message_has("events.jsonl");
  expect_content(f, "{\"event\":\"first_step\",\"time\":1,\"step\":1}\n");
}

static void keeps_all_lines_of_concurrent_writers(void **state) {
  enum { WRITERS = 4, LINES = 50 };
  fixture *const f = *state;
  for (int w = 0; w < WRITERS; w++) {
    if (fork() != 0) continue;
    const ot_run_event event = {.kind = OT_RUN_EVENT_RESTART, .attempt = w};
    bool ok = true;
    for (int i = 0; i < LINES; i++) ok = ok && ot_run_event_append(f->path, &event) == OT_OK;
    _exit(ok ? 0 : 1);
  }
  for (int w = 0; w < WRITERS; w++) {
    int status = -1;
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  const ot_run_event_list list = read_all(f);
  assert_int_equal(list.count, WRITERS * LINES);
  int of_last = 0;
  for (int i = 0; i < list.count; i++) of_last += list.event[i].attempt == WRITERS - 1;
  assert_int_equal(of_last, LINES);
}

// Else it could take the line that the other is writing for the remains of a crash.
static void waits_for_another_writer(void **state) {
  fixture *const f = *state;
  static const char half[] = "{\"event\":\"stop\",\"time\":4";
  scratch_write(f->path, half, sizeof half - 1);
  const int file = open(f->path, O_RDWR | O_APPEND);
  assert_true(file >= 0 && flock(file, LOCK_EX) == 0);
  if (fork() == 0) {
    const ot_run_event event = {.kind = OT_RUN_EVENT_RESTART, .attempt = 2};
    _exit(ot_run_event_append(f->path, &event) == OT_OK ? 0 : 1);
  }
  usleep(50000);
  assert_int_equal(write(file, "}\n", 2), 2);
  // The child has the descriptor too, so that closing it here would not release the lock.
  assert_int_equal(flock(file, LOCK_UN), 0);
  close(file);
  int status = -1;
  assert_true(wait(&status) > 0);
  assert_int_equal(status, 0);
  assert_int_equal(read_all(f).count, 2);
}

static void accepts_events_and_keys_of_other_versions(void **state) {
  fixture *const f = *state;
  static const char text[] =
      "{\"event\":\"moon\",\"time\":3,\"step\":\"full\"}\n"
      "{\"event\":\"stop\",\"time\":4,\"step\":7,\"reason\":\"end\",\"phase\":[1,2]}\n";
  scratch_write(f->path, text, sizeof text - 1);
  const ot_run_event_list list = read_all(f);
  assert_int_equal(list.count, 2);
  assert_int_equal(list.event[0].kind, OT_RUN_EVENT_OTHER);
  assert_int_equal(list.event[0].step, -1);
  assert_int_equal(list.event[1].step, 7);
}

static void has_no_events_without_a_file(void **state) {
  fixture *const f = *state;
  assert_int_equal(read_all(f).count, 0);
}

static void names_the_line_that_is_damaged(void **state) {
  fixture *const f = *state;
  expect_damage(f, "{\"event\":\"stop\",\"time\":4,\"step\":7}\n\x01garbage\n",
                "events.jsonl:2:1: not valid JSON");
  expect_damage(f, "{\"time\":4}\n", "events.jsonl:1: \"event\" is not a text");
  expect_damage(f, "{\"event\":\"stop\"}\n", "events.jsonl:1: \"time\" is not a number");
  expect_damage(f, "[3]\n", "events.jsonl:1: \"event\" is not a text");
  expect_damage(f, "{\"event\":\"stop\",\"time\":4,\"step\":1.5}\n",
                "events.jsonl:1: \"step\" is not a whole number");
  expect_damage(f, "{\"event\":\"stop\",\"time\":4,\"reason\":1}\n",
                "events.jsonl:1: \"reason\" is not a text");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(writes_the_keys_of_a_kind, set_up, tear_down),
      cmocka_unit_test_setup_teardown(reads_what_was_written, set_up, tear_down),
      cmocka_unit_test_setup_teardown(dates_an_event_when_it_is_appended, set_up, tear_down),
      cmocka_unit_test_setup_teardown(removes_a_line_that_was_not_written_whole, set_up, tear_down),
      cmocka_unit_test_setup_teardown(ends_with_a_whole_line_after_a_full_disk, set_up, tear_down),
      cmocka_unit_test_setup_teardown(keeps_all_lines_of_concurrent_writers, set_up, tear_down),
      cmocka_unit_test_setup_teardown(waits_for_another_writer, set_up, tear_down),
      cmocka_unit_test_setup_teardown(accepts_events_and_keys_of_other_versions, set_up, tear_down),
      cmocka_unit_test_setup_teardown(has_no_events_without_a_file, set_up, tear_down),
      cmocka_unit_test_setup_teardown(names_the_line_that_is_damaged, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
