// SPDX-License-Identifier: Apache-2.0
#include "judge/logprobs_causes.h"

#include <math.h>

#include "base/extremes.h"
#include "base/status.h"
#include "judge/attribution.h"
#include "judge/log_probability.h"

// Differences below zero up to this many own errors are rounding.
static const double offset_limit = 10;

typedef enum cause_row {
  CAUSE_BOS,
  CAUSE_PADDING,
  CAUSE_POSITIONS,
  CAUSE_SHIFT,
  CAUSE_BASE,
  CAUSE_TEMPERATURE,
  CAUSES,
} cause_row;

static const ot_logprob_cause rows[CAUSES] = {
    [CAUSE_BOS] = {"bos", "the text was computed with another beginning: one bos more or less",
                   "give both the same token ids; a tokenizer or a chat template adds bos"},
    [CAUSE_PADDING] = {"padding_attended", "tokens see the padding before their text",
                       "give the attention mask of the padded batch to the model"},
    [CAUSE_POSITIONS] = {"positions", "a position is left out after the prompt",
                         "compare the positions of the first new token with those of one forward"},
    [CAUSE_SHIFT] = {"shifted", "each value is that of a neighbouring token",
                     "the logits of a token predict the next one: shift by one, once"},
    [CAUSE_BASE] = {"logarithm", "the values are logarithms to another base",
                    "compare natural logarithms"},
    [CAUSE_TEMPERATURE] = {"temperature", "the logits are divided by the temperature",
                           "divide the logits of both by it, or of none (vLLM: logprobs_mode)"},
};

void ot_logprob_streams(ot_plain_type narrow, ot_logprob_stream out[OT_LOGPROB_STREAMS]) {
  const ot_logprob_stream all[OT_LOGPROB_STREAMS] = {
      {OT_VIEW_TEXT, OT_PLAIN_F64, false},    {OT_VIEW_TEXT, OT_PLAIN_F32, false},
      {OT_VIEW_TEXT, OT_PLAIN_F32, true},     {OT_VIEW_TEXT, narrow, false},
      {OT_VIEW_TEXT, narrow, true},           {OT_VIEW_BOS, OT_PLAIN_F64, false},
      {OT_VIEW_PADDING, OT_PLAIN_F64, false}, {OT_VIEW_POSITIONS, OT_PLAIN_F64, false},
  };
  for (int i = 0; i < OT_LOGPROB_STREAMS; i++) out[i] = all[i];
}

ot_logprob_candidate *ot_logprob_causes_add(ot_logprob_causes *c, const ot_logprob_cause *cause,
                                            const char *factor) {
  c->candidates =
      ot_arena_grow(c->arena, c->candidates, c->count, &c->capacity, sizeof *c->candidates);
  ot_logprob_candidate *const new = &c->candidates[c->count++];
  *new = (ot_logprob_candidate){.cause = cause, .factor = factor, .type = -1};
  return new;
}

static ot_logprob_candidate *add(ot_logprob_causes *c, cause_row row, const char *factor) {
  return ot_logprob_causes_add(c, &rows[row], factor);
}

static void add_values(ot_logprob_causes *c, ot_logprob_candidate *to, const double *values) {
  for (int64_t t = 0; t < c->source.count; t++)
    ot_logprob_candidate_add(to, &c->source, t, values[t]);
}

// ---- values of a stream ----

typedef struct keeping {
  int64_t vocab;
  double *to;
} keeping;

static void keep(void *context, int64_t token, int32_t target, const double *logits) {
  const keeping *const k = context;
  k->to[token] = ot_log_probability(logits, k->vocab, target);
}

const double *ot_logprob_values(ot_logprob_model *model, int stream, const ot_logprob_pair *pair,
                                ot_arena *arena) {
  double *const values = ot_arena_array(arena, pair->count, sizeof *values);
  keeping k = {ot_logprob_model_vocab(model), values};
  for (int64_t t = 0; t < pair->count; t++) values[t] = NAN;
  ot_logprob_model_visit(model, stream, keep, &k);
  return values;
}

static void add_views(ot_logprob_causes *c) {
  static const cause_row views[] = {CAUSE_BOS, CAUSE_PADDING, CAUSE_POSITIONS};
  for (int i = 0; i < OT_COUNT(views); i++) {
    const int stream = OT_LOGPROB_STREAMS - OT_COUNT(views) + i;
    add_values(c, add(c, views[i], NULL), ot_logprob_values(c->model, stream, c->pair, c->arena));
  }
}

// ---- lists ----

// The value `by` tokens further in the same sequence.
static double neighbour(const ot_logprob_causes *c, int64_t t, int by) {
  const int64_t other = t + by;
  const bool inside = other >= 0 && other < c->source.count &&
                      c->pair->match[other] == c->pair->match[t] &&
                      c->pair->token[0][other] == c->pair->token[0][t] + by;
  return inside ? c->source.exact[other] : NAN;
}

static void add_lists(ot_logprob_causes *c) {
  static const struct {
    const char *name;
    double base;
  } bases[] = {{"1/ln 2", 2}, {"1/ln 10", 10}};
  for (int by = -1; by <= 1; by += 2) {
    ot_logprob_candidate *const to = add(c, CAUSE_SHIFT, by > 0 ? "+1" : "-1");
    for (int64_t t = 0; t < c->source.count; t++)
      ot_logprob_candidate_add(to, &c->source, t, neighbour(c, t, by));
  }
  for (int i = 0; i < OT_COUNT(bases); i++) {
    ot_logprob_candidate *const to = add(c, CAUSE_BASE, bases[i].name);
    for (int64_t t = 0; t < c->source.count; t++)
      ot_logprob_candidate_add(to, &c->source, t, c->source.exact[t] / log(bases[i].base));
  }
}

// ---- temperature: Gauss-Newton for the factor beta = 1/T of all logits ----

typedef struct heating {
  const ot_logprob_source *source;
  int64_t vocab;
  double beta;
  double *scaled;  // [vocab]
  double *values;  // [tokens] ln p at beta
  double gd, gg;   // of g = d ln p / d beta and x - ln p
  double own_g[OT_LOGPROB_TYPES][2];
} heating;

// d ln p(y) / d beta = logit(y) - the mean of logits under p
static void heat(void *context, int64_t token, int32_t target, const double *logits) {
  heating *const h = context;
  const ot_logprob_source *const s = h->source;
  double mean = 0;
  for (int64_t v = 0; v < h->vocab; v++) h->scaled[v] = h->beta * logits[v];
  const double value = ot_log_probability(h->scaled, h->vocab, target);
  const double sum = h->scaled[target] - value;
  for (int64_t v = 0; v < h->vocab; v++) mean += exp(h->scaled[v] - sum) * logits[v];
  const double g = logits[target] - mean;
  h->values[token] = value;
  h->gg += g * g;
  if (isfinite(s->x[token])) h->gd += g * (s->x[token] - value);
  for (int k = 0; k < OT_LOGPROB_TYPES; k++) {
    for (int i = 0; i < 2 && s->own[k][i]; i++)
      h->own_g[k][i] += g * (s->own[k][i][token] - s->exact[token]);
  }
}

static void find_spread(ot_logprob_causes *c, const heating *h) {
  static const double least = 1e-6;
  for (int k = 0; k < OT_LOGPROB_TYPES; k++) {
    const double own = ot_larger(fabs(h->own_g[k][0]), fabs(h->own_g[k][1])) / h->gg;
    c->temperature_spread[k] =
        ot_larger(ot_larger(own, c->source.rounding[k] / sqrt(h->gg)), least);
  }
}

static void add_temperature(ot_logprob_causes *c) {
  enum { STEPS = 12 };
  static const double least_beta = 0.02, most_beta = 50, enough = 1e-9;
  heating h = {.source = &c->source, .vocab = ot_logprob_model_vocab(c->model), .beta = 1};
  h.scaled = ot_arena_array(c->arena, h.vocab, sizeof *h.scaled);
  h.values = ot_arena_array(c->arena, c->source.count, sizeof *h.values);
  for (int64_t t = 0; t < c->source.count; t++) h.values[t] = NAN;
  for (int i = 0; i < STEPS; i++) {
    h.gd = h.gg = 0;
    ot_logprob_model_visit(c->model, 0, heat, &h);
    if (!(h.gg > 0)) return;
    if (i == 0) find_spread(c, &h);
    const double step = h.gd / h.gg;
    if (fabs(step) < enough) break;
    h.beta = ot_smaller(ot_larger(h.beta + step, ot_larger(h.beta / 2, least_beta)),
                        ot_smaller(2 * h.beta, most_beta));
  }
  ot_logprob_model_visit(c->model, 0, heat, &h);
  ot_logprob_candidate *const to =
      add(c, CAUSE_TEMPERATURE, ot_arena_format(c->arena, "%.4g", 1 / h.beta));
  to->size = fabs(h.beta - 1);
  for (int k = 0; k < OT_LOGPROB_TYPES; k++) to->noise[k] = c->temperature_spread[k];
  add_values(c, to, h.values);
}

// ---- without a model: by lists of the most probable tokens in both files ----

// Sums over the lists of all places, each less its mean: a of the explained side, b of the other.
typedef struct list_sums {
  int64_t entries, places;
  double aa, ab, bb;
} list_sums;

// The entries of both lists of a token, as pairs; returns their number.
static int common_entries(const ot_logprob_token *a, const ot_logprob_token *b, double *x,
                          double *y) {
  int count = 0;
  for (int i = 0; i < a->num_top; i++) {
    for (int k = 0; k < b->num_top; k++) {
      bool known;
      if (!ot_logprob_same(&a->top[i], &b->top[k], &known)) continue;
      if (!isfinite(a->top[i].logprob) || !isfinite(b->top[k].logprob)) break;
      x[count] = a->top[i].logprob;
      y[count++] = b->top[k].logprob;
      break;
    }
  }
  return count;
}

static void add_place(const ot_logprob_causes *c, int64_t t, list_sums *sums) {
  double x[64], y[64], a = 0, b = 0;
  const int count = common_entries(ot_logprob_pair_token(c->pair, c->side, t),
                                   ot_logprob_pair_token(c->pair, 1 - c->side, t), x, y);
  for (int i = 0; i < count; i++) {
    a += x[i] / count;
    b += y[i] / count;
  }
  for (int i = 0; i < count; i++) {
    sums->aa += (x[i] - a) * (x[i] - a);
    sums->ab += (x[i] - a) * (y[i] - b);
    sums->bb += (y[i] - b) * (y[i] - b);
  }
  sums->entries += count > 1 ? count - 1 : 0;
  sums->places += count > 1;
}

// Logits are known up to a constant of the place: a temperature scales their differences. The
// candidate has the sums of the lists in place of those of tokens.
static void add_list_slope(ot_logprob_causes *c, const list_sums *s) {
  const double slope = s->ab / s->bb;
  ot_logprob_candidate *const to =
      add(c, CAUSE_TEMPERATURE, ot_arena_format(c->arena, "%.4g", 1 / slope));
  to->size = fabs(slope - 1);
  for (int k = 0; k < OT_LOGPROB_TYPES; k++) {
    to->noise[k] = ot_larger(c->source.rounding[k] / sqrt(s->bb), 1e-3);
    c->temperature_spread[k] = to->noise[k];
  }
  to->count = c->source.known;
  to->dd = s->aa - 2 * s->ab + s->bb;
  to->dh = (slope - 1) * (s->ab - s->bb);
  to->hh = (slope - 1) * (slope - 1) * s->bb;
  to->rest = (s->aa - slope * s->ab) * (double)to->count / (double)s->entries;
}

// A constant of the place, with the same sign everywhere, is the mass that is left.
static void add_list_offset(ot_logprob_causes *c, const list_sums *s) {
  const double within = sqrt((s->aa - 2 * s->ab + s->bb) / (double)s->entries);
  double least = INFINITY, most = -INFINITY;
  for (int64_t t = 0; t < c->source.count; t++) {
    const double d = c->source.x[t] - c->source.exact[t];
    if (!isfinite(d)) continue;
    least = ot_smaller(least, d);
    most = ot_larger(most, d);
  }
  if (!(least > -offset_limit * within)) return;
  ot_logprob_candidate *const to = ot_logprob_causes_add(
      c, &ot_logprob_renormalised,
      ot_arena_format(c->arena, "kept mass %.3g to %.3g", exp(-most), ot_smaller(1, exp(-least))));
  for (int64_t t = 0; t < c->source.count; t++) {
    if (isfinite(c->source.x[t])) ot_logprob_candidate_add(to, &c->source, t, c->source.x[t]);
  }
  to->rest = within * within * (double)to->count;
  if (to->dd < OT_RATIO_FINE * OT_RATIO_FINE * to->rest) c->count--;
}

static void add_list_causes(ot_logprob_causes *c) {
  list_sums sums = {0};
  for (int64_t t = 0; t < c->source.count; t++) add_place(c, t, &sums);
  if (2 * sums.places < c->source.count || !(sums.bb > 0)) return;
  add_list_slope(c, &sums);
  add_list_offset(c, &sums);
}

void ot_logprob_causes_compute(ot_logprob_causes *c) {
  add_lists(c);
  if (!c->model) {
    add_list_causes(c);
    return;
  }
  add_views(c);
  add_temperature(c);
  ot_logprob_truncations_add(c);
}
