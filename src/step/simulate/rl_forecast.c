// SPDX-License-Identifier: Apache-2.0
// The closed form is Little's law and the mean residual life of a renewal process; the play is the
// flow with sequences that know their lengths.
#include "simulate/rl_forecast.h"

#include "base/extremes.h"
#include "base/math.h"
#include "base/rng.h"
#include "base/sort.h"

// ---- lengths ----

enum { LENGTH_STREAM = 0x6c656e67, DRAW_STREAM = 0x64726177 };

static int64_t round_up(double x) {
  const int64_t whole = (int64_t)x;
  return (double)whole < x ? whole + 1 : whole;
}

ot_rl_lengths ot_rl_lengths_lognormal(double mean, double cv2, int64_t largest, int64_t count,
                                      ot_arena *arena) {
  int32_t *const tokens = ot_arena_array(arena, count, sizeof *tokens);
  const double spread = ot_sqrt(ot_log(1 + cv2)), middle = ot_log(mean) - spread * spread / 2;
  for (int64_t i = 0; i < count; i++) {
    const double z = ot_rng_normal(0, LENGTH_STREAM, (uint64_t)i);
    const double length = ot_smaller(ot_exp(middle + spread * z), (double)largest);
    tokens[i] = (int32_t)ot_larger(1, length + 0.5);
  }
  return (ot_rl_lengths){.tokens = tokens, .count = count, .prompt_tokens = 1};
}

static double moment(const ot_rl_lengths *lengths, int power) {
  double sum = 0;
  for (int64_t i = 0; i < lengths->count; i++) {
    const double n = lengths->tokens[i];
    sum += power == 1 ? n : n * n;
  }
  return sum / (double)lengths->count;
}

double ot_rl_lengths_mean(const ot_rl_lengths *lengths) { return moment(lengths, 1); }

double ot_rl_lengths_cv2(const ot_rl_lengths *lengths) {
  const double mean = moment(lengths, 1);
  return moment(lengths, 2) / (mean * mean) - 1;
}

int64_t ot_rl_lengths_largest(const ot_rl_lengths *lengths) {
  int64_t largest = 0;
  for (int64_t i = 0; i < lengths->count; i++) {
    largest = ot_larger_whole(largest, lengths->tokens[i]);
  }
  return largest;
}

// ---- closed form ----

// Rows that a running sequence adds to a step, on average: its token, and its share of the prompt.
static double rows_per_token(const ot_rl_lengths *lengths) {
  return 1 + (double)(lengths->prompt_tokens - 1) / moment(lengths, 1);
}

// Sequences that run at once, if `tokens_per_s` are made: fewer than all slots where the trainers
// are slower. n sequences make n / (a + b n).
static double running_for(const ot_rl_fleet *fleet, double row_s, double tokens_per_s) {
  const double each = tokens_per_s / fleet->generators;
  const double n = each * fleet->cost.decode_s / (1 - each * row_s);
  return fleet->generators * ot_smaller(n, fleet->slots);
}

static void forecast_in_flight(const ot_rl_fleet *fleet, const ot_rl_lengths *lengths,
                               const ot_rl_stock *stock, ot_rl_forecast *out) {
  const ot_rl_costs *const cost = &fleet->cost;
  const double B = fleet->batch, l = moment(lengths, 1), cv2 = ot_rl_lengths_cv2(lengths);
  const double row_s = cost->row_s * rows_per_token(lengths);
  const double full_s = cost->decode_s + row_s * fleet->slots;
  const double train_s = ot_rl_fleet_train_s(fleet, B * l);
  const double slots = (double)fleet->generators * fleet->slots;
  // Generators pause at each update: in that part of the time they make nothing.
  const double make_s = B * l * full_s / slots + cost->publish_s;
  const double update_s = ot_larger(make_s, train_s + cost->publish_s);
  out->generated_per_s = B * l / make_s;
  out->trained_per_s = train_s + cost->publish_s > 0 ? B * l / (train_s + cost->publish_s) : 1e300;
  out->updates_per_s = 1 / update_s;
  out->tokens_per_s = B * l / update_s;
  const double while_decoding = B * l / (update_s - cost->publish_s);
  out->running = stock->running > 0 ? stock->running : running_for(fleet, row_s, while_decoding);
  out->step_s = cost->decode_s + row_s * out->running / fleet->generators;
  out->rho = train_s / update_s;
  out->sigma = cost->publish_s / update_s;
  out->idle = stock->idle;
  out->generators_busy = 1 - out->sigma - out->idle;
  out->trainers_busy = out->rho;
  out->left = stock->left;
  out->wait = stock->wait;
  out->first_wait = stock->first_wait;
  const double rest = out->rho + out->sigma + out->left / B;
  const double in_flight = out->running * (1 - out->idle);
  out->lag = in_flight * (1 + cv2) / (2 * B) + rest + out->wait;
  out->first_lag = in_flight / B + rest + out->first_wait;
  const double longest_s = (double)ot_rl_lengths_largest(lengths) * out->step_s;
  out->lag_max = round_up(longest_s / update_s + out->wait) + 1 + round_up(out->left / B);
}

// E[largest of n] lengths.
static double expected_longest(const ot_rl_lengths *lengths, int64_t n, ot_arena *arena) {
  double *const sorted = ot_arena_array(arena, lengths->count, sizeof *sorted);
  for (int64_t i = 0; i < lengths->count; i++) sorted[i] = lengths->tokens[i];
  ot_sort_reals(sorted, lengths->count, arena);
  double sum = 0, below = 0;
  for (int64_t i = 0; i < lengths->count; i++) {
    const double share = ot_pow((double)(i + 1) / (double)lengths->count, (double)n);
    sum += sorted[i] * (share - below);
    below = share;
  }
  return sum;
}

// Until all sequences of a batch have ended. The slots of a worker stay full until few are left.
static double decode_batch_s(const ot_rl_fleet *fleet, const ot_rl_lengths *lengths,
                             ot_arena *arena) {
  const double row_s = fleet->cost.row_s * rows_per_token(lengths);
  const double tokens = fleet->batch * moment(lengths, 1) / ot_rl_fleet_generators(fleet);
  const int64_t draws = lengths->by_prompt ? fleet->batch / fleet->group : fleet->batch;
  const double longest = expected_longest(lengths, draws, arena);
  return fleet->cost.decode_s * ot_larger(longest, tokens / fleet->slots) + row_s * tokens;
}

static void forecast_synchronous(const ot_rl_fleet *fleet, const ot_rl_lengths *lengths,
                                 ot_arena *arena, ot_rl_forecast *out) {
  const ot_rl_costs *const cost = &fleet->cost;
  const double B = fleet->batch, l = moment(lengths, 1);
  const double train_s = ot_rl_fleet_train_s(fleet, B * l);
  const double decode_s = decode_batch_s(fleet, lengths, arena);
  const double update_s = decode_s + train_s + cost->publish_s;
  out->updates_per_s = 1 / update_s;
  out->tokens_per_s = out->generated_per_s = out->trained_per_s = B * l / update_s;
  out->generators_busy = decode_s / update_s;
  out->trainers_busy = out->rho = train_s / update_s;
  out->sigma = cost->publish_s / update_s;
  out->step_s = cost->decode_s + cost->row_s * rows_per_token(lengths) *
                                     ot_smaller(fleet->slots, B / ot_rl_fleet_generators(fleet));
  out->running = B * l * out->step_s / decode_s;
}

void ot_rl_forecast_build(const ot_rl_fleet *fleet, const ot_rl_lengths *lengths,
                          const ot_rl_stock *stock, ot_arena *arena, ot_rl_forecast *out) {
  *out = (ot_rl_forecast){.lag_p99 = -1};
  if (fleet->updates == OT_RL_SYNCHRONOUS) {
    forecast_synchronous(fleet, lengths, arena, out);
  } else {
    forecast_in_flight(fleet, lengths, stock, out);
  }
}

// ---- the play ----

typedef struct player {
  const ot_rl_lengths *lengths;
  const ot_rl_fleet *fleet;
  bool *fresh;  // [generators] running sequences compute K and V again in the next step
} player;

static int64_t length_of(const player *p, const ot_rl_sequence *sequence) {
  const ot_rl_lengths *const lengths = p->lengths;
  const int64_t key = lengths->by_prompt ? sequence->group : sequence->id;
  if (lengths->in_order) return lengths->tokens[key % lengths->count];
  return lengths
      ->tokens[ot_rng_below(lengths->seed, DRAW_STREAM, (uint64_t)key, (uint64_t)lengths->count)];
}

static ot_status start(void *context, ot_rl_sequence *sequence) {
  sequence->prompt_tokens = ((player *)context)->lengths->prompt_tokens;
  return OT_OK;
}

static ot_status decode(void *context, ot_rl_sequence *const *running, int count,
                        ot_rl_decoded *decoded) {
  player *const p = context;
  bool *const fresh = &p->fresh[running[0]->generator];
  for (int i = 0; i < count; i++) {
    const ot_rl_sequence *const s = running[i];
    const int64_t known = s->prompt_tokens + s->tokens;
    decoded->rows += s->tokens == 0 || *fresh ? known : 1;
    decoded->progress[i] = s->tokens + 1 == length_of(p, s) ? OT_RL_LAST_TOKEN : OT_RL_TOKEN;
  }
  *fresh = false;
  return OT_OK;
}

static ot_status cancel(void *context, ot_rl_sequence *sequence) {
  (void)context;
  (void)sequence;
  return OT_OK;
}

static ot_status train(void *context, ot_rl_sequence *const *batch, int count, int64_t version) {
  (void)context;
  (void)batch;
  (void)count;
  (void)version;
  return OT_OK;
}

static ot_status renew(void *context, int generator, int64_t version) {
  player *const p = context;
  (void)version;
  p->fresh[generator] = p->fleet->recompute;
  return OT_OK;
}

static void drop(void *context, ot_rl_sequence *sequence) {
  (void)context;
  (void)sequence;
}

ot_status ot_rl_play_run(const ot_rl_play *play, ot_arena *arena, ot_rl_record *record) {
  OT_TRY(ot_rl_fleet_check(play->fleet));
  const int generators = ot_rl_fleet_generators(play->fleet);
  player p = {.lengths = play->lengths,
              .fleet = play->fleet,
              .fresh = ot_arena_array(arena, generators, sizeof(bool))};
  const ot_rl_actions actions = {start, decode, cancel, train, renew, drop, &p};
  const ot_rl_flow_request request = {.fleet = play->fleet,
                                      .actions = &actions,
                                      .max_tokens = ot_rl_lengths_largest(play->lengths),
                                      .warmup = play->warmup,
                                      .failures = play->failures,
                                      .num_failures = play->num_failures};
  ot_rl_flow *flow = NULL;
  OT_TRY(ot_rl_flow_create(&request, arena, &flow));
  for (int64_t i = 0; i < play->warmup + play->updates; i++) OT_TRY(ot_rl_flow_advance(flow));
  *record = *ot_rl_flow_record(flow);
  return OT_OK;
}

void ot_rl_record_forecast(const ot_rl_fleet *fleet, const ot_rl_record *r, ot_rl_forecast *out) {
  const double T = r->time_s, updates = (double)r->updates, tokens = (double)r->tokens;
  const int generators = ot_rl_fleet_generators(fleet);
  *out = (ot_rl_forecast){
      .tokens_per_s = tokens / T,
      .updates_per_s = updates / T,
      .generated_per_s = (double)r->made_tokens / T,
      .trained_per_s = tokens / T,
      .generators_busy = r->generators_s / (T * generators),
      .trainers_busy = r->trainer_s / T,
      .running = r->slots_s / r->generators_s * generators,
      .step_s = r->slots_s / (double)r->made_tokens,
      .rho = r->trainer_s / T,
      .sigma = r->publish_s / T,
      .left = r->left_sum / updates,
      .wait = r->wait_s / (tokens * T) * updates,
      .first_wait = r->first_wait_s / ((double)r->sequences * T) * updates,
      .lag = ot_rl_record_lag(r),
      .first_lag = r->first_lag_sum / (double)r->sequences,
      .lag_p99 = ot_rl_record_lag_quantile(r, 0.99),
      .lag_max = r->lag_max,
  };
  out->idle = ot_larger(0, 1 - out->generators_busy - out->sigma);
}
