// SPDX-License-Identifier: Apache-2.0
// run: alone. Records that tools/orthant_record.py wrote (tests/fixtures/judge): steps of the same
// model by different parallelism have the same gradients, and the planted faults show.
#include <math.h>

#include "judge/assemble.h"
#include "judge/test_record_files.h"

static ot_assembly report;

static ot_recorded_step golden_of(const char *name) {
  ot_recorded_step golden;
  const char *const path = fixture_path(ot_arena_format(&arena, "judge/%s", name));
  if (ot_recorded_read(path, &arena, &golden) != OT_OK) fail_msg("%s", ot_fail_message());
  return golden;
}

static double *tensor_of(const ot_recorded_step *golden, ot_recorded_kind kind, const char *name,
                         uint32_t sum_axes) {
  ot_recorded_view view;
  if (!ot_recorded_find(golden, kind, name, &view)) fail_msg("%s lacks %s", golden->path, name);
  double *const out = ot_arena_array(&arena, view.elements, sizeof *out);
  const ot_assembly_request request = {
      .view = &view, .count = view.elements, .dtype = OT_F64, .sum_axes = sum_axes};
  if (ot_assemble(golden, &request, &arena, out, &report) != OT_OK)
    fail_msg("%s", ot_fail_message());
  return out;
}

static double distance(const double *a, const double *b, int64_t count) {
  double difference = 0, square = 0;
  for (int64_t i = 0; i < count; i++) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    square += b[i] * b[i];
  }
  return sqrt(difference / square);
}

// The largest distance of a tensor of `kind` from that of a step on one rank. *differing: tensors
// whose copies differ.
static double compare_golden(const ot_recorded_step *golden, const ot_recorded_step *single,
                             ot_recorded_kind kind, int *differing) {
  double worst = 0;
  *differing = 0;
  for (int64_t i = 0; i < single->num_tensors; i++) {
    const ot_recorded_tensor *const t = &single->tensors[i];
    if (t->kind != kind) continue;
    const double *const want = tensor_of(single, kind, t->name, 0);
    const double *const found = tensor_of(golden, kind, t->name, 0);
    worst = fmax(worst, distance(found, want, t->elements));
    *differing += report.num_differences > 0;
  }
  return worst;
}

// Healthy steps of any parallelism have the gradients of one rank.
static void agrees_with_the_gradients_of_one_rank(void **state) {
  (void)state;
  static const struct {
    const char *name, *single;
    double least, most;  // distance of the gradients
  } cases[] = {
      {"llama_ddp", "llama_fp32", 0, 1e-6},        {"llama_fsdp2", "llama_fp32", 0, 1e-6},
      {"qwen3_tp", "qwen3_fp32", 0, 1e-6},         {"llama_decay", "llama_fp32", 0, 0},
      {"qwen3_tp_bf16", "qwen3_bf16", 1e-4, 0.03}, {"llama_ddp_means", "llama_fp32", 0.1, 1},
      {"llama_shifted", "llama_fp32", 0.5, 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const ot_recorded_step golden = golden_of(cases[i].name), single = golden_of(cases[i].single);
    int differing;
    const double weights = compare_golden(&golden, &single, OT_RECORDED_WEIGHT, &differing);
    if (weights != 0 || differing != 0) fail_msg("%s: other weights", cases[i].name);
    const double grads = compare_golden(&golden, &single, OT_RECORDED_GRAD, &differing);
    if (grads < cases[i].least || grads > cases[i].most || differing != 0)
      fail_msg("%s: gradients %g apart, %d differ", cases[i].name, grads, differing);
    const bool same = cases[i].most < 0.1 && strcmp(cases[i].name, "llama_decay") != 0;
    const double after = compare_golden(&golden, &single, OT_RECORDED_AFTER, &differing);
    if (same && after > fmax(1e-6, cases[i].most)) fail_msg("%s: %g after", cases[i].name, after);
  }
}

// The norms of queries and keys are the only gradients that the ranks hold parts of.
static void sees_gradients_that_were_not_summed(void **state) {
  (void)state;
  const ot_recorded_step golden = golden_of("qwen3_tp_unreduced"), single = golden_of("qwen3_fp32");
  int norms = 0;
  for (int64_t i = 0; i < single.num_tensors; i++) {
    const ot_recorded_tensor *const t = &single.tensors[i];
    if (t->kind != OT_RECORDED_GRAD) continue;
    const bool norm = strstr(t->name, "q_norm") != NULL || strstr(t->name, "k_norm") != NULL;
    const double *const want = tensor_of(&single, OT_RECORDED_GRAD, t->name, 0);
    const double *found = tensor_of(&golden, OT_RECORDED_GRAD, t->name, 0);
    assert_int_equal(report.num_differences, norm);
    if (!norm) assert_true(distance(found, want, t->elements) < 1e-6);
    if (!norm) continue;
    norms++;
    assert_int_equal(report.differing_axes, 1);
    assert_string_equal(golden.axes[0].name, "tp");
    assert_true(distance(found, want, t->elements) > 0.1);
    found = tensor_of(&golden, OT_RECORDED_GRAD, t->name, report.differing_axes);
    assert_true(distance(found, want, t->elements) < 1e-6);
  }
  assert_int_equal(norms, 4);
}

// The norm that the program clipped by is that of the recorded gradients.
static void has_the_norm_of_the_record(void **state) {
  (void)state;
  static const char *const names[] = {"llama_fp32", "llama_ddp", "llama_fsdp2", "qwen3_tp"};
  for (int n = 0; n < OT_COUNT(names); n++) {
    const ot_recorded_step golden = golden_of(names[n]);
    double square = 0, norm;
    for (int64_t i = 0; i < golden.num_tensors; i++) {
      const ot_recorded_tensor *const t = &golden.tensors[i];
      if (t->kind != OT_RECORDED_GRAD) continue;
      const double *const values = tensor_of(&golden, OT_RECORDED_GRAD, t->name, 0);
      for (int64_t k = 0; k < t->elements; k++) square += values[k] * values[k];
    }
    assert_true(ot_recorded_scalar_of(&golden, "norm", golden.world - 1, &norm));
    assert_true(fabs(sqrt(square) / norm - 1) < 1e-6);
  }
}

// One rank and several recorded the same tokens in the same order.
static void has_the_same_rows_on_any_number_of_ranks(void **state) {
  (void)state;
  static const char *const names[] = {"llama_ddp", "llama_fsdp2", "llama_ddp_means",
                                      "llama_shifted"};
  ot_step_rows single, rows;
  const ot_recorded_step one = golden_of("llama_fp32");
  assert_int_equal(ot_assemble_rows(&one, &arena, &single), OT_OK);
  assert_int_equal(single.count, 96);
  assert_int_equal(single.num_batches, 4);
  assert_true(single.batch[0].targets != single.batch[3].targets);
  assert_int_equal(single.documents[8], 0);
  assert_int_equal(single.documents[9], 9);
  assert_int_equal(single.positions[9], 0);
  for (int n = 0; n < OT_COUNT(names); n++) {
    const ot_recorded_step golden = golden_of(names[n]);
    assert_int_equal(ot_assemble_rows(&golden, &arena, &rows), OT_OK);
    assert_int_equal(rows.count, single.count);
    const size_t bytes = (size_t)rows.count * sizeof(int32_t);
    assert_memory_equal(rows.ids, single.ids, bytes);
    assert_memory_equal(rows.targets, single.targets, bytes);
    assert_memory_equal(rows.positions, single.positions, bytes);
    assert_memory_equal(rows.documents, single.documents, bytes);
    assert_memory_equal(rows.sequences, single.sequences, bytes);
    assert_int_equal(rows.batch[3].dp_rank, golden.world - 1);
    assert_int_equal(rows.batch[3].micro, golden.world == 1 ? 3 : 1);
    assert_int_equal(rows.num_differences, 0);
  }
  const ot_recorded_step tp = golden_of("qwen3_tp");
  assert_int_equal(ot_assemble_rows(&tp, &arena, &rows), OT_OK);
  assert_int_equal(rows.count, 96);
  assert_int_equal(tp.dp_size, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(agrees_with_the_gradients_of_one_rank),
      TEST(sees_gradients_that_were_not_summed),
      TEST(has_the_norm_of_the_record),
      TEST(has_the_same_rows_on_any_number_of_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
