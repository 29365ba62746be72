// SPDX-License-Identifier: Apache-2.0
// run: any machine. Where a run is evaluated: the whole model on one rank while machines have the
// memory for that next to training, else over as few stages as they have it for. And what that
// costs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "forecast/run_tasks.h"
#include "support/arena_fixture.h"
#include "support/rank_case_models.h"

enum { RANKS = 12, LOCAL = 1, TRAINING = 1 << 20 };

static ot_run_tasks_engines place(const ot_run *run, int64_t left_bytes) {
  static ot_text_task task = {.num_sequences = 4, .positions = 40};
  const ot_run_tasks tasks = {.count = 1, .task = &task};
  const ot_run_tasks_ranks ranks = {.count = RANKS,
                                    .sharing = LOCAL,
                                    .threads = 1,
                                    .training_bytes = TRAINING,
                                    .memory_bytes = LOCAL * TRAINING + left_bytes};
  ot_run_tasks_engines engines;
  assert_int_equal(ot_run_tasks_place(run, &tasks, &ranks, &arena, &engines), OT_OK);
  return engines;
}

// Six layers, the embedding and the head: at most eight stages, of which 1, 2, 3, 4 and 6 divide.
static ot_run run_of_six_layers(void) {
  ot_run run = {.model = rank_model(RANK_LLAMA, 6, false), .device = OT_DEVICE_CPU};
  run.evaluate.num_tasks = 1;
  return run;
}

static void as_few_ranks_share_a_copy_as_have_the_memory(void **state) {
  (void)state;
  const ot_run run = run_of_six_layers();
  int64_t bytes = INT64_MAX / 2;
  const int expected[] = {1, 2, 3, 4, 6};
  for (int i = 0; i < OT_COUNT(expected); i++) {
    const ot_run_tasks_engines engines = place(&run, bytes);
    assert_int_equal(engines.stages, expected[i]);
    if (i > 0) assert_true(engines.bytes < bytes);
    bytes = engines.bytes;  // not enough: a machine needs more than that
    if (expected[i] > 1) assert_int_equal(engines.mesh.degree[OT_AXIS_PP], expected[i]);
  }
  assert_int_equal(place(&run, 0).stages, 6);
}

static void stages_can_be_asked_for(void **state) {
  (void)state;
  ot_run run = run_of_six_layers();
  run.evaluate.stages = 4;
  assert_int_equal(place(&run, INT64_MAX / 2).stages, 4);
  const int wrong[] = {5, 12};
  for (int i = 0; i < OT_COUNT(wrong); i++) {
    run.evaluate.stages = wrong[i];
    assert_int_equal(ot_run_tasks_check_stages(&run, RANKS), OT_USAGE);
  }
}

// ---- price ----

enum { SEQUENCES = 96, ROWS = 128 };

// Seconds of an evaluation on `count` ranks of which `local` share a machine, where only matrix
// products take time.
static double seconds_of(const ot_run *run, int count, int local, int stages, int64_t max_tokens) {
  ot_text_task_sequence sequences[SEQUENCES];
  for (int i = 0; i < SEQUENCES; i++) {
    sequences[i] = (ot_text_task_sequence){.count = ROWS, .max_tokens = max_tokens};
  }
  ot_text_task task = {.num_sequences = SEQUENCES, .sequences = sequences, .positions = ROWS};
  const ot_run_tasks tasks = {.count = 1, .task = &task};
  ot_run asked = *run;
  asked.evaluate.stages = stages;
  const ot_run_tasks_ranks ranks = {.count = count, .sharing = local, .threads = 1};
  ot_cluster cluster = {.num_devices = count,
                        .device = {.other_flops_per_s = 0x1p200,
                                   .memory_bytes_per_s = 0x1p200,
                                   .memory_bytes = 1 << 30},
                        .num_levels = 1,
                        .level = {{.name = "wire", .size = count, .bytes_per_s = 0x1p200}}};
  cluster.device.flops[OT_F32] = 0x1p30;
  ot_run_tasks_engines engines;
  assert_int_equal(ot_run_tasks_place(&asked, &tasks, &ranks, &arena, &engines), OT_OK);
  const ot_run_tasks_machine machine = {&cluster, &ranks, &engines};
  ot_run_tasks_cost cost;
  assert_int_equal(ot_run_tasks_predict(run, &tasks, &machine, &arena, &cost), OT_OK);
  assert_int_equal(cost.prompt_tokens, SEQUENCES * ROWS);
  assert_int_equal(cost.made_tokens, SEQUENCES * max_tokens);
  return cost.seconds;
}

static void assert_between(double value, double low, double high) {
  if (value < low || value > high) fail_msg("%g is not in [%g, %g]", value, low, high);
}

static void engines_share_the_sequences_out(void **state) {
  (void)state;
  const ot_run run = run_of_six_layers();
  for (int64_t made = 0; made <= 32; made += 32) {
    const double one = seconds_of(&run, 1, 1, 1, made);
    assert_true(one > 0);
    assert_between(seconds_of(&run, 6, 6, 1, made) / one, 1, 1);  // one machine, one engine
    assert_between(seconds_of(&run, 6, 2, 1, made) / one, 0.333, 0.334);
    // Two stages: the slower one has a half of the work or more, and the pipeline is filled.
    const double two = seconds_of(&run, 2, 2, 2, made);
    assert_between(two / one, 0.5, 0.75);
    assert_between(seconds_of(&run, 4, 2, 2, made) / two, 0.5, 0.52);
    assert_between(seconds_of(&run, 4, 4, 4, made) / two, 0.5, 0.9);
  }
  assert_true(seconds_of(&run, 1, 1, 1, 32) > seconds_of(&run, 1, 1, 1, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(as_few_ranks_share_a_copy_as_have_the_memory, begin, finish),
      cmocka_unit_test_setup_teardown(stages_can_be_asked_for, begin, finish),
      cmocka_unit_test_setup_teardown(engines_share_the_sequences_out, begin, finish),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
