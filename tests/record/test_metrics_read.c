// SPDX-License-Identifier: Apache-2.0
// run: alone. Lines of metrics.jsonl read back as they were written; other versions' keys pass; a
// damaged line is named.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "record/metrics_read.h"
#include "support/scratch.h"

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  char path[SCRATCH_BYTES + 16];
  int lines;
  ot_metrics_line line[8];
  char name[8][64], health_name[64];
  double health;
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

static ot_status keep(void *context, const ot_metrics_line *line) {
  fixture *const f = context;
  assert_true(f->lines < 8);
  snprintf(f->name[f->lines], sizeof f->name[0], "%s", line->name);
  if (line->kind == OT_METRICS_STEP && line->values.num_health > 0) {
    snprintf(f->health_name, sizeof f->health_name, "%s", line->values.health[0].name);
    f->health = line->values.health[0].value;
  }
  f->line[f->lines++] = *line;
  return OT_OK;
}

static void read_back(fixture *f) {
  f->lines = 0;
  if (ot_metrics_read(f->path, keep, f) != OT_OK) fail_msg("%s", ot_fail_message());
}

static void write_text(const fixture *f, const char *text) {
  scratch_write(f->path, text, (int64_t)strlen(text));
}

static void expect_damage(fixture *f, const char *text, const char *message) {
  write_text(f, text);
  f->lines = 0;
  assert_int_equal(ot_metrics_read(f->path, keep, f), OT_ENVIRONMENT);
  assert_message_has(message);
}

static void reads_what_was_written(void **state) {
  fixture *const f = *state;
  ot_metrics *metrics = NULL;
  const ot_metric health[] = {{"gradient_norm/model.layers.0.w", 0.5}};
  // All members differ, so a key that is read to another member shows.
  const ot_metrics_step step = {.step = 7,
                                .loss_nats = 1.0 / 3,
                                .gradient_norm = 2.5,
                                .learning_rate = 3e-4,
                                .tokens = 4,
                                .step_s = 5.5,
                                .tokens_per_s = 6.5,
                                .mfu = 0.75,
                                .predicted_step_s = NAN,
                                .exposed = {8.5, 9.5, 10.5, 11.5, 12.5},
                                .bubble_fraction = 13.5,
                                .memory_peak_bytes = 14,
                                .memory_planned_bytes = -1,
                                .products_by_own_kernel = 2,
                                .algorithms_replaced = -1,
                                .noise_scale_tokens = 16.5,
                                .experts = {17.5, 18.5, 19.5, 20.5, 21.5, 22.5},
                                .num_health = 1,
                                .health = health};
  const ot_metrics_spike spike = {.step = 7, .name = "loss", .z = 9};
  assert_int_equal(ot_metrics_create(f->path, 0, &metrics), OT_OK);
  ot_metrics_write_step(metrics, &step);
  ot_metrics_write_validation(metrics, 7, NULL, 2);
  ot_metrics_write_validation(metrics, 7, "held \"out\"", NAN);
  ot_metrics_write_audit(metrics, 7, "drift", 3);
  ot_metrics_write_spike(metrics, &spike);
  ot_metrics_write_figure(metrics, 7, "evaluate/arc/acc", 0.25);
  ot_metrics_destroy(&metrics);
  read_back(f);
  assert_int_equal(f->lines, 6);
  const ot_metrics_step *const v = &f->line[0].values;
  assert_int_equal(f->line[0].kind, OT_METRICS_STEP);
  assert_int_equal(v->step, 7);
  assert_true(v->loss_nats == 1.0 / 3 && v->gradient_norm == 2.5 && v->learning_rate == 3e-4);
  assert_int_equal(v->tokens, 4);
  assert_true(v->step_s == 5.5 && v->tokens_per_s == 6.5 && v->mfu == 0.75);
  assert_true(isnan(v->predicted_step_s) && v->bubble_fraction == 13.5);
  assert_memory_equal(&v->exposed, &step.exposed, sizeof step.exposed);
  assert_memory_equal(&v->experts, &step.experts, sizeof step.experts);
  assert_int_equal(v->memory_peak_bytes, 14);
  assert_int_equal(v->memory_planned_bytes, -1);
  assert_int_equal(v->products_by_own_kernel, 2);
  assert_true(v->noise_scale_tokens == 16.5);
  assert_string_equal(f->health_name, "gradient_norm/model.layers.0.w");
  assert_true(f->health == 0.5);
  assert_int_equal(f->line[1].kind, OT_METRICS_VALIDATION);
  assert_string_equal(f->name[1], "");
  assert_true(f->line[1].value == 2);
  assert_string_equal(f->name[2], "held \"out\"");
  assert_true(isnan(f->line[2].value));
  assert_int_equal(f->line[3].kind, OT_METRICS_AUDIT);
  assert_string_equal(f->name[3], "drift");
  assert_true(f->line[3].value == 3);
  assert_int_equal(f->line[4].kind, OT_METRICS_SPIKE);
  assert_string_equal(f->name[4], "loss");
  assert_int_equal(f->line[5].kind, OT_METRICS_FIGURE);
  assert_string_equal(f->name[5], "arc/acc");
  assert_true(f->line[5].value == 0.25);
}

static void accepts_keys_of_other_versions(void **state) {
  fixture *const f = *state;
  write_text(f,
             "{\"step\":1, \"loss\": 2, \"note\":\"x\", \"done\":true, \"new_figure\":3,"
             "\"exposed_seconds\":{\"tp\":1,\"xp\":2}}\n{\"step\":2,\"something\":\"else\"}\n"
             "{\"step\":3,\"loss\":1");
  read_back(f);
  assert_int_equal(f->lines, 2);
  assert_true(f->line[0].values.loss_nats == 2 && f->line[0].values.exposed.tp_s == 1);
  assert_true(isnan(f->line[0].values.mfu));
  assert_int_equal(f->line[1].kind, OT_METRICS_OTHER);
}

static void names_the_line_that_is_damaged(void **state) {
  fixture *const f = *state;
  expect_damage(f, "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":}\n",
                "metrics.jsonl:2: not a line of metrics");
  expect_damage(f, "{\"loss\":2}\n", "metrics.jsonl:1: not");
  expect_damage(f, "\n", "metrics.jsonl:1: not");
  expect_damage(f, "{\"step\":1}}\n", "metrics.jsonl:1: not");
  expect_damage(f, "{\"step\":1,\"deep\":[1]}\n", "metrics.jsonl:1: not");
}

static void has_no_lines_without_a_file(void **state) {
  fixture *const f = *state;
  read_back(f);
  assert_int_equal(f->lines, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(reads_what_was_written, set_up, tear_down),
      cmocka_unit_test_setup_teardown(accepts_keys_of_other_versions, set_up, tear_down),
      cmocka_unit_test_setup_teardown(names_the_line_that_is_damaged, set_up, tear_down),
      cmocka_unit_test_setup_teardown(has_no_lines_without_a_file, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
