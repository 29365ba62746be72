// SPDX-License-Identifier: Apache-2.0
// run: alone. The rates of a schedule, and that a run's length in tokens gives the rates of the
// same length in steps.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/learning_rate.h"

enum { STEPS = 40 };

static const ot_decay decays[] = {OT_DECAY_CONSTANT, OT_DECAY_LINEAR, OT_DECAY_COSINE,
                                  OT_DECAY_WSD};

static ot_run run_of(ot_decay decay, int64_t warmup, int64_t decay_steps) {
  return (ot_run){
      .steps = STEPS,
      .batch = {.global_batch_size = 4, .micro_batch_size = 1},
      .data = {.sequence_length = 32},
      .optimizer = {.lr = 0.01},
      .learning_rate = {
          .decay = decay, .warmup_steps = warmup, .decay_steps = decay_steps, .min = 0.001}};
}

static void assert_same_rates(const ot_run *a, const ot_run *b) {
  for (int64_t step = 0; step < STEPS; step++) {
    const double x = ot_learning_rate_at(a, step), y = ot_learning_rate_at(b, step);
    if (fabs(x - y) > 1e-15 * x)
      fail_msg("decay %d, warm-up %lld, decay_steps %lld, step %lld: %.17g and %.17g",
               (int)a->learning_rate.decay, (long long)a->learning_rate.warmup_steps,
               (long long)a->learning_rate.decay_steps, (long long)step, x, y);
  }
}

static void tokens_give_the_rates_of_steps(void **state) {
  (void)state;
  // A ramp to the same batch, so that progress is counted in tokens.
  ot_batch_ramp ramp[] = {{.from_step = 5, .from_tokens = -1, .global_batch_size = 4}};
  for (int d = 0; d < OT_COUNT(decays); d++) {
    for (int64_t warmup = 0; warmup <= 8; warmup += 4) {
      for (int64_t decay_steps = 0; decay_steps <= 12; decay_steps += 6) {
        const ot_run steps = run_of(decays[d], warmup, decay_steps);
        ot_run tokens = steps;
        tokens.steps = 0;
        tokens.tokens = (int64_t)STEPS * 4 * 32 - 1;
        assert_same_rates(&steps, &tokens);
        tokens.batch.ramp = ramp;
        tokens.batch.num_ramp = 1;
        assert_same_rates(&steps, &tokens);
      }
    }
  }
}

static void a_warm_up_reaches_the_peak_in_its_last_step(void **state) {
  (void)state;
  const double expected[] = {0.0025, 0.005, 0.0075, 0.01, 0.01};
  ot_run run = run_of(OT_DECAY_COSINE, 4, 0);
  for (int i = 0; i < OT_COUNT(expected); i++)
    assert_true(ot_learning_rate_at(&run, i) == expected[i]);
  // Batches that double: steps 0 to 3 are 1, 1, 2 and 2 parts of 6.
  ot_batch_ramp ramp[] = {{.from_step = 2, .from_tokens = -1, .global_batch_size = 8}};
  run.tokens = 8000;
  run.batch.ramp = ramp;
  run.batch.num_ramp = 1;
  const double grown[] = {0.01 / 6, 0.02 / 6, 0.04 / 6, 0.01, 0.01};
  for (int i = 0; i < OT_COUNT(grown); i++)
    assert_true(fabs(ot_learning_rate_at(&run, i) - grown[i]) < 1e-15);
}

static void a_decay_covers_its_steps_whatever_the_batches(void **state) {
  (void)state;
  ot_batch_ramp ramp[] = {{.from_step = 20, .from_tokens = -1, .global_batch_size = 8}};
  ot_run run = run_of(OT_DECAY_LINEAR, 4, 6);
  run.tokens = (int64_t)(20 * 4 + 20 * 8) * 32;
  run.batch.ramp = ramp;
  run.batch.num_ramp = 1;
  assert_true(ot_learning_rate_at(&run, 4) == 0.01);
  assert_true(fabs(ot_learning_rate_at(&run, 7) - 0.0055) < 1e-15);
  assert_true(fabs(ot_learning_rate_at(&run, 10) - 0.001) < 1e-15);
  run.learning_rate.decay = OT_DECAY_WSD;
  assert_true(ot_learning_rate_at(&run, 34) == 0.01);
  assert_true(fabs(ot_learning_rate_at(&run, 37) - 0.0055) < 1e-15);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_give_the_rates_of_steps),
      cmocka_unit_test(a_warm_up_reaches_the_peak_in_its_last_step),
      cmocka_unit_test(a_decay_covers_its_steps_whatever_the_batches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
