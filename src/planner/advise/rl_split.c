// SPDX-License-Identifier: Apache-2.0
#include "advise/rl_split.h"

#include "base/extremes.h"
#include "base/sort.h"
#include "base/text.h"

enum { PLAY_UPDATES = 60, PLAY_WARMUP = 20, MOST_SPLITS = 4096, PLAY_TOKENS = 32 };

typedef struct search {
  const ot_rl_split_request *request;
  ot_arena *arena;
  int count;
  ot_rl_choice *choices;
  double least_lag;  // of all splits, in bounds or not
  double scale;      // tokens that a token of a play stands for
  ot_rl_lengths played;
} search;

// ---- candidates ----

// Without a measured queue: when training is slower, finished sequences fill it.
static void forecast(const search *s, const ot_rl_fleet *fleet, ot_rl_forecast *out) {
  ot_rl_stock stock = {0};
  ot_rl_forecast_build(fleet, &s->request->lengths, &stock, s->arena, out);
  if (out->generated_per_s <= out->trained_per_s) return;
  stock.left = fleet->queue;
  ot_rl_forecast_build(fleet, &s->request->lengths, &stock, s->arena, out);
}

static void set_generators(const search *s, ot_rl_fleet *fleet, int generators) {
  fleet->generators = generators;
  if (s->request->publish_s) fleet->cost.publish_s = s->request->publish_s[generators];
}

static void consider(search *s, int generators, int slots) {
  ot_rl_choice choice = {.fleet = s->request->fleet};
  set_generators(s, &choice.fleet, generators);
  choice.fleet.slots = slots;
  forecast(s, &choice.fleet, &choice.closed);
  s->least_lag = ot_smaller(s->least_lag, choice.closed.lag);
  const int bound = choice.fleet.max_lag;
  if (bound > 0 && choice.closed.lag > bound) return;
  if (s->count < MOST_SPLITS) s->choices[s->count++] = choice;
}

static void consider_slots(search *s, int generators) {
  const ot_rl_fleet *const fleet = &s->request->fleet;
  const int64_t most = ot_smaller_whole(s->request->most_slots, 4096);
  if (fleet->slots > 0) {
    consider(s, generators, fleet->slots);
    return;
  }
  int slots = 1;
  for (; slots < most; slots *= 2) consider(s, generators, slots);
  consider(s, generators, (int)most);
}

// ---- ranking ----

static double price(const ot_rl_split_request *request, const ot_rl_fleet *fleet,
                    double updates_per_s) {
  return fleet->workers * request->dollars_per_worker_hour / 3600 * 1000 / updates_per_s;
}

static int by_value(double a, double b) { return a > b ? -1 : a < b; }

// A total order: faster, then less lag, then fewer generators and slots.
static int compare(const ot_rl_choice *a, const ot_rl_choice *b, const ot_rl_forecast *x,
                   const ot_rl_forecast *y) {
  int order = by_value(x->updates_per_s, y->updates_per_s);
  if (order == 0) order = by_value(y->lag, x->lag);
  if (order == 0) order = by_value(b->fleet.generators, a->fleet.generators);
  return order != 0 ? order : by_value(b->fleet.slots, a->fleet.slots);
}

static int by_closed_form(const void *a, const void *b, const void *context) {
  const ot_rl_choice *const x = a, *const y = b;
  (void)context;
  return compare(x, y, &x->closed, &y->closed);
}

static int by_play(const void *a, const void *b, const void *context) {
  const ot_rl_choice *const x = a, *const y = b;
  (void)context;
  return compare(x, y, &x->played, &y->played);
}

// A play takes as long as there are tokens, so one stands for several where answers are long: lags
// and shares do not change.
static void shorten(search *s) {
  const ot_rl_lengths *const lengths = &s->request->lengths;
  int32_t *const tokens = ot_arena_array(s->arena, lengths->count, sizeof *tokens);
  s->scale = ot_larger(1, ot_rl_lengths_mean(lengths) / PLAY_TOKENS);
  for (int64_t i = 0; i < lengths->count; i++) {
    tokens[i] = (int32_t)ot_larger(1, lengths->tokens[i] / s->scale + 0.5);
  }
  s->played = *lengths;
  s->played.tokens = tokens;
  s->played.prompt_tokens =
      ot_larger_whole(1, (int64_t)((double)lengths->prompt_tokens / s->scale + 0.5));
}

static ot_status play(const search *s, ot_rl_choice *choice) {
  ot_rl_fleet fleet = choice->fleet;
  fleet.cost.decode_s *= s->scale;
  fleet.cost.row_s *= s->scale;
  fleet.cost.train_token_s *= s->scale;
  const ot_rl_play request = {
      .fleet = &fleet, .lengths = &s->played, .updates = PLAY_UPDATES, .warmup = PLAY_WARMUP};
  ot_rl_record *const record = ot_arena_take(s->arena, sizeof *record);
  OT_TRY(ot_rl_play_run(&request, s->arena, record));
  ot_rl_record_forecast(&fleet, record, &choice->played);
  choice->played.tokens_per_s *= s->scale;
  choice->played.generated_per_s *= s->scale;
  choice->played.trained_per_s *= s->scale;
  choice->played.step_s /= s->scale;
  choice->dollars_per_1000_updates =
      price(s->request, &choice->fleet, choice->played.updates_per_s);
  return OT_OK;
}

// The choice with the least lag, among those about as fast as the first, becomes the first.
static void prefer_less_lag(ot_rl_split *out) {
  int best = 0;
  for (int i = 1; i < out->num_choices; i++) {
    const ot_rl_forecast *const f = &out->choices[i].played;
    if (f->updates_per_s < 0.99 * out->choices[0].played.updates_per_s) break;
    if (f->lag < out->choices[best].played.lag) best = i;
  }
  const ot_rl_choice chosen = out->choices[best];
  for (int i = best; i > 0; i--) out->choices[i] = out->choices[i - 1];
  out->choices[0] = chosen;
}

// ---- reasons ----

static void add_reason(ot_rl_split *out, const char *text) {
  out->reasons[out->num_reasons++] = text;
}

static const char *limit_of(const ot_rl_forecast *f) {
  return f->generated_per_s < f->trained_per_s ? "generation" : "training";
}

static void explain_sides(const search *s, ot_rl_split *out) {
  const ot_rl_choice *const best = &out->choices[0];
  const bool slower = best->closed.generated_per_s < best->closed.trained_per_s;
  const int generators = best->fleet.generators, trainers = ot_rl_fleet_trainers(&best->fleet);
  ot_rl_fleet other = best->fleet;
  const int next_generators = generators + (slower ? 1 : -1);
  const char *then = "";
  if (next_generators > 0 && next_generators < other.workers) {
    set_generators(s, &other, next_generators);
    ot_rl_forecast next;
    forecast(s, &other, &next);
    then = ot_arena_format(s->arena, "; with %d generator%s %s would be slower, at %.4g tokens/s",
                           other.generators, ot_text_plural(other.generators, "s"), limit_of(&next),
                           next.tokens_per_s);
  }
  add_reason(
      out, ot_arena_format(s->arena,
                           "%d of %d workers generate up to %.4g tokens/s, %d train up to "
                           "%.4g: %s is the limit%s",
                           generators, best->fleet.workers, best->closed.generated_per_s, trainers,
                           best->closed.trained_per_s, limit_of(&best->closed), then));
}

static void explain_lag(const search *s, ot_rl_split *out) {
  const ot_rl_choice *const best = &out->choices[0];
  const ot_rl_forecast *const f = &best->played;
  const double cv2 = ot_rl_lengths_cv2(&s->request->lengths);
  add_reason(out,
             ot_arena_format(s->arena,
                             "%d slots: %.4g sequences run, lengths have CV^2 %.3g, so a token "
                             "is %.3g updates old on average, %lld at most",
                             best->fleet.slots, f->running, cv2, f->lag, (long long)f->lag_max));
}

static void explain_modes(const search *s, ot_rl_split *out) {
  const double flight = out->choices[0].played.updates_per_s;
  const double synchronous = out->synchronous.played.updates_per_s;
  add_reason(out, ot_arena_format(s->arena,
                                  "synchronous updates would be %.3g times as slow: %.0f%% of a "
                                  "step waits for the longest answer or for training",
                                  flight / synchronous,
                                  100 * (1 - out->synchronous.played.generators_busy)));
  if (s->request->dollars_per_worker_hour <= 0) return;
  add_reason(out, ot_arena_format(s->arena, "1000 updates cost $%.4g, synchronous $%.4g",
                                  out->choices[0].dollars_per_1000_updates,
                                  out->synchronous.dollars_per_1000_updates));
}

ot_status ot_rl_split_build(const ot_rl_split_request *request, ot_arena *arena, ot_rl_split *out) {
  search s = {.request = request, .arena = arena, .least_lag = 1e300};
  s.choices = ot_arena_array(arena, MOST_SPLITS, sizeof *s.choices);
  ot_rl_fleet sample = request->fleet;
  sample.updates = OT_RL_IN_FLIGHT;
  if (sample.generators == 0) sample.generators = 1;
  if (sample.slots == 0) sample.slots = 1;
  OT_TRY(ot_rl_fleet_check(&sample));
  const int from = request->fleet.generators > 0 ? request->fleet.generators : 1;
  const int to = request->fleet.generators > 0 ? from : request->fleet.workers - 1;
  for (int g = from; g <= to; g++) consider_slots(&s, g);
  OT_CHECK(s.count > 0, OT_FINDINGS,
           "rl: no split of %d workers keeps the mean lag within max_lag=%d; the least is %.3g "
           "(a larger batch makes updates rarer)",
           sample.workers, sample.max_lag, s.least_lag);
  ot_sort(s.choices, s.count, sizeof *s.choices, (ot_ordering){by_closed_form, NULL}, arena);
  *out = (ot_rl_split){.choices = s.choices,
                       .num_choices = s.count < OT_RL_PLAYED ? s.count : OT_RL_PLAYED};
  shorten(&s);
  for (int i = 0; i < out->num_choices; i++) OT_TRY(play(&s, &out->choices[i]));
  ot_sort(out->choices, out->num_choices, sizeof *s.choices, (ot_ordering){by_play, NULL}, arena);
  prefer_less_lag(out);
  out->synchronous.fleet = out->choices[0].fleet;
  out->synchronous.fleet.updates = OT_RL_SYNCHRONOUS;
  OT_TRY(play(&s, &out->synchronous));
  explain_sides(&s, out);
  explain_lag(&s, out);
  explain_modes(&s, out);
  return OT_OK;
}
