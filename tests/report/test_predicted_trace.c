// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// The trace of a replayed step, parsed: every action of every stage, at its time, on its rank.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "files/json_file.h"
#include "report/plan_report.h"
#include "support/paper_job.h"

// Counts the bars of rank `pid` with `category`; the latest end is returned in `end_us`.
static int bars_of(const json_t *events, int pid, const char *category, double *end_us) {
  int count = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *const event = json_array_get(events, i);
    const bool bar = strcmp(json_string_value(json_object_get(event, "ph")), "X") == 0;
    if (!bar || json_integer_value(json_object_get(event, "pid")) != pid) continue;
    if (strcmp(json_string_value(json_object_get(event, "cat")), category) != 0) continue;
    const double start_us = json_number_value(json_object_get(event, "ts"));
    const double end = start_us + json_number_value(json_object_get(event, "dur"));
    assert_true(start_us >= 0);
    if (end > *end_us) *end_us = end;
    count++;
  }
  return count;
}

static void a_trace_shows_actions_on_the_first_rank_of_a_stage(void **state) {
  (void)state;
  const ot_candidate candidate = {.tp = 2,
                                  .pp = 2,
                                  .vpp = 1,
                                  .cp = 1,
                                  .ep = 1,
                                  .etp = 1,
                                  .dp = 4,
                                  .dp_shard = 4,
                                  .zero = 1,
                                  .micro_batch_size = 1,
                                  .micro_batches = 8,
                                  .pipeline = OT_PIPELINE_ZB_H1};
  char path[] = "/tmp/test_played_trace_XXXXXX";
  paper_job paper;
  json_t *root;
  ot_estimator *estimator;
  ot_estimate estimate;
  close(mkstemp(path));
  paper_job_create("llama3-8b", 16, 32, 2048, &paper);
  paper.job.engine = paper_engine("megatron-core");
  assert_int_equal(ot_estimator_build(&paper.job, &paper.arena, &estimator), OT_OK);
  assert_int_equal(ot_predicted_trace_write(estimator, &candidate, path), OT_OK);
  assert_int_equal(ot_json_load(path, 1 << 20, &root), OT_OK);
  const json_t *const events = json_object_get(root, "traceEvents");
  double end_us = 0;
  for (int stage = 0; stage < 2; stage++) {
    assert_int_equal(bars_of(events, 8 * stage, "F", &end_us), 8);
    assert_int_equal(bars_of(events, 8 * stage, "I", &end_us), 8);
    assert_int_equal(bars_of(events, 8 * stage, "W", &end_us), 8);
    assert_int_equal(bars_of(events, 8 * stage, "update", &end_us), 1);
  }
  assert_int_equal(ot_estimate_build(estimator, &candidate, &estimate), OT_OK);
  assert_float_equal(end_us, 1e6 * estimate.step_s, 1);
  json_decref(root);
  unlink(path);
  paper_job_destroy(&paper);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_trace_shows_actions_on_the_first_rank_of_a_stage),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
