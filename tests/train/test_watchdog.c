// SPDX-License-Identifier: Apache-2.0
// ctest: threads
// ctest: waits
// run: ranks=4 as threads. A missing rank is named together with the operation it missed, and all
// ranks end soon after; a slow rank that arrives in time has no effect.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "host/clock.h"
#include "support/audit_case.h"
#include "support/hand_made.h"
#include "support/scratch.h"

static void rest(double seconds) {
  const struct timespec time = {.tv_sec = (time_t)seconds,
                                .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);
}

// ---- in training ----

typedef struct pause_at {
  int rank;
  double seconds;
} pause_at;

static ot_status pause_once(audit_rank *rank) {
  const pause_at *const p = rank->context;
  ot_step_report step;
  OT_TRY(audit_step(rank, &step));
  if (rank->rank == p->rank) rest(p->seconds);
  return audit_step(rank, &step);
}

static audit_request watched(double patience) {
  return (audit_request){.model = audit_model(2, false),
                         .dp_shard = 4,
                         .zero = 1,
                         .batch = 4,
                         .micro_batch = 1,
                         .watchdog_seconds = patience};
}

static ot_status train(double patience, double seconds, double *took) {
  pause_at p = {2, seconds};
  const audit_request request = watched(patience);
  const double start = ot_clock_s();
  const ot_status status = audit_run(&request, pause_once, &p);
  *took = ot_clock_s() - start;
  return status;
}

static void a_rank_missing_in_a_step_is_named(void **state) {
  (void)state;
  double took;
  assert_int_equal(train(.4, 1, &took), OT_RANKS);
  assert_message_has("waits in 'agreement' (all_gather ");
  assert_message_has(" of group world, ranks 0-3) for rank 2, which has not arrived in 0.4 s");
  assert_true(took < 4);
}

static void a_slow_rank_in_time_has_no_effect(void **state) {
  (void)state;
  double took;
  if (train(20, .2, &took) != OT_OK) fail_msg("%s", ot_fail_message());
  if (train(0, .2, &took) != OT_OK) fail_msg("%s", ot_fail_message());
}

// ---- in a save ----

typedef struct save_late_at {
  pause_at pause;
  const char *path;
} save_late_at;

static ot_status save_late(audit_rank *rank) {
  const save_late_at *const s = rank->context;
  ot_step_report step;
  OT_TRY(audit_step(rank, &step));
  if (rank->rank == s->pause.rank) rest(s->pause.seconds);
  return ot_trainer_save(rank->trainer, s->path);
}

// The data requests of a writer, chunk by chunk.
typedef struct slow_writer {
  double seconds;  // delay before each chunk
  int pieces;
} slow_writer;

static ot_status lead_slowly(audit_rank *rank) {
  const slow_writer *const writer = rank->context;
  ot_runtime *const runtime = ot_trainer_runtime(rank->trainer);
  ot_step_report step;
  OT_TRY(audit_step(rank, &step));
  if (rank->rank != 0) return ot_runtime_serve_reads(runtime);
  float row[1024];
  const ot_parameter_rows range = {.rows = 1};
  for (int i = 0; i < writer->pieces; i++) {
    rest(writer->seconds);
    OT_TRY(ot_runtime_read_leader(runtime, &range, row));
  }
  return ot_runtime_end_reads(runtime);
}

static void a_rank_missing_in_a_save_is_named(void **state) {
  (void)state;
  static const char *const late[] = {"for rank 0, which has not arrived in 0.4 s",
                                     "for rank 3, which has not arrived in 0.4 s"};
  const audit_request request = watched(.4);
  char scratch[SCRATCH_BYTES];
  scratch_create(scratch);
  for (int i = 0; i < 2; i++) {
    save_late_at s = {{3 * i, 1.2}, scratch_path(scratch, "step")};
    const double start = ot_clock_s();
    assert_int_equal(audit_run(&request, save_late, &s), OT_RANKS);
    assert_message_has(late[i]);
    assert_true(ot_clock_s() - start < 4);
  }
  scratch_destroy(scratch);
}

static void a_slow_writer_does_not_time_out(void **state) {
  (void)state;
  const audit_request request = watched(.8);
  slow_writer writer = {.3, 4};
  if (audit_run(&request, lead_slowly, &writer) != OT_OK) fail_msg("%s", ot_fail_message());
  writer = (slow_writer){1.6, 1};
  assert_int_equal(audit_run(&request, lead_slowly, &writer), OT_RANKS);
  assert_message_has("for rank 0, which has not arrived in 0.8 s");
}

// ---- in the executor ----

static ot_status write_sums(hand_made *h, const void *context) {
  (void)context;
  const int first = hand_entry(h, OT_LANE_COMPUTE, "first");
  hand_all_reduce(h, first, OT_GROUP_TENSOR, 0, 10);
  const int reduce = hand_entry(h, OT_LANE_REDUCE, "sum.layers.7");
  hand_wait(h, reduce, first);
  hand_all_reduce(h, reduce, OT_GROUP_SHARD, 10, 11);
  const int last = hand_entry(h, OT_LANE_COMPUTE, "last");
  hand_wait(h, last, reduce);
  hand_add(h, last, 10, 11, 12);
  return OT_OK;
}

// Before the third run of the program, rank 1 sleeps for longer than the timeout of the others.
static ot_status rest_before_third(ot_comm *comm, int time) {
  ot_comm_set_timeout(comm, .3);
  if (ot_comm_rank(comm) == 1 && time == 2) rest(.8);
  return OT_OK;
}

static void missed_tasks_and_calls_are_named(void **state) {
  (void)state;
  hand_run *const game = test_calloc(1, sizeof *game);
  game->ranks = 3;
  game->overlap = true;
  game->times = 3;
  game->write = write_sums;
  game->before = rest_before_third;
  assert_int_equal(hand_run_ranks(game), OT_RANKS);
  // The fourth call of the group: joining compared schedules, and the program ran twice.
  assert_message_has("entry 0 (first, ");
  assert_message_has(
      "waits in 'first/all_reduce' (all_reduce 4 of group tensor, ranks 0-2) for "
      "rank 1, which has not arrived in 0.3 s");
  for (int i = 0; i < game->ranks; i++) assert_int_equal(game->status[i], OT_RANKS);
  test_free(game);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_missing_in_a_step_is_named),
      cmocka_unit_test(a_slow_rank_in_time_has_no_effect),
      cmocka_unit_test(a_rank_missing_in_a_save_is_named),
      cmocka_unit_test(a_slow_writer_does_not_time_out),
      cmocka_unit_test(missed_tasks_and_calls_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
