// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of truncated sampling, of logits at one temperature after another.
#include <math.h>
#include <stdlib.h>

#include "base/extremes.h"
#include "base/status.h"
#include "judge/logprobs_causes.h"

const ot_logprob_cause ot_logprob_renormalised = {
    "renormalised", "the probabilities are renormalised over the tokens that sampling keeps",
    "sample without truncation, take raw log-probabilities (vLLM: logprobs_mode), or renormalise "
    "the other side over the same tokens"};

static const ot_logprob_cause heated = {
    "temperature_renormalised",
    "the logits are divided by the temperature, and the probabilities renormalised over the tokens "
    "that sampling then keeps",
    "take raw log-probabilities (vLLM: logprobs_mode), or treat the logits of the other side "
    "alike"};

typedef enum truncation_kind { TOP_P, TOP_K, MIN_P } truncation_kind;

static const struct {
  truncation_kind kind;
  double number;
  const char *words;
} truncations[] = {
    {TOP_P, 0.99, "top-p 0.99"}, {TOP_P, 0.98, "top-p 0.98"}, {TOP_P, 0.97, "top-p 0.97"},
    {TOP_P, 0.95, "top-p 0.95"}, {TOP_P, 0.92, "top-p 0.92"}, {TOP_P, 0.9, "top-p 0.9"},
    {TOP_P, 0.85, "top-p 0.85"}, {TOP_P, 0.8, "top-p 0.8"},   {TOP_P, 0.75, "top-p 0.75"},
    {TOP_P, 0.7, "top-p 0.7"},   {TOP_P, 0.6, "top-p 0.6"},   {TOP_P, 0.5, "top-p 0.5"},
    {TOP_K, 5, "top-k 5"},       {TOP_K, 8, "top-k 8"},       {TOP_K, 10, "top-k 10"},
    {TOP_K, 16, "top-k 16"},     {TOP_K, 20, "top-k 20"},     {TOP_K, 32, "top-k 32"},
    {TOP_K, 40, "top-k 40"},     {TOP_K, 50, "top-k 50"},     {TOP_K, 64, "top-k 64"},
    {TOP_K, 100, "top-k 100"},   {TOP_K, 128, "top-k 128"},   {TOP_K, 256, "top-k 256"},
    {TOP_K, 1024, "top-k 1024"}, {MIN_P, 0.01, "min-p 0.01"}, {MIN_P, 0.02, "min-p 0.02"},
    {MIN_P, 0.05, "min-p 0.05"}, {MIN_P, 0.1, "min-p 0.1"},   {MIN_P, 0.2, "min-p 0.2"},
};

typedef struct truncating {
  ot_logprob_causes *causes;
  const ot_logprob_cause *cause;
  int num_temperatures;
  const double *temperatures;  // [num_temperatures]
  int first;  // candidate of the first truncation at the first temperature; one for each type
  int64_t vocab;
  // The logits of a row that matter, largest first, and the largest of all.
  int64_t kept;
  double *logits;  // [kept]
  double largest;
  // At one temperature:
  double *p, *sums;  // [kept] probabilities and their sums
} truncating;

// ---- a row ----

static int larger_first(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

// Keeps the logits whose probabilities are at least 1e-8 of the largest at some temperature.
static void sort_row(truncating *r, const double *logits) {
  static const double least = 18.4;  // -ln 1e-8
  double hottest = 0;
  r->largest = -INFINITY;
  r->kept = 0;
  for (int i = 0; i < r->num_temperatures; i++) hottest = ot_larger(hottest, r->temperatures[i]);
  for (int64_t v = 0; v < r->vocab; v++) r->largest = ot_larger(r->largest, logits[v]);
  for (int64_t v = 0; v < r->vocab; v++) {
    if (logits[v] > r->largest - least * hottest) r->logits[r->kept++] = logits[v];
  }
  qsort(r->logits, (size_t)r->kept, sizeof *r->logits, larger_first);
}

// Computes the probabilities at a temperature. Returns the logarithm of the sum that divides them.
static double heat_row(truncating *r, const double *logits, double temperature) {
  double all = 0, sum = 0;
  for (int64_t v = 0; v < r->vocab; v++) all += exp((logits[v] - r->largest) / temperature);
  const double log_sum = r->largest / temperature + log(all);
  for (int64_t v = 0; v < r->kept; v++) {
    r->p[v] = exp(r->logits[v] / temperature - log_sum);
    r->sums[v] = sum += r->p[v];
  }
  return log_sum;
}

// How many tokens are kept. Nucleus sampling (Holtzman et al. 2020, arXiv 1904.09751): the fewest
// with the mass p; min-p (Nguyen et al. 2024, arXiv 2407.01082): p times the largest and more.
static int64_t keep_count(const truncating *r, int i) {
  const double number = truncations[i].number;
  int64_t n = 0;
  if (truncations[i].kind == TOP_K) return (int64_t)number < r->kept ? (int64_t)number : r->kept;
  if (truncations[i].kind == TOP_P) {
    while (n + 1 < r->kept && r->sums[n] < number) n++;
    return n + 1;
  }
  while (n < r->kept && r->p[n] >= number * r->p[0]) n++;
  return n;
}

// Whether rounding of `error` nats may add or drop the last token.
static bool at_border(const truncating *r, int i, int64_t n, double error) {
  const double number = truncations[i].number, last = r->p[n - 1];
  const double next = n < r->kept ? r->p[n] : 0;
  if (truncations[i].kind == TOP_K) return next > last * exp(-error);
  if (truncations[i].kind == MIN_P)
    return last < number * r->p[0] * exp(error) || next > number * r->p[0] * exp(-error);
  return fabs(r->sums[n - 1] - number) < error || (n > 1 && fabs(r->sums[n - 2] - number) < error);
}

// Adds the predictions of all truncations at temperature `at` for a token with probability `own`.
static void truncate_at(truncating *r, int at, int64_t token, double own) {
  static const double times = 4;
  const ot_logprob_source *const s = &r->causes->source;
  for (int i = 0; i < OT_COUNT(truncations); i++) {
    const int64_t n = keep_count(r, i);
    const double predicted = own < r->p[n - 1] ? -INFINITY : log(own / r->sums[n - 1]);
    for (int k = 0; k < OT_LOGPROB_TYPES; k++) {
      if (at_border(r, i, n, times * s->rounding[k] / r->temperatures[at])) continue;
      const int candidate = r->first + (at * OT_COUNT(truncations) + i) * OT_LOGPROB_TYPES + k;
      ot_logprob_candidate_add(&r->causes->candidates[candidate], s, token, predicted);
    }
  }
}

static void truncate_row(void *context, int64_t token, int32_t target, const double *logits) {
  truncating *const r = context;
  sort_row(r, logits);
  for (int i = 0; i < r->num_temperatures; i++) {
    const double log_sum = heat_row(r, logits, r->temperatures[i]);
    truncate_at(r, i, token, exp(logits[target] / r->temperatures[i] - log_sum));
  }
}

// ---- all rows ----

static void add_candidates(const truncating *r, int at) {
  ot_arena *const arena = r->causes->arena;
  for (int i = 0; i < OT_COUNT(truncations); i++) {
    const char *const words = r->cause == &ot_logprob_renormalised
                                  ? truncations[i].words
                                  : ot_arena_format(arena, "temperature %g, %s",
                                                    r->temperatures[at], truncations[i].words);
    for (int k = 0; k < OT_LOGPROB_TYPES; k++)
      ot_logprob_causes_add(r->causes, r->cause, words)->type = k;
  }
}

static void add(truncating r) {
  ot_arena *const arena = r.causes->arena;
  r.first = r.causes->count;
  r.vocab = ot_logprob_model_vocab(r.causes->model);
  r.logits = ot_arena_array(arena, r.vocab, sizeof *r.logits);
  r.p = ot_arena_array(arena, r.vocab, sizeof *r.p);
  r.sums = ot_arena_array(arena, r.vocab, sizeof *r.sums);
  for (int i = 0; i < r.num_temperatures; i++) add_candidates(&r, i);
  ot_logprob_model_visit(r.causes->model, 0, truncate_row, &r);
}

void ot_logprob_truncations_add(ot_logprob_causes *c) {
  static const double one[] = {1};
  add((truncating){
      .causes = c, .cause = &ot_logprob_renormalised, .num_temperatures = 1, .temperatures = one});
}

void ot_logprob_heated_truncations_add(ot_logprob_causes *c) {
  static const double usual[] = {0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.5};
  add((truncating){
      .causes = c, .cause = &heated, .num_temperatures = OT_COUNT(usual), .temperatures = usual});
}
