// SPDX-License-Identifier: Apache-2.0
// run: any machine. Where a run is evaluated: the whole model on one rank while machines have the
// memory for that next to training, else over as few stages as they have it for.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/arena_fixture.h"
#include "support/rank_case_models.h"
#include "train/run_tasks.h"

enum { RANKS = 12, LOCAL = 1, TRAINING = 1 << 20 };

static ot_run_tasks_engines place(const ot_run *run, int64_t left_bytes) {
  static ot_text_task task = {.num_sequences = 4, .positions = 40};
  const ot_run_tasks tasks = {.count = 1, .task = &task};
  const ot_run_tasks_ranks ranks = {.count = RANKS,
                                    .local = LOCAL,
                                    .threads = 1,
                                    .training_bytes = TRAINING,
                                    .machine_bytes = LOCAL * TRAINING + left_bytes};
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(as_few_ranks_share_a_copy_as_have_the_memory, begin, finish),
      cmocka_unit_test_setup_teardown(stages_can_be_asked_for, begin, finish),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
