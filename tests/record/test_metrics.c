// SPDX-License-Identifier: Apache-2.0
// run: alone. metrics.jsonl: every key on every line, numbers that read back, each step once after
// resuming, complete lines after a full disk.
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "record/metrics.h"
#include "support/faults.h"
#include "support/scratch.h"

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  char path[SCRATCH_BYTES + 16];
} fixture;

static int set_up(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  scratch_create(f->directory);
  snprintf(f->path, sizeof f->path, "%s/metrics.jsonl", f->directory);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *const f = *state;
  scratch_destroy(f->directory);
  free(f);
  return 0;
}

static ot_metrics_step unknown_step(int64_t step) {
  return (ot_metrics_step){.step = step,
                           .loss_nats = NAN,
                           .data_loss_nats = NAN,
                           .teacher_kl_nats = NAN,
                           .gradient_norm = NAN,
                           .learning_rate = NAN,
                           .tokens = -1,
                           .step_s = NAN,
                           .tokens_per_s = NAN,
                           .mfu = NAN,
                           .goodput = NAN,
                           .predicted_step_s = NAN,
                           .exposed = {NAN, NAN, NAN, NAN, NAN},
                           .bubble_fraction = NAN,
                           .memory_peak_bytes = -1,
                           .memory_planned_bytes = -1,
                           .products_by_own_kernel = -1,
                           .algorithms_replaced = -1,
                           .noise_scale_tokens = NAN,
                           .experts = {NAN, NAN, NAN, NAN, NAN, NAN}};
}

static ot_metrics *open_metrics(const fixture *f, int64_t step) {
  ot_metrics *metrics = NULL;
  if (ot_metrics_create(f->path, step, &metrics) != OT_OK) fail_msg("%s", ot_fail_message());
  return metrics;
}

static void expect_content(const fixture *f, const char *expected) {
  int64_t bytes;
  char *const text = scratch_read(f->path, &bytes);
  char *const ended = calloc(1, (size_t)bytes + 1);
  memcpy(ended, text, (size_t)bytes);
  assert_string_equal(ended, expected);
  free(text);
  free(ended);
}

static void writes_every_key_and_null_where_unknown(void **state) {
  const fixture *const f = *state;
  ot_metrics *metrics = open_metrics(f, 0);
  const ot_metrics_step step = unknown_step(7);
  ot_metrics_write_step(metrics, &step);
  ot_metrics_write_validation(metrics, 7, NULL, 0.1);
  ot_metrics_write_validation(metrics, 7, "held out", 2.5);
  const ot_metrics_spike spike = {
      .step = 7, .name = "grad_norm", .z = 31.5, .first_sample = 448, .last_sample = 511};
  ot_metrics_write_spike(metrics, &spike);
  ot_metrics_destroy(&metrics);
  expect_content(
      f,
      "{\"step\":7,\"loss\":null,\"data_loss\":null,\"teacher_kl\":null,\"grad_norm\":null,"
      "\"lr\":null,\"tokens\":null,\"step_seconds\":null,\"tokens_per_second\":null,\"mfu\":null,"
      "\"goodput\":null,"
      "\"predicted_step_seconds\":null,\"exposed_seconds\":{\"tp\":null,\"cp\":null,\"ep\":null,"
      "\"pp\":null,\"dp\":null},\"bubble_fraction\":null,\"memory_peak_bytes\":null,"
      "\"memory_planned_bytes\":null,\"products_by_own_kernel\":null,"
      "\"algorithms_replaced\":null,\"noise_scale_tokens\":null,"
      "\"moe_aux_loss\":null,\"moe_z_loss\":null,\"moe_load_max\":null,"
      "\"moe_load_entropy\":null,\"moe_drop_share\":null,\"moe_rounds\":null}\n"
      "{\"step\":7,\"val_loss\":0.10000000000000001}\n"
      "{\"step\":7,\"val_loss/held out\":2.5}\n"
      "{\"step\":7,\"spike/grad_norm\":31.5,\"first_sample\":448,\"last_sample\":511}\n");
}

static void writes_numbers_that_read_back(void **state) {
  const fixture *const f = *state;
  ot_metrics *metrics = open_metrics(f, 0);
  const double values[] = {3.2140000000000004, 1.0 / 3, 5e-324, 1e300, 0.1, 12345678901234567.0};
  const ot_metric health[] = {{"grad_norm/layers.3", 0.25}, {"max_logit/layers.3", INFINITY}};
  for (int i = 0; i < 6; i++) {
    ot_metrics_step step = unknown_step(i + 1);
    step.loss_nats = step.learning_rate = step.exposed.pp_s = values[i];
    step.memory_peak_bytes = INT64_MAX;
    step.num_health = 2;
    step.health = health;
    ot_metrics_write_step(metrics, &step);
  }
  ot_metrics_destroy(&metrics);
  FILE *const file = fopen(f->path, "r");
  assert_non_null(file);
  char line[4096];
  for (int i = 0; i < 6; i++) {
    assert_non_null(fgets(line, sizeof line, file));
    json_t *const root = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "step")), i + 1);
    assert_true(json_number_value(json_object_get(root, "loss")) == values[i]);
    assert_true(json_number_value(json_object_get(root, "lr")) == values[i]);
    const json_t *const exposed = json_object_get(root, "exposed_seconds");
    assert_true(json_number_value(json_object_get(exposed, "pp")) == values[i]);
    assert_true(json_integer_value(json_object_get(root, "memory_peak_bytes")) == INT64_MAX);
    assert_true(json_real_value(json_object_get(root, "grad_norm/layers.3")) == 0.25);
    assert_true(json_is_null(json_object_get(root, "max_logit/layers.3")));
    json_decref(root);
  }
  assert_null(fgets(line, sizeof line, file));
  fclose(file);
}

static void write_validations(const fixture *f, int64_t after, int64_t first, int64_t last) {
  ot_metrics *metrics = open_metrics(f, after);
  for (int64_t step = first; step <= last; step++)
    ot_metrics_write_validation(metrics, step, NULL, (double)after);
  ot_metrics_sync(metrics);
  ot_metrics_destroy(&metrics);
}

static void has_each_step_once_after_resuming(void **state) {
  const fixture *const f = *state;
  write_validations(f, 0, 1, 12);
  write_validations(f, 9, 10, 11);
  expect_content(f,
                 "{\"step\":1,\"val_loss\":0}\n{\"step\":2,\"val_loss\":0}\n"
                 "{\"step\":3,\"val_loss\":0}\n{\"step\":4,\"val_loss\":0}\n"
                 "{\"step\":5,\"val_loss\":0}\n{\"step\":6,\"val_loss\":0}\n"
                 "{\"step\":7,\"val_loss\":0}\n{\"step\":8,\"val_loss\":0}\n"
                 "{\"step\":9,\"val_loss\":0}\n{\"step\":10,\"val_loss\":9}\n"
                 "{\"step\":11,\"val_loss\":9}\n");
  write_validations(f, 0, 1, 1);
  expect_content(f, "{\"step\":1,\"val_loss\":0}\n");
}

static void drops_a_line_that_was_not_written_whole(void **state) {
  const fixture *const f = *state;
  static const char torn[] = "{\"step\":1,\"val_loss\":0}\n# a note\n{\"step\":2,\"val_l";
  scratch_write(f->path, torn, sizeof torn - 1);
  write_validations(f, 5, 6, 6);
  expect_content(f, "{\"step\":1,\"val_loss\":0}\n# a note\n{\"step\":6,\"val_loss\":5}\n");
}

static void ends_with_a_whole_line_after_a_full_disk(void **state) {
  const fixture *const f = *state;
  ot_metrics *metrics = open_metrics(f, 0);
  ot_metrics_write_validation(metrics, 1, NULL, 1);
  faults_short_writes(5);
  faults_arm(3, ENOSPC);
  ot_metrics_write_validation(metrics, 2, NULL, 2);
  faults_short_writes(0);
  faults_arm(0, 0);
  const char *const news = ot_log_file_news(ot_metrics_log(metrics));
  assert_non_null(news);
  assert_non_null(strstr(news, "No space left on device"));
  assert_non_null(strstr(news, "metrics.jsonl"));
  assert_int_equal(ot_log_file_lost(ot_metrics_log(metrics)), 1);
  ot_metrics_write_validation(metrics, 3, NULL, 3);
  ot_metrics_destroy(&metrics);
  expect_content(f, "{\"step\":1,\"val_loss\":1}\n{\"step\":3,\"val_loss\":3}\n");
}

static void names_a_file_that_cannot_be_made(void **state) {
  const fixture *const f = *state;
  ot_metrics *metrics = NULL;
  assert_int_equal(
      ot_metrics_create(scratch_path(f->directory, "absent/metrics.jsonl"), 0, &metrics),
      OT_ENVIRONMENT);
  assert_null(metrics);
  assert_message_has("absent/metrics.jsonl");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(writes_every_key_and_null_where_unknown, set_up, tear_down),
      cmocka_unit_test_setup_teardown(writes_numbers_that_read_back, set_up, tear_down),
      cmocka_unit_test_setup_teardown(has_each_step_once_after_resuming, set_up, tear_down),
      cmocka_unit_test_setup_teardown(drops_a_line_that_was_not_written_whole, set_up, tear_down),
      cmocka_unit_test_setup_teardown(ends_with_a_whole_line_after_a_full_disk, set_up, tear_down),
      cmocka_unit_test_setup_teardown(names_a_file_that_cannot_be_made, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
