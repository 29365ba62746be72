// SPDX-License-Identifier: Apache-2.0
// run: ranks=1,2 as threads. Low-precision reductions against known results: where they stall,
// their relative bias, the effect of a tree and of a wide accumulator. The bias test on unbiased
// reductions, and its power. Settings whose formats cannot work.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "audit/bias.h"
#include "base/rng.h"
#include "host/heap.h"
#include "support/audit_case.h"

static double values[1 << 17];

static double repeat(ot_reduction_kind kind, const ot_format *format, double value, int64_t count) {
  for (int64_t i = 0; i < count; i++) values[i] = value;
  return ot_reduction_emulate(kind, format, values, count);
}

static void near(double found, double expected, double tolerance) {
  if (!(fabs(found - expected) <= tolerance)) fail_msg("%.17g, not %.17g", found, expected);
}

// ---- rounding and reductions ----

static void formats_round_as_their_hardware_does(void **state) {
  (void)state;
  for (int i = 0; i < 20000; i++) {
    const double x = ot_rng_normal(1, 2, (uint64_t)i) * exp2((double)(i % 60) - 30);
    assert_true(ot_format_round(&ot_format_fp32, x) == (double)(float)x);
    const double narrow = (double)ot_bf16_to_float(ot_bf16_from_float((float)x));
    assert_true(ot_format_round(&ot_format_bf16, (double)(float)x) == narrow);
  }
  near(ot_format_round(&ot_format_fp16, 65519), 65504, 0);
  assert_true(isinf(ot_format_round(&ot_format_fp16, 65520)));
  near(ot_format_round(&ot_format_fp16, 1e-8), 0, 0);          // below half of 2^-24
  near(ot_format_round(&ot_format_fp16, 5.9e-8), 0x1p-24, 0);  // a subnormal
  near(ot_format_round(&ot_format_e4m3, 17), 16, 0);
  near(ot_format_round(&ot_format_e5m2, 9), 8, 0);
}

// Adds 1 until nothing changes: where the next integer is half way between two numbers.
static void a_running_sum_of_ones_stalls(void **state) {
  (void)state;
  near(repeat(OT_SUM_RING, &ot_format_fp16, 1, 4096), 2048, 0);
  near(repeat(OT_SUM_RING, &ot_format_bf16, 1, 1024), 256, 0);
  near(repeat(OT_SUM_RING, &ot_format_bf16, 1, 16384), 256, 0);
  near(repeat(OT_SUM_RING, &ot_format_e4m3, 1, 64), 16, 0);
  near(repeat(OT_SUM_RING, &ot_format_e5m2, 1, 64), 8, 0);
}

static void swamping_can_also_inflate_reductions(void **state) {
  (void)state;
  const double sum = repeat(OT_SUM_RING, &ot_format_fp16, 0.3, 2975);
  const double exact = 2975 * ot_format_round(&ot_format_fp16, 0.3);
  near(exact, 892.6, 0.2);
  near(sum, 1024, 0);
}

static void a_tree_of_ones_is_exact_until_it_overflows(void **state) {
  (void)state;
  near(repeat(OT_SUM_TREE, &ot_format_bf16, 1, 16384), 16384, 0);
  assert_true(isinf(repeat(OT_SUM_TREE, &ot_format_fp16, 1, 65536)));
  // The count is no power of two and the value is inexact: trees are not exact either.
  const double g = ot_format_round(&ot_format_bf16, 1.898);
  near(repeat(OT_SUM_TREE, &ot_format_bf16, g, 1000) / (1000 * g) - 1, 0.0029, 0.0001);
}

static void wide_sums_of_narrow_parts_are_accurate(void **state) {
  (void)state;
  near(repeat(OT_SUM_EXACT_PARTS, &ot_format_bf16, 1, 16384), 16384, 0);
  near(repeat(OT_SUM_EXACT_PARTS, &ot_format_fp16, 0.3, 4096) /
           (4096 * ot_format_round(&ot_format_fp16, 0.3)),
       1, 1e-4);
}

// 512 micro-batches on each of 8 ranks, each addition rounded: half of 4096 is lost before the
// collective starts, so neither ring nor tree can recover it.
static void accumulating_locally_can_be_worse_than_the_collective(void **state) {
  (void)state;
  const double local = repeat(OT_SUM_RING, &ot_format_bf16, 1, 512);
  near(repeat(OT_SUM_RING, &ot_format_bf16, local, 8), 2048, 0);
  near(repeat(OT_SUM_TREE, &ot_format_bf16, local, 8), 2048, 0);
}

static void exact_sums_do_not_depend_on_the_order(void **state) {
  (void)state;
  for (int i = 0; i < 1000; i++) values[i] = ot_rng_normal(3, 4, (uint64_t)i) * exp2(i % 80);
  const double forward = ot_reduction_exact(&ot_format_fp64, values, 1000);
  for (int i = 0; i < 500; i++) {
    const double x = values[i];
    values[i] = values[999 - i];
    values[999 - i] = x;
  }
  near(ot_reduction_exact(&ot_format_fp64, values, 1000), forward, fabs(forward) * 1e-15);
}

// ---- bias ----

enum { BUCKET = 1024 };

// A bucket of reductions over `ranks` ranks: log-normal magnitudes, signal-to-noise `ratio` per
// rank.
static ot_bias sum_bucket(ot_reduction_kind kind, int64_t ranks, double ratio, uint64_t draw) {
  static double result[BUCKET], exact[BUCKET];
  for (int i = 0; i < BUCKET; i++) {
    const double size = exp(ot_rng_normal(draw, 1, (uint64_t)i));
    const double mean = ot_rng_normal(draw, 2, (uint64_t)i) < 0 ? -size : size;
    for (int64_t r = 0; r < ranks; r++) {
      values[r] = mean + size / ratio * ot_rng_normal(draw, 16 + (uint64_t)i, (uint64_t)r);
    }
    exact[i] = ot_reduction_exact(&ot_format_bf16, values, ranks);
    result[i] = ot_reduction_emulate(kind, &ot_format_bf16, values, ranks);
  }
  const ot_bias_request request = {result, exact, BUCKET, &ot_format_bf16};
  ot_bias bias;
  assert_int_equal(ot_bias_measure(&request, &bias), OT_OK);
  return bias;
}

// The t of unbiased reductions is N(0, 1): of 200 none is beyond 5, and their variance is 1.
static void unbiased_reductions_are_not_found(void **state) {
  (void)state;
  double squares = 0, largest = 0;
  enum { BUCKETS = 200 };
  for (int i = 0; i < BUCKETS; i++) {
    static const double ratios[] = {0.01, 0.1, 1, 10};
    const ot_bias bias = sum_bucket(OT_SUM_TREE, 16, ratios[i % 4], 100 + (uint64_t)i);
    assert_int_equal(ot_bias_judge(&bias), OT_BIAS_NONE);
    squares += bias.t * bias.t;
    largest = fmax(largest, fabs(bias.t));
  }
  near(sqrt(squares / BUCKETS), 1, 0.18);
  assert_true(largest < 5);
}

// If a bf16 ring loses more than 1 %, one step always suffices to find it.
static void a_bias_of_a_hundredth_is_found_in_one_step(void **state) {
  (void)state;
  for (int i = 0; i < 5; i++) {
    const ot_bias strong = sum_bucket(OT_SUM_RING, 256, 10, 500 + (uint64_t)i);
    const ot_bias weak = sum_bucket(OT_SUM_RING, 512, 1, 600 + (uint64_t)i);
    assert_int_equal(ot_bias_judge(&strong), OT_BIAS_FOUND);
    assert_int_equal(ot_bias_judge(&weak), OT_BIAS_FOUND);
  }
  const ot_bias large = sum_bucket(OT_SUM_RING, 1024, 10, 700);
  near(large.slope, -0.596, 0.1);
}

static void errors_on_either_side_count(void **state) {
  (void)state;
  double result[BUCKET], exact[BUCKET];
  for (int sign = -1; sign <= 1; sign += 2) {
    for (int i = 0; i < BUCKET; i++) {
      exact[i] = ot_rng_normal(9, 1, (uint64_t)i);
      result[i] = exact[i] * (1 + sign * 0.01) + 0.02 * ot_rng_normal(9, 2, (uint64_t)i);
    }
    const ot_bias_request request = {result, exact, BUCKET, &ot_format_bf16};
    ot_bias bias;
    assert_int_equal(ot_bias_measure(&request, &bias), OT_OK);
    near(bias.slope, sign * 0.01, 0.002);
    assert_true(bias.t * sign > 6);
  }
}

// ---- settings ----

static audit_outcome lint(const ot_run *run) {
  audit_outcome s;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_audit_report report = {.audit = "precision", .arena = &arena};
  ot_precision_lint(run, &report);
  audit_copy_report(&report, &s);
  ot_heap_release(&heap);
  return s;
}

static ot_run settings(ot_dtype kept, double beta2, double rate) {
  const ot_model model = tiny_llama();
  ot_run run = tiny_run(&model);
  run.model.initializer_range = 0.02;
  run.precision.moments = run.precision.master = kept;
  run.optimizer.betas[1] = beta2;
  run.optimizer.lr = rate;
  return run;
}

static void moments_that_cannot_move_are_found_without_data(void **state) {
  (void)state;
  ot_run run = settings(OT_F32, 0.999, 1e-3);
  assert_int_equal(lint(&run).num_findings, 0);
  run = settings(OT_BF16, 0.999, 1);
  assert_string_equal(lint(&run).what, "second_moment_frozen");
  run = settings(OT_BF16, 0.95, 1);
  assert_int_equal(lint(&run).num_findings, 0);
  run.optimizer.betas[0] = 0.99;
  assert_string_equal(lint(&run).what, "first_moment_frozen");
  run.optimizer.betas[0] = 0.9;
  run.optimizer.momentum = 0.99;
  assert_int_equal(lint(&run).num_findings, 0);
  run.optimizer.name = OT_OPTIMIZER_MUON;
  assert_string_equal(lint(&run).what, "first_moment_frozen");
}

static void updates_that_are_rounded_away_are_found_without_data(void **state) {
  (void)state;
  const ot_run run = settings(OT_BF16, 0.95, 1e-5);
  const audit_outcome s = lint(&run);
  assert_string_equal(s.what, "updates_lost");
}

static void an_epsilon_that_rounds_to_zero_is_found(void **state) {
  (void)state;
  ot_run run = settings(OT_F16, 0.5, 1);
  assert_string_equal(lint(&run).what, "epsilon_is_zero");
  run.optimizer.eps = 1e-6;
  assert_int_equal(lint(&run).num_findings, 0);
}

// ---- the audit ----

static audit_outcome ask(const audit_request *request, int64_t ranks) {
  return audit_run_one(request, ot_audit_precision,
                       &(ot_audit_request){.planned_ranks = ranks, .seed = 3});
}

static audit_outcome run_audit(bool on_wire, int64_t ranks) {
  audit_request request = audit_dense_request(2);
  request.dp_replicate = 2;
  request.bf16_on_wire = on_wire;
  return ask(&request, ranks);
}

static void a_ring_in_bf16_is_found_at_the_planned_size_only(void **state) {
  (void)state;
  assert_int_equal(run_audit(true, 4).verdict, OT_VERDICT_CLEAN);
  const audit_outcome s = run_audit(true, 4096);
  assert_int_equal(s.verdict, OT_VERDICT_FINDING);
  assert_string_equal(s.what, "biased_reduction");
  assert_non_null(strstr(s.where, "reduction over 4096 ranks in bf16"));
  assert_int_equal(run_audit(false, 65536).verdict, OT_VERDICT_CLEAN);
}

static int count_of(const char *text, const char *what) {
  int count = 0;
  for (const char *at = strstr(text, what); at; at = strstr(at + 1, what)) count++;
  return count;
}

// The work is bounded: 2^22 terms are 64 sums of 65536, not 1024.
static void large_jobs_are_judged_by_fewer_elements(void **state) {
  (void)state;
  const audit_outcome s = run_audit(true, 65536);
  assert_string_equal(s.what, "biased_reduction");
  const int sums = count_of(s.figures, "\"elements\":");
  assert_true(sums > 0);
  assert_int_equal(count_of(s.figures, "\"elements\":64,"), sums);
}

// The row also shows alternative methods; the method itself is not among them.
static void each_sum_stands_in_the_table_once(void **state) {
  (void)state;
  const audit_outcome wire = run_audit(true, 64), wide = run_audit(false, 64);
  assert_true(count_of(wire.table, " ring ") > 0);
  assert_int_equal(count_of(wire.table, "bf16  ring"), count_of(wire.table, "bf16  tree"));
  assert_int_equal(count_of(wide.table, "bf16  ring"), count_of(wide.table, "bf16  tree"));
}

static void one_rank_of_one_micro_batch_sums_nothing(void **state) {
  (void)state;
  const audit_request request = {.batch = 1, .micro_batch = 1, .model = audit_model(2, true)};
  assert_int_equal(ask(&request, 1).verdict, OT_VERDICT_INCONCLUSIVE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(formats_round_as_their_hardware_does),
      cmocka_unit_test(a_running_sum_of_ones_stalls),
      cmocka_unit_test(swamping_can_also_inflate_reductions),
      cmocka_unit_test(a_tree_of_ones_is_exact_until_it_overflows),
      cmocka_unit_test(wide_sums_of_narrow_parts_are_accurate),
      cmocka_unit_test(accumulating_locally_can_be_worse_than_the_collective),
      cmocka_unit_test(exact_sums_do_not_depend_on_the_order),
      cmocka_unit_test(unbiased_reductions_are_not_found),
      cmocka_unit_test(a_bias_of_a_hundredth_is_found_in_one_step),
      cmocka_unit_test(errors_on_either_side_count),
      cmocka_unit_test(moments_that_cannot_move_are_found_without_data),
      cmocka_unit_test(updates_that_are_rounded_away_are_found_without_data),
      cmocka_unit_test(an_epsilon_that_rounds_to_zero_is_found),
      cmocka_unit_test(a_ring_in_bf16_is_found_at_the_planned_size_only),
      cmocka_unit_test(large_jobs_are_judged_by_fewer_elements),
      cmocka_unit_test(each_sum_stands_in_the_table_once),
      cmocka_unit_test(one_rank_of_one_micro_batch_sums_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
