// SPDX-License-Identifier: Apache-2.0
// run: any machine. Programs of several ranks in float64 against the program of one rank: outputs,
// losses, maxima and the gradient of every tensor of the model, for tensor parallelism with
// sequence parallelism, both kinds of context parallelism, and both together.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/program_runner.h"
#include "support/split_model.h"

// Only the order of reductions differs.
static const double tolerance = 1e-12;

static ot_model dropping(ot_model model) {
  model.embedding_dropout = 0.2;
  model.attention_dropout = 0.3;
  model.residual_dropout = 0.1;
  return model;
}

static void run(const runner_request *request, runner **r) {
  runner_create(request, r);
  runner_run(*r);
}

static runner_request request_of(const ot_model *model, ot_mode mode) {
  return (runner_request){.model = model,
                          .mode = mode,
                          .tp = 1,
                          .cp = 1,
                          .micro_batch_size = SPLIT_SEQUENCES,
                          .sequence_length = SPLIT_LENGTH,
                          .head_chunk_rows = SPLIT_CHUNK_ROWS,
                          .compute = OT_F64,
                          .storage = OT_F64};
}

static void expect_within(double allowed, runner_request request, ot_split split) {
  runner *whole, *parts;
  run(&request, &whole);
  request.tp = split.tp;
  request.cp = split.cp;
  request.context = split.context;
  run(&request, &parts);
  runner_expect_equal(whole, parts, allowed);
  runner_destroy(&whole);
  runner_destroy(&parts);
}

static void expect_equal(const ot_model *model, ot_split split) {
  expect_within(tolerance, request_of(model, OT_MODE_TRAIN), split);
  expect_within(tolerance, request_of(model, OT_MODE_EVALUATE), split);
}

static void tensor_parallelism_equals_one_rank(void **state) {
  (void)state;
  const ot_model gpt2 = split_gpt2(4), llama = split_llama(4, 4), gemma = split_gemma(4, 2);
  for (int tp = 2; tp <= 4; tp *= 2) {
    expect_equal(&gpt2, (ot_split){.tp = tp, .cp = 1});
    expect_equal(&llama, (ot_split){.tp = tp, .cp = 1});
    expect_equal(&gemma, (ot_split){.tp = tp, .cp = 1});
  }
}

// With fewer kv heads than ranks some ranks hold copies, whose gradients are reduced.
static void copies_of_kv_heads_are_summed(void **state) {
  (void)state;
  const ot_model one = split_llama(4, 1), two = split_llama(8, 2);
  expect_equal(&one, (ot_split){.tp = 2, .cp = 1});
  expect_equal(&one, (ot_split){.tp = 4, .cp = 1});
  expect_equal(&two, (ot_split){.tp = 8, .cp = 1});
}

static void ring_attention_equals_one_rank(void **state) {
  (void)state;
  const ot_model gpt2 = split_gpt2(3), llama = split_llama(4, 2), gemma = split_gemma(2, 1);
  for (int cp = 2; cp <= 4; cp *= 2) {
    expect_equal(&gpt2, (ot_split){.tp = 1, .cp = cp, .context = OT_CONTEXT_RING});
    expect_equal(&llama, (ot_split){.tp = 1, .cp = cp, .context = OT_CONTEXT_RING});
    expect_equal(&gemma, (ot_split){.tp = 1, .cp = cp, .context = OT_CONTEXT_RING});
  }
}

static void ulysses_equals_one_rank(void **state) {
  (void)state;
  const ot_model gpt2 = split_gpt2(4), llama = split_llama(8, 4), gemma = split_gemma(4, 4);
  for (int cp = 2; cp <= 4; cp *= 2) {
    expect_equal(&gpt2, (ot_split){.tp = 1, .cp = cp, .context = OT_CONTEXT_ULYSSES});
    expect_equal(&llama, (ot_split){.tp = 1, .cp = cp, .context = OT_CONTEXT_ULYSSES});
    expect_equal(&gemma, (ot_split){.tp = 1, .cp = cp, .context = OT_CONTEXT_ULYSSES});
  }
}

static void tp_and_cp_together_equal_one_rank(void **state) {
  (void)state;
  const ot_model gpt2 = split_gpt2(4), llama = split_llama(4, 1), gemma = split_gemma(4, 4);
  expect_equal(&gpt2, (ot_split){.tp = 2, .cp = 2, .context = OT_CONTEXT_RING});
  expect_equal(&llama, (ot_split){.tp = 2, .cp = 2, .context = OT_CONTEXT_RING});
  expect_equal(&gemma, (ot_split){.tp = 2, .cp = 2, .context = OT_CONTEXT_RING});
  expect_equal(&gpt2, (ot_split){.tp = 2, .cp = 2, .context = OT_CONTEXT_ULYSSES});
  expect_equal(&gemma, (ot_split){.tp = 2, .cp = 2, .context = OT_CONTEXT_ULYSSES});
}

static void masks_of_dropout_do_not_depend_on_the_split(void **state) {
  (void)state;
  const ot_model gpt2 = dropping(split_gpt2(4)), llama = dropping(split_llama(4, 2));
  expect_equal(&gpt2, (ot_split){.tp = 4, .cp = 1});
  expect_equal(&gpt2, (ot_split){.tp = 1, .cp = 2, .context = OT_CONTEXT_RING});
  expect_equal(&gpt2, (ot_split){.tp = 2, .cp = 2, .context = OT_CONTEXT_ULYSSES});
  expect_equal(&llama, (ot_split){.tp = 2, .cp = 2, .context = OT_CONTEXT_RING});
}

// One rounding is 6e-8 or 4e-3; a value passes through about ten.
static void narrow_types_differ_by_their_rounding(void **state) {
  (void)state;
  const ot_model model = split_llama(4, 2);
  runner_request request = request_of(&model, OT_MODE_TRAIN);
  request.compute = request.storage = OT_F32;
  expect_within(2e-6, request, (ot_split){.tp = 2, .cp = 2, .context = OT_CONTEXT_RING});
  request.storage = OT_BF16;
  expect_within(5e-2, request, (ot_split){.tp = 2, .cp = 2, .context = OT_CONTEXT_RING});
  expect_within(5e-2, request, (ot_split){.tp = 1, .cp = 2, .context = OT_CONTEXT_ULYSSES});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensor_parallelism_equals_one_rank),
      cmocka_unit_test(copies_of_kv_heads_are_summed),
      cmocka_unit_test(ring_attention_equals_one_rank),
      cmocka_unit_test(ulysses_equals_one_rank),
      cmocka_unit_test(tp_and_cp_together_equal_one_rank),
      cmocka_unit_test(masks_of_dropout_do_not_depend_on_the_split),
      cmocka_unit_test(narrow_types_differ_by_their_rounding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
