// SPDX-License-Identifier: Apache-2.0
// ctest: threads
// run: alone. Ranks as threads: the conformance suite on 1 to 8 ranks, and what only threads can
// detect: deadlocks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "host/clock.h"
#include "support/comm_suite.h"

// ---- the suite ----

static void passes_on_any_number_of_ranks(void **state) {
  static const int sizes[] = {1, 2, 3, 4, 8};
  for (int i = 0; i < OT_COUNT(sizes); i++) {
    const ot_status status = ot_comm_run_threads(sizes[i], comm_case_main, *state);
    if (status != OT_OK) fail_msg("%d ranks: %s", sizes[i], ot_fail_message());
  }
}

// ---- failing worlds ----

static ot_status barrier(ot_comm *comm, ot_group_kind group, const char *name) {
  return ot_comm_run(comm, &(ot_comm_call){.kind = OT_COMM_BARRIER, .group = group, .name = name});
}

static ot_status receive_from(ot_comm *comm, int peer, const char *name) {
  float memory[4];
  return ot_comm_run(comm, &(ot_comm_call){.kind = OT_COMM_RECEIVE,
                                           .peer = peer,
                                           .tag = 3,
                                           .receive = memory,
                                           .count = 4,
                                           .name = name});
}

// The message contains all of `parts` [null-terminated].
static void expect_message(const char *const *parts) {
  for (; *parts; parts++) {
    if (!strstr(ot_fail_message(), *parts)) {
      fail_msg("'%s' is not in: %s", *parts, ot_fail_message());
    }
  }
}

// Runs `main`; expects OT_RANKS or `status`, a message with all of `parts` [null-terminated], and
// less than `seconds` of run time.
static void expect_failure(int ranks, ot_rank_main main, ot_status status, double seconds,
                           const char *const *parts) {
  const double start = ot_clock_s();
  assert_int_equal(ot_comm_run_threads(ranks, main, NULL), status);
  assert_true(ot_clock_s() - start < seconds);
  expect_message(parts);
}

static ot_status wait_in_a_circle(ot_comm *comm, void *context) {
  (void)context;
  const int rank = ot_comm_rank(comm), size = ot_comm_size(comm);
  return receive_from(comm, (rank + 1) % size, "circle");
}

static void reports_cyclic_receives_immediately(void **state) {
  (void)state;
  expect_failure(3, wait_in_a_circle, OT_RANKS, 0.9,
                 (const char *const[]){
                     "deadlock: all ranks wait for each other",
                     "rank 0 waits in 'circle' (receive 1 from rank 1, tag 3, of group world, "
                     "ranks 0-2) for rank 1",
                     "rank 1 waits in 'circle'", "rank 2 waits in 'circle'", NULL});
}

static ot_status call_in_other_orders(ot_comm *comm, void *context) {
  (void)context;
  const int ranks[] = {0, 1, 2, 3};
  OT_TRY(ot_comm_add_group(comm, OT_GROUP_SHARD, ranks, 4));
  OT_TRY(barrier(comm, OT_GROUP_SHARD, "first"));
  const bool other = ot_comm_rank(comm) == 2;
  OT_TRY(barrier(comm, other ? OT_GROUP_WORLD : OT_GROUP_SHARD, other ? "b" : "a"));
  return barrier(comm, other ? OT_GROUP_SHARD : OT_GROUP_WORLD, other ? "a" : "b");
}

static void names_collectives_in_other_orders(void **state) {
  (void)state;
  expect_failure(
      4, call_in_other_orders, OT_RANKS, 0.9,
      (const char *const[]){
          "rank 0 waits in 'a' (barrier 2 of group shard, ranks 0-3) for rank 2",
          "rank 2 waits in 'b' (barrier 1 of group world, ranks 0-3) for ranks 0 1 3", NULL});
}

static ot_status differ_in_kind(ot_comm *comm, void *context) {
  (void)context;
  float a[2] = {0}, b[8], workspace[8];
  const ot_comm_kind kind = ot_comm_rank(comm) == 1 ? OT_COMM_ALL_GATHER : OT_COMM_REDUCE_SCATTER;
  return ot_comm_run(comm, &(ot_comm_call){.kind = kind,
                                           .send = kind == OT_COMM_ALL_GATHER ? a : b,
                                           .receive = kind == OT_COMM_ALL_GATHER ? b : a,
                                           .count = 2,
                                           .workspace = workspace,
                                           .name = "mixed"});
}

static void names_calls_that_differ(void **state) {
  (void)state;
  expect_failure(2, differ_in_kind, OT_RANKS, 0.9,
                 (const char *const[]){"ranks differ in call 1 of group world",
                                       "rank 0 does reduce_scatter of 2 fp32 in 'mixed'",
                                       "rank 1 does all_gather of 2 fp32 in 'mixed'", NULL});
}

// Context: how the numbers differ.
static ot_status send_other_numbers(ot_comm *comm, void *context) {
  return comm_uneven_exchange(comm, context);
}

static void names_numbers_of_rows_that_differ(void **state) {
  (void)state;
  const struct {
    comm_row_mismatch uneven;
    const char *said;
  } all[] = {
      {{2, 0, 3, 4, 4, 1}, "rank 2 sends 3 rows to rank 0, which expects 4"},
      {{0, 1, 5, 4, 5, 4001}, "rank 0 sends 5 rows to rank 1, which expects 4"},
      {{1, 2, 0, 1, 2, 1}, "rank 1 sends 0 rows to rank 2, which expects 1"},
      {{2, 1, 1, 0, 2, 70000}, "rank 2 sends 1 rows to rank 1, which expects 0"},
      {{1, 1, 3, 2, 3, 1}, "rank 1 sends 3 rows to rank 1, which expects 2"},
  };
  for (int i = 0; i < OT_COUNT(all); i++) {
    assert_int_equal(ot_comm_run_threads(3, send_other_numbers, (void *)&all[i].uneven), OT_RANKS);
    expect_message((const char *const[]){
        "ranks differ in 'uneven rows' (all_to_all_v 1 of group world", all[i].said, NULL});
  }
}

static ot_status one_ends_early(ot_comm *comm, void *context) {
  (void)context;
  if (ot_comm_rank(comm) == 2) return OT_OK;
  // Rank 0 would continue for long: the others must learn of the failure without it.
  const struct timespec long_kernel = {.tv_nsec = 300000000};
  if (ot_comm_rank(comm) == 0) nanosleep(&long_kernel, NULL);
  return barrier(comm, OT_GROUP_WORLD, "late");
}

static void names_a_rank_that_has_ended(void **state) {
  (void)state;
  expect_failure(3, one_ends_early, OT_RANKS, 2.0,
                 (const char *const[]){"rank 1 waits in 'late' (barrier 1 of group world, ranks "
                                       "0-2) for ranks 0 2, but rank 2 has ended",
                                       NULL});
}

static ot_status one_fails(ot_comm *comm, void *context) {
  (void)context;
  OT_TRY(barrier(comm, OT_GROUP_WORLD, "together"));
  if (ot_comm_rank(comm) == 1) {
    ot_fail(OT_ENVIRONMENT, "cannot read the shard");
    return ot_fail_hint(OT_ENVIRONMENT, "look at the disk");
  }
  const ot_status status = barrier(comm, OT_GROUP_WORLD, "alone");
  if (!strstr(ot_fail_message(), "rank 1 has failed: cannot read the shard")) return OT_BUG;
  return status;
}

static void ends_all_ranks_when_one_fails(void **state) {
  (void)state;
  expect_failure(4, one_fails, OT_ENVIRONMENT, 2.0,
                 (const char *const[]){"rank 1: cannot read the shard", NULL});
  assert_string_equal(ot_fail_hint_text(), "look at the disk");
}

// Rank 0 frees memory that others may be reading: sanitizers detect it if they do.
static ot_status one_fails_in_a_call(ot_comm *comm, void *context) {
  (void)context;
  enum { COUNT = 1 << 18 };
  const int size = ot_comm_size(comm);
  float *const send = calloc(COUNT, sizeof *send);
  float *const receive = calloc((size_t)COUNT * (size_t)size, sizeof *receive);
  ot_comm_request request;
  const ot_comm_call call = {.kind = OT_COMM_ALL_GATHER,
                             .send = send,
                             .receive = receive,
                             .count = COUNT,
                             .name = "under way"};
  ot_comm_start(comm, &call, &request);
  ot_status status = OT_NUMERIC;
  if (ot_comm_rank(comm) == 0) {
    ot_comm_fail(comm, ot_fail(OT_NUMERIC, "the loss is not a number"));
  } else {
    status = ot_comm_wait(comm, &request);
    if (status == OT_OK) status = barrier(comm, OT_GROUP_WORLD, "alone");
  }
  free(send);
  free(receive);
  return status;
}

static void memory_of_calls_is_free_after_a_failure(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    expect_failure(4, one_fails_in_a_call, OT_NUMERIC, 2.0,
                   (const char *const[]){"rank 0: the loss is not a number", NULL});
  }
}

// The same for rows: each rank sends a part of its buffer to every rank.
static ot_status exchange_until_one_fails(ot_comm *comm, float *send, float *receive) {
  enum { COUNT = 1 << 10, ROWS = 1 << 8 };
  int32_t run[4][2], from[4][2];
  for (int i = 0; i < 4; i++) {
    run[i][0] = ROWS / 4 * i;
    from[i][0] = ROWS / 4 * (3 - i);
    run[i][1] = from[i][1] = ROWS / 4;
  }
  const ot_comm_call call = {.kind = OT_COMM_ALL_TO_ALL_V,
                             .send = send,
                             .receive = receive,
                             .count = COUNT,
                             .sends = {1, run[0], ROWS},
                             .receives = {1, from[0], ROWS},
                             .name = "rows under way"};
  ot_comm_request request;
  ot_comm_start(comm, &call, &request);
  if (ot_comm_rank(comm) == 0) {
    const ot_status status = ot_fail(OT_NUMERIC, "the loss is not a number");
    ot_comm_fail(comm, status);
    return status;
  }
  OT_TRY(ot_comm_wait(comm, &request));
  return barrier(comm, OT_GROUP_WORLD, "alone");
}

static ot_status one_fails_in_an_exchange(ot_comm *comm, void *context) {
  (void)context;
  float *const send = calloc(1 << 18, sizeof *send), *const receive = calloc(1 << 18, sizeof *send);
  const ot_status status = exchange_until_one_fails(comm, send, receive);
  free(send);
  free(receive);
  return status;
}

static void all_to_all_buffers_are_free_after_a_failure(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    expect_failure(4, one_fails_in_an_exchange, OT_NUMERIC, 2.0,
                   (const char *const[]){"rank 0: the loss is not a number", NULL});
  }
}

static ot_status one_leaves_an_exchange(ot_comm *comm, void *context) {
  (void)context;
  if (ot_comm_rank(comm) == 2) return OT_OK;
  return ot_comm_run(comm,
                     &(ot_comm_call){.kind = OT_COMM_ALL_TO_ALL_V, .count = 1, .name = "rows"});
}

static void names_a_rank_that_has_left_an_exchange(void **state) {
  (void)state;
  expect_failure(
      3, one_leaves_an_exchange, OT_RANKS, 2.0,
      (const char *const[]){"waits in 'rows' (all_to_all_v 1 of group world, ranks 0-2) for",
                            "but rank 2 has ended", NULL});
}

static ot_status one_is_late(ot_comm *comm, void *context) {
  (void)context;
  ot_comm_set_timeout(comm, 0.1);
  const struct timespec long_kernel = {.tv_nsec = 500000000};
  if (ot_comm_rank(comm) == 1) nanosleep(&long_kernel, NULL);
  return barrier(comm, OT_GROUP_WORLD, "patient");
}

static void names_a_rank_that_does_not_come_in_time(void **state) {
  (void)state;
  expect_failure(2, one_is_late, OT_RANKS, 2.0,
                 (const char *const[]){"rank 0 waits in 'patient' (barrier 1 of group world, "
                                       "ranks 0 1) for rank 1, which has not arrived in 0.1 s",
                                       NULL});
}

static ot_status leave_a_call(ot_comm *comm, void *context) {
  static ot_comm_request request;
  (void)context;
  if (ot_comm_rank(comm) == 1) return OT_OK;
  ot_comm_start(comm, &(ot_comm_call){.kind = OT_COMM_BARRIER, .name = "left"}, &request);
  return OT_OK;
}

static void refuses_to_leave_calls_under_way(void **state) {
  (void)state;
  expect_failure(2, leave_a_call, OT_BUG, 2.0,
                 (const char *const[]){"rank 0: comm: main returned with 1 calls", NULL});
}

static ot_status stop_all(ot_comm *comm, void *context) {
  (void)context;
  OT_TRY(barrier(comm, OT_GROUP_WORLD, "last step"));
  if (ot_comm_rank(comm) == 0) return ot_fail(OT_STOPPED, "stopped by a signal");
  OT_TRY(barrier(comm, OT_GROUP_TENSOR, "after"));
  return OT_STOPPED;
}

static ot_status stop_some_earlier(ot_comm *comm, void *context) {
  const int others[] = {1, 2};
  if (ot_comm_rank(comm) > 0) OT_TRY(ot_comm_add_group(comm, OT_GROUP_TENSOR, others, 2));
  return stop_all(comm, context);
}

static void a_rank_that_stops_is_no_failure(void **state) {
  (void)state;
  assert_int_equal(ot_comm_run_threads(3, stop_some_earlier, NULL), OT_STOPPED);
}

// Threads of a rank that wait for each other: reported after one second without progress.
static ot_status wait_for_own_threads(ot_comm *comm, void *context) {
  (void)context;
  ot_comm_add_thread(comm, true);
  ot_comm_set_waiting(comm, true);  // stands for a second idle thread
  const ot_status status = receive_from(comm, 1 - ot_comm_rank(comm), "lanes");
  ot_comm_set_waiting(comm, false);
  return status;
}

static void reports_deadlocks_of_threaded_ranks(void **state) {
  (void)state;
  expect_failure(2, wait_for_own_threads, OT_RANKS, 5.0,
                 (const char *const[]){"rank 0 waits in 'lanes'", "rank 1 waits in 'lanes'", NULL});
}

// A rank with a computing thread is not deadlocked, however long it computes.
static ot_status compute_meanwhile(ot_comm *comm, void *context) {
  (void)context;
  if (ot_comm_rank(comm) == 0) return barrier(comm, OT_GROUP_WORLD, "meanwhile");
  const struct timespec long_kernel = {.tv_nsec = 300000000};
  nanosleep(&long_kernel, NULL);
  return barrier(comm, OT_GROUP_WORLD, "meanwhile");
}

static void a_long_kernel_is_no_deadlock(void **state) {
  (void)state;
  assert_int_equal(ot_comm_run_threads(2, compute_meanwhile, NULL), OT_OK);
}

// ---- messages of agreements become those of the world ----

static ot_status agree_on_failure(ot_comm *comm, void *context) {
  (void)context;
  const ot_status status = ot_comm_rank(comm) == 2 ? ot_fail(OT_ENVIRONMENT, "no file 'x'") : OT_OK;
  return ot_comm_agree(comm, status);
}

static void an_agreed_failure_names_its_rank_once(void **state) {
  (void)state;
  assert_int_equal(ot_comm_run_threads(3, agree_on_failure, NULL), OT_ENVIRONMENT);
  assert_int_equal(strncmp(ot_fail_message(), "rank 2 on ", 10), 0);
}

enum { MAX_TESTS = 64 };

int main(void) {
  static const struct CMUnitTest own[] = {
      cmocka_unit_test(reports_cyclic_receives_immediately),
      cmocka_unit_test(names_collectives_in_other_orders),
      cmocka_unit_test(names_calls_that_differ),
      cmocka_unit_test(names_numbers_of_rows_that_differ),
      cmocka_unit_test(names_a_rank_that_has_ended),
      cmocka_unit_test(ends_all_ranks_when_one_fails),
      cmocka_unit_test(memory_of_calls_is_free_after_a_failure),
      cmocka_unit_test(all_to_all_buffers_are_free_after_a_failure),
      cmocka_unit_test(names_a_rank_that_has_left_an_exchange),
      cmocka_unit_test(names_a_rank_that_does_not_come_in_time),
      cmocka_unit_test(refuses_to_leave_calls_under_way),
      cmocka_unit_test(a_rank_that_stops_is_no_failure),
      cmocka_unit_test(reports_deadlocks_of_threaded_ranks),
      cmocka_unit_test(a_long_kernel_is_no_deadlock),
      cmocka_unit_test(an_agreed_failure_names_its_rank_once),
  };
  struct CMUnitTest tests[MAX_TESTS];
  int count = 0;
  const comm_case *const cases = comm_cases(&count);
  for (int i = 0; i < count; i++) {
    tests[i] = (struct CMUnitTest){.name = cases[i].name,
                                   .test_func = passes_on_any_number_of_ranks,
                                   .initial_state = (void *)&cases[i]};
  }
  memcpy(tests + count, own, sizeof own);
  return _cmocka_run_group_tests("comm_thread", tests, (size_t)(count + OT_COUNT(own)), NULL, NULL);
}
