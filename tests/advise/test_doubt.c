// SPDX-License-Identifier: Apache-2.0
// run: any machine. Intervals of predictions: what widens them, and which plans they separate.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "advise/doubt.h"

static ot_cluster h100(void) {
  return (ot_cluster){.basis = OT_BASIS_FITTED, .device = {.name = "h100"}};
}

static double variance_of(const ot_cluster *cluster, const char *engine_name, int64_t experts,
                          int devices) {
  const ot_model model = {.hidden_size = 4096, .num_layers = 32, .moe.num_experts = experts};
  const ot_engine engine = {.name = engine_name};
  const ot_candidate candidate = {.cp = 1};
  const ot_job job = {.model = &model, .cluster = cluster, .engine = &engine, .devices = devices};
  ot_doubt doubt;
  ot_doubt_find(&(ot_doubt_request){.job = &job, .candidate = &candidate}, &doubt);
  return doubt.step_variance;
}

static void what_was_never_seen_is_less_certain(void **state) {
  (void)state;
  const ot_cluster known = h100();
  ot_cluster guessed = h100();
  guessed.device.name = "tpu-v9";
  guessed.basis = OT_BASIS_GUESSED;
  const double least = variance_of(&known, "torchtitan", 0, 64);
  assert_true(least > 0);
  assert_true(variance_of(&known, "my-engine", 0, 64) > least);
  assert_true(variance_of(&known, "torchtitan", 8, 64) > least);
  assert_true(variance_of(&known, "torchtitan", 0, 8192) > least);
  assert_true(variance_of(&guessed, "torchtitan", 0, 64) > variance_of(&known, "my-engine", 0, 64));
}

static void figures_without_measurements_are_doubted_on_every_device(void **state) {
  (void)state;
  const ot_kernel_rates slow = {.op = "linear", .fit.spread = 7};
  ot_cluster c = h100();
  const double fitted = variance_of(&c, "torchtitan", 0, 64);
  c.basis = OT_BASIS_MEASURED;
  const double measured = variance_of(&c, "torchtitan", 0, 64);
  assert_true(measured <= fitted);
  // The name of a known device does not make guesses or hurried measurements certain.
  const ot_cluster_basis doubtful[] = {OT_BASIS_UNKNOWN, OT_BASIS_GUESSED, OT_BASIS_EXTRAPOLATED,
                                       OT_BASIS_QUICK};
  for (int i = 0; i < OT_COUNT(doubtful); i++) {
    c.basis = doubtful[i];
    assert_true(variance_of(&c, "torchtitan", 0, 64) > 2 * fitted);
  }
  c.basis = OT_BASIS_MEASURED;
  c.measured = (ot_measured_machine){.kernels = &slow, .num_kernels = 1};
  assert_true(variance_of(&c, "torchtitan", 0, 64) > 2 * measured);
}

static double margin_of(const ot_cluster *cluster, const ot_engine *engine) {
  const ot_model model = {.hidden_size = 4096, .num_layers = 32};
  const ot_job job = {.model = &model, .cluster = cluster, .engine = engine, .devices = 8};
  return ot_doubt_memory_margin(&job);
}

static void software_with_few_runs_has_the_wider_memory_margin(void **state) {
  (void)state;
  const ot_cluster gpus = h100();
  const ot_cluster cpu = {.basis = OT_BASIS_MEASURED, .device = {.name = "cpu", .threads = 1}};
  const ot_engine megatron = {.name = "megatron-core"};
  assert_true(margin_of(&gpus, &ot_engine_orthant) > margin_of(&gpus, &megatron));
  assert_true(margin_of(&cpu, &ot_engine_orthant) < margin_of(&gpus, &megatron));
}

static void intervals_are_ratios_around_the_prediction(void **state) {
  (void)state;
  const ot_interval most = ot_interval_80(2, 0.01), all = ot_interval_95(2, 0.01);
  assert_true(fabs(most.low * most.high - 4) < 1e-12);
  assert_true(fabs(log(most.high / 2) - 0.1533) < 1e-9);
  assert_true(fabs(log(all.high / 2) - 0.2776) < 1e-9);
}

static ot_estimate estimate_of(int pp, double step_s) {
  return (ot_estimate){
      .step_s = step_s,
      .candidate = {
          .tp = 1, .pp = pp, .cp = 1, .ep = 1, .micro_batch_size = 1, .micro_batches = 64}};
}

static void plans_are_separated_by_more_than_their_own_error(void **state) {
  (void)state;
  const ot_model model = {.hidden_size = 4096, .num_layers = 32};
  const ot_job job = {.model = &model, .devices = 64, .sequence_length = 4096};
  const ot_estimate fast = estimate_of(1, 1), near = estimate_of(2, 1.02);
  const ot_estimate far = estimate_of(2, 1.5), same = estimate_of(1, 1.02);
  assert_true(ot_doubt_equal(&job, &fast, &near));
  assert_false(ot_doubt_equal(&job, &fast, &far));
  // Errors of nearly the same configuration are the same.
  assert_false(ot_doubt_equal(&job, &fast, &same));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_never_seen_is_less_certain),
      cmocka_unit_test(figures_without_measurements_are_doubted_on_every_device),
      cmocka_unit_test(software_with_few_runs_has_the_wider_memory_margin),
      cmocka_unit_test(intervals_are_ratios_around_the_prediction),
      cmocka_unit_test(plans_are_separated_by_more_than_their_own_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
