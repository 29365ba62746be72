// SPDX-License-Identifier: Apache-2.0
// run: alone. The account of a run's time from hand-made logs, against figures made by hand.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "host/heap.h"
#include "report/run_page.h"

typedef struct fixture {
  ot_heap heap;
  ot_arena arena;
  ot_run_account account;
} fixture;

static int set_up(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  f->arena = ot_heap_arena_create(&f->heap);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *const f = *state;
  ot_heap_release(&f->heap);
  free(f);
  return 0;
}

static void account_of(fixture *f, ot_run_event *events, int64_t count, int64_t steps) {
  const ot_run_event_list list = {.count = count, .event = events};
  ot_account_builder *const b = ot_account_begin(&list, &f->arena);
  for (int64_t i = 1; i <= steps; i++) {
    const ot_metrics_step step = {.step = i, .step_s = 2};
    ot_account_add_step(b, &step);
  }
  ot_account_finish(b, &f->account);
}

static void assert_item(const fixture *f, ot_account_item item, double seconds) {
  const double found = f->account.item_s[item];
  if (!(fabs(found - seconds) < 1e-9))
    fail_msg("%s: %g s, expected %g s", ot_account_name(item), found, seconds);
}

static void assert_adds_up(const fixture *f) {
  int64_t tenths[OT_ACCOUNT_ITEMS], all = 0;
  double sum_s = 0;
  for (int i = 0; i < OT_ACCOUNT_ITEMS; i++) sum_s += f->account.item_s[i];
  assert_true(fabs(sum_s - f->account.wall_s) < 1e-9);
  ot_run_page_tenths(&f->account, tenths);
  for (int i = 0; i < OT_ACCOUNT_ITEMS; i++) all += tenths[i];
  assert_int_equal(all, 1000);
}

// Killed in step 9, four steps after its checkpoint; restarted by the supervisor; stopped by a
// signal and started again half a minute later. Steps take 2 s.
static void accounts_for_a_crash_and_two_restarts(void **state) {
  fixture *const f = *state;
  ot_run_event events[] = {
      {.kind = OT_RUN_EVENT_START, .time_s = 1000, .step = 0, .ranks = 4, .load_s = 10},
      {.kind = OT_RUN_EVENT_VALIDATION, .time_s = 1002, .step = 0, .seconds = 2},
      {.kind = OT_RUN_EVENT_FIRST_STEP, .time_s = 1005, .step = 1},
      {.kind = OT_RUN_EVENT_SAVE, .time_s = 1014, .step = 4, .seconds = 3, .blocked_s = 3},
      {.kind = OT_RUN_EVENT_FAILURE, .time_s = 1030, .failure = "rank"},
      {.kind = OT_RUN_EVENT_RESTART, .time_s = 1035, .ranks = 4, .waited_s = 5},
      {.kind = OT_RUN_EVENT_START,
       .time_s = 1050,
       .step = 4,
       .ranks = 4,
       .load_s = 9,
       .last_step = 8,
       .lost_s = 8},
      {.kind = OT_RUN_EVENT_FIRST_STEP, .time_s = 1053, .step = 5},
      {.kind = OT_RUN_EVENT_SAVE, .time_s = 1058, .step = 6, .seconds = 3, .blocked_s = 3},
      {.kind = OT_RUN_EVENT_STOP, .time_s = 1060, .step = 6, .reason = "signal"},
      {.kind = OT_RUN_EVENT_START,
       .time_s = 1100,
       .step = 6,
       .ranks = 4,
       .load_s = 5,
       .last_step = 6},
      {.kind = OT_RUN_EVENT_FIRST_STEP, .time_s = 1103, .step = 7},
      {.kind = OT_RUN_EVENT_STRAGGLER, .time_s = 1103, .step = 7, .slowdown = 2},
      {.kind = OT_RUN_EVENT_SAVE, .time_s = 1112, .step = 10, .seconds = 3, .blocked_s = 3},
      {.kind = OT_RUN_EVENT_STOP, .time_s = 1112, .step = 10, .reason = "end"},
  };
  account_of(f, events, OT_COUNT(events), 10);
  const ot_run_account *const a = &f->account;
  assert_true(a->wall_s == 122);              // 990 to 1112
  assert_item(f, OT_ACCOUNT_PRODUCTIVE, 19);  // 10 x 2, less the straggler
  assert_item(f, OT_ACCOUNT_STRAGGLERS, 1);   // half of step 7
  assert_item(f, OT_ACCOUNT_LOST, 8);         // steps 5 to 8
  assert_item(f, OT_ACCOUNT_CHECKPOINTS, 9);  // 3 x 3
  assert_item(f, OT_ACCOUNT_VALIDATION, 2);
  assert_item(f, OT_ACCOUNT_AUDITS, 0);
  assert_item(f, OT_ACCOUNT_START, 11);     // 10 of loading, 1 before step 1
  assert_item(f, OT_ACCOUNT_DETECTION, 8);  // alive until 1005 + 7 x 2 + 3
  assert_item(f, OT_ACCOUNT_WAITING, 5);
  assert_item(f, OT_ACCOUNT_LOADING, 22);  // 6 + 9 + 1, and 5 + 1
  assert_item(f, OT_ACCOUNT_IDLE, 35);     // 1060 to 1095
  assert_item(f, OT_ACCOUNT_OTHER, 2);     // 1058 to 1060
  assert_adds_up(f);
  assert_int_equal(a->steps, 10);
  assert_int_equal(a->lost_steps, 4);
  assert_int_equal(a->failures, 1);
  assert_false(a->open);
  assert_true(fabs(a->mtbf_s - 87) < 1e-9);
  assert_true(fabs(a->recovery_s - 17.5) < 1e-9);
  assert_true(fabs(a->interval_s - 28.0 / 3) < 1e-9);
  // Daly 2006 with these figures.
  const double t = 28.0 / 3, m = 87;
  const double expected = t / (m * exp(17.5 / m) * (exp((t + 3) / m) - 1));
  assert_true(a->modelled);
  assert_true(fabs(a->expected.productive - expected) < 1e-9);
  assert_true(fabs(a->expected.young_s - sqrt(2 * 3 * m)) < 1e-9);
}

// Killed without a supervisor: the gap is idle, and the run failed once.
static void takes_a_process_without_an_end_for_killed(void **state) {
  fixture *const f = *state;
  ot_run_event events[] = {
      {.kind = OT_RUN_EVENT_START, .time_s = 100, .step = 0, .ranks = 1, .load_s = 0},
      {.kind = OT_RUN_EVENT_FIRST_STEP, .time_s = 102, .step = 1},
      {.kind = OT_RUN_EVENT_START,
       .time_s = 120,
       .step = 0,
       .ranks = 1,
       .load_s = 4,
       .last_step = 3,
       .lost_s = 6},
      {.kind = OT_RUN_EVENT_FIRST_STEP, .time_s = 122, .step = 1},
  };
  account_of(f, events, OT_COUNT(events), 5);
  assert_item(f, OT_ACCOUNT_LOST, 6);
  assert_item(f, OT_ACCOUNT_IDLE, 10);  // 106 to 116
  assert_item(f, OT_ACCOUNT_LOADING, 4);
  assert_item(f, OT_ACCOUNT_PRODUCTIVE, 10);
  assert_item(f, OT_ACCOUNT_OTHER, 0);
  assert_true(f->account.wall_s == 30);  // 100 to 130, when step 5 was done
  assert_int_equal(f->account.failures, 1);
  assert_true(f->account.open);
  assert_adds_up(f);
}

static void counts_steps_that_a_process_repeats_itself(void **state) {
  fixture *const f = *state;
  ot_run_event events[] = {
      {.kind = OT_RUN_EVENT_START, .time_s = 100, .step = 0, .ranks = 1},
      {.kind = OT_RUN_EVENT_FIRST_STEP, .time_s = 102, .step = 1},
      {.kind = OT_RUN_EVENT_REWIND, .time_s = 110, .step = 2, .last_step = 4, .lost_s = 4},
      {.kind = OT_RUN_EVENT_AUDIT, .time_s = 117, .step = 4, .seconds = 1},
      {.kind = OT_RUN_EVENT_EVALUATION, .time_s = 117.5, .step = 4, .seconds = 0.5},
      {.kind = OT_RUN_EVENT_STOP, .time_s = 118, .step = 5, .reason = "numeric"},
  };
  account_of(f, events, OT_COUNT(events), 5);
  assert_item(f, OT_ACCOUNT_PRODUCTIVE, 10);
  assert_item(f, OT_ACCOUNT_LOST, 4);
  assert_item(f, OT_ACCOUNT_AUDITS, 1);
  assert_item(f, OT_ACCOUNT_EVALUATION, 0.5);
  assert_item(f, OT_ACCOUNT_OTHER, 2.5);
  assert_int_equal(f->account.lost_steps, 2);
  assert_int_equal(f->account.failures, 1);
  assert_adds_up(f);
}

// Waits for a device and was not started again yet.
static void ends_with_what_the_supervisor_does(void **state) {
  fixture *const f = *state;
  ot_run_event events[] = {
      {.kind = OT_RUN_EVENT_START, .time_s = 100, .step = 0, .ranks = 1},
      {.kind = OT_RUN_EVENT_FIRST_STEP, .time_s = 102, .step = 1},
      {.kind = OT_RUN_EVENT_FAILURE, .time_s = 110, .failure = "hang"},
      {.kind = OT_RUN_EVENT_FAILURE, .time_s = 111, .failure = "rank"},
      {.kind = OT_RUN_EVENT_RESTART, .time_s = 120, .ranks = 1},
      {.kind = OT_RUN_EVENT_FAILURE, .time_s = 125, .failure = "environment"},
      {.kind = OT_RUN_EVENT_RESTART, .time_s = 130, .ranks = 1},
  };
  account_of(f, events, OT_COUNT(events), 2);
  assert_item(f, OT_ACCOUNT_PRODUCTIVE, 4);
  assert_item(f, OT_ACCOUNT_DETECTION, 6);  // alive until 104
  assert_item(f, OT_ACCOUNT_WAITING, 20);
  assert_int_equal(f->account.failures, 2);
  assert_item(f, OT_ACCOUNT_LOADING, 0);
  assert_item(f, OT_ACCOUNT_OTHER, 0);
  assert_true(f->account.wall_s == 30);
  assert_adds_up(f);
}

static void knows_nothing_without_events(void **state) {
  fixture *const f = *state;
  account_of(f, NULL, 0, 3);
  assert_int_equal(f->account.num_attempts, 0);
  assert_true(f->account.wall_s == 0);
  assert_false(f->account.modelled);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(accounts_for_a_crash_and_two_restarts, set_up, tear_down),
      cmocka_unit_test_setup_teardown(takes_a_process_without_an_end_for_killed, set_up, tear_down),
      cmocka_unit_test_setup_teardown(counts_steps_that_a_process_repeats_itself, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(ends_with_what_the_supervisor_does, set_up, tear_down),
      cmocka_unit_test_setup_teardown(knows_nothing_without_events, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
