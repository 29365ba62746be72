// SPDX-License-Identifier: Apache-2.0
// run: alone. Weighted interleaving: at every draw each source is within one of its share.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "data/blend.h"
#include "support/scratch.h"

static ot_blend *create(const double *weights, int64_t count) {
  ot_blend *blend;
  if (ot_blend_create(weights, count, &blend) != OT_OK) fail_msg("%s", ot_fail_message());
  return blend;
}

// Draws `n`; checks indices, counts, and at each draw the distance from the shares `exact` [count].
static void check_draws(const ot_blend *blend, const double *exact, int64_t count, int64_t n) {
  int64_t *const drawn = calloc((size_t)count, sizeof *drawn);
  for (int64_t i = 0; i < n; i++) {
    const ot_blend_draw draw = ot_blend_at(blend, i);
    assert_int_equal(draw.before, drawn[draw.source]);
    drawn[draw.source]++;
    for (int64_t k = 0; k < count; k++) {
      const double ideal = exact[k] * (double)(i + 1);
      if (fabs((double)drawn[k] - ideal) >= 1.0) {
        fail_msg("after %lld draws source %lld has %lld, its share is %f", (long long)i + 1,
                 (long long)k, (long long)drawn[k], ideal);
      }
    }
  }
  for (int64_t k = 0; k < count; k++) assert_int_equal(ot_blend_count(blend, n, k), drawn[k]);
  free(drawn);
}

static void keeps_every_source_within_one_of_its_share(void **state) {
  (void)state;
  const double weights[] = {0.5, 0.3, 0.15, 0.05};
  ot_blend *blend = create(weights, 4);
  assert_int_equal(ot_blend_period(blend), 20);
  check_draws(blend, weights, 4, 2000);
  ot_blend_destroy(&blend);
}

static void keeps_its_share_for_many_weights(void **state) {
  (void)state;
  for (uint64_t n = 0; n < 60; n++) {
    const int64_t count = 1 + (int64_t)ot_rng_below(1, n, 0, 12);
    double weights[12], exact[12];
    double sum = 0;
    for (int64_t k = 0; k < count; k++) {
      weights[k] = 1 + (double)ot_rng_below(1, n, (uint64_t)k + 1, n % 2 ? 5 : 400);
      sum += weights[k];
    }
    for (int64_t k = 0; k < count; k++) exact[k] = weights[k] / sum;
    ot_blend *blend = create(weights, count);
    check_draws(blend, exact, count, 3 * ot_blend_period(blend) + 7);
    ot_blend_destroy(&blend);
  }
}

static void rounds_shares_that_no_period_makes_whole(void **state) {
  (void)state;
  const double weights[] = {M_PI, 1, 1e-9, M_E};
  ot_blend *blend = create(weights, 4);
  assert_int_equal(ot_blend_period(blend), OT_BLEND_PERIOD_MAX);
  double exact[4];
  int64_t sum = 0;
  for (int k = 0; k < 4; k++) {
    const double share = (double)ot_blend_share(blend, k);
    assert_true(share >= 1);
    assert_true(fabs(share - weights[k] / (M_PI + 1 + M_E) * OT_BLEND_PERIOD_MAX) <= 1.5);
    exact[k] = share / OT_BLEND_PERIOD_MAX;
    sum += ot_blend_share(blend, k);
  }
  assert_int_equal(sum, OT_BLEND_PERIOD_MAX);
  check_draws(blend, exact, 4, OT_BLEND_PERIOD_MAX + 5);
  ot_blend_destroy(&blend);
}

static void counts_exactly_far_out(void **state) {
  (void)state;
  const double weights[] = {7, 3};
  ot_blend *blend = create(weights, 2);
  const int64_t far = 4000000000000000000;
  assert_int_equal(ot_blend_count(blend, far, 0), far / 10 * 7);
  const ot_blend_draw draw = ot_blend_at(blend, far);
  assert_int_equal(draw.before, draw.source == 0 ? far / 10 * 7 : far / 10 * 3);
  ot_blend_destroy(&blend);
}

static void refuses_weights_that_are_none(void **state) {
  (void)state;
  const double bad[][2] = {{1, 0}, {1, -1}, {NAN, 1}, {INFINITY, 1}};
  for (int i = 0; i < 4; i++) {
    ot_blend *blend;
    assert_int_equal(ot_blend_create(bad[i], 2, &blend), OT_USAGE);
    assert_null(blend);
    assert_message_has("weight");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(keeps_every_source_within_one_of_its_share),
      cmocka_unit_test(keeps_its_share_for_many_weights),
      cmocka_unit_test(rounds_shares_that_no_period_makes_whole),
      cmocka_unit_test(counts_exactly_far_out),
      cmocka_unit_test(refuses_weights_that_are_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
