// SPDX-License-Identifier: Apache-2.0
// run: alone. What a supervisor does after an attempt.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "launch/restart_policy.h"

static const int sizes[] = {4, 2, 1};

static ot_restart_state fresh(int restarts) {
  return (ot_restart_state){.restarts = restarts, .sizes = sizes, .num_sizes = 3};
}

// Killed from outside after `step`, which the next attempt begins at.
static ot_attempt killed(int64_t step) {
  return (ot_attempt){.signal = SIGKILL, .began = true, .step = step, .saved = step, .seconds = 5};
}

static ot_attempt exited(int code, int64_t step) {
  return (ot_attempt){.code = code, .began = true, .step = step, .seconds = 5};
}

static void ends_and_final_failures(void **state) {
  (void)state;
  static const struct {
    int code;
    bool launched;
    ot_restart_action action;
  } rows[] = {{OT_OK, false, OT_RESTART_ENDS},        {OT_STOPPED, false, OT_RESTART_ENDS},
              {OT_USAGE, false, OT_RESTART_GIVES_UP}, {OT_NUMERIC, false, OT_RESTART_GIVES_UP},
              {1, false, OT_RESTART_GIVES_UP},        {1, true, OT_RESTART_AGAIN},
              {127, true, OT_RESTART_GIVES_UP},       {OT_ENVIRONMENT, false, OT_RESTART_AGAIN},
              {OT_RANKS, false, OT_RESTART_AGAIN},    {OT_BUG, false, OT_RESTART_AGAIN}};
  for (int i = 0; i < OT_COUNT(rows); i++) {
    ot_restart_state s = fresh(10);
    ot_attempt a = exited(rows[i].code, 3);
    a.launched = rows[i].launched;
    assert_int_equal(ot_restart_decide(&s, &a).action, rows[i].action);
  }
}

// A process that hung was ended: its exit code does not count.
static void a_hang_is_tried_again(void **state) {
  (void)state;
  ot_restart_state s = fresh(10);
  ot_attempt a = exited(OT_STOPPED, 3);
  a.hung = true;
  assert_int_equal(ot_attempt_kind(&a), OT_FAILURE_HANG);
  assert_int_equal(ot_restart_decide(&s, &a).action, OT_RESTART_AGAIN);
}

static void waits_grow_without_progress(void **state) {
  (void)state;
  ot_restart_state s = fresh(100);
  static const double waits[] = {0, 1, 2, 4, 8, 16, 32, 60, 60};
  for (int i = 0; i < OT_COUNT(waits); i++) {
    const ot_attempt a = killed(7);
    assert_true(ot_restart_decide(&s, &a).wait_s == waits[i]);
  }
  const ot_attempt a = killed(8);
  assert_true(ot_restart_decide(&s, &a).wait_s == 0);
}

static void the_budget_is_renewed_by_progress(void **state) {
  (void)state;
  ot_restart_state s = fresh(2);
  for (int i = 1; i <= 2; i++) {
    const ot_attempt a = killed(i);
    assert_int_equal(ot_restart_decide(&s, &a).action, OT_RESTART_AGAIN);
  }
  ot_attempt a = killed(3);
  a.seconds = 601;
  assert_int_equal(ot_restart_decide(&s, &a).action, OT_RESTART_AGAIN);
  assert_int_equal(s.used, 1);
  a = killed(4);
  assert_int_equal(ot_restart_decide(&s, &a).action, OT_RESTART_AGAIN);
  a = killed(5);
  assert_int_equal(ot_restart_decide(&s, &a).action, OT_RESTART_GIVES_UP);
}

static void a_step_that_always_fails_ends_it(void **state) {
  (void)state;
  ot_restart_state s = fresh(100);
  const ot_attempt a = exited(OT_BUG, 9);
  assert_int_equal(ot_restart_decide(&s, &a).action, OT_RESTART_AGAIN);
  assert_int_equal(ot_restart_decide(&s, &a).action, OT_RESTART_AGAIN);
  assert_int_equal(ot_restart_decide(&s, &a).action, OT_RESTART_GIVES_UP);
  s = fresh(100);
  for (int i = 0; i < 20; i++) {
    const ot_attempt outside = killed(9);
    assert_int_equal(ot_restart_decide(&s, &outside).action, OT_RESTART_AGAIN);
  }
}

static int ranks_after(ot_restart_state *s, bool began) {
  ot_attempt a = killed(s->best_step + 1);
  a.launched = true;
  if (!began) a = (ot_attempt){.launched = true, .code = 1};
  const ot_restart next = ot_restart_decide(s, &a);
  assert_int_equal(next.action, OT_RESTART_AGAIN);
  return next.ranks;
}

static void ranks_shrink_and_grow(void **state) {
  (void)state;
  ot_restart_state s = fresh(100);
  static const struct {
    bool began;
    int ranks;
  } rows[] = {{true, 4},              // 4 ran
              {false, 4},             // 4 did not start
              {false, 2}, {true, 4},  // 2 ran
              {false, 2},             // 4 still do not start
              {false, 2}, {false, 1}, {true, 4}, {true, 4}};
  for (int i = 0; i < OT_COUNT(rows); i++) {
    assert_int_equal(ranks_after(&s, rows[i].began), rows[i].ranks);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ends_and_final_failures),
      cmocka_unit_test(a_hang_is_tried_again),
      cmocka_unit_test(waits_grow_without_progress),
      cmocka_unit_test(the_budget_is_renewed_by_progress),
      cmocka_unit_test(a_step_that_always_fails_ends_it),
      cmocka_unit_test(ranks_shrink_and_grow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
