// SPDX-License-Identifier: Apache-2.0
// run: alone. Chrome traces: valid JSON with the fields that viewers need, task bars inside the bar
// of their segment, plain and compressed alike.
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "files/disk.h"
#include "record/trace.h"
#include "support/scratch.h"

static json_t *load(const char *path) {
  enum { LIMIT = 1 << 22 };
  char *const text = malloc(LIMIT);
  gzFile file = gzopen(path, "rb");
  assert_non_null(file);
  const int length = gzread(file, text, LIMIT);
  assert_true(length > 0 && length < LIMIT);
  gzclose(file);
  json_error_t error;
  json_t *const root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL) fail_msg("%d:%d: %s", error.line, error.column, error.text);
  free(text);
  return root;
}

static const char *text_of(const json_t *event, const char *key) {
  const char *const text = json_string_value(json_object_get(event, key));
  assert_non_null(text);
  return text;
}

static double number_of(const json_t *event, const char *key) {
  const json_t *const value = json_object_get(event, key);
  assert_true(json_is_number(value));
  return json_number_value(value);
}

static void writes_events_that_viewers_read(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  static const char *const names[] = {"t.json", "t.json.gz"};
  for (int i = 0; i < 2; i++) {
    const char *const path = scratch_path(directory, names[i]);
    ot_trace *trace = NULL;
    assert_int_equal(ot_trace_create(path, 1, &trace), OT_OK);
    assert_int_equal(ot_trace_name_thread(trace, 3, 1, "compute"), OT_OK);
    const ot_trace_event event = {"a \"b\"", "F", 0.0123456789, 0.5, 3, 1, "{\"x\":[1,2]}"};
    for (int j = 0; j < 2000; j++) assert_int_equal(ot_trace_write(trace, &event), OT_OK);
    assert_false(ot_disk_is_file(path));
    assert_int_equal(ot_trace_finish(trace), OT_OK);
    ot_trace_destroy(&trace);
    json_t *const root = load(path);
    const json_t *const events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), 2001);
    const json_t *const name = json_array_get(events, 0);
    assert_string_equal(text_of(name, "ph"), "M");
    assert_string_equal(text_of(json_object_get(name, "args"), "name"), "compute");
    const json_t *const last = json_array_get(events, 2000);
    assert_string_equal(text_of(last, "name"), "a \"b\"");
    assert_string_equal(text_of(last, "ph"), "X");
    assert_true(number_of(last, "ts") == 12345.679);
    assert_true(number_of(last, "dur") == 487654.321);
    assert_true(number_of(last, "pid") == 3 && number_of(last, "tid") == 1);
    json_decref(root);
  }
  scratch_destroy(directory);
}

#define MATRIX(r, c)                                       \
  {                                                        \
    .base = OT_BASE_SCRATCH, .type = { OT_F32, 2, {r, c} } \
  }
static ot_task tasks[] = {
    {.op = OT_OP_ADD, .in = {MATRIX(4, 8), MATRIX(4, 8)}, .out = {MATRIX(4, 8)}},
    {.op = OT_OP_LINEAR, .in = {MATRIX(4, 8), MATRIX(16, 8)}, .out = {MATRIX(4, 16)}},
};
static ot_segment segments[] = {{.name = "layer_0.F", .num_tasks = 2, .tasks = tasks},
                                {.name = "update", .num_tasks = 1, .tasks = tasks}};
static ot_entry entries[] = {
    {.phase = OT_PHASE_FORWARD,
     .segment = 0,
     .block = 1,
     .micro_batch = 0,
     .wait = {-1, -1, -1, -1, -1}},
    {.phase = OT_PHASE_FORWARD,
     .segment = 0,
     .block = 2,
     .micro_batch = 0,
     .wait = {-1, -1, -1, -1, -1}},
    {.phase = OT_PHASE_UPDATE,
     .segment = 1,
     .block = -1,
     .micro_batch = -1,
     .wait = {-1, -1, -1, -1, -1}},
};

static void nests_tasks_in_their_segments(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  ot_order order = {.kind = OT_ORDER_STEP, .num_entries = 3, .entries = entries};
  const ot_schedule schedule = {
      .num_segments = 2, .segments = segments, .num_orders = 1, .orders = &order};
  ot_span spans[] = {{0, 0, 0.0, 0.1, 0},
                     {0, 1, 0.1, 0.3, 0},
                     {1, 0, 0.3, 0.4, 0},
                     {1, 1, 0.4, 0.6, 0},
                     {2, 0, 0.6, 0.7, 0}};
  const ot_timeline timeline = {.rank = 5, .num_spans = 5, .spans = spans, .total_s = 0.7};
  const char *const path = scratch_path(directory, "step.json");
  ot_trace *trace = NULL;
  assert_int_equal(ot_trace_create(path, 1, &trace), OT_OK);
  assert_int_equal(ot_trace_write_timeline(trace, &timeline, &schedule, 2.0), OT_OK);
  assert_int_equal(ot_trace_finish(trace), OT_OK);
  ot_trace_destroy(&trace);
  json_t *const root = load(path);
  const json_t *const events = json_object_get(root, "traceEvents");
  static const char *const expected[] = {"layer_0.F", "add",    "linear", "layer_0.F",
                                         "add",       "linear", "update", "add"};
  const size_t first = json_array_size(events) - 8;
  assert_int_equal(first, 1 + OT_LANES);
  double outer_start = 0, outer_end = 0;
  for (size_t i = 0; i < 8; i++) {
    const json_t *const event = json_array_get(events, first + i);
    assert_string_equal(text_of(event, "name"), expected[i]);
    assert_true(number_of(event, "pid") == 5);
    const double start = number_of(event, "ts"), end = start + number_of(event, "dur");
    const bool outer = json_object_get(json_object_get(event, "args"), "task") == NULL;
    if (outer) {
      outer_start = start;
      outer_end = end;
    }
    assert_true(start >= outer_start && end <= outer_end + 1e-6);
  }
  const json_t *const update = json_array_get(events, first + 6);
  assert_string_equal(text_of(update, "cat"), "update");
  assert_true(number_of(update, "ts") == 2.6e6);
  const json_t *const linear = json_object_get(json_array_get(events, first + 2), "args");
  assert_true(number_of(linear, "matrix_flops") == 2 * 4 * 8 * 16);
  assert_true(number_of(linear, "block") == 1 && number_of(linear, "task") == 1);
  json_decref(root);
  scratch_destroy(directory);
}

static void an_unfinished_trace_leaves_no_file(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  const char *const path = scratch_path(directory, "t.json");
  ot_trace *trace = NULL;
  assert_int_equal(ot_trace_create(path, 1, &trace), OT_OK);
  ot_trace_destroy(&trace);
  assert_false(ot_disk_is_file(path));
  assert_false(ot_disk_is_file(scratch_path(directory, "t.json.partial")));
  assert_int_equal(ot_trace_create(scratch_path(directory, "absent/t.json"), 1, &trace),
                   OT_ENVIRONMENT);
  assert_null(trace);
  assert_message_has("cannot create: No such file or directory");
  scratch_destroy(directory);
}

// A tensor collective extends beyond the end of its kernel, and two messages cross: none of these
// nest, so each gets a separate row.
static void overlapping_spans_get_separate_rows(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  ot_task parts[] = {{.op = OT_OP_ALL_REDUCE, .kind = OT_TASK_COLLECTIVE, .lane = OT_LANE_TENSOR},
                     {.op = OT_OP_ADD},
                     {.op = OT_OP_SEND, .kind = OT_TASK_SEND, .lane = OT_LANE_PIPELINE}};
  ot_segment shapes[] = {{.name = "layer_0.B", .num_tasks = 2, .tasks = parts},
                         {.name = "send", .num_tasks = 1, .tasks = &parts[2]}};
  ot_entry list[] = {{.segment = 0, .lane = OT_LANE_COMPUTE},
                     {.segment = 1, .lane = OT_LANE_PIPELINE},
                     {.segment = 1, .lane = OT_LANE_PIPELINE},
                     {.segment = 1, .lane = OT_LANE_PIPELINE}};
  ot_order order = {.kind = OT_ORDER_STEP, .num_entries = 4, .entries = list};
  const ot_schedule schedule = {
      .num_segments = 2, .segments = shapes, .num_orders = 1, .orders = &order};
  ot_span spans[] = {{0, 0, 0.0, 0.3, OT_LANE_TENSOR},
                     {0, 1, 0.0, 0.2, OT_LANE_COMPUTE},
                     {1, 0, 0.1, 0.5, OT_LANE_PIPELINE},
                     {2, 0, 0.2, 0.6, OT_LANE_PIPELINE},
                     {3, 0, 0.5, 0.7, OT_LANE_PIPELINE}};
  const ot_timeline timeline = {.num_spans = 5, .spans = spans, .total_s = 0.7};
  const char *const path = scratch_path(directory, "lanes.json");
  ot_trace *trace = NULL;
  assert_int_equal(ot_trace_create(path, 1, &trace), OT_OK);
  assert_int_equal(ot_trace_write_timeline(trace, &timeline, &schedule, 0), OT_OK);
  assert_int_equal(ot_trace_finish(trace), OT_OK);
  ot_trace_destroy(&trace);
  json_t *const root = load(path);
  const json_t *const events = json_object_get(root, "traceEvents");
  static const struct {
    const char *name;
    int tid;
  } expected[] = {{"all_reduce", OT_LANE_TENSOR}, {"layer_0.B", OT_LANE_COMPUTE},
                  {"add", OT_LANE_COMPUTE},       {"send", OT_LANE_PIPELINE},
                  {"thread_name", OT_LANES},      {"send", OT_LANES},
                  {"send", OT_LANE_PIPELINE}};
  const size_t first = 1 + OT_LANES;
  assert_int_equal(json_array_size(events), first + OT_COUNT(expected));
  for (size_t i = 0; i < OT_COUNT(expected); i++) {
    const json_t *const event = json_array_get(events, first + i);
    assert_string_equal(text_of(event, "name"), expected[i].name);
    assert_true(number_of(event, "tid") == expected[i].tid);
  }
  // The bar of the instruction spans its kernels.
  assert_true(number_of(json_array_get(events, first + 1), "dur") == 0.2e6);
  json_decref(root);
  scratch_destroy(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(writes_events_that_viewers_read),
      cmocka_unit_test(nests_tasks_in_their_segments),
      cmocka_unit_test(overlapping_spans_get_separate_rows),
      cmocka_unit_test(an_unfinished_trace_leaves_no_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
