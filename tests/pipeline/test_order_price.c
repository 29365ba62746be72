// SPDX-License-Identifier: Apache-2.0
// run: alone. Makespans, bubbles and memory of the published pipeline schedules against the figures
// and closed forms of their papers. Times are in units of one phase of a full stage.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "describe/pipeline_rules.h"
#include "support/order_price.h"
#include "support/pipelines.h"

typedef struct phase_costs {
  double f, i, w;  // of a full stage
  double message;
  bool blocks;
  double pair;
} phase_costs;

static const phase_costs even = {.f = 1, .i = 1, .w = 1};

static void assert_near(double got, double want) {
  const double off = got > want ? got - want : want - got;
  if (off > 1e-9) fail_msg("%.17g is not %.17g", got, want);
}

typedef struct replayed {
  double makespan;
  double idle;  // maximum over ranks
  double gap;   // maximum over ranks, between its first and last action
  int peak, first_peak, least_peak;
} replayed;

static replayed replay(const pipeline_shape *shape, const phase_costs *cost) {
  pipeline_case made;
  pipeline_case_create(shape, &made);
  double costs[3][PIPELINE_MAX_CHUNKS];
  for (int c = 0; c < made.order.num_chunks; c++) {
    costs[0][c] = cost->f / shape->v;
    costs[1][c] = cost->i / shape->v;
    costs[2][c] = cost->w / shape->v;
  }
  const ot_order_costs by_chunk = {costs[0],      costs[1],     costs[2],
                                   cost->message, cost->blocks, cost->pair};
  ot_order_price price;
  ot_order_price_build(&made.order, &by_chunk, &made.arena, &price);
  replayed out = {.makespan = price.makespan, .first_peak = price.ranks[0].peak_chunks};
  out.least_peak = out.first_peak;
  for (int r = 0; r < shape->p; r++) {
    const ot_rank_price *const rank = &price.ranks[r];
    const double gap = rank->end - rank->start - rank->busy;
    if (cost->pair == 0) assert_near(rank->busy, (cost->f + cost->i + cost->w) * shape->m);
    if (rank->idle > out.idle) out.idle = rank->idle;
    if (gap > out.gap) out.gap = gap;
    if (rank->peak_chunks > out.peak) out.peak = rank->peak_chunks;
    if (rank->peak_chunks < out.least_peak) out.least_peak = rank->peak_chunks;
  }
  pipeline_case_destroy(&made);
  return out;
}

typedef struct table_cell {
  double makespan, idle;
  int peak;
} table_cell;

// Columns: 1f1b, interleaved with 2 and 4 chunks, zb-h1, zb-h2, zb-v.
static const struct {
  ot_pipeline kind;
  int v;
} columns[] = {{OT_PIPELINE_1F1B, 1},  {OT_PIPELINE_INTERLEAVED, 2}, {OT_PIPELINE_INTERLEAVED, 4},
               {OT_PIPELINE_ZB_H1, 1}, {OT_PIPELINE_ZB_H2, 1},       {OT_PIPELINE_ZB_V, 2}};

static const struct {
  int p, m;
  table_cell cell[OT_COUNT(columns)];
} table[] = {
    {2, 4, {{15, 3, 2}, {13.5, 1.5, 5}, {12.75, .75, 9}, {13, 1, 2}, {13, 1, 3}, {12.5, .5, 4}}},
    {4,
     8,
     {{33, 9, 4}, {28.5, 4.5, 11}, {26.25, 2.25, 19}, {27, 3, 4}, {27, 3, 7}, {25.5, 1.5, 8}}},
    {4,
     16,
     {{57, 9, 4}, {52.5, 4.5, 11}, {50.25, 2.25, 19}, {51, 3, 4}, {51, 3, 7}, {49.5, 1.5, 8}}},
    {8,
     16,
     {{69, 21, 8}, {58.5, 10.5, 23}, {53.25, 5.25, 39}, {55, 7, 8}, {55, 7, 15}, {51.5, 3.5, 16}}},
    {8,
     32,
     {{117, 21, 8},
      {106.5, 10.5, 23},
      {101.25, 5.25, 39},
      {103, 7, 8},
      {103, 7, 15},
      {99.5, 3.5, 16}}},
    {16,
     64,
     {{237, 45, 16},
      {214.5, 22.5, 47},
      {203.25, 11.25, 79},
      {207, 15, 16},
      {207, 15, 31},
      {199.5, 7.5, 32}}},
};

static void equal_phases_give_the_published_figures(void **state) {
  (void)state;
  for (int i = 0; i < OT_COUNT(table); i++) {
    for (int k = 0; k < OT_COUNT(columns); k++) {
      const pipeline_shape shape = {columns[k].kind, table[i].p, columns[k].v, table[i].m, NULL};
      const replayed got = replay(&shape, &even);
      const table_cell *const want = &table[i].cell[k];
      assert_near(got.makespan, want->makespan);
      assert_near(got.idle, want->idle);
      assert_int_equal(got.peak, want->peak);
    }
  }
}

static void zero_bubble_orders_have_no_gaps_when_phases_are_equal(void **state) {
  (void)state;
  for (int i = 0; i < OT_COUNT(table); i++) {
    const pipeline_shape h2 = {OT_PIPELINE_ZB_H2, table[i].p, 1, table[i].m, NULL};
    const pipeline_shape v = {OT_PIPELINE_ZB_V, table[i].p, 2, table[i].m, NULL};
    assert_near(replay(&h2, &even).gap, 0);
    assert_near(replay(&v, &even).gap, 0);
  }
}

// Idle time between a rank's first and last action: (p-1)(F+B-W) and (p-1)(F+B-2W).
static void unequal_phases_give_the_published_bubbles(void **state) {
  (void)state;
  const phase_costs uneven = {.f = 1, .i = 1.2, .w = .8};
  const pipeline_shape h1 = {OT_PIPELINE_ZB_H1, 4, 1, 16, NULL};
  const pipeline_shape h2 = {OT_PIPELINE_ZB_H2, 4, 1, 16, NULL};
  const pipeline_shape v = {OT_PIPELINE_ZB_V, 4, 2, 16, NULL};
  assert_near(replay(&h1, &uneven).gap, 4.2);
  assert_near(replay(&h2, &uneven).gap, 1.8);
  assert_near(replay(&v, &uneven).gap, 1.2);
}

static double longest(double a, double b, double c) {
  const double ab = a > b ? a : b;
  return ab > c ? ab : c;
}

// Idle time, beyond p = 1, of a step that ends on all ranks at once: (p-1) max(F, I, F + I - W)
// with zb-h1, (p-1) max(F, I - F, F + I - 2W) with zb-h2. Both are (p-1) F if I exceeds neither F
// nor W.
static void zb_h2_gains_with_a_barrier_where_i_is_longer_than_f_or_w(void **state) {
  (void)state;
  static const int sizes[][2] = {{2, 8}, {4, 8}, {4, 32}, {8, 32}};
  static const double lengths[] = {.5, .8, 1, 1.2, 1.5, 2, 3, 4};
  for (int i = 0; i < OT_COUNT(lengths) * OT_COUNT(lengths) * OT_COUNT(sizes); i++) {
    const int *const size = sizes[i % OT_COUNT(sizes)];
    const int k = i / OT_COUNT(sizes);
    const phase_costs c = {
        .f = 1, .i = lengths[k % OT_COUNT(lengths)], .w = lengths[k / OT_COUNT(lengths)]};
    const pipeline_shape h1 = {OT_PIPELINE_ZB_H1, size[0], 1, size[1], NULL};
    const pipeline_shape h2 = {OT_PIPELINE_ZB_H2, size[0], 1, size[1], NULL};
    const double busy = size[1] * (c.f + c.i + c.w), ways = size[0] - 1;
    const double first = replay(&h1, &c).makespan, second = replay(&h2, &c).makespan;
    assert_near(first - busy, ways * longest(c.f, c.i, c.f + c.i - c.w));
    assert_near(second - busy, ways * longest(c.f, c.i - c.f, c.f + c.i - 2 * c.w));
    if (c.i <= c.f && c.i <= c.w) assert_near(first, second);
    if (c.i > c.f || c.i > c.w) assert_true(second < first);
  }
}

static void messages_cost_what_they_delay(void **state) {
  (void)state;
  const phase_costs slow = {.f = 1, .i = 1, .w = 1, .message = .1};
  const pipeline_shape shapes[] = {{OT_PIPELINE_1F1B, 8, 1, 32, NULL},
                                   {OT_PIPELINE_INTERLEAVED, 8, 2, 32, NULL},
                                   {OT_PIPELINE_ZB_H1, 8, 1, 32, NULL},
                                   {OT_PIPELINE_ZB_V, 8, 2, 32, NULL}};
  const double want[] = {123.8, 109.5, 105.8, 102.8};
  for (int i = 0; i < OT_COUNT(shapes); i++) {
    assert_near(replay(&shapes[i], &slow).makespan, want[i]);
  }
}

// p = 2, m = 1: two forwards, two backwards, and one message in each direction.
static void a_blocking_send_delays_the_sender(void **state) {
  (void)state;
  const phase_costs blocks = {.f = 1, .i = 1, .w = 1, .message = .5, .blocks = true};
  const phase_costs flies = {.f = 1, .i = 1, .w = 1, .message = .5};
  const pipeline_shape one = {OT_PIPELINE_ZB_H1, 2, 1, 1, NULL};
  // F0 at 1, F1 at 2.5, I1 at 3.5, I0 from 4, then W0 at 6; W1 finishes earlier in both cases.
  assert_near(replay(&one, &flies).makespan, 6);
  assert_near(replay(&one, &blocks).makespan, 6);
  const pipeline_shape two = {OT_PIPELINE_GPIPE, 2, 1, 2, NULL};
  // The second forward of stage 0 waits until the first message has left.
  assert_near(replay(&two, &flies).makespan, 10);
  assert_near(replay(&two, &blocks).makespan, 11);
}

static double closed_form(ot_pipeline kind, int p, int m, int v) {
  switch (kind) {
    case OT_PIPELINE_GPIPE:
    case OT_PIPELINE_1F1B:
      return 3.0 * (m + p - 1);
    case OT_PIPELINE_INTERLEAVED:
      return 3.0 * m + 3.0 * (p - 1) / v;
    case OT_PIPELINE_ZB_H1:
    case OT_PIPELINE_ZB_H2:
      return 3.0 * m + (p - 1);
    case OT_PIPELINE_ZB_V:
    case OT_PIPELINE_DUALPIPE_V:
      return 3.0 * m + (p - 1) / 2.0;
    case OT_PIPELINES:
      break;
  }
  return -1;
}

// Peak number of chunks that the first rank holds once the pipeline is full.
static int closed_peak(ot_pipeline kind, int p, int m, int v) {
  switch (kind) {
    case OT_PIPELINE_GPIPE:
      return m;
    case OT_PIPELINE_1F1B:
    case OT_PIPELINE_ZB_H1:
      return p;
    case OT_PIPELINE_INTERLEAVED:
      return (v - 1) * p + 2 * (p - 1) + 1;
    case OT_PIPELINE_ZB_H2:
      return 2 * p - 1;
    case OT_PIPELINE_ZB_V:
      return 2 * p;
    case OT_PIPELINE_DUALPIPE_V:
      return p == 1 ? 2 : 2 * p + 1;
    case OT_PIPELINES:
      break;
  }
  return -1;
}

static void closed_forms_hold_for_full_pipelines(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_PIPELINES; kind++) {
    for (int p = 1; p <= 6; p++) {
      for (int m = 2 * p; m <= 4 * p; m += p) {
        const int v = pipeline_chunks((ot_pipeline)kind);
        const pipeline_shape shape = {(ot_pipeline)kind, p, v, m, NULL};
        const replayed got = replay(&shape, &even);
        assert_near(got.makespan, closed_form((ot_pipeline)kind, p, m, v));
        assert_int_equal(got.peak, closed_peak((ot_pipeline)kind, p, m, v));
      }
    }
  }
}

// The table of github.com/deepseek-ai/DualPipe: a bubble of (PP/2 - 1)(F&B + B - 3W) and
// activations of PP + 1 chunks, with PP = 2p chunks, F, B, W of a chunk, and F&B of a pair, for F =
// I = W. A rank that runs a pair one after the other needs the inputs of its backward later, and
// idles less.
static void dualpipe_v_has_the_published_bubble_and_memory(void **state) {
  (void)state;
  static const double shares[] = {1, .9, .8, .75};
  for (int i = 0; i < OT_COUNT(shares); i++) {
    for (int p = 2; p <= 8; p++) {
      const phase_costs c = {.f = 1, .i = 1, .w = 1, .pair = shares[i]};
      const pipeline_shape shape = {OT_PIPELINE_DUALPIPE_V, p, 2, 3 * p, NULL};
      const replayed got = replay(&shape, &c);
      const double f = c.f / 2, w = c.w / 2, b = c.i / 2 + w;
      assert_near(got.idle, (p - 1) * (shares[i] * (f + b) + b - 3 * w));
      assert_int_equal(got.peak, 2 * p + 1);
      assert_int_equal(got.least_peak, 2 * p + 1);
      assert_near(replay(&shape, &even).idle, (p - 1) * f);
    }
  }
}

static void zero_bubble_h_holds_equally_much_on_all_ranks(void **state) {
  (void)state;
  const pipeline_shape h1 = {OT_PIPELINE_ZB_H1, 8, 1, 32, NULL};
  const pipeline_shape h2 = {OT_PIPELINE_ZB_H2, 8, 1, 32, NULL};
  assert_int_equal(replay(&h1, &even).least_peak, 8);
  assert_int_equal(replay(&h2, &even).least_peak, 15);
  const pipeline_shape one = {OT_PIPELINE_1F1B, 8, 1, 32, NULL};
  assert_int_equal(replay(&one, &even).least_peak, 1);
}

static void few_micro_batches_never_take_longer_than_gpipe(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_PIPELINES; kind++) {
    for (int p = 1; p <= 6; p++) {
      for (int m = 1; m < 2 * p; m++) {
        const int v = pipeline_chunks((ot_pipeline)kind);
        if (kind == OT_PIPELINE_INTERLEAVED && ot_pipeline_round(p, m) == 0) continue;
        const pipeline_shape shape = {(ot_pipeline)kind, p, v, m, NULL};
        const double makespan = replay(&shape, &even).makespan;
        assert_true(makespan <= 3.0 * (m + p - 1) + 1e-9);
        assert_true(makespan >= 3.0 * m);
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_phases_give_the_published_figures),
      cmocka_unit_test(zero_bubble_orders_have_no_gaps_when_phases_are_equal),
      cmocka_unit_test(unequal_phases_give_the_published_bubbles),
      cmocka_unit_test(zb_h2_gains_with_a_barrier_where_i_is_longer_than_f_or_w),
      cmocka_unit_test(messages_cost_what_they_delay),
      cmocka_unit_test(a_blocking_send_delays_the_sender),
      cmocka_unit_test(closed_forms_hold_for_full_pipelines),
      cmocka_unit_test(dualpipe_v_has_the_published_bubble_and_memory),
      cmocka_unit_test(zero_bubble_h_holds_equally_much_on_all_ranks),
      cmocka_unit_test(few_micro_batches_never_take_longer_than_gpipe),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
