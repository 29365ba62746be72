// SPDX-License-Identifier: Apache-2.0
// run: any machine. The flow of RL against its closed form and against another program's figures;
// bounds of the lag; failures; what each sequence goes through.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "simulate/rl_forecast.h"
#include "support/arena_fixture.h"

enum { MEAN = 60, SAMPLE = 20000 };

typedef enum kind { CONSTANT, EXPONENTIAL, LOGNORMAL, KINDS } kind;

// Slots that start together with equal lengths would stay in step, so the first sequences are
// shorter, each by another length.
static ot_rl_lengths lengths_of(kind shape, int slots) {
  if (shape == LOGNORMAL) return ot_rl_lengths_lognormal(MEAN, 2, 1 << 20, SAMPLE, &arena);
  int32_t *const tokens = ot_arena_array(&arena, SAMPLE, sizeof *tokens);
  for (int i = 0; i < SAMPLE; i++) {
    const double u = ot_rng_uniform(7, 1, (uint64_t)i);
    const double length = shape == EXPONENTIAL ? -MEAN * log(1 - u) + 0.5 : MEAN;
    tokens[i] = (int32_t)(length < 1 ? 1 : length);
    if (shape == CONSTANT && i < slots) tokens[i] = 1 + i * 37 % slots * MEAN / slots;
  }
  return (ot_rl_lengths){
      .tokens = tokens, .count = SAMPLE, .prompt_tokens = 1, .in_order = shape == CONSTANT};
}

typedef struct setting {
  int slots, batch;  // K, B
  double rho;        // above 1: the trainer is slower
  int queue, group;
} setting;

// Four generators and four trainers; training takes rho of the time that making a batch takes.
static ot_rl_fleet fleet_of(const setting *s) {
  return (ot_rl_fleet){.workers = 8,
                       .generators = 4,
                       .slots = s->slots / 4,
                       .group = s->group,
                       .batch = s->batch,
                       .queue = s->queue,
                       .cost = {.decode_s = 1, .train_token_s = 4 * s->rho / s->slots}};
}

static void play_both(const ot_rl_fleet *fleet, const ot_rl_lengths *lengths,
                      ot_rl_forecast both[2]) {
  const ot_rl_play play = {.fleet = fleet, .lengths = lengths, .updates = 200, .warmup = 50};
  ot_rl_record record;
  assert_int_equal(ot_rl_play_run(&play, &arena, &record), OT_OK);
  ot_rl_record_forecast(fleet, &record, &both[0]);
  const ot_rl_forecast *const found = &both[0];
  const ot_rl_stock stock = {found->running, found->idle, found->left, found->wait,
                             found->first_wait};
  ot_rl_forecast_build(fleet, lengths, &stock, &arena, &both[1]);
}

static void is_near(double found, double expected, double share, const char *what) {
  if (fabs(found - expected) <= share * fabs(expected)) return;
  fail_msg("%s: %.4f, but the closed form gives %.4f", what, found, expected);
}

static void lag_and_throughput_follow_the_closed_form(void **state) {
  (void)state;
  static const setting settings[] = {
      {64, 64, 0, 64, 1},      {256, 64, 0, 64, 1},    {256, 64, 0.8, 64, 1},
      {256, 128, 0.8, 256, 1}, {64, 256, 0.5, 256, 1}, {256, 64, 1.3, 128, 1},
      {256, 64, 0.5, 64, 8},
  };
  for (int k = 0; k < KINDS; k++) {
    for (int i = 0; i < OT_COUNT(settings); i++) {
      ot_rl_forecast both[2];
      // Held starts put slots with equal lengths in step; the closed form has random phases.
      if (k == CONSTANT && settings[i].rho > 1) continue;
      const ot_rl_fleet fleet = fleet_of(&settings[i]);
      const ot_rl_lengths lengths = lengths_of((kind)k, settings[i].slots);
      play_both(&fleet, &lengths, both);
      char what[64];
      snprintf(what, sizeof what, "lengths %d, setting %d", k, i);
      const double drawn = both[0].tokens_per_s / both[0].updates_per_s / settings[i].batch;
      is_near(drawn, ot_rl_lengths_mean(&lengths), 0.04, what);  // three standard errors
      is_near(both[0].lag, both[1].lag, 0.05, what);
      is_near(both[0].tokens_per_s, both[1].tokens_per_s, 0.03, what);
      is_near(both[0].rho, both[1].rho, 0.05, what);
      if (settings[i].rho < 1) is_near(both[0].first_lag, both[1].first_lag, 0.05, what);
      assert_true(both[0].lag_max <= both[1].lag_max);
    }
  }
}

// Responses of one length: an update takes as long whether its tokens cost or it does.
static void cost_of_an_update_is_that_of_its_tokens(void **state) {
  (void)state;
  const setting slow = {256, 64, 1.3, 128, 1};
  const ot_rl_lengths lengths = ot_rl_lengths_lognormal(MEAN, 0, MEAN, SAMPLE, &arena);
  ot_rl_fleet fleet = fleet_of(&slow);
  ot_rl_forecast by_token[2], by_update[2], free[2];
  play_both(&fleet, &lengths, by_token);
  const double tokens = fleet.batch * ot_rl_lengths_mean(&lengths);
  fleet.cost.train_batch_s = tokens * fleet.cost.train_token_s / ot_rl_fleet_trainers(&fleet);
  fleet.cost.train_token_s = 0;
  play_both(&fleet, &lengths, by_update);
  fleet.cost.train_batch_s = 0;
  play_both(&fleet, &lengths, free);
  for (int i = 0; i < 2; i++) {
    is_near(by_update[i].updates_per_s, by_token[i].updates_per_s, 1e-9, "updates");
    is_near(by_update[i].rho, by_token[i].rho, 1e-9, "share of training");
    assert_true(free[i].updates_per_s > 1.2 * by_token[i].updates_per_s);
  }
}

// lag_events.py, which shares no line with the flow: lengths with a mean of 60, exponential.
static void lag_is_that_of_another_program(void **state) {
  (void)state;
  static const struct {
    setting setting;
    double token, first;
  } found[] = {{{256, 64, 0.8, 64, 1}, 4.72, 4.70}, {{64, 64, 0, 64, 1}, 0.98, 0.99}};
  for (int i = 0; i < OT_COUNT(found); i++) {
    ot_rl_forecast both[2];
    const ot_rl_fleet fleet = fleet_of(&found[i].setting);
    const ot_rl_lengths lengths = lengths_of(EXPONENTIAL, 0);
    play_both(&fleet, &lengths, both);
    is_near(both[0].lag, found[i].token, 0.05, "token");
    is_near(both[0].first_lag, found[i].first, 0.05, "first token");
  }
}

// The rules of the real clock. Where training is slower, a generator with a share of the queue
// stops earlier than one that may begin while the whole queue has room.
static void generators_apart_follow_the_closed_form(void **state) {
  (void)state;
  static const setting settings[] = {
      {256, 64, 0.8, 128, 8}, {64, 64, 0.8, 128, 8}, {64, 64, 1.3, 128, 8}, {64, 128, 2, 256, 8}};
  for (int k = EXPONENTIAL; k < KINDS; k++) {
    for (int i = 0; i < OT_COUNT(settings); i++) {
      ot_rl_fleet fleet = fleet_of(&settings[i]);
      const ot_rl_lengths lengths = lengths_of((kind)k, settings[i].slots);
      ot_rl_forecast shared[2], own[2];
      char what[64];
      snprintf(what, sizeof what, "apart, lengths %d, setting %d", k, i);
      play_both(&fleet, &lengths, shared);
      fleet.apart = true;
      play_both(&fleet, &lengths, own);
      is_near(own[0].lag, own[1].lag, 0.05, what);
      if (settings[i].rho < 1) is_near(own[0].first_lag, own[1].first_lag, 0.05, what);
      is_near(own[0].tokens_per_s, own[1].tokens_per_s, 0.03, what);
      if (settings[i].rho > 1) assert_true(own[0].left < shared[0].left);
    }
  }
}

static void rows_and_pauses_cost_time(void **state) {
  (void)state;
  setting s = {64, 64, 0.5, 64, 1};
  ot_rl_fleet fleet = fleet_of(&s);
  fleet.cost.row_s = 0.02;
  fleet.cost.publish_s = 3;
  ot_rl_lengths lengths = lengths_of(EXPONENTIAL, 0);
  lengths.prompt_tokens = 30;
  ot_rl_forecast both[2];
  play_both(&fleet, &lengths, both);
  is_near(both[0].tokens_per_s, both[1].tokens_per_s, 0.03, "tokens/s");
  is_near(both[0].lag, both[1].lag, 0.05, "lag");
  is_near(both[0].step_s, both[1].step_s, 0.03, "step");
  fleet.recompute = true;
  ot_rl_forecast again[2];
  play_both(&fleet, &lengths, again);
  assert_true(again[0].tokens_per_s < 0.98 * both[0].tokens_per_s);
}

static void synchronous_updates_have_no_lag(void **state) {
  (void)state;
  const kind kinds[] = {EXPONENTIAL, LOGNORMAL};
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    setting s = {128, 64, 0.5, 64, 8};
    ot_rl_fleet fleet = fleet_of(&s);
    fleet.updates = OT_RL_SYNCHRONOUS;
    fleet.cost.publish_s = 2;
    const ot_rl_lengths lengths = lengths_of(kinds[i], 0);
    ot_rl_forecast both[2];
    play_both(&fleet, &lengths, both);
    assert_true(both[0].lag == 0 && both[0].lag_max == 0);
    is_near(both[0].updates_per_s, both[1].updates_per_s, 0.05, "updates/s");
  }
}

static void lag_never_exceeds_its_bound(void **state) {
  (void)state;
  for (int bound = 1; bound <= 8; bound++) {
    setting s = {256, 64, 0.8, 128, 8};
    ot_rl_fleet fleet = fleet_of(&s);
    fleet.max_lag = bound;
    ot_rl_lengths lengths = lengths_of(EXPONENTIAL, 0);
    int32_t *const tokens = (int32_t *)lengths.tokens;
    for (int i = 0; i < SAMPLE; i += 100) tokens[i] = 50 * MEAN;
    const ot_rl_play play = {.fleet = &fleet, .lengths = &lengths, .updates = 100};
    ot_rl_record record;
    assert_int_equal(ot_rl_play_run(&play, &arena, &record), OT_OK);
    assert_true(record.updates == 100 && record.lag_max <= bound);
    assert_true(record.cancelled > 0);
  }
}

static void flow_repeats_bit_for_bit(void **state) {
  (void)state;
  setting s = {64, 64, 1.1, 64, 8};
  ot_rl_fleet fleet = fleet_of(&s);
  const ot_rl_lengths lengths = lengths_of(LOGNORMAL, 0);
  const ot_rl_play play = {.fleet = &fleet, .lengths = &lengths, .updates = 50};
  static ot_rl_record records[2];
  for (int i = 0; i < 2; i++) {
    assert_int_equal(ot_rl_play_run(&play, &arena, &records[i]), OT_OK);
  }
  assert_memory_equal(&records[0], &records[1], sizeof records[0]);
}

static void failed_generator_costs_its_sequences_only(void **state) {
  (void)state;
  setting s = {64, 64, 0.5, 64, 4};
  ot_rl_fleet fleet = fleet_of(&s);
  const ot_rl_lengths lengths = lengths_of(EXPONENTIAL, 0);
  const ot_rl_failure failure = {.generator = 2, .at_s = 300};
  ot_rl_play play = {.fleet = &fleet, .lengths = &lengths, .updates = 200};
  ot_rl_record whole, hurt;
  assert_int_equal(ot_rl_play_run(&play, &arena, &whole), OT_OK);
  play.failures = &failure;
  play.num_failures = 1;
  assert_int_equal(ot_rl_play_run(&play, &arena, &hurt), OT_OK);
  assert_int_equal(hurt.cancelled, fleet.slots);
  assert_true(hurt.sequences >= 200 * 64 - fleet.slots - hurt.dropped);
  is_near((double)hurt.tokens / hurt.time_s, 0.75 * (double)whole.tokens / whole.time_s, 0.02,
          "three of four generators");
  ot_rl_failure all[4];
  for (int i = 0; i < 4; i++) all[i] = (ot_rl_failure){.generator = i, .at_s = 300};
  play.failures = all;
  play.num_failures = 4;
  assert_int_equal(ot_rl_play_run(&play, &arena, &hurt), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "all generators have failed"));
}

// ---- an account of each sequence ----

enum { ACCOUNTS = 4096 };

typedef struct account {
  int64_t seen[ACCOUNTS];      // by id: 1 runs, 2 trained on, 3 lost
  int64_t weights[4];          // version of each generator
  int32_t made[ACCOUNTS][24];  // version that made each token
  int64_t version;
  double lags;
  int64_t tokens;
} account;

static ot_status open_account(void *context, ot_rl_sequence *s) {
  account *const a = context;
  assert_true(s->id < ACCOUNTS && a->seen[s->id] == 0);
  a->seen[s->id] = 1;
  s->prompt_tokens = 1;
  return OT_OK;
}

static ot_status step(void *context, ot_rl_sequence *const *running, int count,
                      ot_rl_decoded *decoded) {
  account *const a = context;
  for (int i = 0; i < count; i++) {
    const ot_rl_sequence *const s = running[i];
    assert_int_equal(s->generator, running[0]->generator);
    assert_int_equal(a->seen[s->id], 1);
    a->made[s->id][s->tokens] = (int32_t)a->weights[s->generator];
    decoded->progress[i] = s->tokens + 1 == 1 + s->id * 7 % 23 ? OT_RL_LAST_TOKEN : OT_RL_TOKEN;
  }
  decoded->rows = count;
  return OT_OK;
}

static ot_status lose_account(void *context, ot_rl_sequence *s) {
  account *const a = context;
  assert_int_equal(a->seen[s->id], 1);
  a->seen[s->id] = 3;
  return OT_OK;
}

static ot_status settle(void *context, ot_rl_sequence *const *batch, int count, int64_t version) {
  account *const a = context;
  assert_int_equal(version, a->version++);
  for (int i = 0; i < count; i++) {
    const ot_rl_sequence *const s = batch[i];
    assert_int_equal(a->seen[s->id], 1);
    a->seen[s->id] = 2;
    assert_int_equal(s->group, s->id / 4);
    assert_true(i == 0 || batch[i - 1]->group != s->group || batch[i - 1]->id < s->id);
    assert_int_equal(s->tokens, 1 + s->id * 7 % 23);
    for (int64_t t = 0; t < s->tokens; t++) {
      assert_true(t == 0 || s->versions[t] >= s->versions[t - 1]);
      assert_int_equal(s->versions[t], a->made[s->id][t]);
      a->lags += (double)(version - s->versions[t]);
    }
    a->tokens += s->tokens;
  }
  return OT_OK;
}

static ot_status renew_weights(void *context, int generator, int64_t version) {
  account *const a = context;
  assert_int_equal(version, a->version);
  assert_true(a->weights[generator] < version);
  a->weights[generator] = version;
  return OT_OK;
}

static void close_account(void *context, ot_rl_sequence *s) { (void)lose_account(context, s); }

static void each_sequence_is_trained_on_once(void **state) {
  (void)state;
  setting s = {32, 16, 0.9, 32, 4};
  ot_rl_fleet fleet = fleet_of(&s);
  fleet.cost.row_s = 0.1;
  fleet.cost.publish_s = 0.5;
  fleet.max_lag = 4;
  static account a;
  const ot_rl_actions actions = {open_account,  step, lose_account, settle, renew_weights,
                                 close_account, &a};
  const ot_rl_flow_request request = {.fleet = &fleet, .actions = &actions, .max_tokens = 23};
  ot_rl_flow *flow = NULL;
  assert_int_equal(ot_rl_flow_create(&request, &arena, &flow), OT_OK);
  for (int i = 1; i <= 100; i++) {
    assert_int_equal(ot_rl_flow_advance(flow), OT_OK);
    assert_int_equal(ot_rl_flow_version(flow), i);
  }
  const ot_rl_record *const record = ot_rl_flow_record(flow);
  assert_int_equal(record->tokens, a.tokens);
  assert_true(record->lag_sum == a.lags && a.lags > 0);
  assert_true(record->time_s == ot_rl_flow_time_s(flow));
}

static void bad_fleets_are_refused(void **state) {
  (void)state;
  setting s = {64, 64, 0.5, 64, 4};
  const ot_rl_fleet good = fleet_of(&s);
  assert_int_equal(ot_rl_fleet_check(&good), OT_OK);
  ot_rl_fleet bad = good;
  bad.generators = 8;
  assert_int_equal(ot_rl_fleet_check(&bad), OT_USAGE);
  bad = good;
  bad.batch = 66;
  assert_int_equal(ot_rl_fleet_check(&bad), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "try 64"));
  bad = good;
  bad.queue = 63;
  assert_int_equal(ot_rl_fleet_check(&bad), OT_USAGE);
  bad = good;
  bad.cost.decode_s = 0;
  assert_int_equal(ot_rl_fleet_check(&bad), OT_USAGE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(lag_and_throughput_follow_the_closed_form, begin, finish),
      cmocka_unit_test_setup_teardown(cost_of_an_update_is_that_of_its_tokens, begin, finish),
      cmocka_unit_test_setup_teardown(lag_is_that_of_another_program, begin, finish),
      cmocka_unit_test_setup_teardown(generators_apart_follow_the_closed_form, begin, finish),
      cmocka_unit_test_setup_teardown(rows_and_pauses_cost_time, begin, finish),
      cmocka_unit_test_setup_teardown(synchronous_updates_have_no_lag, begin, finish),
      cmocka_unit_test_setup_teardown(lag_never_exceeds_its_bound, begin, finish),
      cmocka_unit_test_setup_teardown(flow_repeats_bit_for_bit, begin, finish),
      cmocka_unit_test_setup_teardown(failed_generator_costs_its_sequences_only, begin, finish),
      cmocka_unit_test_setup_teardown(each_sequence_is_trained_on_once, begin, finish),
      cmocka_unit_test_setup_teardown(bad_fleets_are_refused, begin, finish),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
