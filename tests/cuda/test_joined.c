// SPDX-License-Identifier: Apache-2.0
// run: any machine; in builds without CUDA on an emulated GPU. Launches that run the optimizer's
// tasks of several tensors: the bits that each has alone, and as few launches as the plan says.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/installed.h"
#include "files/config_file.h"
#include "support/op_case.h"
#include "support/op_device.h"
#include "support/parity_case.h"
#include "workspace/workspace.h"

// ---- the kernels ----

enum { PARTS = OT_JOINED_MOST };

// One element, a block less or more than its elements, a remainder, several elements a thread.
static int64_t size_of(int part) {
  static const int64_t sizes[] = {1, 70001, 1023, 1025, 3072, 255, 2, 5000};
  return part < OT_COUNT(sizes) ? sizes[part] : 1 + 37 * part;
}

typedef struct storage {
  ot_dtype compute, gradient, parameter;
  bool master;
} storage;

static const storage storages[] = {{OT_F32, OT_F32, OT_F32, false},
                                   {OT_F32, OT_F32, OT_BF16, true},
                                   {OT_F64, OT_F64, OT_F64, false}};

// Each part has a rate, a decay and gradients of its own.
static ot_case update_of(int part, storage s, double factor) {
  const int64_t n = size_of(part);
  const ot_tensor_type wide = ot_type_vector(s.compute, n), absent = {0};
  ot_case c = {
      .kind = OT_OP_ADAMW,
      .attributes = {.threads = 1,
                     .compute = s.compute,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .epsilon = 1e-8,
                     .weight_decay = 0.01 * part,
                     .learning_rate_factor = 1 + 0.1 * part},
      .types = {.in = {ot_type_vector(s.gradient, n), ot_type_vector(OT_F64, OT_STEP_SCALARS)},
                .out = {ot_type_vector(s.parameter, n), wide, wide, s.master ? wide : absent,
                        ot_type_vector(OT_F64, 2)}}};
  ot_case_create(&c);
  ot_case_fill(&c.in[0], (uint64_t)part, 1, 0);
  ot_case_fill(&c.out[0], 100 + (uint64_t)part, 1, 0);
  if (s.master) ot_case_fill(&c.out[3], 100 + (uint64_t)part, 1, 0);
  ot_case_fill(&c.out[1], 200 + (uint64_t)part, 0.1, 0);
  ot_case_set(&c.in[1], OT_SCALAR_LEARNING_RATE, 0.02);
  ot_case_set(&c.in[1], OT_SCALAR_CLIP_FACTOR, factor);
  ot_case_set(&c.in[1], OT_SCALAR_CORRECTION_1, 1 / (1 - 0.9));
  ot_case_set(&c.in[1], OT_SCALAR_CORRECTION_2, 1 / (1 - 0.95));
  return c;
}

static void expect_equal(const ot_case *a, const ot_case *b, const char *what) {
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    if (!a->out[i].data) continue;
    const size_t bytes = (size_t)ot_type_bytes(&a->out[i].type);
    if (memcmp(a->out[i].data, b->out[i].data, bytes) != 0) fail_msg("%s: output %d", what, i);
  }
}

static void compare_updates(storage s, int count) {
  char what[64];
  ot_case joined[PARTS], alone[PARTS];
  for (int i = 0; i < count; i++) {
    joined[i] = update_of(i, s, 0.5);
    alone[i] = update_of(i, s, 0.5);
    ot_case_run(&alone[i]);
  }
  ot_case_run_joined(joined, count);
  for (int i = 0; i < count; i++) {
    snprintf(what, sizeof what, "part %d of %d", i, count);
    expect_equal(&joined[i], &alone[i], what);
    ot_case_destroy(&joined[i]);
    ot_case_destroy(&alone[i]);
  }
}

static void updates_have_the_bits_of_each_alone(void **state) {
  (void)state;
  for (int s = 0; s < OT_COUNT(storages); s++) compare_updates(storages[s], s == 0 ? PARTS : 9);
}

static void nothing_is_updated_if_the_clip_factor_is_not_finite(void **state) {
  (void)state;
  ot_case joined[3], before[3];
  for (int i = 0; i < 3; i++) {
    joined[i] = update_of(i, storages[1], NAN);
    before[i] = update_of(i, storages[1], NAN);
  }
  ot_case_run_joined(joined, 3);
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < 4; k++) {
      const size_t bytes = (size_t)ot_type_bytes(&before[i].out[k].type);
      assert_memory_equal(joined[i].out[k].data, before[i].out[k].data, bytes);
    }
    ot_case_destroy(&joined[i]);
    ot_case_destroy(&before[i]);
  }
}

// Squares of many digits: the bits of their sums show the order.
static ot_case squares_of(int part, bool accumulate) {
  ot_case c = {.kind = OT_OP_SUM_SQUARES,
               .attributes = {.threads = 1, .compute = OT_F32, .accumulate = accumulate},
               .types = {.in = {ot_type_vector(OT_F32, size_of(part))}}};
  ot_case_create(&c);
  // Parts of different magnitude, so that a sum of them depends on their order.
  const double scale = part % 3 == 1 ? 1e4 : 1;
  for (int64_t i = 0; i < size_of(part); i++)
    ot_case_set(&c.in[0], i, scale * sin((double)(i + part)));
  return c;
}

static void squares_have_the_bits_of_each_alone(void **state) {
  (void)state;
  ot_case joined[PARTS], alone[PARTS];
  for (int i = 0; i < PARTS; i++) {
    joined[i] = squares_of(i, false);
    alone[i] = squares_of(i, false);
    ot_case_run(&alone[i]);
  }
  ot_case_run_joined(joined, PARTS);
  for (int i = 0; i < PARTS; i++) {
    expect_equal(&joined[i], &alone[i], "sum of squares");
    ot_case_destroy(&joined[i]);
    ot_case_destroy(&alone[i]);
  }
}

// The sums of all parts go to one place, which holds another sum.
static void squares_are_added_in_the_order_of_the_parts(void **state) {
  (void)state;
  enum { COUNT = 9 };
  ot_case joined[COUNT], alone[COUNT];
  void *own[2][COUNT];
  for (int i = 0; i < COUNT; i++) {
    joined[i] = squares_of(i, true);
    alone[i] = squares_of(i, true);
    own[0][i] = joined[i].out[0].data;
    own[1][i] = alone[i].out[0].data;
    joined[i].out[0].data = own[0][0];
    alone[i].out[0].data = own[1][0];
  }
  ot_case_set(&joined[0].out[0], 0, 0.1);
  ot_case_set(&alone[0].out[0], 0, 0.1);
  for (int i = 0; i < COUNT; i++) ot_case_run(&alone[i]);
  ot_case_run_joined(joined, COUNT);
  expect_equal(&joined[0], &alone[0], "sum of all");
  for (int i = 0; i < COUNT; i++) {
    joined[i].out[0].data = own[0][i];
    alone[i].out[0].data = own[1][i];
    ot_case_destroy(&joined[i]);
    ot_case_destroy(&alone[i]);
  }
}

// ---- launches ----

typedef struct launch_count {
  int tasks, launches;
} launch_count;

// The tasks of `phase` in a step, and the launches that run them.
static launch_count count_launches(const ot_schedule *schedule, ot_phase phase) {
  const int step = ot_schedule_find_order(schedule, OT_ORDER_STEP, 0);
  const ot_order *const order = &schedule->orders[step];
  launch_count count = {0};
  for (int i = 0; i < order->num_entries; i++) {
    const ot_segment *const segment = &schedule->segments[order->entries[i].segment];
    if (segment->phase != phase) continue;
    count.tasks += segment->num_tasks;
    for (int k = 0; k < segment->num_tasks; k++) count.launches += !segment->tasks[k].joins;
  }
  return count;
}

// The plan of a step of GPT-2 124M on a GPU. Q, K and V count as tensors of their own.
static void gpt2_takes_two_launches_a_block(void **state) {
  (void)state;
  enum { TENSORS = 148 + 12 * 4, BLOCKS = 14 };
  static const int micro_batches[] = {1};
  ot_recompute recompute = OT_RECOMPUTE_NONE;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_config_request wanted = {.presets = ot_installed_presets(&arena)};
  ot_config_model loaded;
  ot_graph graphs[OT_MODES];
  ot_schedule schedule;
  if (ot_config_load_model("gpt2", &wanted, &arena, &loaded) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  ot_run run = tiny_run(&loaded.model);
  run.parallel.recompute = &recompute;
  const ot_rank_request request = {
      .modes = 1u << OT_MODE_TRAIN,
      .graph = {.model = &loaded.model,
                .micro_batch_size = 1,
                .sequence_length = 1024,
                .compute = OT_F32,
                .storage = OT_BF16,
                .backend = OT_BACKEND_CUDA},
      .schedule = {.run = &run, .micro_batches = micro_batches, .num_micro_batches = 1}};
  if (ot_runtime_plan(&request, &arena, graphs, &schedule) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  const ot_phase phases[] = {OT_PHASE_NORM, OT_PHASE_UPDATE};
  for (int i = 0; i < 2; i++) {
    const launch_count count = count_launches(&schedule, phases[i]);
    printf("%s: %d tensors in %d launches\n", ot_phase_name(phases[i]), count.tasks,
           count.launches);
    assert_int_equal(count.tasks, TENSORS);
    assert_in_range(count.launches, 1, BLOCKS);
  }
  ot_heap_release(&heap);
}

// A launch is a kernel and that of its totals, in a step that runs them one by one, and in one that
// captures and launches a graph.
static void a_step_runs_the_launches_of_its_plan(void **state) {
  (void)state;
  enum { STEPS = 3 };
  const parity_request request = {.name = "mixtral",
                                  .config = "config.json",
                                  .compute = OT_F32,
                                  .storage = OT_BF16,
                                  .backend = OT_BACKEND_CUDA,
                                  .micro_batch_size = PARITY_BATCH,
                                  .threads = 1};
  static const char *const kernels[] = {"adamw_kernel", "total_kernel<2>", "squares_kernel",
                                        "total_kernel<1>"};
  int64_t before[OT_COUNT(kernels)];
  parity_case c;
  if (op_device_count_kernels("") < 0) skip();
  parity_create(&request, &c);
  const ot_schedule *const schedule = ot_runtime_schedule(c.runtime);
  const launch_count updates = count_launches(schedule, OT_PHASE_UPDATE);
  const launch_count norms = count_launches(schedule, OT_PHASE_NORM);
  for (int i = 0; i < OT_COUNT(kernels); i++) before[i] = op_device_count_kernels(kernels[i]);
  for (int step = 1; step <= STEPS; step++) parity_step(&c, step);
  for (int i = 0; i < OT_COUNT(kernels); i++) {
    const int64_t ran = op_device_count_kernels(kernels[i]) - before[i];
    const int wanted = i < 2 ? updates.launches : norms.launches;
    if (ran != STEPS * wanted) fail_msg("%s: %d times, not %d", kernels[i], (int)ran, wanted);
  }
  assert_true(updates.tasks > 3 * updates.launches && norms.tasks > 3 * norms.launches);
  parity_destroy(&c);
}

int main(void) {
  setenv("OT_TEST_DEVICE", "cuda", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(updates_have_the_bits_of_each_alone),
      cmocka_unit_test(nothing_is_updated_if_the_clip_factor_is_not_finite),
      cmocka_unit_test(squares_have_the_bits_of_each_alone),
      cmocka_unit_test(squares_are_added_in_the_order_of_the_parts),
      cmocka_unit_test(gpt2_takes_two_launches_a_block),
      cmocka_unit_test(a_step_runs_the_launches_of_its_plan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
