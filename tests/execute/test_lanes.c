// SPDX-License-Identifier: Apache-2.0
// ctest: threads
// run: any machine. Hand-written programs on ranks that are threads: concurrency (shown by
// operations that can finish only after others), waits (random programs against a sequential
// reference), and how failures end a run.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/rng.h"
#include "execute/lanes.h"
#include "support/hand_made.h"

static hand_run *game_of(int ranks, bool overlap,
                         ot_status (*write)(hand_made *h, const void *context)) {
  hand_run *const game = calloc(1, sizeof *game);
  assert_non_null(game);
  game->ranks = ranks;
  game->overlap = overlap;
  game->write = write;
  return game;
}

enum { SENT = HAND_KEPT };  // a slot that is dead after its last read

static double sum_over_ranks(int ranks, int place) {
  double sum = 0;
  for (int i = 0; i < ranks; i++) sum += hand_input(i, place);
  return sum;
}

// ---- concurrency ----

// Rank 0 computes during a gather. The others join the gather only after they meet rank 0 in the
// world, which rank 0 enters after its kernel. A rank that waited for its gather first would
// deadlock.
static ot_status write_gather_concurrent_with_compute(hand_made *h, const void *context) {
  (void)context;
  const bool first = h->schedule.rank == 0;
  int gather = -1;
  if (first) {
    gather = hand_entry(h, OT_LANE_GATHER, "gather");
    hand_all_reduce(h, gather, OT_GROUP_GATHER, 0, 10);
  }
  const int compute = hand_entry(h, OT_LANE_COMPUTE, "compute");
  hand_add(h, compute, 1, 1, 11);
  hand_all_reduce(h, compute, OT_GROUP_WORLD, 2, 12);
  if (!first) {
    gather = hand_entry(h, OT_LANE_GATHER, "gather");
    hand_all_reduce(h, gather, OT_GROUP_GATHER, 0, 10);
  }
  const int last = hand_entry(h, OT_LANE_COMPUTE, "use");
  hand_wait(h, last, gather);
  hand_add(h, last, 10, 11, 13);
  return OT_OK;
}

static void expect_inside(const ot_span *outer, const ot_span *inner) {
  assert_true(outer->start_s <= inner->start_s && inner->end_s <= outer->end_s);
}

static void a_gather_overlaps_kernels(void **state) {
  (void)state;
  for (int ranks = 2; ranks <= HAND_MAX_RANKS; ranks++) {
    hand_run *const game = game_of(ranks, true, write_gather_concurrent_with_compute);
    hand_run_expect_ok(game);
    for (int i = 0; i < ranks; i++) {
      assert_true(game->places[i][13] == sum_over_ranks(ranks, 0) + 2 * hand_input(i, 1));
      assert_true(game->places[i][12] == sum_over_ranks(ranks, 2));
    }
    const ot_span *const gather = hand_span(game, 0, 0, 0);
    assert_int_equal(gather->lane, OT_LANE_GATHER);
    assert_true(gather->end_s >= hand_span(game, 0, 1, 0)->end_s);
    assert_true(hand_span(game, 0, 2, 0)->start_s >= gather->end_s);
    free(game);
  }
}

// The same inside one instruction: the collective of the tensor lane overlaps the next kernel and a
// collective of the compute lane; the last task waits for it.
static ot_status write_tensor_concurrent_with_compute(hand_made *h, const void *context) {
  (void)context;
  const int entry = hand_entry(h, OT_LANE_COMPUTE, "block");
  if (h->schedule.rank == 0) {
    hand_all_reduce(h, entry, OT_GROUP_TENSOR, 0, 10);
    hand_on_tensor_lane(h, entry);
    hand_add(h, entry, 1, 1, 11);
    hand_all_reduce(h, entry, OT_GROUP_WORLD, 2, 12);
  } else {
    hand_add(h, entry, 1, 1, 11);
    hand_all_reduce(h, entry, OT_GROUP_WORLD, 2, 12);
    hand_all_reduce(h, entry, OT_GROUP_TENSOR, 0, 10);
    hand_on_tensor_lane(h, entry);
  }
  hand_add(h, entry, 10, 11, 13);
  hand_task_waits(h, entry, h->schedule.rank == 0 ? 0 : 2);
  return OT_OK;
}

static void a_tensor_collective_runs_until_a_task_waits_for_it(void **state) {
  (void)state;
  hand_run *const game = game_of(3, true, write_tensor_concurrent_with_compute);
  hand_run_expect_ok(game);
  for (int i = 0; i < 3; i++) {
    assert_true(game->places[i][13] == sum_over_ranks(3, 0) + 2 * hand_input(i, 1));
  }
  const ot_span *const tensor = hand_span(game, 0, 0, 0);
  assert_int_equal(tensor->lane, OT_LANE_TENSOR);
  expect_inside(tensor, hand_span(game, 0, 0, 1));
  expect_inside(tensor, hand_span(game, 0, 0, 2));
  assert_true(hand_span(game, 0, 0, 3)->start_s >= tensor->end_s);
  free(game);
}

// Both ranks send before they receive, and compute in between: a rank must not wait for the arrival
// of its message. The send buffer is dead after the next kernel but must not be overwritten before
// the message has arrived.
static ot_status write_crossing_messages(hand_made *h, const void *context) {
  (void)context;
  const int other = 1 - h->schedule.rank;
  const int make = hand_entry(h, OT_LANE_COMPUTE, "make");
  hand_add(h, make, 0, 1, SENT);
  hand_add(h, make, 0, 2, SENT + 1);
  const int send = hand_entry(h, OT_LANE_PIPELINE, "send");
  hand_wait(h, send, make);
  hand_send(h, send, SENT, other, 7);
  hand_send(h, send, SENT + 1, other, 8);
  const int compute = hand_entry(h, OT_LANE_COMPUTE, "compute");
  hand_all_reduce(h, compute, OT_GROUP_WORLD, 2, 12);
  hand_add(h, compute, SENT, 2, 15);
  const int receive = hand_entry(h, OT_LANE_PIPELINE, "receive");
  hand_receive(h, receive, 10, other, 7);
  hand_receive(h, receive, 11, other, 8);
  const int use = hand_entry(h, OT_LANE_COMPUTE, "use");
  hand_wait(h, use, receive);
  hand_add(h, use, 10, 11, 13);
  const int again = hand_entry(h, OT_LANE_COMPUTE, "write what was sent");
  hand_wait(h, again, send);
  hand_add(h, again, 13, 13, SENT);
  hand_add(h, again, SENT, SENT, 14);
  return OT_OK;
}

static void messages_overlap(void **state) {
  (void)state;
  for (int poison = 0; poison < 2; poison++) {
    hand_run *const game = game_of(2, true, write_crossing_messages);
    game->poison = poison == 1;
    game->times = 3;
    hand_run_expect_ok(game);
    for (int i = 0; i < 2; i++) {
      const double sent = hand_input(1 - i, 0) + hand_input(1 - i, 1);
      assert_true(game->places[i][13] == sent + hand_input(1 - i, 0) + hand_input(1 - i, 2));
      assert_true(game->places[i][14] == 4 * game->places[i][13]);
      const ot_span *const send = hand_span(game, i, 1, 1);
      assert_int_equal(send->lane, OT_LANE_PIPELINE);
      expect_inside(send, hand_span(game, i, 2, 0));
      assert_true(hand_span(game, i, 4, 0)->start_s >= hand_span(game, i, 3, 1)->end_s);
      assert_true(hand_span(game, i, 5, 0)->start_s >= send->end_s);
    }
    free(game);
  }
}

// ---- waits in random programs ----

// Instruction e computes slot 16 + e from two earlier slots, on a random lane; ranks are slow at
// different instructions. Messages go around the ranks, one send and one receive at a time.
enum {
  RANDOM_ENTRIES = 40,
  MADE = 16,
  SUMS = MADE + RANDOM_ENTRIES,
  REDUCED = SUMS + RANDOM_ENTRIES
};

typedef struct random_order {
  uint64_t seed;
  ot_lane lane[RANDOM_ENTRIES];   // of each instruction
  int source[RANDOM_ENTRIES][2];  // slots; a receive has none
} random_order;

static int draw(const random_order *r, int entry, int what, int below) {
  return (int)ot_rng_below(r->seed, (uint64_t)what, (uint64_t)entry, (uint64_t)below);
}

static int draw_source(const random_order *r, int entry, int which) {
  const int from = draw(r, entry, 1 + which, entry + HAND_INPUTS);
  return from < HAND_INPUTS ? from : MADE + from - HAND_INPUTS;
}

static bool is_receive(const random_order *r, int entry) {
  int messages = 0;
  for (int i = 0; i < entry; i++) messages += r->lane[i] == OT_LANE_PIPELINE;
  return r->lane[entry] == OT_LANE_PIPELINE && messages % 2 == 1;
}

static random_order random_order_of(uint64_t seed) {
  static const ot_lane lanes[] = {OT_LANE_COMPUTE, OT_LANE_COMPUTE, OT_LANE_GATHER, OT_LANE_REDUCE,
                                  OT_LANE_PIPELINE};
  random_order r = {.seed = seed};
  for (int e = 0; e < RANDOM_ENTRIES; e++) {
    const bool sent = e > 0 && r.lane[e - 1] == OT_LANE_PIPELINE && !is_receive(&r, e - 1);
    r.lane[e] = sent ? OT_LANE_PIPELINE : lanes[draw(&r, e, 0, OT_COUNT(lanes))];
    if (e == RANDOM_ENTRIES - 1 && !sent) r.lane[e] = OT_LANE_COMPUTE;
    for (int i = 0; i < 2; i++) r.source[e][i] = draw_source(&r, e, i);
    // A send has no result in its rank's memory, and an instruction can wait for one message only.
    for (int i = 0; i < 2; i++) {
      const int from = r.source[e][i] - MADE;
      const bool message = from >= 0 && r.lane[from] == OT_LANE_PIPELINE;
      if (message && (i == 1 || !is_receive(&r, from))) r.source[e][i] = i;
    }
  }
  return r;
}

// Whether a compute instruction continues after its collective, or ends with it.
static bool adds_more(const random_order *r, int entry) { return draw(r, entry, 30, 2) == 0; }

static void wait_for_sources(hand_made *h, const random_order *r, int entry) {
  for (int i = 0; i < 2; i++) {
    const int from = r->source[entry][i] - MADE;
    if (from < 0) continue;
    int *const wait = &h->entries[entry].wait[r->lane[from]];
    if (from > *wait) *wait = from;
  }
}

static void write_random_entry(hand_made *h, const random_order *r, int e) {
  static const ot_group_kind groups[] = {
      [OT_LANE_GATHER] = OT_GROUP_GATHER, [OT_LANE_REDUCE] = OT_GROUP_SHARD};
  const int rank = h->schedule.rank, ranks = h->schedule.ranks;
  const int entry = hand_entry(h, r->lane[e], "random");
  if (is_receive(r, e)) {
    hand_receive(h, entry, MADE + e, (rank + ranks - 1) % ranks, 3);
    return;
  }
  wait_for_sources(h, r, e);
  if (r->lane[e] == OT_LANE_PIPELINE) {
    hand_send(h, entry, r->source[e][0], (rank + 1) % ranks, 3);
    return;
  }
  if (draw(r, e, 10 + rank, 4) == 0) hand_delay(h, entry);
  hand_add(h, entry, r->source[e][0], r->source[e][1], SUMS + e);
  if (r->lane[e] != OT_LANE_COMPUTE) {
    hand_all_reduce(h, entry, groups[r->lane[e]], SUMS + e, MADE + e);
    return;
  }
  const bool more = adds_more(r, e);
  hand_all_reduce(h, entry, OT_GROUP_TENSOR, SUMS + e, more ? REDUCED + e : MADE + e);
  hand_on_tensor_lane(h, entry);
  if (!more) return;
  const int task = h->segments[entry].num_tasks - 1;
  if (draw(r, e, 20 + rank, 4) == 0) hand_delay(h, entry);
  hand_add(h, entry, REDUCED + e, r->source[e][0], MADE + e);
  hand_task_waits(h, entry, task);
}

static ot_status write_random(hand_made *h, const void *context) {
  for (int e = 0; e < RANDOM_ENTRIES; e++) write_random_entry(h, context, e);
  return OT_OK;
}

// Reference: evaluates instruction by instruction, on all ranks at once.
static void evaluate(const random_order *r, int ranks, double v[][HAND_PLACES]) {
  for (int k = 0; k < ranks; k++) {
    for (int i = 0; i < HAND_INPUTS; i++) v[k][i] = hand_input(k, i);
  }
  for (int e = 0; e < RANDOM_ENTRIES; e++) {
    const int *const from = r->source[e];
    double sum = 0;
    for (int k = 0; k < ranks; k++) sum += v[k][from[0]] + v[k][from[1]];
    for (int k = 0; k < ranks; k++) {
      const bool message = r->lane[e] == OT_LANE_PIPELINE;
      const int before = (k + ranks - 1) % ranks;
      if (message && is_receive(r, e)) v[k][MADE + e] = v[before][r->source[e - 1][0]];
      const bool more = r->lane[e] == OT_LANE_COMPUTE && adds_more(r, e);
      if (!message) v[k][MADE + e] = more ? sum + v[k][from[0]] : sum;
    }
  }
}

static void expect_values(const random_order *r, const hand_run *game) {
  static double v[HAND_MAX_RANKS][HAND_PLACES];
  evaluate(r, game->ranks, v);
  for (int k = 0; k < game->ranks; k++) {
    for (int e = 0; e < RANDOM_ENTRIES; e++) {
      if (r->lane[e] == OT_LANE_PIPELINE && !is_receive(r, e)) continue;
      if (game->places[k][MADE + e] == v[k][MADE + e]) continue;
      fail_msg("seed %d, rank %d of %d, entry %d on lane %s: %.17g, in order %.17g", (int)r->seed,
               k, game->ranks, e, ot_lane_name(r->lane[e]), game->places[k][MADE + e],
               v[k][MADE + e]);
    }
  }
}

static void expect_spans_by_start(const hand_run *game) {
  for (int k = 0; k < game->ranks; k++) {
    for (int i = 1; i < game->num_spans[k]; i++) {
      const ot_span *const span = &game->spans[k][i];
      assert_true(span->start_s >= span[-1].start_s && span->end_s >= span->start_s);
    }
  }
}

static void random_programs_equal_sequential_execution(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 12; seed++) {
    const random_order r = random_order_of(seed);
    for (int variant = 0; variant < 3; variant++) {
      hand_run *const game = game_of(2 + (int)seed % 3, variant == 0, write_random);
      game->poison = variant == 2;
      game->context = &r;
      hand_run_expect_ok(game);
      expect_values(&r, game);
      expect_spans_by_start(game);
      free(game);
    }
  }
}

// ---- failures ----

static void expect_text(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("\"%s\" lacks \"%s\"", text, part);
}

static void the_failure_of_a_rank_ends_all(void **state) {
  (void)state;
  const random_order r = random_order_of(5);
  for (int failing = 0; failing < 3; failing++) {
    hand_run *const game = game_of(3, true, write_random);
    game->context = &r;
    game->leaves = failing + 1;
    assert_int_equal(hand_run_ranks(game), OT_NUMERIC);
    expect_text(ot_fail_message(), "has had enough");
    for (int i = 0; i < 3; i++) {
      assert_int_equal(game->status[i], i == failing ? OT_NUMERIC : OT_RANKS);
      if (i != failing) expect_text(game->message[i], "(random, block -1, micro-batch -1), task");
    }
    free(game);
  }
}

// Ranks 0 and 1 enter two groups in opposite orders, one of them on a separate lane.
static ot_status write_crossing_groups(hand_made *h, const void *context) {
  (void)context;
  const bool first = h->schedule.rank == 0;
  const int one = hand_entry(h, first ? OT_LANE_COMPUTE : OT_LANE_GATHER, "one");
  hand_all_reduce(h, one, first ? OT_GROUP_WORLD : OT_GROUP_GATHER, 0, 10);
  const int two = hand_entry(h, first ? OT_LANE_GATHER : OT_LANE_COMPUTE, "two");
  hand_wait(h, two, one);
  hand_all_reduce(h, two, first ? OT_GROUP_GATHER : OT_GROUP_WORLD, 1, 11);
  return OT_OK;
}

static void a_deadlock_is_reported_with_entries_and_tasks(void **state) {
  (void)state;
  hand_run *const game = game_of(2, true, write_crossing_groups);
  assert_int_equal(hand_run_ranks(game), OT_RANKS);
  expect_text(game->message[0], "entry 0 (one, block -1, micro-batch -1), task 0 (all_reduce): ");
  expect_text(game->message[0], "rank 0 waits in 'one/all_reduce'");
  expect_text(game->message[1], "entry 0 (one, block -1, micro-batch -1), task 0 (all_reduce): ");
  expect_text(game->message[1], "rank 1 waits in 'one/all_reduce'");
  free(game);
}

// An instruction that takes longer than any communicator's deadlock check is no deadlock, even
// after lanes slept and woke.
static ot_status work_or_sleep(void *context, ot_lane lane, int entry) {
  (void)context;
  const struct timespec long_kernel = {.tv_sec = 1, .tv_nsec = 300000000};
  if (lane == OT_LANE_REDUCE && entry == 99) nanosleep(&long_kernel, NULL);
  return OT_OK;
}

static ot_status push_and_wait(ot_lanes *lanes, ot_comm *comm, int *sum) {
  for (int i = 0; i < 100; i++) {
    const ot_lane lane = i % 2 == 0 ? OT_LANE_GATHER : OT_LANE_REDUCE;
    ot_lanes_push(lanes, lane, i);
    OT_TRY(ot_lanes_wait(lanes, OT_LANE_COMPUTE, lane, i));
  }
  OT_TRY(ot_lanes_finish(lanes));
  const ot_comm_call meet = {.kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "meet"};
  OT_TRY(ot_comm_run(comm, &meet));
  ++*sum;
  return OT_OK;
}

static ot_status run_long_kernel(ot_comm *comm, void *context) {
  const ot_lanes_options options = {
      .capacity = {[OT_LANE_GATHER] = 50, [OT_LANE_REDUCE] = 50},
      .comm = comm,
      .run = work_or_sleep,
  };
  const ot_comm_call meet = {.kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "meet"};
  if (ot_comm_rank(comm) == 1) return ot_comm_run(comm, &meet);
  ot_lanes *lanes = NULL;
  OT_TRY(ot_lanes_create(&options, &lanes));
  const ot_status status = push_and_wait(lanes, comm, context);
  ot_lanes_destroy(&lanes);
  return status;
}

static void a_long_entry_is_no_deadlock(void **state) {
  (void)state;
  int sum = 0;
  if (ot_comm_run_threads(2, run_long_kernel, &sum) != OT_OK) fail_msg("%s", ot_fail_message());
  assert_int_equal(sum, 1);
}

// ---- rejected programs ----

static ot_status write_other_lists(hand_made *h, const void *context) {
  (void)context;
  const int gather = hand_entry(h, OT_LANE_GATHER, "gather");
  hand_all_reduce(h, gather, OT_GROUP_GATHER, 0, 10);
  if (h->schedule.rank == 2) hand_all_reduce(h, gather, OT_GROUP_GATHER, 0, 10);
  return OT_OK;
}

static ot_status write_other_world(hand_made *h, const void *context) {
  (void)context;
  h->schedule.ranks += h->schedule.rank == 1;
  return OT_OK;
}

static ot_status write_message_beside_its_lane(hand_made *h, const void *context) {
  (void)context;
  hand_send(h, hand_entry(h, OT_LANE_COMPUTE, "compute"), 0, 1 - h->schedule.rank, 0);
  return OT_OK;
}

static ot_status write_wait_on_another_lane(hand_made *h, const void *context) {
  (void)context;
  hand_entry(h, OT_LANE_COMPUTE, "compute");
  hand_entry(h, OT_LANE_COMPUTE, "compute");
  h->entries[1].wait[OT_LANE_GATHER] = 0;
  return OT_OK;
}

static void ranks_and_orders_that_do_not_fit_are_refused(void **state) {
  (void)state;
  static const struct {
    ot_status (*write)(hand_made *h, const void *context);
    int ranks;
    ot_status status;
    const char *text;
  } cases[] = {
      {write_other_lists, 3, OT_RANKS, "the list of its collectives"},
      {write_other_world, 2, OT_RANKS, "the schedule is for rank 1 of 3"},
      {write_message_beside_its_lane, 2, OT_BUG, "entry 0 (compute): send on lane compute"},
      {write_wait_on_another_lane, 1, OT_BUG, "entry 1 waits on lane gather for entry 0"},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    hand_run *const game = game_of(cases[i].ranks, true, cases[i].write);
    assert_int_equal(hand_run_ranks(game), cases[i].status);
    expect_text(ot_fail_message(), cases[i].text);
    free(game);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_gather_overlaps_kernels),
      cmocka_unit_test(a_tensor_collective_runs_until_a_task_waits_for_it),
      cmocka_unit_test(messages_overlap),
      cmocka_unit_test(random_programs_equal_sequential_execution),
      cmocka_unit_test(the_failure_of_a_rank_ends_all),
      cmocka_unit_test(a_deadlock_is_reported_with_entries_and_tasks),
      cmocka_unit_test(a_long_entry_is_no_deadlock),
      cmocka_unit_test(ranks_and_orders_that_do_not_fit_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
