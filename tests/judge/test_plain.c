// SPDX-License-Identifier: Apache-2.0
// run: any machine. The plain model against transformers + PyTorch on random models of every
// family (tests/fixtures/parity): loss and every gradient, in both orders of sums. Router losses
// against finite differences; long documents against parts of them that see the same. What bf16 and
// autocast change has the size of their rounding.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/moe.h"
#include "host/library_settings.h"
#include "support/parity_case.h"
#include "support/plain_case.h"

enum { ALL_LOSSES = OT_PLAIN_MAIN | OT_PLAIN_BALANCE | OT_PLAIN_Z };

static const plain_variant usual = {.type = OT_PLAIN_F64, .losses = ALL_LOSSES, .threads = 1};

// ---- against PyTorch ----

typedef struct bounds {
  double loss, gradients;
} bounds;

static void compare(plain_case *c, plain_variant variant, bounds most) {
  const char *const suffix = variant.type == OT_PLAIN_F64 ? "f64" : "f32";
  const char *worst = "";
  plain_case_run(c, &variant);
  const double reference = plain_case_reference_loss(c, suffix);
  const double loss = fabs(c->loss - reference) / fabs(reference);
  const double error = plain_case_error(c, suffix, &worst);
  printf("%-26s %s %s  loss %.1e  gradients %.1e (%s)\n", c->name, suffix,
         variant.reversed ? "reversed" : "        ", loss, error, worst);
  if (!(loss <= most.loss)) fail_msg("%s: loss off by %.3e", c->name, loss);
  if (!(error <= most.gradients)) fail_msg("%s: %s off by %.3e", c->name, worst, error);
}

static void compare_all(ot_plain_type type, bounds most) {
  for (int i = 0; parity_cases[i]; i++) {
    plain_case c;
    plain_case_create(parity_cases[i], &c);
    for (int reversed = 0; reversed < 2; reversed++) {
      plain_variant variant = usual;
      variant.type = type;
      variant.reversed = reversed;
      variant.threads = 1 + reversed;
      compare(&c, variant, most);
    }
    plain_case_destroy(&c);
  }
}

static void float64_agrees_with_pytorch_within_1e_10(void **state) {
  (void)state;
  compare_all(OT_PLAIN_F64, (bounds){1e-12, 1e-10});
}

static void float32_agrees_with_pytorch_within_1e_5(void **state) {
  (void)state;
  compare_all(OT_PLAIN_F32, (bounds){1e-5, 1e-5});
}

// ---- comparison of steps ----

// A copy of all gradients.
static double **copy_gradients(plain_case *c) {
  const int count = c->graph.num_parameters;
  double **const copy = ot_arena_array(&c->arena, count, sizeof *copy);
  for (int i = 0; i < count; i++) {
    const int64_t elements = ot_parameter_elements(&c->graph.parameters[i]);
    copy[i] = ot_arena_array(&c->arena, elements, sizeof **copy);
    for (int64_t k = 0; k < elements; k++) copy[i][k] = c->gradients[i][k];
  }
  return copy;
}

// |a - b| / |b| of parameter `index`; 0 if both are zero.
static double distance(const plain_case *c, double *const *a, double *const *b, int index) {
  double difference = 0, length = 0;
  for (int64_t k = 0; k < ot_parameter_elements(&c->graph.parameters[index]); k++) {
    difference += (a[index][k] - b[index][k]) * (a[index][k] - b[index][k]);
    length += b[index][k] * b[index][k];
  }
  return difference == 0 ? 0 : sqrt(difference / length);
}

static double largest_distance(const plain_case *c, double *const *a, double *const *b) {
  double largest = 0;
  for (int i = 0; i < c->graph.num_parameters; i++) largest = fmax(largest, distance(c, a, b, i));
  return largest;
}

// ---- rounding ----

static void expect_rounding(const char *name, ot_plain_type type, double least, double most) {
  plain_case c;
  plain_case_create(name, &c);
  plain_variant variant = usual;
  plain_case_run(&c, &variant);
  double **const exact = copy_gradients(&c);
  variant.type = type;
  plain_case_run(&c, &variant);
  double **const forward = copy_gradients(&c);
  variant.reversed = true;
  plain_case_run(&c, &variant);
  int differ = 0;
  for (int i = 0; i < c.graph.num_parameters; i++) {
    if (!ot_parameter_is_trained(&c.graph.parameters[i])) continue;
    const double error = distance(&c, forward, exact, i);
    const double order = distance(&c, forward, c.gradients, i);
    differ += order > 0;
    if (!(error > least && error < most && order > error / 10 && order < most)) {
      fail_msg("%s %d: %s off by %.3e, by %.3e in another order", name, type,
               c.graph.parameters[i].name, error, order);
    }
  }
  assert_true(2 * differ > c.graph.num_parameters);
  plain_case_destroy(&c);
}

static void lower_precision_changes_gradients_by_its_rounding(void **state) {
  (void)state;
  expect_rounding("llama", OT_PLAIN_F32, 1e-9, 1e-5);
  expect_rounding("llama", OT_PLAIN_BF16, 1e-4, 0.1);
  expect_rounding("llama", OT_PLAIN_AUTOCAST, 1e-4, 0.1);
  expect_rounding("deepseek-v3", OT_PLAIN_F32, 1e-9, 1e-5);
}

// ---- router losses ----

static double total_loss(const plain_case *c) {
  return c->loss + ot_moe_aux_weight(&c->model) * c->balance + c->model.moe.z_coefficient * c->z;
}

static double direction(int parameter, int64_t element) {
  return sin((double)(parameter * 7919 + element * 104729 % 65537));
}

static void move(plain_case *c, double by) {
  for (int i = 0; i < c->graph.num_parameters; i++) {
    const ot_parameter *const p = &c->graph.parameters[i];
    if (!ot_parameter_is_trained(p)) continue;
    for (int64_t k = 0; k < ot_parameter_elements(p); k++) c->weights[i][k] += by * direction(i, k);
  }
}

static double slope_of(const plain_case *c) {
  double slope = 0;
  for (int i = 0; i < c->graph.num_parameters; i++) {
    const ot_parameter *const p = &c->graph.parameters[i];
    if (!ot_parameter_is_trained(p)) continue;
    for (int64_t k = 0; k < ot_parameter_elements(p); k++) {
      slope += c->gradients[i][k] * direction(i, k);
    }
  }
  return slope;
}

// The loss as a function of a step along a direction, with the choices held.
static double loss_after(plain_case *c, double step) {
  move(c, step);
  plain_case_run(c, &usual);
  move(c, -step);
  return total_loss(c);
}

static void expect_slope(plain_case *c) {
  const double h = 1e-4;
  plain_case_run(c, &usual);
  c->batch.choices = (const int32_t *const *)c->choices;
  plain_case_run(c, &usual);
  const double slope = slope_of(c);
  const double wide = (loss_after(c, 2 * h) - loss_after(c, -2 * h)) / (4 * h);
  const double near = (loss_after(c, h) - loss_after(c, -h)) / (2 * h);
  const double difference = (4 * near - wide) / 3;
  if (!(fabs(slope - difference) <= 1e-8 * fabs(slope))) {
    fail_msg("%s: slope %.12g, by differences %.12g", c->name, slope, difference);
  }
  c->batch.choices = NULL;
}

static void router_losses_have_the_gradients_of_finite_differences(void **state) {
  (void)state;
  const char *const cases[] = {"mixtral", "qwen3-moe", "deepseek-v3", "gpt-oss", "qwen2-moe"};
  for (int i = 0; i < OT_COUNT(cases); i++) {
    plain_case c;
    plain_case_create(cases[i], &c);
    c.model.moe.aux_scale = OT_MOE_AUX_LAYERS;
    c.model.moe.aux_coefficient = 0.5;
    c.model.moe.z_coefficient = 0.3;
    expect_slope(&c);
    double *const shares =
        ot_arena_array(&c.arena, c.batch.num_groups * c.model.moe.num_experts, sizeof *shares);
    for (int64_t e = 0; e < c.batch.num_groups * c.model.moe.num_experts; e++) {
      shares[e] = 0.1 + 0.05 * (double)e;
    }
    c.batch.shares = shares;
    expect_slope(&c);
    bool *const counted = ot_arena_array(&c.arena, c.batch.rows, sizeof *counted);
    for (int64_t r = 0; r < c.batch.rows; r++) counted[r] = r >= c.batch.group_end[0] - 3;
    c.batch.shares = NULL;
    c.batch.counted = counted;
    const double balance = c.balance;
    expect_slope(&c);
    assert_true(c.balance != balance);
    plain_case_destroy(&c);
  }
}

static void gradients_are_the_sum_of_those_of_each_loss(void **state) {
  (void)state;
  plain_case c;
  plain_case_create("qwen3-moe", &c);
  c.model.moe.aux_coefficient = 0.5;
  c.model.moe.z_coefficient = 0.3;
  plain_case_run(&c, &usual);
  double **const all = copy_gradients(&c), **sum = NULL;
  for (unsigned loss = 1; loss <= OT_PLAIN_Z; loss *= 2) {
    plain_variant variant = usual;
    variant.losses = loss;
    plain_case_run(&c, &variant);
    double **const one = copy_gradients(&c);
    assert_true(!sum || largest_distance(&c, one, sum) > 1e-3);
    for (int i = 0; sum && i < c.graph.num_parameters; i++) {
      const int64_t count = ot_parameter_elements(&c.graph.parameters[i]);
      for (int64_t k = 0; k < count; k++) one[i][k] += sum[i][k];
    }
    sum = one;
  }
  assert_true(largest_distance(&c, sum, all) < 1e-12);
  plain_case_destroy(&c);
}

// ---- parts of a batch ----

// `whole` without its first rows.
static ot_plain_batch cut_batch(plain_case *c, const ot_plain_batch *whole, int64_t begin) {
  ot_plain_batch part = *whole;
  int64_t *const first = ot_arena_array(&c->arena, whole->rows - begin, sizeof *first);
  int64_t *const end = ot_arena_array(&c->arena, 1, sizeof *end);
  for (int64_t r = begin; r < whole->rows; r++) {
    first[r - begin] = whole->first[r] > begin ? whole->first[r] - begin : 0;
  }
  part.rows = *end = whole->rows - begin;
  part.ids += begin;
  part.targets += begin;
  part.positions += begin;
  part.weights += begin;
  part.first = first;
  part.group_end = end;
  return part;
}

// The last rows of a document that see none of its first ones: their loss and gradients are the
// same without those, although the tiles of attention and the chunks of the head lie differently.
static void rows_that_are_not_seen_change_nothing(void **state) {
  (void)state;
  enum { ROWS = 600, CUT = 77, WINDOW = 500 };
  ot_model model = tiny_llama();
  plain_case c;
  model.num_layers = 1;
  model.max_positions = ROWS;
  model.window[0] = WINDOW;
  plain_case_make(&model, ROWS, &c);
  double *const weights = ot_arena_array(&c.arena, ROWS, sizeof *weights);
  for (int r = CUT + WINDOW - 1; r < ROWS; r++) weights[r] = 1.0 / (1 + r % 7);
  c.batch.weights = weights;
  plain_case_run(&c, &usual);
  double **const whole = copy_gradients(&c);
  const double loss = c.loss;
  c.batch = cut_batch(&c, &c.batch, CUT);
  plain_variant variant = usual;
  variant.threads = 2;
  plain_case_run(&c, &variant);
  assert_true(loss > 1 && fabs(c.loss / loss - 1) < 1e-13);
  assert_true(largest_distance(&c, c.gradients, whole) < 1e-11);
  plain_case_destroy(&c);
}

static void micro_batches_add_to_the_gradients_of_the_step(void **state) {
  (void)state;
  plain_case c;
  plain_case_create("qwen3-moe", &c);
  const ot_plain_batch whole = c.batch;
  const int64_t half = whole.rows / 2;
  c.model.moe.aux_coefficient = 0.5;
  plain_case_run(&c, &usual);
  double **const all = copy_gradients(&c);
  c.batch = cut_batch(&c, &whole, half);
  c.batch.num_groups = 1;
  plain_case_run(&c, &usual);
  double **const second = copy_gradients(&c);
  c.batch = whole;
  c.batch.rows = half;
  c.batch.num_groups = 1;
  plain_case_run(&c, &usual);
  for (int i = 0; i < c.graph.num_parameters; i++) {
    const int64_t count = ot_parameter_elements(&c.graph.parameters[i]);
    for (int64_t k = 0; k < count; k++) second[i][k] += c.gradients[i][k];
  }
  assert_true(largest_distance(&c, second, all) < 1e-12);
  plain_case_destroy(&c);
}

// ---- what is refused ----

static void expect_refusal(const plain_case *c, const char *part) {
  const ot_plain_request request = {.graph = &c->graph, .batch = &c->batch};
  ot_plain *plain;
  assert_int_equal(ot_plain_create(&request, &plain), OT_USAGE);
  assert_null(plain);
  if (!ot_text_find(ot_fail_message(), part)) fail_msg("message: %s", ot_fail_message());
}

static void rejects_what_it_cannot_compute(void **state) {
  (void)state;
  plain_case c;
  plain_case_create("qwen3-moe", &c);
  const ot_plain_batch good = c.batch;
  const int64_t k = c.model.moe.experts_per_token;
  int32_t *const same = ot_arena_array(&c.arena, good.rows * k, sizeof *same);
  const int32_t **const choices = ot_arena_array(&c.arena, c.model.num_layers, sizeof *choices);
  for (int i = 0; i < c.model.num_layers; i++) choices[i] = same;
  c.batch.choices = choices;
  expect_refusal(&c, "twice");
  c.batch = good;
  c.batch.num_groups = 1;
  expect_refusal(&c, "groups end at row");
  c.batch = good;
  int64_t *const first = ot_arena_array(&c.arena, good.rows, sizeof *first);
  first[good.rows - 1] = good.rows - 2;
  c.batch.first = first;
  expect_refusal(&c, "sees rows from");
  c.batch = good;
  c.batch.targets = ot_arena_array(&c.arena, good.rows, sizeof(int32_t));
  ((int32_t *)c.batch.targets)[3] = (int32_t)c.model.vocab_size;
  expect_refusal(&c, "row 3");
  c.batch = good;
  c.model.moe.routing = OT_MOE_DROP_BY_SCORE;
  expect_refusal(&c, "moe_routing");
  plain_case_destroy(&c);
}

int main(int count, char **words) {
  (void)count;
  ot_libraries_configure(words);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(float64_agrees_with_pytorch_within_1e_10),
      cmocka_unit_test(float32_agrees_with_pytorch_within_1e_5),
      cmocka_unit_test(lower_precision_changes_gradients_by_its_rounding),
      cmocka_unit_test(router_losses_have_the_gradients_of_finite_differences),
      cmocka_unit_test(gradients_are_the_sum_of_those_of_each_loss),
      cmocka_unit_test(rows_that_are_not_seen_change_nothing),
      cmocka_unit_test(micro_batches_add_to_the_gradients_of_the_step),
      cmocka_unit_test(rejects_what_it_cannot_compute),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
