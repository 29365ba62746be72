// SPDX-License-Identifier: Apache-2.0
// run: any machine. Unions, exposed time and bubble of timelines drawn by hand. All times are whole
// numbers, so that every sum is exact.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schedule/schedule.h"

// A bar of a drawing.
typedef struct bar {
  ot_lane lane;
  double start_s, end_s;
} bar;

enum { MAX_BARS = 16 };

static ot_timeline_summary summarize(const bar *bars, int count, double total_s) {
  assert_true(count <= MAX_BARS);
  ot_entry entries[MAX_BARS] = {{0}};
  ot_span spans[MAX_BARS];
  for (int i = 0; i < count; i++) {
    entries[i] = (ot_entry){.lane = bars[i].lane};
    for (int lane = 0; lane < OT_LANES; lane++) entries[i].wait[lane] = -1;
    spans[i] = (ot_span){.entry = i, .start_s = bars[i].start_s, .end_s = bars[i].end_s};
  }
  ot_segment segment = {.name = "nothing"};
  ot_order order = {.num_entries = count, .entries = entries};
  const ot_schedule schedule = {
      .num_segments = 1, .segments = &segment, .num_orders = 1, .orders = &order};
  const ot_timeline timeline = {
      .num_spans = count, .capacity = count, .spans = spans, .total_s = total_s};
  return ot_timeline_summarize(&timeline, &schedule);
}

static void expect(const bar *bars, int count, double compute_s, double exposed_s) {
  const ot_timeline_summary summary = summarize(bars, count, 100);
  if (summary.compute_s != compute_s || summary.exposed_s != exposed_s) {
    fail_msg("compute %g, exposed %g; drawn: compute %g, exposed %g", summary.compute_s,
             summary.exposed_s, compute_s, exposed_s);
  }
}

static void compute_alone_has_gaps_and_nothing_exposed(void **state) {
  (void)state;
  const bar bars[] = {{OT_LANE_COMPUTE, 0, 2}, {OT_LANE_COMPUTE, 2, 5}, {OT_LANE_COMPUTE, 8, 10}};
  expect(bars, 3, 7, 0);
  const ot_timeline_summary summary = summarize(bars, 3, 16);
  assert_true(summary.total_s == 16);
  assert_true(summary.idle_s == 9);
  assert_true(summary.bubble_fraction == 9.0 / 16);
}

static void an_empty_timeline_is_no_division_by_zero(void **state) {
  (void)state;
  const ot_timeline_summary summary = summarize(NULL, 0, 0);
  assert_true(summary.bubble_fraction == 0 && summary.compute_s == 0 && summary.exposed_s == 0);
}

static void communication_inside_compute_is_hidden(void **state) {
  (void)state;
  const bar bars[] = {{OT_LANE_COMPUTE, 0, 10}, {OT_LANE_GATHER, 0, 10}, {OT_LANE_REDUCE, 3, 4}};
  expect(bars, 3, 10, 0);
}

static void exposed_is_what_sticks_out_on_both_sides(void **state) {
  (void)state;
  const bar bars[] = {{OT_LANE_GATHER, 0, 20}, {OT_LANE_COMPUTE, 5, 12}, {OT_LANE_COMPUTE, 25, 26}};
  expect(bars, 3, 8, 13);
}

static void exposed_counts_the_gaps_between_compute(void **state) {
  (void)state;
  const bar bars[] = {{OT_LANE_COMPUTE, 0, 4},
                      {OT_LANE_COMPUTE, 6, 8},
                      {OT_LANE_COMPUTE, 11, 12},
                      {OT_LANE_REDUCE, 3, 15}};
  expect(bars, 4, 7, 2 + 3 + 3);
}

static void lanes_that_run_beside_each_other_are_exposed_once(void **state) {
  (void)state;
  const bar bars[] = {{OT_LANE_COMPUTE, 0, 2},
                      {OT_LANE_GATHER, 1, 6},
                      {OT_LANE_REDUCE, 4, 9},
                      {OT_LANE_PIPELINE, 5, 7}};
  expect(bars, 4, 2, 7);  // [2, 9), not 4 + 5 + 2
}

static void spans_within_spans_count_once(void **state) {
  (void)state;
  const bar bars[] = {{OT_LANE_COMPUTE, 0, 10}, {OT_LANE_COMPUTE, 2, 4}, {OT_LANE_COMPUTE, 9, 11},
                      {OT_LANE_GATHER, 8, 20},  {OT_LANE_GATHER, 9, 13}, {OT_LANE_REDUCE, 12, 14},
                      {OT_LANE_COMPUTE, 18, 19}};
  expect(bars, 7, 12, 8);
}

// An order lists what it gathers early long before a reduction that starts earlier: spans are in
// order of their start on each lane only.
static void lanes_may_come_in_any_order(void **state) {
  (void)state;
  const bar bars[] = {{OT_LANE_GATHER, 30, 40},
                      {OT_LANE_REDUCE, 0, 5},
                      {OT_LANE_COMPUTE, 3, 33},
                      {OT_LANE_PIPELINE, 1, 2},
                      {OT_LANE_REDUCE, 38, 41}};
  expect(bars, 5, 30, 3 + 8);
}

static void touching_spans_leave_nothing_between_them(void **state) {
  (void)state;
  const bar bars[] = {{OT_LANE_COMPUTE, 0, 3},
                      {OT_LANE_GATHER, 3, 5},
                      {OT_LANE_COMPUTE, 5, 9},
                      {OT_LANE_GATHER, 5, 9},
                      {OT_LANE_GATHER, 9, 9}};
  expect(bars, 5, 7, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(compute_alone_has_gaps_and_nothing_exposed),
      cmocka_unit_test(an_empty_timeline_is_no_division_by_zero),
      cmocka_unit_test(communication_inside_compute_is_hidden),
      cmocka_unit_test(exposed_is_what_sticks_out_on_both_sides),
      cmocka_unit_test(exposed_counts_the_gaps_between_compute),
      cmocka_unit_test(lanes_that_run_beside_each_other_are_exposed_once),
      cmocka_unit_test(spans_within_spans_count_once),
      cmocka_unit_test(lanes_may_come_in_any_order),
      cmocka_unit_test(touching_spans_leave_nothing_between_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
