// SPDX-License-Identifier: Apache-2.0
// run: any machine. Cost of loop bodies: in simulated timelines and in estimates of plans, which
// agree, and in the FLOPs of a step, which exclude them. Rates are powers of two, so every sum is
// exact.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "estimate/phase_price.h"
#include "ops/route.h"
#include "schedule/bodies.h"
#include "simulate/simulate.h"
#include "support/body_case.h"

enum { ENTRY = 1 };

static ot_cluster cluster_of(int devices) {
  ot_cluster cluster = {
      .name = "paper",
      .num_devices = devices,
      .device = {.name = "abacus", .memory_bytes_per_s = 0x1p20, .memory_bytes = 1 << 30},
      .num_levels = 1,
      .level = {{.name = "net", .size = 2, .bytes_per_s = 0x1p20, .latency_s = 0x1p-10}}};
  cluster.device.flops[OT_F32] = 0x1p22;
  return cluster;
}

static ot_simulation simulation_of(const ot_cluster *cluster, double more_rounds) {
  return (ot_simulation){.cluster = cluster,
                         .other_flops_per_s = 0x1p18,
                         .launch_s = 0x1p-16,
                         .more_rounds = more_rounds};
}

static ot_timeline replay(body_case *c, double more_rounds) {
  const ot_cluster cluster = cluster_of(c->ranks);
  const ot_simulation simulation = simulation_of(&cluster, more_rounds);
  ot_timeline timeline;
  if (ot_schedule_simulate(&c->schedule, 0, &simulation, &c->arena, &timeline) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  return timeline;
}

static double length(const ot_span *span) { return span->end_s - span->start_s; }

static bool is_repeated(const body_case *c, const ot_span *span) {
  return span->entry == ENTRY && ot_segment_repeat_of(&c->segments[ENTRY], span->task) >= 0;
}

static void a_loop_costs_the_sum_of_its_iterations(void **state) {
  (void)state;
  for (int ranks = 1; ranks <= 2; ranks++) {
    body_case c;
    body_case_begin(&c, 0, ranks);
    body_case_lower(&c);
    const ot_timeline none = replay(&c, 0), once = replay(&c, 1), often = replay(&c, 2.5);
    assert_int_equal(none.num_spans, c.segments[ENTRY].num_tasks + 2);
    for (int64_t i = 0; i < none.num_spans; i++) {
      const ot_span *const span = &once.spans[i];
      const bool repeated = is_repeated(&c, span);
      const bool counts = span->entry == ENTRY && span->task == c.repeat;
      assert_true(length(span) > 0 || counts);
      assert_true(length(&none.spans[i]) == (repeated ? 0 : length(span)));
      assert_true(length(&often.spans[i]) == (repeated ? 2.5 : 1) * length(span));
    }
    if (ranks == 1) {
      assert_true(often.total_s - none.total_s == 2.5 * (once.total_s - none.total_s));
    }
    body_case_destroy(&c);
  }
}

static void plans_and_simulator_agree_on_bodies(void **state) {
  (void)state;
  static const double more[] = {0, 0.25, 1, 3};
  for (int ranks = 1; ranks <= 2; ranks++) {
    body_case c;
    body_case_begin(&c, 0, ranks);
    body_case_lower(&c);
    const ot_cluster cluster = cluster_of(ranks);
    for (int i = 0; i < OT_COUNT(more); i++) {
      const ot_timeline timeline = replay(&c, more[i]);
      const ot_span *const last = &timeline.spans[timeline.num_spans - 1];
      const double entry_s = last->start_s - timeline.spans[0].end_s;
      ot_prices prices = {.shape = {[OT_GROUP_TENSOR] = {.size = ranks, .stride = 1}}};
      ot_task_ends ends = {0};
      const ot_estimator estimator = {.arena = &c.arena,
                                      .ends = &ends,
                                      .job = {.engine = &ot_engine_orthant},
                                      .simulation = simulation_of(&cluster, more[i])};
      ot_phase_price price;
      assert_int_equal(ot_phase_price_build(&estimator, &prices, &c.segments[ENTRY], &price),
                       OT_OK);
      assert_true(price.total_s == entry_s);
    }
    body_case_destroy(&c);
  }
}

// Rows of an even pass: those that a rank sends, or fewer where some are dropped.
static void an_iteration_has_its_share_of_the_rows_of_a_pass(void **state) {
  (void)state;
  body_case c;
  body_case_begin(&c, 0, 1);
  body_case_lower(&c);
  const ot_cluster cluster = cluster_of(1);
  ot_simulation simulation = simulation_of(&cluster, 1);
  const ot_segment *const segment = &c.segments[ENTRY];
  ot_task task = {.attributes = {.copy_rows = 100, .exchange_rows = 125}};
  ot_price_rows(&simulation, segment, c.repeat + 1, &task);
  assert_int_equal(task.attributes.even_rows, 0);
  simulation.more_rows = 0.25;
  ot_price_rows(&simulation, segment, c.repeat - 1, &task);
  assert_int_equal(task.attributes.even_rows, 0);
  ot_price_rows(&simulation, segment, c.repeat + 1, &task);
  assert_int_equal(task.attributes.even_rows, 25);
  assert_true(ot_route_used(&task.attributes, 125) == 25);
  task.attributes.even_rows = 60;
  ot_price_rows(&simulation, segment, c.repeat + 1, &task);
  assert_int_equal(task.attributes.even_rows, 15);
  ot_task plain = {.attributes = {.threads = 1}};
  ot_price_rows(&simulation, segment, c.repeat + 1, &plain);
  assert_int_equal(plain.attributes.even_rows, 0);
  body_case_destroy(&c);
}

// Spans without length do not conflict with others.
static void a_timeline_with_a_body_is_summarised_correctly(void **state) {
  (void)state;
  body_case c;
  body_case_begin(&c, 0, 2);
  body_case_lower(&c);
  for (int more = 0; more < 3; more++) {
    const ot_timeline timeline = replay(&c, more);
    double compute_s = 0, calls_s = 0;
    for (int64_t i = 0; i < timeline.num_spans; i++) {
      const ot_span *const span = &timeline.spans[i];
      *(span->lane == OT_LANE_COMPUTE ? &compute_s : &calls_s) += length(span);
    }
    const ot_timeline_summary summary = ot_timeline_summarize(&timeline, &c.schedule);
    assert_true(summary.compute_s == compute_s && summary.total_s == timeline.total_s);
    assert_true(summary.exposed_s == timeline.total_s - compute_s);
    assert_true(summary.exposed_s <= calls_s && (more == 0) == (calls_s == 0));
  }
  body_case_destroy(&c);
}

static void flops_of_a_step_are_those_of_loads_that_fit(void **state) {
  (void)state;
  body_case c;
  body_case_begin(&c, 0, 1);
  body_case_lower(&c);
  // Two of the four GEMMs are in the body.
  const double product = 2.0 * BODY_ROWS * BODY_COLUMNS * BODY_COLUMNS;
  assert_true(ot_order_flops(&c.schedule, 0, true) == 2 * product);
  assert_true(ot_order_flops(&c.schedule, 0, false) == 2 * product);
  body_case_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_loop_costs_the_sum_of_its_iterations),
      cmocka_unit_test(plans_and_simulator_agree_on_bodies),
      cmocka_unit_test(an_iteration_has_its_share_of_the_rows_of_a_pass),
      cmocka_unit_test(a_timeline_with_a_body_is_summarised_correctly),
      cmocka_unit_test(flops_of_a_step_are_those_of_loads_that_fit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
