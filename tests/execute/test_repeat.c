// SPDX-License-Identifier: Apache-2.0
// ctest: threads
// run: any machine. Loop bodies in hand-written programs on ranks that are threads: number of
// iterations, values that an iteration sees, and overlap.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/hand_made.h"

enum { A = 10, B = 11, SUM = 12, LAST = 13 };

static hand_run *game_of(int ranks, int rounds,
                         ot_status (*write)(hand_made *h, const void *context)) {
  hand_run *const game = calloc(1, sizeof *game);
  assert_non_null(game);
  game->ranks = ranks;
  game->rounds = rounds;
  game->write = write;
  return game;
}

static int rounds_of_bodies(int rounds) { return rounds > 1 ? rounds - 1 : 0; }

typedef void (*game_check)(const hand_run *game, int more);

// Runs it with several iteration counts, twice each, with concurrent and with sequential lanes.
static void for_each_number(int ranks, ot_status (*write)(hand_made *h, const void *context),
                            game_check check) {
  static const int numbers[] = {0, 1, 2, 4, 33};
  for (int i = 0; i < OT_COUNT(numbers); i++) {
    for (int mode = 0; mode < 3; mode++) {
      hand_run *const game = game_of(ranks, numbers[i], write);
      game->overlap = mode == 0;
      game->poison = mode == 2;
      game->times = 2;
      hand_run_expect_ok(game);
      check(game, rounds_of_bodies(numbers[i]));
      free(game);
    }
  }
}

// ---- number of iterations ----

static ot_status write_adding_body(hand_made *h, const void *context) {
  (void)context;
  const int entry = hand_entry(h, OT_LANE_COMPUTE, "adding");
  hand_add(h, entry, 0, 1, SUM);
  hand_repeat(h, entry, 2);
  hand_add(h, entry, 2, 3, A);
  hand_add(h, entry, SUM, A, SUM);
  hand_add(h, entry, SUM, 4, LAST);
  return OT_OK;
}

static void expect_adding(const hand_run *game, int more) {
  const double each = hand_input(0, 2) + hand_input(0, 3);
  const double first = hand_input(0, 0) + hand_input(0, 1);
  assert_true(game->places[0][SUM] == first + more * each);
  assert_true(game->places[0][LAST] == first + more * each + hand_input(0, 4));
  assert_int_equal(game->counter[0], more > 0 ? more : -1);
}

static void a_body_runs_one_time_less_than_the_iterations(void **state) {
  (void)state;
  for_each_number(1, write_adding_body, expect_adding);
}

// ---- recorded spans ----

static void expect_spans(const hand_run *game, int more) {
  (void)more;
  enum { ENTRY, FIRST = 0, REPEAT = 1, BEHIND = 4, SPANS = 3 };
  const ot_span *const repeat = hand_span(game, 0, ENTRY, REPEAT);
  assert_int_equal(repeat->lane, OT_LANE_COMPUTE);
  assert_int_equal(game->num_spans[0], SPANS);
  assert_true(hand_span(game, 0, ENTRY, FIRST)->end_s <= repeat->start_s);
  assert_true(repeat->end_s <= hand_span(game, 0, ENTRY, BEHIND)->start_s);
}

static void a_loop_records_one_span_for_all_iterations(void **state) {
  (void)state;
  for_each_number(1, write_adding_body, expect_spans);
}

// ---- invalid iteration counts ----

static void expect_refused(int rounds) {
  hand_run *const game = game_of(1, rounds, write_adding_body);
  assert_int_equal(hand_run_ranks(game), OT_BUG);
  const char *const message = game->message[0];
  if (!strstr(message, "entry 0 (adding") || !strstr(message, "task 1 (repeat)") ||
      !strstr(message, "iterations")) {
    fail_msg("%s", message);
  }
  free(game);
}

static void invalid_iteration_counts_end_the_run(void **state) {
  (void)state;
  expect_refused(-1);
  expect_refused(1 << 30);
}

// ---- collectives ----

// Each iteration all-reduces A concurrently with a kernel; the task after the body waits for the
// last.
static ot_status write_collective_body(hand_made *h, const void *context) {
  (void)context;
  const int entry = hand_entry(h, OT_LANE_COMPUTE, "collectives");
  hand_add(h, entry, 0, 1, A);
  hand_add(h, entry, 2, 3, SUM);
  hand_repeat(h, entry, 4);
  const int sum = hand_all_reduce(h, entry, OT_GROUP_TENSOR, A, B);
  hand_on_tensor_lane(h, entry);
  hand_delay(h, entry);
  hand_add(h, entry, SUM, B, SUM);
  hand_task_waits(h, entry, sum);
  hand_add(h, entry, A, 4, A);
  hand_add(h, entry, SUM, A, LAST);
  hand_task_waits(h, entry, sum);
  return OT_OK;
}

static void expect_collectives(const hand_run *game, int more) {
  double sums[HAND_MAX_RANKS] = {0};
  double a[HAND_MAX_RANKS] = {0};
  for (int i = 0; i < game->ranks; i++) {
    a[i] = hand_input(i, 0) + hand_input(i, 1);
    sums[i] = hand_input(i, 2) + hand_input(i, 3);
  }
  for (int round = 0; round < more; round++) {
    double all = 0;
    for (int i = 0; i < game->ranks; i++) all += a[i];
    for (int i = 0; i < game->ranks; i++) {
      sums[i] += all;
      a[i] += hand_input(i, 4);
    }
  }
  for (int i = 0; i < game->ranks; i++) {
    assert_true(game->places[i][SUM] == sums[i]);
    assert_true(game->places[i][LAST] == sums[i] + a[i]);
  }
}

static void each_iteration_runs_its_collectives(void **state) {
  (void)state;
  for_each_number(2, write_collective_body, expect_collectives);
  for_each_number(3, write_collective_body, expect_collectives);
}

// No task of the body waits for its collective; the next iteration reads its output and overwrites
// its input. Rank 1 is late in every iteration.
static ot_status write_late_body(hand_made *h, const void *context) {
  (void)context;
  const int entry = hand_entry(h, OT_LANE_COMPUTE, "late");
  hand_add(h, entry, 0, 1, A);
  hand_add(h, entry, 2, 3, SUM);
  hand_all_reduce(h, entry, OT_GROUP_TENSOR, A, B);
  hand_on_tensor_lane(h, entry);
  hand_repeat(h, entry, 4);
  hand_task_waits(h, entry, 2);
  if (h->schedule.rank == 1) {
    hand_delay(h, entry);
  } else {
    hand_add(h, entry, 5, 5, LAST);
  }
  hand_add(h, entry, SUM, B, SUM);
  hand_add(h, entry, A, 4, A);
  hand_all_reduce(h, entry, OT_GROUP_TENSOR, A, B);
  hand_on_tensor_lane(h, entry);
  return OT_OK;
}

static void expect_late(const hand_run *game, int more) {
  double all = 0, step = 0;
  for (int i = 0; i < game->ranks; i++) {
    all += hand_input(i, 0) + hand_input(i, 1);
    step += hand_input(i, 4);
  }
  for (int i = 0; i < game->ranks; i++) {
    double sum = hand_input(i, 2) + hand_input(i, 3);
    for (int round = 0; round < more; round++) sum += all + round * step;
    assert_true(game->places[i][SUM] == sum);
    assert_true(game->places[i][B] == all + more * step);
  }
}

static void an_iteration_ends_its_tensor_lane_tasks(void **state) {
  (void)state;
  for_each_number(2, write_late_body, expect_late);
}

// ---- rejected schedules ----

// The same calls in the same order, but rank 1 makes each call once.
static ot_status write_half_a_body(hand_made *h, const void *context) {
  (void)context;
  const int entry = hand_entry(h, OT_LANE_COMPUTE, "half");
  if (h->schedule.rank == 0) hand_repeat(h, entry, 2);
  hand_all_reduce(h, entry, OT_GROUP_TENSOR, 0, A);
  if (h->schedule.rank == 1) hand_repeat(h, entry, 1);
  hand_add(h, entry, 0, 1, B);
  return OT_OK;
}

static void members_must_have_the_same_bodies(void **state) {
  (void)state;
  hand_run *const game = game_of(2, 3, write_half_a_body);
  assert_int_equal(hand_run_ranks(game), OT_RANKS);
  if (!strstr(ot_fail_message(), "list of its collectives")) fail_msg("%s", ot_fail_message());
  free(game);
}

static ot_status write_gather_repeat(hand_made *h, const void *context) {
  (void)context;
  const int entry = hand_entry(h, OT_LANE_GATHER, "gather");
  hand_repeat(h, entry, 1);
  hand_add(h, entry, 0, 1, A);
  return OT_OK;
}

static ot_status write_too_long(hand_made *h, const void *context) {
  (void)context;
  const int entry = hand_entry(h, OT_LANE_COMPUTE, "long");
  hand_repeat(h, entry, 2);
  hand_add(h, entry, 0, 1, A);
  return OT_OK;
}

static void refuses(ot_status (*write)(hand_made *h, const void *context), const char *why) {
  hand_run *const game = game_of(1, 3, write);
  assert_int_equal(hand_run_ranks(game), OT_BUG);
  if (!strstr(game->message[0], why)) fail_msg("%s", game->message[0]);
  free(game);
}

static void repeats_elsewhere_or_too_long_are_refused(void **state) {
  (void)state;
  refuses(write_gather_repeat, "repeat on lane gather");
  refuses(write_too_long, "repeats 2 tasks, but only 1 follow it");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_body_runs_one_time_less_than_the_iterations),
      cmocka_unit_test(a_loop_records_one_span_for_all_iterations),
      cmocka_unit_test(invalid_iteration_counts_end_the_run),
      cmocka_unit_test(each_iteration_runs_its_collectives),
      cmocka_unit_test(an_iteration_ends_its_tensor_lane_tasks),
      cmocka_unit_test(members_must_have_the_same_bodies),
      cmocka_unit_test(repeats_elsewhere_or_too_long_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
