// SPDX-License-Identifier: Apache-2.0
// run: any machine. The chosen split of a fleet is the best of all splits when each is played; its
// bounds, price and reasons.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "advise/rl_split.h"
#include "support/arena_fixture.h"
#include "support/scratch.h"

static ot_rl_split_request request_of(double train_token_s, int max_lag) {
  const ot_rl_lengths lengths = ot_rl_lengths_lognormal(20, 1, 200, 4000, &arena);
  return (ot_rl_split_request){.fleet = {.workers = 8,
                                         .group = 8,
                                         .batch = 64,
                                         .queue = 128,
                                         .max_lag = max_lag,
                                         .cost = {.decode_s = 1,
                                                  .row_s = 0.02,
                                                  .train_token_s = train_token_s,
                                                  .publish_s = 0.5}},
                               .lengths = lengths,
                               .most_slots = 64,
                               .dollars_per_worker_hour = 2};
}

static double play(const ot_rl_split_request *r, int generators, int slots) {
  ot_rl_fleet fleet = r->fleet;
  fleet.generators = generators;
  fleet.slots = slots;
  const ot_rl_play play = {.fleet = &fleet, .lengths = &r->lengths, .updates = 60, .warmup = 20};
  static ot_rl_record record;
  assert_int_equal(ot_rl_play_run(&play, &arena, &record), OT_OK);
  return (double)record.updates / record.time_s;
}

static void chosen_split_is_the_fastest(void **state) {
  (void)state;
  const double costs[] = {0.02, 0.1, 0.4};
  int chosen[3];
  for (int i = 0; i < 3; i++) {
    const ot_rl_split_request r = request_of(costs[i], 0);
    ot_rl_split split;
    assert_int_equal(ot_rl_split_build(&r, &arena, &split), OT_OK);
    const ot_rl_choice *const best = &split.choices[0];
    chosen[i] = best->fleet.generators;
    for (int g = 1; g < 8; g++) {
      for (int slots = 1; slots <= 64; slots *= 4) {
        assert_true(play(&r, g, slots) <= 1.02 * best->played.updates_per_s);
      }
    }
    const double hours = 1000 / best->played.updates_per_s / 3600;
    assert_float_equal(best->dollars_per_1000_updates, 16 * hours, 1e-9 * hours);
    assert_true(best->played.updates_per_s > split.synchronous.played.updates_per_s);
    assert_true(split.num_reasons == 4 && strstr(split.reasons[3], "1000 updates cost $"));
  }
  assert_true(chosen[0] > chosen[1] && chosen[1] > chosen[2]);
}

static void bound_of_the_lag_limits_the_slots(void **state) {
  (void)state;
  ot_rl_split_request r = request_of(0.05, 0);
  ot_rl_split free_split, bounded;
  assert_int_equal(ot_rl_split_build(&r, &arena, &free_split), OT_OK);
  r.fleet.max_lag = 3;
  assert_int_equal(ot_rl_split_build(&r, &arena, &bounded), OT_OK);
  const ot_rl_choice *const best = &bounded.choices[0];
  assert_true(best->closed.lag <= 3 && best->played.lag_max <= 3);
  assert_true(free_split.choices[0].played.lag > best->played.lag);
  r.fleet.max_lag = 0;
  r.most_slots = 4;
  assert_int_equal(ot_rl_split_build(&r, &arena, &bounded), OT_OK);
  assert_true(bounded.choices[0].fleet.slots <= 4);
}

static void what_is_given_is_kept(void **state) {
  (void)state;
  ot_rl_split_request r = request_of(0.1, 0);
  r.fleet.generators = 3;
  r.fleet.slots = 16;
  ot_rl_split split;
  assert_int_equal(ot_rl_split_build(&r, &arena, &split), OT_OK);
  assert_int_equal(split.num_choices, 1);
  assert_true(split.choices[0].fleet.generators == 3 && split.choices[0].fleet.slots == 16);
  r.fleet.slots = 64;
  r.fleet.max_lag = 1;
  assert_int_equal(ot_rl_split_build(&r, &arena, &split), OT_FINDINGS);
  assert_message_has("max_lag=1");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(chosen_split_is_the_fastest, begin, finish),
      cmocka_unit_test_setup_teardown(bound_of_the_lag_limits_the_slots, begin, finish),
      cmocka_unit_test_setup_teardown(what_is_given_is_kept, begin, finish),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
