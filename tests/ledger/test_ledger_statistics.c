// SPDX-License-Identifier: Apache-2.0
// run: any machine. The statistics of the ledger against numpy and scipy, and, by simulation, that
// its intervals cover and its looks keep the error. OT_TESTS=full: 10,000 ledgers in place of 400.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"
#include "fixtures/ledger/values.h"
#include "ledger/decision.h"
#include "ledger/preregistration.h"

static void expect_near(const char *what, double value, double expected, double tolerance) {
  const double scale = fmax(fabs(expected), 1e-3);
  if (!(fabs(value - expected) <= tolerance * scale))
    fail_msg("%s is %.15g, not %.15g", what, value, expected);
}

static void tails_and_quantiles_are_those_of_scipy(void **state) {
  (void)state;
  for (int i = 0; i < OT_COUNT(tails); i++) {
    const double *const row = tails[i];
    const double tail = ot_student_tail(row[0], row[1]);
    if (!(fabs(tail - row[2]) <= 1e-11 * row[2]))
      fail_msg("P(T%g > %g) is %.15g, not %.15g", row[1], row[0], tail, row[2]);
  }
  for (int i = 0; i < OT_COUNT(quantiles); i++)
    expect_near("quantile", ot_student_quantile(quantiles[i][0], quantiles[i][1]), quantiles[i][2],
                1e-11);
}

// ---- multipliers ----

enum { SCALES = 3, SEEDS = 6, VALUES = 2 * SCALES + 3 };

static void make_ladder(ot_baseline *base, bool along_ladder) {
  *base = (ot_baseline){.scales = SCALES,
                        .seeds = SEEDS,
                        .along_ladder = along_ladder,
                        .budgets = 2,
                        .factor = {0.7, 1.4}};
  for (int s = 0; s < SCALES; s++) {
    base->ln_compute[s] = log(ladder_compute[s]);
    memcpy(base->loss[s], ladder_loss[s], sizeof ladder_loss[s]);
    for (int f = 0; f < 2; f++)
      memcpy(base->budget_loss[s][f], ladder_budget_loss[s][f], sizeof ladder_budget_loss[s][f]);
  }
}

static void make_change(const ot_baseline *base, const double loss[SCALES][SEEDS],
                        ot_changed *changed) {
  for (int s = 0; s < SCALES; s++) {
    changed->ln_compute[s] = base->ln_compute[s] + extra[s];
    memcpy(changed->loss[s], loss[s], sizeof loss[s]);
  }
}

static void compare(const double loss[SCALES][SEEDS], bool along_ladder,
                    const double expected[VALUES][5]) {
  ot_baseline base;
  ot_changed changed;
  ot_multiplier m;
  make_ladder(&base, along_ladder);
  make_change(&base, loss, &changed);
  ot_multiplier_estimate(&base, &changed, log(1e21), &m);
  for (int i = 0; i < VALUES; i++) {
    const ot_measured *const e = i < SCALES        ? &m.ln_m[i]
                                 : i < 2 * SCALES  ? &m.slope[i - SCALES]
                                 : i == VALUES - 3 ? &m.mean
                                 : i == VALUES - 2 ? &m.trend
                                                   : &m.at_target;
    expect_near("value", e->value, expected[i][0], 1e-8);
    expect_near("standard error", e->se, expected[i][1], 1e-8);
    expect_near("lower bound", e->low, expected[i][2], 1e-8);
    expect_near("upper bound", e->high, expected[i][3], 1e-8);
    expect_near("p", e->p, expected[i][4], 1e-8);
  }
}

static void multipliers_are_those_of_numpy(void **state) {
  (void)state;
  compare(small_loss, false, small_budgets);
  compare(small_loss, true, small_ladder);
  compare(large_loss, false, large_budgets);
  compare(large_loss, true, large_ladder);
}

// The loss at the multiplier of a change is the change's loss, on both sides of the limit at which
// the parabola becomes a cubic, and beyond the budgets of the baseline.
static void the_curve_gives_back_the_loss(void **state) {
  (void)state;
  ot_baseline base;
  ot_changed changed;
  for (int along = 0; along < 2; along++) {
    make_ladder(&base, along);
    for (int i = 0; i < 4; i++) {
      make_change(&base, small_loss, &changed);
      double difference = 0;
      for (int k = 0; k < SEEDS; k++) {
        changed.loss[1][k] = base.loss[1][k] - (i - 1.2) * 0.08;
        difference += (changed.loss[1][k] - base.loss[1][k]) / SEEDS;
      }
      const double x =
          ot_ln_multiplier(&base, &changed, 1, -1) + changed.ln_compute[1] - base.ln_compute[1];
      expect_near("loss", ot_baseline_loss_at(&base, 1, x), difference, 1e-9);
    }
  }
}

// Both arms of these pairs have the same runs, but for the last bit of how their compute was
// counted: a difference of 1e-12 at every seed is no gain, however exact it is.
static void pairs_that_differ_by_less_than_rounding_claim_nothing(void **state) {
  (void)state;
  const ot_ledger_margins margins = {1.01, 0.99, 0.005, 1.3};
  const ot_looks looks = {.count = 1, .pairs = {SEEDS}, .level = {0.025}, .one_sided = 0.025};
  const ot_decision decision = {&looks, &margins, 1, 0, false};
  ot_baseline base;
  ot_changed same;
  ot_multiplier m;
  make_ladder(&base, false);
  make_change(&base, ladder_loss, &same);
  double squares = 0;
  for (int s = 0; s < SCALES; s++) same.ln_compute[s] = base.ln_compute[s] - 1e-12;
  ot_multiplier_estimate(&base, &same, log(1e21), &m);
  assert_true(!m.by_rounding && ot_decide(&decision, &m.mean) == OT_LEDGER_BETTER);
  for (int s = 0; s < SCALES; s++) {
    base.rounding[s] = 1e-6 * (s + 1);
    const double error = base.rounding[s] / ot_baseline_slope(&base, s, -1) / sqrt(SEEDS);
    squares += error * error;
  }
  ot_multiplier_estimate(&base, &same, log(1e21), &m);
  expect_near("standard error", m.mean.se, sqrt(squares) / SCALES, 1e-15);
  assert_true(m.by_rounding && ot_decide(&decision, &m.mean) == OT_LEDGER_EQUAL);
  assert_true(m.at_target.low < 0 && m.at_target.high > 0 && m.trend.se > 0);
  make_change(&base, small_loss, &same);
  ot_multiplier_estimate(&base, &same, NAN, &m);
  assert_false(m.by_rounding);
  expect_near("an ordinary change", m.mean.se, small_budgets[2 * SCALES][1], 1e-8);
}

static void priors_and_levels_are_those_of_numpy(void **state) {
  (void)state;
  ot_measured e[OT_COUNT(candidates)] = {{0}};
  for (int i = 0; i < OT_COUNT(e); i++) {
    e[i].value = candidates[i][0];
    e[i].se = candidates[i][1];
  }
  const ot_ledger_prior p = ot_ledger_prior_of(e, OT_COUNT(e));
  expect_near("mean", p.mean, prior[0], 1e-12);
  expect_near("sd", p.sd, prior[1], 1e-12);
  for (int i = 0; i < OT_COUNT(e); i++)
    expect_near("shrunk", ot_ledger_shrink(&p, &e[i]), candidates[i][2], 1e-12);
  ot_looks looks = {.count = 3, .pairs = {4, 8, 16}, .one_sided = 0.025};
  ot_looks_set_levels(&looks);
  static const int index[] = {0, 1, 4, 4, 9}, accepted[] = {0, 0, 0, 2, 1};
  for (int i = 0; i < OT_COUNT(index); i++)
    expect_near("level", ot_candidate_factor(&looks, index[i], accepted[i]), lond[i], 1e-6);
}

static void effects_of_a_design_are_those_of_least_squares(void **state) {
  (void)state;
  ot_factorial d;
  assert_true(ot_factorial_design(5, &d));
  double value[16];
  for (int r = 0; r < 16; r++) {
    int at = 0;
    while (at < 16 && d.run[at] != (unsigned)(factorial_runs[r][0] + 2 * factorial_runs[r][1] +
                                              4 * factorial_runs[r][2] + 8 * factorial_runs[r][3] +
                                              16 * factorial_runs[r][4]))
      at++;
    assert_in_range(at, 0, 15);
    value[at] = factorial_values[r];
  }
  int next = 0;
  for (int i = 0; i < 5; i++)
    expect_near("effect", ot_factorial_effect(&d, 1u << i, value), factorial_effects[next++],
                1e-12);
  for (int i = 0; i < 5; i++) {
    for (int j = i + 1; j < 5; j++) {
      const unsigned pair = 1u << i | 1u << j;
      expect_near("interaction", ot_factorial_effect(&d, pair, value), factorial_effects[next++],
                  1e-12);
      assert_true(ot_factorial_aliases(&d, pair) == 0);
    }
  }
}

// Every design has the baseline, tells its changes apart, and no change from an interaction of two.
static void designs_have_resolution_four(void **state) {
  (void)state;
  for (int k = 2; k <= 8; k++) {
    ot_factorial d;
    assert_true(ot_factorial_design(k, &d));
    assert_int_equal(d.run[0], 0);
    double value[16];
    for (int i = 0; i < k; i++) {
      for (int r = 0; r < d.runs; r++) value[r] = d.run[r] >> i & 1;
      for (int j = 0; j < k; j++)
        expect_near("effect", ot_factorial_effect(&d, 1u << j, value), i == j, 1e-12);
      if (k > 2) assert_true(ot_factorial_aliases(&d, 1u << i) == 0);
    }
  }
  ot_factorial d;
  assert_false(ot_factorial_design(9, &d));
}

// ---- simulation ----

// Losses of a power law with seeds; correlation 0.5 of the arms of a pair.
typedef struct simulation {
  uint64_t trial;
  uint64_t drawn;
  int pairs;
  double ln_m, sd;
} simulation;

static double normal(simulation *s) { return ot_rng_normal(20261126, s->trial, s->drawn++); }

static double truth(double ln_c) { return 1.6 + 40 * exp(-0.11 * ln_c); }

static void draw(simulation *s, ot_baseline *base, ot_changed *changed) {
  *base = (ot_baseline){.scales = 4, .seeds = s->pairs, .along_ladder = true};
  for (int i = 0; i < base->scales; i++) {
    base->ln_compute[i] = changed->ln_compute[i] = 27.6 + i * log(4);
    for (int k = 0; k < s->pairs; k++) {
      const double shared = normal(s), own = normal(s);
      base->loss[i][k] = truth(base->ln_compute[i]) + s->sd * shared;
      changed->loss[i][k] =
          truth(base->ln_compute[i] + s->ln_m) + s->sd * (0.5 * shared + sqrt(0.75) * own);
    }
  }
}

static int trials(void) {
  const char *const tests = getenv("OT_TESTS");
  return tests && strcmp(tests, "full") == 0 ? 10000 : 400;
}

// The rate of a binomial of n trials stays below p + 3 sd with 99.9 %; more trials ask for more.
static double above(double p) { return p + 3 * sqrt(p * (1 - p) / trials()); }

static void intervals_cover_and_null_changes_are_not_claimed(void **state) {
  (void)state;
  static const double effects[] = {0, 0.0953, 0.2};
  for (int e = 0; e < OT_COUNT(effects); e++) {
    int covered = 0, claimed = 0;
    for (int t = 0; t < trials(); t++) {
      simulation s = {(uint64_t)(t + 1000000 * e), 0, 8, effects[e], 0.003};
      ot_baseline base;
      ot_changed changed;
      ot_multiplier m;
      draw(&s, &base, &changed);
      ot_multiplier_estimate(&base, &changed, NAN, &m);
      covered += m.mean.low <= effects[e] && effects[e] <= m.mean.high;
      claimed += m.mean.low > 0;
    }
    const double n = trials(), full = n >= 10000;
    print_message("ln m %g: %.0f ledgers, coverage %.2f %%, claims above 0 %.2f %%\n", effects[e],
                  n, 100 * covered / n, 100 * claimed / n);
    assert_true(covered / n >= (full ? 0.93 : 1 - above(0.07)));
    assert_true(covered / n <= (full ? 0.98 : above(0.98)));
    if (effects[e] == 0) assert_true(claimed / n <= (full ? 0.025 : above(0.025)));
    if (effects[e] > 0) assert_true(claimed / n >= 0.99);
  }
}

// Claims of a change that does nothing, over all looks, at the levels of the ledger.
static void three_looks_keep_the_error(void **state) {
  (void)state;
  const ot_ledger_margins margins = {1.0000001, 0.99, 0.005, 1.3};
  ot_looks looks = {.count = 3, .pairs = {4, 8, 16}, .one_sided = 0.025};
  ot_looks_set_levels(&looks);
  int claims = 0;
  for (int t = 0; t < trials(); t++) {
    simulation s = {(uint64_t)(7000000 + t), 0, 16, 0, 0.003};
    ot_baseline base;
    ot_changed changed;
    draw(&s, &base, &changed);
    for (int look = 0; look < looks.count; look++) {
      ot_multiplier m;
      base.seeds = looks.pairs[look];
      ot_multiplier_estimate(&base, &changed, NAN, &m);
      const ot_decision decision = {&looks, &margins, 1, look, false};
      if (ot_decide(&decision, &m.mean) != OT_LEDGER_BETTER) continue;
      claims++;
      break;
    }
  }
  const double n = trials();
  print_message("%.0f null changes, claimed in any of three looks: %.2f %%\n", n, 100 * claims / n);
  assert_true(claims / n <= above(0.025));
}

// Two scales, each with runs at other budgets.
static void draw_two_scales(simulation *s, ot_baseline *base, ot_changed *changed) {
  draw(s, base, changed);
  base->scales = base->budgets = 2;
  base->along_ladder = false;
  base->factor[0] = 0.7;
  base->factor[1] = 1.4;
  for (int i = 0; i < 4; i++) {
    const double at = base->ln_compute[i / 2], other = at + log(base->factor[i % 2]);
    for (int k = 0; k < s->pairs; k++)
      base->budget_loss[i / 2][i % 2][k] = base->loss[i / 2][k] + truth(other) - truth(at);
  }
}

// A change of ln m `ln_m` at the first of two scales and `ln_m + move` at the second.
static void draw_change(simulation *s, const ot_baseline *base, double move, ot_changed *changed) {
  for (int i = 0; i < 2; i++) {
    changed->ln_compute[i] = base->ln_compute[i];
    for (int k = 0; k < s->pairs; k++) {
      const double at = base->ln_compute[i];
      changed->loss[i][k] = base->loss[i][k] - truth(at) + truth(at + s->ln_m + i * move) +
                            s->sd * (k % 2 ? 0.4 : 0.2) * normal(s);
    }
  }
}

typedef struct foretold {
  int others;      // changes that have been at both scales
  int held, bare;  // predictions that held; with the noise of pairs alone
} foretold;

static void foretell(simulation *s, foretold *f) {
  enum { MOST = 8 };
  const double spread = 0.03;
  double moves[MOST];
  ot_baseline base;
  ot_changed changed;
  ot_measured loss;
  draw_two_scales(s, &base, &changed);
  for (int i = 0; i <= f->others; i++) {
    s->ln_m = 0.05 + 0.05 * normal(s);
    draw_change(s, &base, spread * normal(s), &changed);
    ot_multiplier m;
    ot_multiplier_estimate(&base, &changed, NAN, &m);
    if (i < f->others) moves[i] = m.ln_m[1].value - m.ln_m[0].value;
  }
  double found = 0;
  for (int k = 0; k < s->pairs; k++) found += changed.loss[1][k] / s->pairs;
  const double move = ot_ledger_move_within(moves, f->others, 0.95);
  ot_ledger_predict_change(&base, &changed, 0, move, &loss);
  f->held += loss.low <= found && found <= loss.high;
  ot_ledger_predict_change(&base, &changed, 0, 0, &loss);
  f->bare += loss.low <= found && found <= loss.high;
}

// From one scale, a change's loss at the next is within what other changes moved; the noise of
// pairs alone says too much.
static void predictions_from_one_scale_hold(void **state) {
  (void)state;
  static const int others[] = {1, 3, 8};
  for (int i = 0; i < OT_COUNT(others); i++) {
    foretold f = {.others = others[i]};
    for (int t = 0; t < trials(); t++)
      foretell(&(simulation){(uint64_t)(20000000 + t + 1000000 * i), 0, 4, 0, 0.003}, &f);
    const double n = trials();
    print_message("%d other changes: %.2f %% of predictions held, %.2f %% by pairs alone\n",
                  f.others, 100 * f.held / n, 100 * f.bare / n);
    assert_true(f.held / n >= 1 - above(0.05));
    assert_true(f.bare / n < 0.8);
  }
  assert_true(isinf(ot_ledger_move_within(NULL, 0, 0.95)));
}

static void verdicts_follow_the_margins(void **state) {
  (void)state;
  const ot_ledger_margins margins = {1.01, 0.99, 0.005, 1.3};
  ot_looks looks = {.count = 3, .pairs = {4, 8, 16}, .one_sided = 0.025};
  ot_looks_set_levels(&looks);
  ot_decision d = {&looks, &margins, 1, 1, false};
  const struct {
    ot_measured mean;
    ot_ledger_verdict verdict;
  } cases[] = {
      {{0.05, 0.01, 0.03, 0.07, 0.0068}, OT_LEDGER_BETTER},
      {{0.05, 0.01, 0.03, 0.07, 0.0069}, OT_LEDGER_UNDECIDED},
      {{0.5, 0.01, 0.48, 0.52, 1e-6}, OT_LEDGER_WITHHELD},
      {{-0.05, 0.01, -0.07, -0.03, 0.9999}, OT_LEDGER_WORSE},
      {{-0.002, 0.0002, -0.0024, -0.0016, 0.9999}, OT_LEDGER_EQUAL},
      {{0.001, 0.003, -0.006, 0.008, 0.4}, OT_LEDGER_EQUAL},
      {{0.001, 0.008, -0.02, 0.02, 0.4}, OT_LEDGER_UNDECIDED},
  };
  for (int i = 0; i < OT_COUNT(cases); i++)
    assert_int_equal(ot_decide(&d, &cases[i].mean), cases[i].verdict);
  d.factor = 0.5;
  assert_int_equal(ot_decide(&d, &cases[0].mean), OT_LEDGER_UNDECIDED);
  d = (ot_decision){&looks, &margins, 1, 2, true};
  const ot_measured narrow = {0.001, 0.001, 0, 0, 0.2}, wide = {0.001, 0.004, 0, 0, 0.4};
  assert_int_equal(ot_decide(&d, &narrow), OT_LEDGER_EQUAL);
  assert_int_equal(ot_decide(&d, &wide), OT_LEDGER_UNDECIDED);
}

static void four_pairs_find_two_percent(void **state) {
  (void)state;
  // 2 % with a standard deviation of 1 %: 4 pairs (ledger of 1 %: 10).
  assert_true(ot_smallest_effect(0.01, 4) < 0.02 && ot_smallest_effect(0.01, 10) < 0.01);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tails_and_quantiles_are_those_of_scipy),
      cmocka_unit_test(multipliers_are_those_of_numpy),
      cmocka_unit_test(the_curve_gives_back_the_loss),
      cmocka_unit_test(pairs_that_differ_by_less_than_rounding_claim_nothing),
      cmocka_unit_test(priors_and_levels_are_those_of_numpy),
      cmocka_unit_test(effects_of_a_design_are_those_of_least_squares),
      cmocka_unit_test(designs_have_resolution_four),
      cmocka_unit_test(intervals_cover_and_null_changes_are_not_claimed),
      cmocka_unit_test(three_looks_keep_the_error),
      cmocka_unit_test(predictions_from_one_scale_hold),
      cmocka_unit_test(verdicts_follow_the_margins),
      cmocka_unit_test(four_pairs_find_two_percent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
