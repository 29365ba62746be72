// SPDX-License-Identifier: Apache-2.0
// run: alone, ranks as threads. A rank that computes longer is found, among ranks with the same
// work only; waits for other ranks do not count as its time.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/clock.h"
#include "record/straggler.h"
#include "support/audit_case.h"

enum { RANKS = 4, SLOW = 2, STEPS = 3 * OT_STRAGGLER_WINDOW };

// ---- the rule ----

typedef struct rule_row {
  double median_s[6];
  int work[6], size;
  int found;
  double slowdown;
} rule_row;

static void finds_the_slowest_of_its_peers(void **state) {
  (void)state;
  static const rule_row rows[] = {
      {{1, 1, 1}, {0}, 3, -1, 0},
      {{1, 1.09, 1}, {0}, 3, -1, 0},
      {{1, 1.2, 1}, {0}, 3, 1, 1.2},
      {{1, 1.2, 1, 1.5}, {0}, 4, 3, 1.5 / 1.1},
      {{1, 2}, {0}, 2, -1, 0},
      {{1, 1, 1, 2, 2, 2}, {0, 0, 0, 1, 1, 1}, 6, -1, 0},  // stages of a pipeline
      {{1, 1, 1, 2, 2, 3}, {0, 0, 0, 1, 1, 1}, 6, 5, 1.5},
      {{.001, .002, .001}, {0}, 3, -1, 0},  // too short to tell
  };
  for (int i = 0; i < OT_COUNT(rows); i++) {
    double scratch[6], slowdown;
    const int found =
        ot_straggler_find(rows[i].median_s, rows[i].work, rows[i].size, scratch, &slowdown);
    assert_int_equal(found, rows[i].found);
    if (found >= 0)
      assert_true(slowdown > rows[i].slowdown - .01 && slowdown < rows[i].slowdown + .01);
  }
}

static void a_window_is_its_median(void **state) {
  (void)state;
  ot_straggler_window window = {.count = 0};
  for (int i = 0; i < OT_STRAGGLER_WINDOW; i++) {
    assert_false(ot_straggler_is_full(&window));
    ot_straggler_add(&window, i < 3 ? 100 : 1);
  }
  assert_true(ot_straggler_is_full(&window));
  assert_true(ot_straggler_take(&window) == 1);
  assert_false(ot_straggler_is_full(&window));
}

static void a_rank_is_named_when_it_is_found_again_and_again(void **state) {
  (void)state;
  static const struct {
    int found;
    bool named;
  } windows[] = {{1, false},  {1, false},  {1, true},  {2, false}, {1, true},  {2, false},
                 {2, true},   {3, false},  {4, false}, {5, false}, {3, false}, {-1, false},
                 {-1, false}, {-1, false}, {0, false}, {0, false}, {0, true}};
  ot_straggler_history history = {0};
  for (int i = 0; i < OT_COUNT(windows); i++) {
    assert_int_equal(ot_straggler_confirm(&history, windows[i].found), windows[i].named);
  }
}

// ---- in training ----

typedef struct trial {
  double extra;  // time that rank SLOW spends in addition, of its own time
  double step_s[RANKS];
  double median_s[3][RANKS];
} trial;

static void work_more(ot_trainer *trainer, void *context) {
  const trial *const t = context;
  const int rank = ot_world_rank(ot_trainer_world(trainer));
  const double until = ot_clock_thread_s() + t->extra * t->step_s[rank];
  while (rank == SLOW && ot_clock_thread_s() < until) continue;
}

static ot_status measure(audit_rank *rank) {
  trial *const t = rank->context;
  ot_straggler_window window = {.count = 0};
  for (int i = 0; i < STEPS; i++) {
    ot_step_report step;
    OT_TRY(audit_step(rank, &step));
    if (i == 0 || rank->rank != SLOW) t->step_s[rank->rank] = step.compute_s;
    ot_straggler_add(&window, step.compute_s);
    if (!ot_straggler_is_full(&window)) continue;
    t->median_s[i / OT_STRAGGLER_WINDOW][rank->rank] = ot_straggler_take(&window);
  }
  return OT_OK;
}

// Windows in which rank SLOW is found; *false_alarms: in which another one is.
static int find_in_windows(double extra, int *false_alarms) {
  static const int work[RANKS];
  trial t = {.extra = extra};
  const ot_trainer_hooks hooks = {.after = work_more, .context = &t};
  audit_request request = {.model = audit_model(2, false), .dp_shard = RANKS, .hooks = &hooks};
  int found = 0;
  request.model.hidden_size = 96;
  request.batch = 32 * RANKS;  // steps of some 8 ms: those below 2 ms are not judged
  request.micro_batch = 1;
  *false_alarms = 0;
  if (audit_run(&request, measure, &t) != OT_OK) fail_msg("%s", ot_fail_message());
  for (int i = 0; i < 3; i++) {
    double scratch[RANKS], slowdown;
    const int rank = ot_straggler_find(t.median_s[i], work, RANKS, scratch, &slowdown);
    found += rank == SLOW;
    *false_alarms += rank >= 0 && rank != SLOW;
  }
  return found;
}

static void a_rank_that_computes_longer_is_found(void **state) {
  (void)state;
  int false_alarms;
  assert_true(find_in_windows(1, &false_alarms) > 0);
}

// Also rates; other work on the machine changes them, so they are not asserted.
static void rates(void **state) {
  (void)state;
  static const double extras[] = {0, .15, .3, 1};
  const char *const tests = getenv("OT_TESTS");
  enum { TRIALS = 10 };
  if (!tests || strcmp(tests, "full") != 0) skip();
  for (int i = 0; i < OT_COUNT(extras); i++) {
    int runs = 0, windows = 0, wrong = 0;
    for (int k = 0; k < TRIALS; k++) {
      int false_alarms;
      const int found = find_in_windows(extras[i], &false_alarms);
      runs += found > 0;
      windows += found;
      wrong += false_alarms;
    }
    printf("%.2f x: found in %d of %d runs, %d of %d windows; other ranks in %d\n", 1 + extras[i],
           runs, TRIALS, windows, 3 * TRIALS, wrong);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(finds_the_slowest_of_its_peers),
      cmocka_unit_test(a_window_is_its_median),
      cmocka_unit_test(a_rank_is_named_when_it_is_found_again_and_again),
      cmocka_unit_test(a_rank_that_computes_longer_is_found),
      cmocka_unit_test(rates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
