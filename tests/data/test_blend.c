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

// Draws from each source among the first `n`, [count], to be freed.
static int64_t *count_all(const ot_blend *blend, int64_t count, int64_t n) {
  int64_t *const counts = calloc((size_t)count, sizeof *counts);
  int64_t *const place = calloc((size_t)count, sizeof *place);
  for (int64_t k = 0; k < count; k++) place[k] = k;
  ot_blend_count(blend, n, &(ot_blend_sums){place, counts});
  free(place);
  return counts;
}

// Draws `n`; checks indices, counts, and at each draw the distance from the shares `exact` [count],
// below `most`.
static void check_draws(const ot_blend *blend, const double *exact, int64_t count, int64_t n,
                        double most) {
  int64_t *const drawn = calloc((size_t)count, sizeof *drawn);
  for (int64_t i = 0; i < n; i++) {
    const ot_blend_draw draw = ot_blend_at(blend, i);
    assert_int_equal(draw.before, drawn[draw.source]);
    drawn[draw.source]++;
    for (int64_t k = 0; k < count; k++) {
      const double ideal = exact[k] * (double)(i + 1);
      if (fabs((double)drawn[k] - ideal) >= most) {
        fail_msg("after %lld draws source %lld has %lld, its share is %f", (long long)i + 1,
                 (long long)k, (long long)drawn[k], ideal);
      }
    }
  }
  int64_t *const counted = count_all(blend, count, n);
  assert_memory_equal(counted, drawn, (size_t)count * sizeof *drawn);
  free(counted);
  free(drawn);
}

static void keeps_every_source_within_one_of_its_share(void **state) {
  (void)state;
  const double weights[] = {0.5, 0.3, 0.15, 0.05};
  ot_blend *blend = create(weights, 4);
  assert_int_equal(ot_blend_period(blend), 20);
  check_draws(blend, weights, 4, 2000, 1.0);
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
    check_draws(blend, exact, count, 3 * ot_blend_period(blend) + 7, 1.0);
    ot_blend_destroy(&blend);
  }
}

static void weights_of_six_digits_have_a_period(void **state) {
  (void)state;
  const double weights[] = {0.123457, 0.376541, 0.000002, 0.5};
  ot_blend *blend = create(weights, 4);
  assert_int_equal(ot_blend_period(blend), 1000000);
  check_draws(blend, weights, 4, 1000007, 1.0);
  ot_blend_destroy(&blend);
}

static void weights_without_a_period_stay_close_to_their_shares(void **state) {
  (void)state;
  for (uint64_t n = 0; n < 30; n++) {
    const int64_t count = 2 + (int64_t)ot_rng_below(2, n, 0, 40);
    double weights[42], sum = 0;
    for (int64_t k = 0; k < count; k++) {
      weights[k] = exp(0.001 * (double)ot_rng_below(2, n, (uint64_t)k + 1, n % 2 ? 500 : 9000));
      sum += weights[k];
    }
    for (int64_t k = 0; k < count; k++) weights[k] /= sum;
    ot_blend *blend = create(weights, count);
    assert_int_equal(ot_blend_period(blend), 0);
    check_draws(blend, weights, count, 3000, count <= 3 ? 1.0 : 1.7);
    ot_blend_destroy(&blend);
  }
}

// Counts of a source of weight 1 and `small` sources of weight `weight` after `n` draws.
static void check_small_sources(int64_t small, double weight, int64_t n) {
  double *const weights = calloc((size_t)small + 1, sizeof *weights);
  for (int64_t k = 0; k < small; k++) weights[k] = weight;
  weights[small] = 1;
  const double sum = 1 + weight * (double)small;
  ot_blend *blend = create(weights, small + 1);
  int64_t all = 0;
  int64_t *const counts = count_all(blend, small + 1, n);
  for (int64_t k = 0; k <= small; k++) {
    const int64_t count = counts[k];
    const double ideal = weights[k] / sum * (double)n;
    if (fabs((double)count - ideal) >= 1.0)
      fail_msg("source %lld has %lld of %f draws", (long long)k, (long long)count, ideal);
    all += count;
  }
  assert_int_equal(all, n);
  // All small sources together are a source, too.
  assert_true(fabs((double)counts[small] - (double)n / sum) < 1.0);
  free(counts);
  ot_blend_destroy(&blend);
  free(weights);
}

static void small_sources_are_drawn_as_often_as_they_should(void **state) {
  (void)state;
  check_small_sources(200, 1e-6, 65536);  // 13 draws, not one for each
  check_small_sources(1, 1e-5, 65536);
  check_small_sources(1000, 1e-6, 65536);
  check_small_sources(1000, 1e-6, 10000000);
  check_small_sources(1000, 1e-6, INT64_C(1) << 40);
  check_small_sources(OT_BLEND_SOURCES_MAX - 1, 1e-9, INT64_C(1) << 40);
}

static void any_draw_is_found_without_those_before(void **state) {
  (void)state;
  const double weights[] = {M_PI, 1, 1e-9, M_E};
  const int64_t far = INT64_C(1) << 50;
  ot_blend *blend = create(weights, 4);
  int64_t *const counts = count_all(blend, 4, far);
  for (int64_t i = far; i < far + 1000; i++) {
    const ot_blend_draw draw = ot_blend_at(blend, i);
    assert_int_equal(draw.before, counts[draw.source]++);
  }
  int64_t *const later = count_all(blend, 4, far + 1000);
  assert_memory_equal(counts, later, 4 * sizeof *later);
  free(counts);
  free(later);
  ot_blend_destroy(&blend);
}

static void counts_exactly_far_out(void **state) {
  (void)state;
  const double weights[] = {7, 3};
  ot_blend *blend = create(weights, 2);
  const int64_t far = 4000000000000000000;
  int64_t *const counts = count_all(blend, 2, far);
  assert_int_equal(counts[0], far / 10 * 7);
  free(counts);
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
      cmocka_unit_test(weights_of_six_digits_have_a_period),
      cmocka_unit_test(weights_without_a_period_stay_close_to_their_shares),
      cmocka_unit_test(small_sources_are_drawn_as_often_as_they_should),
      cmocka_unit_test(any_draw_is_found_without_those_before),
      cmocka_unit_test(counts_exactly_far_out),
      cmocka_unit_test(refuses_weights_that_are_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
