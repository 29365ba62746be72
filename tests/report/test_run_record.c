// SPDX-License-Identifier: Apache-2.0
// run: alone. Curves of a long run: a spike of one step stays visible, values that are not finite
// are left out, and tensors of a layer share a row of its health.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/text.h"
#include "host/heap.h"
#include "report/run_page.h"
#include "support/scratch.h"

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  ot_heap heap;
  ot_arena arena;
  ot_run_record *record;
} fixture;

static int set_up(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  scratch_create(f->directory);
  f->arena = ot_heap_arena_create(&f->heap);
  f->record = ot_arena_take(&f->arena, sizeof *f->record);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *const f = *state;
  scratch_destroy(f->directory);
  ot_heap_release(&f->heap);
  free(f);
  return 0;
}

static void read_record(fixture *f) {
  const ot_status status =
      ot_run_record_read(&f->arena, scratch_path(f->directory, "metrics.jsonl"),
                         scratch_path(f->directory, "events.jsonl"), f->record);
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

static void keeps_a_spike_of_one_step(void **state) {
  enum { STEPS = 20000, SPIKE = 12345, BAD = 777 };
  fixture *const f = *state;
  FILE *const file = fopen(scratch_path(f->directory, "metrics.jsonl"), "w");
  for (int i = 1; i <= STEPS; i++) {
    fprintf(file, "{\"step\":%d,\"loss\":", i);
    fprintf(file, i == BAD ? "null" : "%d", i == SPIKE ? 50 : 2);
    fprintf(file, ",\"tokens\":%d,\"step_seconds\":0.5}\n", i);
  }
  fclose(file);
  read_record(f);
  const ot_run_record *const r = f->record;
  const ot_curve *const loss = &r->curves[OT_CURVE_LOSS];
  assert_int_equal(r->last_step, STEPS);
  assert_int_equal(r->num_steps, STEPS);
  assert_int_equal(r->columns, OT_CURVE_COLUMNS);
  assert_int_equal(loss->all.count, STEPS - 1);
  int64_t count = 0;
  const int64_t spike = ot_run_record_column(r, r->columns, SPIKE);
  for (int64_t i = 0; i < r->columns; i++) {
    const ot_curve_column *const c = &loss->column[i];
    count += c->count;
    assert_true(c->minimum == 2 && c->maximum == (i == spike ? 50 : 2));
    assert_true(
        ot_run_record_column(r, r->columns, (int64_t)ot_run_record_step(r, r->columns, i)) == i);
  }
  assert_int_equal(count, STEPS - 1);
  assert_true(r->totals.step_s == STEPS * 0.5);
}

static void combines_the_tensors_of_a_layer(void **state) {
  fixture *const f = *state;
  static const char text[] =
      "{\"step\":1,\"loss\":1,\"gradient_norm/model.layers.1.a.weight\":3,"
      "\"gradient_norm/model.layers.10.a.weight\":7,\"gradient_norm/model.layers.1.b.weight\":4,"
      "\"gradient_norm/model.norm.weight\":null,\"update_ratio/model.layers.1.a.weight\":0.25,"
      "\"update_ratio/model.layers.1.b.weight\":0.5,\"max_activation/layers.1\":9}\n"
      "{\"step\":2,\"loss\":1}\n";
  scratch_write(scratch_path(f->directory, "metrics.jsonl"), text, sizeof text - 1);
  read_record(f);
  const ot_heat_map *const norms = &f->record->heat[0], *const ratios = &f->record->heat[1];
  assert_int_equal(f->record->columns, 3);
  assert_int_equal(norms->num_rows, 2);
  assert_string_equal(norms->rows[0].name, "layers.1");
  assert_true(norms->rows[0].value[1] == 5);
  assert_true(isnan(norms->rows[0].value[2]));
  assert_string_equal(norms->rows[1].name, "layers.10");
  assert_true(norms->rows[1].value[1] == 7);
  assert_true(ratios->rows[0].value[1] == 0.5);
  assert_true(f->record->heat[2].maximum == 9);
  assert_true(f->record->heat[3].maximum == 0);
}

static double mean_step_s(fixture *f, const char *metrics) {
  scratch_write(scratch_path(f->directory, "metrics.jsonl"), metrics, ot_text_length(metrics));
  read_record(f);
  return ot_run_page_means(&(ot_run_page){.record = f->record}).step_s;
}

// Kernels are chosen and captured in it. A process that resumes has one, too.
static void means_leave_out_the_first_step_of_a_process(void **state) {
  fixture *const f = *state;
  assert_true(mean_step_s(f, "{\"step\":1,\"loss\":1,\"step_seconds\":9}\n") == 9);
  static const char four[] =
      "{\"step\":1,\"loss\":1,\"step_seconds\":9}\n{\"step\":2,\"loss\":1,\"step_seconds\":1}\n"
      "{\"step\":3,\"loss\":1,\"step_seconds\":5}\n{\"step\":4,\"loss\":1,\"step_seconds\":2}\n";
  assert_true(fabs(mean_step_s(f, four) - 8.0 / 3) < 1e-12);
  static const char events[] =
      "{\"time\":1,\"event\":\"start\",\"step\":0,\"ranks\":1}\n"
      "{\"time\":2,\"event\":\"first_step\",\"step\":1}\n"
      "{\"time\":20,\"event\":\"start\",\"step\":2,\"ranks\":1}\n"
      "{\"time\":21,\"event\":\"first_step\",\"step\":3}\n";
  scratch_write(scratch_path(f->directory, "events.jsonl"), events, sizeof events - 1);
  assert_true(mean_step_s(f, four) == 1.5);
  assert_true(f->record->totals.step_s == 17);
}

static void is_empty_without_files(void **state) {
  fixture *const f = *state;
  read_record(f);
  assert_int_equal(f->record->num_steps, 0);
  assert_int_equal(f->record->account.num_attempts, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(keeps_a_spike_of_one_step, set_up, tear_down),
      cmocka_unit_test_setup_teardown(combines_the_tensors_of_a_layer, set_up, tear_down),
      cmocka_unit_test_setup_teardown(means_leave_out_the_first_step_of_a_process, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(is_empty_without_files, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
