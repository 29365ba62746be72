// SPDX-License-Identifier: Apache-2.0
// run: any machine. Options that must not change a bit: recompute, split backward, repeated runs,
// moved buffers. Memory rules: canaries, dead buffers, the planned peak.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/parity_case.h"

static const char *const families[] = {"gpt2-packed",    "llama-packed",  "qwen3-sliding-packed",
                                       "olmo2",          "gemma2-packed", "gemma3-packed",
                                       "mixtral-packed", "qwen3-moe",     "deepseek-v3-yarn",
                                       "gpt-oss-packed"};
enum { NUM_FAMILIES = sizeof families / sizeof families[0], STEPS = 2 };

static uint64_t bits_after_steps(const parity_request *request) {
  parity_case c;
  parity_create(request, &c);
  for (int step = 1; step <= STEPS; step++) parity_step(&c, step);
  const uint64_t bits = parity_bits(&c);
  if (!isfinite(parity_loss(&c))) fail_msg("%s: loss is not finite", request->name);
  parity_destroy(&c);
  return bits;
}

static parity_request base_request(const char *name, ot_dtype compute, int micro_batch_size) {
  return (parity_request){.name = name,
                          .config = "config.json",
                          .compute = compute,
                          .storage = compute,
                          .micro_batch_size = micro_batch_size,
                          .threads = 2};
}

static void compare_variants(const char *name, int rows) {
  parity_request request = base_request(name, OT_F32, rows);
  const uint64_t expected = bits_after_steps(&request);
  for (int variant = 1; variant < 6; variant++) {
    request.recompute = (ot_recompute)(variant % 3);
    request.split_backward = variant >= 3;
    if (bits_after_steps(&request) == expected) continue;
    fail_msg("%s, micro-batch %d: recompute %d, split %d changed bits", name, rows, variant % 3,
             variant >= 3);
  }
}

static void recompute_and_split_backward_change_no_bit(void **state) {
  (void)state;
  for (int f = 0; f < NUM_FAMILIES; f++) {
    compare_variants(families[f], 1);
    compare_variants(families[f], PARITY_BATCH);
  }
}

// The bits and the planned peak of a step that recomputes a set of modules.
static int64_t expect_same_bits(const char *name, ot_module_set modules, uint64_t expected) {
  parity_request request = base_request(name, OT_F32, 1);
  request.recompute = OT_RECOMPUTE_SELECTIVE;
  request.modules = modules;
  parity_case c;
  parity_create(&request, &c);
  const bool has = (modules & ot_model_modules(&c.model)) != 0;
  const int64_t peak = ot_runtime_schedule(c.runtime)->memory.peak_bytes;
  for (int step = 1; step <= STEPS; step++) parity_step(&c, step);
  if (parity_bits(&c) != expected) fail_msg("%s: modules %#x changed bits", name, modules);
  parity_destroy(&c);
  return has ? peak : 0;
}

static void recompute_of_modules_changes_no_bit(void **state) {
  (void)state;
  static const char *const models[] = {"llama-packed", "deepseek-v3-yarn", "mixtral-packed"};
  const ot_module_set all = OT_MODULE_SET(OT_RECOMPUTE_MODULES) - 1;
  for (int f = 0; f < OT_COUNT(models); f++) {
    const parity_request whole = base_request(models[f], OT_F32, 1);
    const uint64_t expected = bits_after_steps(&whole);
    int64_t one = 0;
    for (int m = 0; m < OT_RECOMPUTE_MODULES; m++) {
      const int64_t peak = expect_same_bits(models[f], OT_MODULE_SET(m), expected);
      if (peak > one) one = peak;
    }
    // Of one block in flight, what runs again takes the place of what was saved.
    assert_true(expect_same_bits(models[f], all, expected) < one);
  }
}

static void a_run_is_repeatable(void **state) {
  (void)state;
  for (int f = 0; f < NUM_FAMILIES; f++) {
    const parity_request request = base_request(families[f], OT_F32, 2);
    assert_int_equal(bits_after_steps(&request), bits_after_steps(&request));
  }
}

static void bits_do_not_depend_on_where_buffers_lie(void **state) {
  (void)state;
  for (int f = 0; f < NUM_FAMILIES; f++) {
    parity_request request = base_request(families[f], OT_F32, 2);
    const uint64_t expected = bits_after_steps(&request);
    request.poison = true;  // guards of 64 bytes after every buffer move all buffers
    assert_int_equal(bits_after_steps(&request), expected);
  }
}

static void no_kernel_reads_dead_or_writes_foreign_memory(void **state) {
  (void)state;
  for (int f = 0; f < NUM_FAMILIES; f++) {
    for (int variant = 0; variant < 6; variant++) {
      parity_request request = base_request(families[f], variant % 2 ? OT_F64 : OT_F32, 1);
      request.poison = true;
      request.recompute = (ot_recompute)(variant % 3);
      request.split_backward = variant >= 3;
      bits_after_steps(&request);
    }
  }
}

static void touched_memory_equals_the_planned_peak(void **state) {
  (void)state;
  for (int f = 0; f < NUM_FAMILIES; f++) {
    for (int recompute = 0; recompute < 3; recompute++) {
      parity_request request = base_request(families[f], OT_F32, 2);
      request.poison = true;
      request.recompute = (ot_recompute)recompute;
      parity_case c;
      parity_create(&request, &c);
      parity_step(&c, 1);
      assert_int_equal(ot_executor_touched_bytes(ot_runtime_executor(c.runtime)),
                       ot_runtime_schedule(c.runtime)->memory.peak_bytes);
      parity_destroy(&c);
    }
  }
}

static void bf16_storage_stays_near_float32(void **state) {
  (void)state;
  for (int f = 0; f < NUM_FAMILIES; f++) {
    parity_request request = base_request(families[f], OT_F32, 2);
    request.storage = OT_BF16;
    const char *worst = "";
    parity_case c;
    parity_create(&request, &c);
    parity_step(&c, 1);
    const double reference = parity_reference_loss(&c, "f32");
    const double loss = fabs(parity_loss(&c) - reference) / reference;
    const double error = parity_gradient_error(&c, "f32", &worst);
    printf("%-22s bf16 storage: loss %.1e, gradients %.1e (%s)\n", families[f], loss, error, worst);
    // One rounding is 2^-9 = 0.2 %; a few layers of them stay within some percent of the largest.
    assert_true(loss < 5e-3);
    // A rounding may change the choice of experts, and so the gradients.
    assert_true(error < 0.15 || c.model.moe.num_experts > 0);
    parity_destroy(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(recompute_and_split_backward_change_no_bit),
      cmocka_unit_test(recompute_of_modules_changes_no_bit),
      cmocka_unit_test(a_run_is_repeatable),
      cmocka_unit_test(bits_do_not_depend_on_where_buffers_lie),
      cmocka_unit_test(no_kernel_reads_dead_or_writes_foreign_memory),
      cmocka_unit_test(touched_memory_equals_the_planned_peak),
      cmocka_unit_test(bf16_storage_stays_near_float32),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
