// SPDX-License-Identifier: Apache-2.0
// run: any machine. Weights of tokens against PyTorch's gradients of the papers' objectives; the
// expected gradient of leave-one-out against that of the reward, by enumeration.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../fixtures/rl/policy_loss.h"
#include "base/rng.h"
#include "rl/policy_loss.h"

enum { SEQUENCES = 8, TOKENS = 37, GROUP = 4 };

static const ot_policy_batch batch = {.sequences = SEQUENCES,
                                      .first = golden_first,
                                      .logprob = golden_logprob,
                                      .behaviour = golden_behaviour,
                                      .advantage = golden_advantage};

static void is_equal(const double *found, const double *golden, int n, double scale) {
  for (int i = 0; i < n; i++) assert_float_equal(scale * found[i], golden[i], 1e-13);
}

static void weights_are_gradients_of_the_objectives(void **state) {
  (void)state;
  const struct {
    ot_policy_loss loss;
    const double *golden;
  } cases[] = {
      {ot_policy_loss_default(OT_POLICY_REINFORCE), golden_reinforce},
      {ot_policy_loss_default(OT_POLICY_TIS), golden_tis},
      {{.objective = OT_POLICY_CISPO, .cap = 1.5}, golden_cispo},
      {ot_policy_loss_default(OT_POLICY_GRPO), golden_grpo},
      {{.objective = OT_POLICY_GSPO, .low = 0.1, .high = 0.1}, golden_gspo},
      {ot_policy_loss_default(OT_POLICY_MIS), golden_mis},
  };
  for (int i = 0; i < (int)(sizeof cases / sizeof cases[0]); i++) {
    for (int average = 0; average < OT_POLICY_AVERAGES; average++) {
      ot_policy_loss loss = cases[i].loss;
      loss.average = (ot_policy_average)average;
      double weights[TOKENS];
      ot_policy_weights(&loss, &batch, weights);
      const bool tokens = average == OT_POLICY_TOKENS && loss.objective != OT_POLICY_GSPO;
      is_equal(weights, cases[i].golden, TOKENS, tokens ? TOKENS : SEQUENCES);
    }
  }
}

static void some_tokens_are_bounded(void **state) {
  (void)state;
  const ot_policy_loss grpo = ot_policy_loss_default(OT_POLICY_GRPO);
  ot_policy_figures figures;
  ot_policy_measure(&grpo, &batch, &figures);
  double weights[TOKENS], zeros = 0;
  ot_policy_weights(&grpo, &batch, weights);
  for (int i = 0; i < TOKENS; i++) zeros += weights[i] == 0;
  assert_float_equal(figures.zero_share, zeros / TOKENS, 1e-15);
  assert_true(zeros > 2 && zeros < TOKENS - 2);
}

static void figures_are_those_of_pytorch(void **state) {
  (void)state;
  const ot_policy_loss tis = ot_policy_loss_default(OT_POLICY_TIS);
  ot_policy_figures figures;
  ot_policy_measure(&tis, &batch, &figures);
  const double found[] = {figures.ess, figures.sequence_ess, figures.kl, figures.log_ratio};
  is_equal(found, golden_figures, 4, 1);
}

static void on_policy_all_ratios_are_one(void **state) {
  (void)state;
  ot_policy_batch same = batch;
  same.behaviour = same.logprob;
  for (int k = 0; k < OT_POLICY_OBJECTIVES; k++) {
    const ot_policy_loss loss = ot_policy_loss_default((ot_policy_objective)k);
    ot_policy_figures figures;
    ot_policy_measure(&loss, &same, &figures);
    assert_true(figures.ess == 1 && figures.sequence_ess == 1 && figures.kl == 0);
    assert_true(figures.zero_share == 0);
  }
}

static void advantages_leave_one_out(void **state) {
  (void)state;
  double advantages[SEQUENCES];
  for (int i = 0; i < SEQUENCES; i += GROUP) {
    ot_policy_advantages(golden_rewards + i, GROUP, advantages + i);
  }
  is_equal(advantages, golden_advantage, SEQUENCES, 1);
  ot_policy_advantages(golden_rewards, 1, advantages);
  assert_true(advantages[0] == 0);
}

// ---- all sequences of three tokens out of four ----

enum { VOCAB = 4, LENGTH = 3, ALL = VOCAB * VOCAB * VOCAB, LOGITS = (VOCAB + 1) * VOCAB };

static double logits[LOGITS],
    rewards[ALL];  // a row of logits for each token before; none: the last

static void softmax(int row, double p[VOCAB]) {
  double sum = 0;
  for (int v = 0; v < VOCAB; v++) sum += p[v] = exp(logits[row * VOCAB + v]);
  for (int v = 0; v < VOCAB; v++) p[v] /= sum;
}

// log p of sequence x, and its gradient by the logits.
static double gradient_of(int x, double gradient[LOGITS]) {
  double sum = 0, p[VOCAB];
  memset(gradient, 0, LOGITS * sizeof *gradient);
  for (int t = 0, row = VOCAB; t < LENGTH; t++, x /= VOCAB) {
    softmax(row, p);
    for (int v = 0; v < VOCAB; v++) gradient[row * VOCAB + v] += (v == x % VOCAB) - p[v];
    sum += log(p[x % VOCAB]);
    row = x % VOCAB;
  }
  return sum;
}

static double expected_reward(void) {
  double sum = 0, unused[LOGITS];
  for (int x = 0; x < ALL; x++) sum += exp(gradient_of(x, unused)) * rewards[x];
  return sum;
}

static void expected_gradient_is_that_of_the_reward(void **state) {
  (void)state;
  for (int i = 0; i < LOGITS; i++) logits[i] = ot_rng_normal(1, 1, (uint64_t)i);
  for (int x = 0; x < ALL; x++) rewards[x] = ot_rng_normal(1, 2, (uint64_t)x);
  double expected[LOGITS] = {0}, gradient[LOGITS];
  for (int x = 0; x < ALL; x++) {
    const double p = exp(gradient_of(x, gradient));
    for (int y = 0; y < ALL; y++) {
      double unused[LOGITS], advantages[2];
      ot_policy_advantages((double[]){rewards[x], rewards[y]}, 2, advantages);
      const double both = p * exp(gradient_of(y, unused));
      for (int i = 0; i < LOGITS; i++) expected[i] += both * advantages[0] * gradient[i];
    }
  }
  for (int i = 0; i < LOGITS; i++) {
    const double kept = logits[i], h = 1e-5;
    logits[i] = kept + h;
    const double above = expected_reward();
    logits[i] = kept - h;
    const double slope = (above - expected_reward()) / (2 * h);
    logits[i] = kept;
    assert_float_equal(expected[i], slope, 1e-8);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_are_gradients_of_the_objectives),
      cmocka_unit_test(some_tokens_are_bounded),
      cmocka_unit_test(figures_are_those_of_pytorch),
      cmocka_unit_test(on_policy_all_ratios_are_one),
      cmocka_unit_test(advantages_leave_one_out),
      cmocka_unit_test(expected_gradient_is_that_of_the_reward),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
