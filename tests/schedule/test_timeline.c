// SPDX-License-Identifier: Apache-2.0
// run: any machine. Unions, exposed time and bubbles of hand-drawn timelines. All times are
// integers, so every sum is exact.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

// A bar of a drawing: an instruction with one task. A kernel if `op` is 0.
typedef struct bar {
  ot_lane lane;
  double start_s, end_s;
  ot_op_kind op;
  ot_group_kind group;
  ot_phase phase;
  int waits;  // 1 + the bar of a message for which it waits
} bar;

enum { MAX_BARS = 24 };

static bar in_phase(ot_phase phase, bar b) {
  b.phase = phase;
  return b;
}

static bar kernel_on(ot_lane lane, double start_s, double end_s) {
  return (bar){.lane = lane, .start_s = start_s, .end_s = end_s};
}

static bar kernel(double start_s, double end_s) {
  return in_phase(OT_PHASE_FORWARD, kernel_on(OT_LANE_COMPUTE, start_s, end_s));
}

static bar call(ot_lane lane, double start_s, double end_s, ot_op_kind op, ot_group_kind group) {
  return (bar){.lane = lane, .start_s = start_s, .end_s = end_s, .op = op, .group = group};
}

static bar message(double start_s, double end_s, ot_op_kind op) {
  return call(OT_LANE_PIPELINE, start_s, end_s, op, OT_GROUP_STAGES);
}

static bar nothing(void) { return kernel_on(OT_LANE_COMPUTE, 0, -1); }

static bar waiting(int message_bar, bar waits) {
  waits.waits = 1 + message_bar;
  return waits;
}

static ot_timeline_summary summarize(const bar *bars, int count, double total_s) {
  assert_true(count <= MAX_BARS);
  ot_entry entries[MAX_BARS] = {{0}};
  ot_segment segments[MAX_BARS] = {{0}};
  ot_task tasks[MAX_BARS] = {{0}};
  ot_span spans[MAX_BARS];
  int num_spans = 0;
  for (int i = 0; i < count; i++) {
    const bar *const b = &bars[i];
    tasks[i].op = b->op ? b->op : OT_OP_ADD;
    tasks[i].kind = ot_task_kind_of(tasks[i].op);
    tasks[i].attributes.group = b->group;
    tasks[i].lane = b->lane;
    segments[i] = (ot_segment){.name = "bar", .num_tasks = 1, .tasks = &tasks[i]};
    entries[i] = (ot_entry){.lane = b->lane == OT_LANE_TENSOR ? OT_LANE_COMPUTE : b->lane,
                            .phase = b->phase,
                            .segment = i};
    for (int lane = 0; lane < OT_LANES; lane++) entries[i].wait[lane] = -1;
    entries[i].wait[OT_LANE_PIPELINE] = b->waits - 1;
    if (b->end_s < 0) continue;
    spans[num_spans++] =
        (ot_span){.entry = i, .start_s = b->start_s, .end_s = b->end_s, .lane = (int32_t)b->lane};
  }
  ot_order order = {.num_entries = count, .entries = entries};
  const ot_schedule schedule = {
      .num_segments = count, .segments = segments, .num_orders = 1, .orders = &order};
  const ot_timeline timeline = {
      .num_spans = num_spans, .capacity = num_spans, .spans = spans, .total_s = total_s};
  return ot_timeline_summarize(&timeline, &schedule);
}

static void expect(const bar *bars, int count, double compute_s, double exposed_s) {
  const ot_timeline_summary summary = summarize(bars, count, 100);
  if (summary.compute_s != compute_s || summary.exposed_s != exposed_s) {
    fail_msg("compute %g, exposed %g; drawn: compute %g, exposed %g", summary.compute_s,
             summary.exposed_s, compute_s, exposed_s);
  }
}

static void kernels_are_counted_by_the_phase_of_their_entry(void **state) {
  (void)state;
  const bar bars[] = {
      kernel(0, 2),
      in_phase(OT_PHASE_RECOMPUTE, kernel(2, 3)),
      in_phase(OT_PHASE_INPUT, kernel(4, 8)),
      in_phase(OT_PHASE_WEIGHT, kernel(8, 9)),
      in_phase(OT_PHASE_UPDATE, kernel(10, 16)),
      in_phase(OT_PHASE_REDUCE, kernel_on(OT_LANE_REDUCE, 9, 12)),  // another lane's
  };
  const ot_timeline_summary summary = summarize(bars, 6, 20);
  assert_true(summary.part_s[OT_TIMELINE_FORWARD] == 2);
  assert_true(summary.part_s[OT_TIMELINE_RECOMPUTE] == 1);
  assert_true(summary.part_s[OT_TIMELINE_BACKWARD] == 5);
  assert_true(summary.part_s[OT_TIMELINE_UPDATE] == 6);
  assert_true(summary.compute_s == 14);
}

// Its iterations form one span, which includes its communication.
static void a_loop_counts_as_compute(void **state) {
  (void)state;
  const bar rounds = call(OT_LANE_COMPUTE, 2, 7, OT_OP_REPEAT, OT_GROUP_WORLD);
  const bar bars[] = {
      kernel(0, 2),
      in_phase(OT_PHASE_FORWARD, rounds),
      call(OT_LANE_TENSOR, 1, 9, OT_OP_SHIFT, OT_GROUP_CONTEXT),
      kernel(9, 10),
  };
  const ot_timeline_summary summary = summarize(bars, OT_COUNT(bars), 10);
  assert_true(summary.compute_s == 8 && summary.part_s[OT_TIMELINE_FORWARD] == 8);
  assert_true(summary.exposed_s == 2);
}

static void compute_alone_has_gaps_and_nothing_exposed(void **state) {
  (void)state;
  const bar bars[] = {kernel(0, 2), kernel(2, 5), kernel(8, 10)};
  expect(bars, 3, 7, 0);
  const ot_timeline_summary summary = summarize(bars, 3, 16);
  assert_true(summary.total_s == 16);
  assert_true(summary.idle_s == 9);
  assert_true(summary.bubble_s == 3 && summary.bubble_fraction == 3.0 / 16);
}

static void an_empty_timeline_is_no_division_by_zero(void **state) {
  (void)state;
  const ot_timeline_summary summary = summarize(NULL, 0, 0);
  assert_true(summary.bubble_fraction == 0 && summary.compute_s == 0 && summary.exposed_s == 0);
}

static void communication_inside_compute_is_hidden(void **state) {
  (void)state;
  const bar bars[] = {kernel(0, 10), kernel_on(OT_LANE_GATHER, 0, 10),
                      kernel_on(OT_LANE_REDUCE, 3, 4)};
  expect(bars, 3, 10, 0);
}

static void exposed_time_is_outside_compute_on_both_sides(void **state) {
  (void)state;
  const bar bars[] = {kernel_on(OT_LANE_GATHER, 0, 20), kernel(5, 12), kernel(25, 26)};
  expect(bars, 3, 8, 13);
}

static void exposed_counts_the_gaps_between_compute(void **state) {
  (void)state;
  const bar bars[] = {kernel(0, 4), kernel(6, 8), kernel(11, 12), kernel_on(OT_LANE_REDUCE, 3, 15)};
  expect(bars, 4, 7, 2 + 3 + 3);
}

static void concurrent_lanes_are_exposed_once(void **state) {
  (void)state;
  const bar bars[] = {kernel(0, 2), kernel_on(OT_LANE_GATHER, 1, 6),
                      kernel_on(OT_LANE_REDUCE, 4, 9), kernel_on(OT_LANE_PIPELINE, 5, 7)};
  expect(bars, 4, 2, 7);  // [2, 9), not 4 + 5 + 2
}

static void spans_within_spans_count_once(void **state) {
  (void)state;
  const bar bars[] = {kernel(0, 10),
                      kernel(2, 4),
                      kernel(9, 11),
                      kernel_on(OT_LANE_GATHER, 8, 20),
                      kernel_on(OT_LANE_GATHER, 9, 13),
                      kernel_on(OT_LANE_REDUCE, 12, 14),
                      kernel(18, 19)};
  expect(bars, 7, 12, 8);
}

// A program lists an early gather long before a reduction that starts earlier: spans are ordered by
// start on each lane only.
static void lanes_may_come_in_any_order(void **state) {
  (void)state;
  const bar bars[] = {kernel_on(OT_LANE_GATHER, 30, 40), kernel_on(OT_LANE_REDUCE, 0, 5),
                      kernel(3, 33), kernel_on(OT_LANE_PIPELINE, 1, 2),
                      kernel_on(OT_LANE_REDUCE, 38, 41)};
  expect(bars, 5, 30, 3 + 8);
}

static void touching_spans_leave_nothing_between_them(void **state) {
  (void)state;
  const bar bars[] = {kernel(0, 3), kernel_on(OT_LANE_GATHER, 3, 5), kernel(5, 9),
                      kernel_on(OT_LANE_GATHER, 5, 9), kernel_on(OT_LANE_GATHER, 9, 9)};
  expect(bars, 5, 7, 2);
}

// ---- by axis and op ----

static void expect_axis(const ot_timeline_summary *summary, ot_timeline_axis axis, double seconds) {
  if (summary->exposed_axis_s[axis] == seconds) return;
  fail_msg("%s exposed for %g, drawn %g", ot_timeline_axis_name(axis),
           summary->exposed_axis_s[axis], seconds);
}

static void expect_op(const ot_timeline_summary *summary, ot_timeline_axis axis, ot_op_kind op,
                      double seconds) {
  const double found = summary->exposed_op_s[axis][ot_communication_index(op)];
  if (found == seconds) return;
  fail_msg("op %d of %s exposed for %g, drawn %g", (int)op, ot_timeline_axis_name(axis), found,
           seconds);
}

static void a_collective_that_compute_waits_for_is_no_compute(void **state) {
  (void)state;
  const bar bars[] = {
      kernel(0, 3),   call(OT_LANE_COMPUTE, 3, 5, OT_OP_ALL_REDUCE, OT_GROUP_TENSOR),
      kernel(5, 8),   call(OT_LANE_TENSOR, 6, 10, OT_OP_SHIFT, OT_GROUP_CONTEXT),
      kernel(10, 12),
  };
  const ot_timeline_summary summary = summarize(bars, OT_COUNT(bars), 12);
  assert_true(summary.compute_s == 8 && summary.exposed_s == 4);
  expect_axis(&summary, OT_TIMELINE_TP, 2);
  expect_op(&summary, OT_TIMELINE_TP, OT_OP_ALL_REDUCE, 2);
  expect_axis(&summary, OT_TIMELINE_CP, 2);
  expect_op(&summary, OT_TIMELINE_CP, OT_OP_SHIFT, 2);
  assert_true(summary.bubble_s == 0);
}

static void axes_and_ops_are_unions_of_their_own(void **state) {
  (void)state;
  const bar bars[] = {
      call(OT_LANE_GATHER, 0, 4, OT_OP_ALL_GATHER, OT_GROUP_GATHER),
      call(OT_LANE_REDUCE, 2, 8, OT_OP_REDUCE_SCATTER, OT_GROUP_SHARD),
      kernel(3, 5),
      call(OT_LANE_REDUCE, 8, 9, OT_OP_ALL_REDUCE, OT_GROUP_TENSOR_SUM),
      kernel_on(OT_LANE_REDUCE, 9, 10),
      call(OT_LANE_COMPUTE, 10, 12, OT_OP_ALL_REDUCE, OT_GROUP_WORLD),
      call(OT_LANE_REDUCE, 11, 13, OT_OP_ALL_REDUCE, OT_GROUP_REPLICATE),
      call(OT_LANE_REDUCE, 13, 14, OT_OP_ALL_REDUCE, OT_GROUP_CONTEXT_SUM),
      call(OT_LANE_REDUCE, 14, 15, OT_OP_ALL_REDUCE, OT_GROUP_TIED),
  };
  const ot_timeline_summary summary = summarize(bars, OT_COUNT(bars), 15);
  assert_true(summary.compute_s == 2 && summary.exposed_s == 13);
  expect_axis(&summary, OT_TIMELINE_DP, 6 + 2);
  expect_op(&summary, OT_TIMELINE_DP, OT_OP_ALL_GATHER, 3);
  expect_op(&summary, OT_TIMELINE_DP, OT_OP_REDUCE_SCATTER, 1 + 3);
  expect_op(&summary, OT_TIMELINE_DP, OT_OP_ALL_REDUCE, 2);
  expect_axis(&summary, OT_TIMELINE_TP, 1);
  expect_axis(&summary, OT_TIMELINE_CP, 1);
  expect_axis(&summary, OT_TIMELINE_PP, 1);
  expect_axis(&summary, OT_TIMELINE_EP, 0);
  expect_axis(&summary, OT_TIMELINE_WORLD, 2);
}

// ---- messages and bubbles ----

// The first of two stages under 1F1B: two forwards, then backwards as their gradients arrive.
//
// seconds   0   2   4   6   8   10  12  14  16  18  20
// compute   [F  ][F  ]         [B      ][B      ][u][w  ]
// pipeline    [receive         ]
//                   [receive        ]
//               [send ]
static void messages_count_while_compute_waits_for_them(void **state) {
  (void)state;
  const bar bars[] = {
      message(1, 9, OT_OP_RECEIVE),
      in_phase(OT_PHASE_FORWARD, kernel(0, 2)),
      message(2, 5, OT_OP_SEND),
      in_phase(OT_PHASE_FORWARD, kernel(2, 4)),
      message(4, 12, OT_OP_RECEIVE),
      in_phase(OT_PHASE_BACKWARD, waiting(0, kernel(9, 13))),
      in_phase(OT_PHASE_BACKWARD, waiting(4, kernel(13, 17))),
      in_phase(OT_PHASE_UPDATE, kernel(17, 18)),
      in_phase(OT_PHASE_CLIP, call(OT_LANE_COMPUTE, 18, 20, OT_OP_ALL_REDUCE, OT_GROUP_WORLD)),
  };
  const ot_timeline_summary summary = summarize(bars, OT_COUNT(bars), 20);
  assert_true(summary.compute_s == 13 && summary.idle_s == 7);
  expect_axis(&summary, OT_TIMELINE_PP, 5);
  expect_op(&summary, OT_TIMELINE_PP, OT_OP_RECEIVE, 5);
  expect_op(&summary, OT_TIMELINE_PP, OT_OP_SEND, 0);
  expect_axis(&summary, OT_TIMELINE_WORLD, 2);
  assert_true(summary.exposed_s == 7);
  assert_true(summary.bubble_s == 5 && summary.bubble_fraction == 5.0 / 20);
}

static void a_bubble_ends_at_a_running_collective(void **state) {
  (void)state;
  const bar bars[] = {
      message(0, 6, OT_OP_RECEIVE),
      waiting(0, kernel(6, 8)),
      message(6, 14, OT_OP_RECEIVE),
      call(OT_LANE_GATHER, 7, 10, OT_OP_ALL_GATHER, OT_GROUP_GATHER),
      waiting(2, kernel(14, 16)),
      call(OT_LANE_REDUCE, 15, 19, OT_OP_REDUCE_SCATTER, OT_GROUP_SHARD),
  };
  bar drawn[OT_COUNT(bars)];
  for (int i = 0; i < OT_COUNT(bars); i++) drawn[i] = in_phase(OT_PHASE_FORWARD, bars[i]);
  drawn[OT_COUNT(bars) - 1].phase = OT_PHASE_REDUCE;
  const ot_timeline_summary summary = summarize(drawn, OT_COUNT(bars), 19);
  expect_axis(&summary, OT_TIMELINE_PP, 6 + 6);
  expect_axis(&summary, OT_TIMELINE_DP, 2 + 3);
  assert_true(summary.bubble_s == 6 + 4);
  assert_true(summary.exposed_s == 6 + 6 + 3);
}

static void waits_of_entries_without_tasks_and_at_the_end_count(void **state) {
  (void)state;
  const bar bars[] = {
      message(0, 10, OT_OP_RECEIVE), kernel(0, 3),
      message(3, 8, OT_OP_SEND),     waiting(2, nothing()),
      waiting(0, kernel(10, 11)),    message(11, 14, OT_OP_SEND),
      message(11, 13, OT_OP_SEND),
  };
  const ot_timeline_summary summary = summarize(bars, OT_COUNT(bars), 14);
  expect_op(&summary, OT_TIMELINE_PP, OT_OP_SEND, 5 + 3);
  expect_op(&summary, OT_TIMELINE_PP, OT_OP_RECEIVE, 2);
  assert_true(summary.exposed_s == 10 && summary.idle_s == 10);
}

static void messages_are_found_in_any_order_of_their_waits(void **state) {
  (void)state;
  const bar bars[] = {
      message(0, 10, OT_OP_RECEIVE), message(0, 4, OT_OP_RECEIVE), message(0, 15, OT_OP_RECEIVE),
      waiting(1, kernel(4, 6)),      waiting(0, kernel(10, 11)),   waiting(2, kernel(15, 16)),
      waiting(1, kernel(20, 21)),
  };
  const ot_timeline_summary summary = summarize(bars, OT_COUNT(bars), 21);
  expect_axis(&summary, OT_TIMELINE_PP, 4 + 4 + 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kernels_are_counted_by_the_phase_of_their_entry),
      cmocka_unit_test(a_loop_counts_as_compute),
      cmocka_unit_test(compute_alone_has_gaps_and_nothing_exposed),
      cmocka_unit_test(an_empty_timeline_is_no_division_by_zero),
      cmocka_unit_test(communication_inside_compute_is_hidden),
      cmocka_unit_test(exposed_time_is_outside_compute_on_both_sides),
      cmocka_unit_test(exposed_counts_the_gaps_between_compute),
      cmocka_unit_test(concurrent_lanes_are_exposed_once),
      cmocka_unit_test(spans_within_spans_count_once),
      cmocka_unit_test(lanes_may_come_in_any_order),
      cmocka_unit_test(touching_spans_leave_nothing_between_them),
      cmocka_unit_test(a_collective_that_compute_waits_for_is_no_compute),
      cmocka_unit_test(axes_and_ops_are_unions_of_their_own),
      cmocka_unit_test(messages_count_while_compute_waits_for_them),
      cmocka_unit_test(a_bubble_ends_at_a_running_collective),
      cmocka_unit_test(waits_of_entries_without_tasks_and_at_the_end_count),
      cmocka_unit_test(messages_are_found_in_any_order_of_their_waits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
