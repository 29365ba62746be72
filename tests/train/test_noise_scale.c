// SPDX-License-Identifier: Apache-2.0
// run: serial. The estimators of the gradient noise scale on gradients of known mean and variance,
// and the parameters that the schedule includes.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "runtime/noise_scale.h"
#include "schedule/reduce.h"
#include "support/tiny_plan.h"

static void must_be(double found, double expected, double tolerance) {
  if (!(fabs(found - expected) <= tolerance)) fail_msg("%.17g instead of %.17g", found, expected);
}

// ---- synthetic gradients ----

enum { DIMENSIONS = 512, MAX_SMALL = 8 };

typedef struct toy {
  double gradient_squares;  // |G|^2
  double variance;          // tr(Sigma) for one target
  int small;                // number of small batches
  double targets[MAX_SMALL];
} toy;

// Gradients of one step: the mean of each small batch, G plus noise of variance tr(Sigma) /
// targets.
static ot_noise_sample draw(const toy *t, int step) {
  double whole[DIMENSIONS] = {0}, sum = 0;
  ot_noise_sample sample = {0};
  for (int k = 0; k < t->small; k++) sum += t->targets[k];
  for (int k = 0; k < t->small; k++) {
    const double share = t->targets[k] / sum;
    const double sigma = sqrt(t->variance / DIMENSIONS / t->targets[k]);
    for (int i = 0; i < DIMENSIONS; i++) {
      const uint64_t counter =
          ((uint64_t)step * MAX_SMALL + (uint64_t)k) * DIMENSIONS + (uint64_t)i;
      const double mean = i == 0 ? sqrt(t->gradient_squares) : 0;
      const double g = share * (mean + sigma * ot_rng_normal(7, 11, counter));
      whole[i] += g;
      sample.local_squares += g * g;
    }
    sample.share_squares += share * share;
  }
  for (int i = 0; i < DIMENSIONS; i++) sample.whole_squares += whole[i] * whole[i];
  sample.targets = sum;
  return sample;
}

static void averages_then_divides(void **state) {
  (void)state;
  const toy t = {.717, 300, 8, {16, 16, 16, 16, 16, 16, 16, 16}};
  ot_noise_average average = {0};
  double ratios = 0;
  enum { STEPS = 1000 };
  for (int step = 0; step < STEPS; step++) {
    const ot_noise_sample sample = draw(&t, step);
    ot_noise_average one = {0};
    ot_noise_average_add(&average, &sample);
    ot_noise_average_add(&one, &sample);
    ratios += one.variance / one.gradient_squares / STEPS;
  }
  const double truth = 300 / .717;
  const double found = ot_noise_average_tokens(&average);
  if (fabs(found / truth - 1) > .06) fail_msg("%g instead of %g", found, truth);
  // The mean of ratios would be wrong.
  if (ratios < 1.05 * truth) fail_msg("the average of ratios is %g, near %g", ratios, truth);
}

static void unequal_small_batches_bias_nothing(void **state) {
  (void)state;
  const toy t = {.717, 300, 4, {2, 30, 50, 46}};
  double gradient = 0, variance = 0;
  enum { STEPS = 4000 };
  for (int step = 0; step < STEPS; step++) {
    const ot_noise_sample sample = draw(&t, step);
    ot_noise_average one = {0};
    ot_noise_average_add(&one, &sample);
    gradient += one.gradient_squares / STEPS;
    variance += one.variance / STEPS;
  }
  if (fabs(gradient / .717 - 1) > .02) fail_msg("|G|^2 %g", gradient);
  if (fabs(variance / 300 - 1) > .02) fail_msg("tr(Sigma) %g", variance);
}

static void agrees_with_the_published_formula(void **state) {
  (void)state;
  // Equal batches: G2 = (B |g_B|^2 - b |g_b|^2)/(B - b), S = (|g_b|^2 - |g_B|^2)/(1/b - 1/B).
  const double B = 4096, K = 4, b = B / K, whole = 2.5, small[] = {3, 5, 4, 7};
  double mean = 0, local = 0;
  for (int k = 0; k < 4; k++) {
    mean += small[k] / K;
    local += small[k] / (K * K);
  }
  ot_noise_average average = {0};
  ot_noise_average_add(&average, &(ot_noise_sample){whole, local, B, 1 / K});
  must_be(average.gradient_squares, (B * whole - b * mean) / (B - b), 1e-12);
  must_be(average.variance, (mean - whole) / (1 / b - 1 / B), 1e-9);
}

static void corrects_the_average_for_its_start(void **state) {
  (void)state;
  ot_noise_average average = {0};
  const ot_noise_sample sample = {2, 1.5, 100, .25};
  ot_noise_average_add(&average, &sample);
  const ot_noise_average first = average;
  for (int i = 0; i < 500; i++) ot_noise_average_add(&average, &sample);
  must_be(average.gradient_squares, first.gradient_squares, 1e-12);
  must_be(average.variance, first.variance, 1e-9);
  // Exponential average: the old value keeps the weight 0.99^n.
  const ot_noise_sample other = {4, 3, 100, .25};
  ot_noise_average_add(&average, &other);
  const double share = .01 / (1 - pow(.99, 502));
  must_be(average.gradient_squares, first.gradient_squares * (1 + share), 1e-12);
}

static void is_unknown_until_both_averages_are_positive(void **state) {
  (void)state;
  ot_noise_average average = {0};
  assert_true(isnan(ot_noise_average_tokens(&average)));
  ot_noise_average_add(&average, &(ot_noise_sample){1, 1, 100, 1});  // one batch: none
  assert_int_equal(average.steps, 0);
  ot_noise_average_add(&average, &(ot_noise_sample){NAN, 1, 100, .5});
  assert_int_equal(average.steps, 0);
  ot_noise_average_add(&average, &(ot_noise_sample){1, 1.5, 100, .5});  // |G|^2 below zero
  assert_true(isnan(ot_noise_average_tokens(&average)));
  for (int i = 0; i < 3; i++) {
    ot_noise_average_add(&average, &(ot_noise_sample){2, 1.5, 100, .5});
  }
  assert_true(ot_noise_average_tokens(&average) > 0);
}

static void squares_are_of_ranks_or_of_micro_batches(void **state) {
  (void)state;
  const ot_model model = tiny_llama();
  ot_run run = tiny_run(&model);
  const ot_noise_targets targets = {.sum = 3 + 5, .squares = 9 + 25};
  run.parallel.accumulate = OT_ACCUMULATE_WHOLE;
  must_be(ot_noise_target_squares(&run, &targets), 64, 0);
  run.parallel.accumulate = OT_ACCUMULATE_SHARDED;
  must_be(ot_noise_target_squares(&run, &targets), 34, 0);
}

// ---- the schedule ----

enum { MICRO_BATCHES = 3 };

static void plan_two_ranks(const ot_model *model, ot_accumulate accumulate, tiny_plan *plan) {
  static const int micro_batches[] = {MICRO_BATCHES};
  *plan = (tiny_plan){.model = *model};
  plan->arena = ot_heap_arena_create(&plan->heap);
  plan->run = tiny_run(model);
  plan->run.parallel.recompute = &plan->recompute;
  plan->run.parallel.zero = 2;
  plan->run.parallel.accumulate = accumulate;
  ot_mesh *const mesh = ot_arena_array(&plan->arena, 1, sizeof *mesh);
  for (int i = 0; i < OT_AXIS_COUNT; i++) mesh->degree[i] = 1;
  mesh->degree[OT_AXIS_DP_SHARD] = 2;
  assert_int_equal(ot_mesh_check(mesh), OT_OK);
  const ot_rank_request wanted = {
      .modes = 1u << OT_MODE_TRAIN,
      .graph = {.model = &plan->model,
                .micro_batch_size = 1,
                .sequence_length = 8,
                .compute = OT_F32,
                .storage = OT_F32,
                .threads = 1},
      .schedule = {
          .run = &plan->run, .micro_batches = micro_batches, .num_micro_batches = 1, .mesh = mesh}};
  const ot_status status = ot_runtime_plan(&wanted, &plan->arena, plan->graphs, &plan->schedule);
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

// Number of elements whose squares are added to OT_SCALAR_LOCAL_SQUARES in one step.
static int64_t added_elements(const ot_schedule *schedule) {
  const ot_order *const order =
      &schedule->orders[ot_schedule_find_order(schedule, OT_ORDER_STEP, 0)];
  int64_t elements = 0;
  for (int i = 0; i < order->num_entries; i++) {
    const ot_segment *const segment = &schedule->segments[order->entries[i].segment];
    for (int t = 0; t < segment->num_tasks; t++) {
      const ot_task *const task = &segment->tasks[t];
      const bool local = task->op == OT_OP_SUM_SQUARES && task->out[0].base == OT_BASE_SCALAR &&
                         task->out[0].offset == OT_SCALAR_LOCAL_SQUARES * 8;
      if (local) elements += ot_type_elements(&task->in[0].type);
    }
  }
  return elements;
}

static int64_t noted_elements(const ot_graph *graph) {
  int64_t elements = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    for (int k = 0; k < p->num_parts; k++) {
      if (ot_reduce_adds_local_squares(graph, p, k)) elements += p->parts[k].rows * p->cols;
    }
  }
  return elements;
}

static void the_same_parameters_are_above_and_below_the_line(void **state) {
  (void)state;
  const ot_model models[] = {tiny_gpt2(), tiny_llama()};
  for (int m = 0; m < OT_COUNT(models); m++) {
    for (int sharded = 0; sharded < 2; sharded++) {
      tiny_plan plan;
      plan_two_ranks(&models[m], sharded ? OT_ACCUMULATE_SHARDED : OT_ACCUMULATE_WHOLE, &plan);
      const int64_t noted = noted_elements(&plan.graphs[OT_MODE_TRAIN]);
      assert_true(noted > 0);
      assert_int_equal(added_elements(&plan.schedule), noted * (sharded ? MICRO_BATCHES : 1));
      tiny_plan_destroy(&plan);
    }
  }
}

static void a_tied_embedding_is_left_out(void **state) {
  (void)state;
  const ot_model model = tiny_gpt2();
  assert_true(model.tie_word_embeddings);
  tiny_plan plan;
  plan_two_ranks(&model, OT_ACCUMULATE_WHOLE, &plan);
  const ot_graph *const graph = &plan.graphs[OT_MODE_TRAIN];
  int64_t all = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    if (graph->parameters[i].tied_to < 0) all += ot_parameter_elements(&graph->parameters[i]);
  }
  assert_int_equal(noted_elements(graph), all - model.vocab_size * model.hidden_size);
  tiny_plan_destroy(&plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(averages_then_divides),
      cmocka_unit_test(unequal_small_batches_bias_nothing),
      cmocka_unit_test(agrees_with_the_published_formula),
      cmocka_unit_test(corrects_the_average_for_its_start),
      cmocka_unit_test(is_unknown_until_both_averages_are_positive),
      cmocka_unit_test(squares_are_of_ranks_or_of_micro_batches),
      cmocka_unit_test(the_same_parameters_are_above_and_below_the_line),
      cmocka_unit_test(a_tied_embedding_is_left_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
