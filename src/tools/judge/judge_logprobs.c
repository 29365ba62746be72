// SPDX-License-Identifier: Apache-2.0
#include "judge/judge_logprobs.h"

#include <math.h>

#include "base/extremes.h"
#include "base/text.h"
#include "judge/attribution.h"
#include "judge/log_probability.h"
#include "judge/logprobs_causes.h"

// Rounding of log-probabilities in a type, RMS in nats, where no checkpoint says it. bf16:
// 0.0065 in a small model, a mean of 0.012 between vLLM and a trainer (trl #4772). float32: 1.4e-6
// between orders of sums.
static const double usual_rounding[OT_LOGPROB_TYPES] = {1e-5, 0.01};
static const char *const type_names[OT_LOGPROB_TYPES] = {"fp32", "bf16"};

typedef struct judging {
  const ot_judge_logprobs_request *request;
  ot_arena *arena;
  ot_judge_report *report;
  ot_logprob_file file[2];
  ot_logprob_pair pair;
  ot_logprob_model *model;  // null: no checkpoint, or no text that it could compute
  ot_logprob_causes side[2];
  ot_logprob_verdict verdict[2];
  int num_sides;   // that are judged: both with a model, else the first against the second
  int impossible;  // tokens that one side alone says cannot be drawn
} judging;

// ---- sources ----

static double rms_between(const double *a, const double *b, int64_t count) {
  double sum = 0;
  int64_t finite = 0;
  for (int64_t t = 0; t < count; t++) {
    if (!isfinite(a[t]) || !isfinite(b[t])) continue;
    sum += (a[t] - b[t]) * (a[t] - b[t]);
    finite++;
  }
  return finite > 0 ? sqrt(sum / (double)finite) : 0;
}

static bool allows(const judging *j, int type) {
  const ot_judge_type asked = j->request->type;
  if (asked == OT_JUDGE_AUTO) return true;
  return (asked == OT_JUDGE_FP32) == (type == OT_LOGPROB_FP32);
}

// The rounding of float32 values in a file, whatever was computed.
static double stored_rounding(const double *values, int64_t count) {
  double sum = 0;
  for (int64_t t = 0; t < count; t++) sum += isfinite(values[t]) ? values[t] * values[t] : 0;
  return 0x1p-24 * sqrt(sum / (double)count);
}

static void set_reference(judging *j, ot_logprob_source *s) {
  s->exact = ot_logprob_values(j->model, 0, &j->pair, j->arena);
  for (int k = 0; k < OT_LOGPROB_TYPES; k++) {
    s->rounding[k] = stored_rounding(j->pair.logprob[0], j->pair.count);
    for (int i = 0; i < 2; i++) {
      s->own[k][i] = ot_logprob_values(j->model, 1 + 2 * k + i, &j->pair, j->arena);
      const double own = rms_between(s->own[k][i], s->exact, s->count);
      s->rounding[k] = ot_larger(s->rounding[k], own);
    }
  }
}

static void judge_side(judging *j, int side, ot_logprob_source source) {
  ot_logprob_causes *const c = &j->side[side];
  source.x = j->pair.logprob[side];
  for (int64_t t = 0; t < source.count; t++) source.known += !isnan(source.exact[t]);
  for (int k = 0; k < OT_LOGPROB_TYPES; k++) {
    if (!allows(j, k)) source.rounding[k] = 0;
  }
  *c = (ot_logprob_causes){
      .arena = j->arena, .pair = &j->pair, .side = side, .model = j->model, .source = source};
  ot_logprob_causes_compute(c);
  j->verdict[side] = ot_logprob_explain(&c->source, c->candidates, c->count);
  if (j->verdict[side].type >= 0 || !j->model) return;
  ot_logprob_heated_truncations_add(c);
  j->verdict[side] = ot_logprob_explain(&c->source, c->candidates, c->count);
}

static void judge_sides(judging *j) {
  ot_logprob_source source = {.count = j->pair.count};
  if (j->model) {
    set_reference(j, &source);
  } else {
    source.exact = j->pair.logprob[1];
    for (int k = 0; k < OT_LOGPROB_TYPES; k++) source.rounding[k] = usual_rounding[k];
  }
  j->num_sides = j->model ? 2 : 1;
  for (int side = 0; side < j->num_sides; side++) judge_side(j, side, source);
}

// ---- the pair ----

// The RMS that rounding may leave between both, if it is known.
static double pair_rounding(const judging *j) {
  double sum = 0;
  for (int side = 0; side < 2; side++) {
    const int of = side < j->num_sides ? side : 0;
    const int type = j->verdict[of].type;
    const double *const rounding = j->side[of].source.rounding;
    const double own = rounding[type >= 0 ? type : rounding[OT_LOGPROB_BF16] > 0];
    sum += own * own;
  }
  return sqrt(sum);
}

static ot_log_ratios sum_ratios(judging *j) {
  ot_log_ratios sums = {.worst = -1};
  for (int64_t t = 0; t < j->pair.count; t++) {
    const double a = j->pair.logprob[0][t], b = j->pair.logprob[1][t];
    if (isfinite(a) && isfinite(b)) ot_log_ratios_add(&sums, b - a, t);
    j->impossible += isinf(a) != isinf(b);
  }
  return sums;
}

// Tokens beyond rounding, and the sequence with the largest RMS.
typedef struct departure {
  int64_t beyond, first;  // -1: none
  int64_t match;
  double rms;
} departure;

static departure find_departure(const judging *j, double rounding) {
  departure out = {.first = -1};
  const ot_logprob_pair *const p = &j->pair;
  for (int64_t m = 0; m < p->num_matches; m++) {
    const ot_logprob_match *const match = &p->matches[m];
    const double *const a = p->logprob[0] + match->first, *const b = p->logprob[1] + match->first;
    const double rms = rms_between(a, b, match->count);
    for (int64_t t = 0; t < match->count; t++) {
      if (fabs(a[t] - b[t]) <= OT_RATIO_FINDING * rounding) continue;
      if (isinf(a[t]) && isinf(b[t])) continue;
      if (out.beyond++ == 0) out.first = match->first + t;
    }
    if (rms <= out.rms) continue;
    out.rms = rms;
    out.match = m;
  }
  return out;
}

static void add_bands(judging *j) {
  static const struct {
    int64_t begin, end;
    const char *name;
  } bands[] = {{0, 8, "rms_nats_tokens_0_to_7"},
               {8, 64, "rms_nats_tokens_8_to_63"},
               {64, 512, "rms_nats_tokens_64_to_511"},
               {512, INT64_MAX, "rms_nats_tokens_from_512"}};
  for (int i = 0; i < OT_COUNT(bands); i++) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t t = 0; t < j->pair.count; t++) {
      const int64_t at = t - j->pair.matches[j->pair.match[t]].first;
      const double d = j->pair.logprob[1][t] - j->pair.logprob[0][t];
      if (at < bands[i].begin || at >= bands[i].end || !isfinite(d)) continue;
      sum += d * d;
      count++;
    }
    if (count > 0) ot_judge_add_figure(j->report, bands[i].name, sqrt(sum / (double)count));
  }
}

// Estimators of KL(A || B) from tokens that A sampled, with r = p_B / p_A (Schulman 2020,
// "Approximating KL divergence", joschu.net/blog/kl-approx.html): k1 = -ln r, k2 = (ln r)^2 / 2,
// k3 = r - 1 - ln r. The mean of e^|ln r| is the error that NeMo-RL masks sequences by.
static void add_figures(judging *j, const ot_log_ratios *s, const departure *d) {
  const double n = (double)s->tokens;
  double most = 0;
  for (int64_t t = 0; t < j->pair.count; t++) {
    const double x = fabs(j->pair.logprob[1][t] - j->pair.logprob[0][t]);
    if (isfinite(x)) most += exp(x);
  }
  const ot_judge_figure figures[] = {
      {"tokens", (double)j->pair.count},
      {"sequences", (double)(j->pair.num_matches - j->pair.left_out)},
      {"rms_nats", sqrt(s->squares / n)},
      {"largest_nats", s->max},
      {"mean_nats", s->sum / n},
      {"mean_error_nats", sqrt(s->squares / n - s->sum / n * s->sum / n) / sqrt(n)},
      {"tokens_beyond_rounding", (double)d->beyond / (double)j->pair.count},
      {"impossible_tokens", j->impossible},
      {"k1_nats", 0 - s->sum / n},
      {"k2_nats", s->squares / n / 2},
      {"k3_nats", s->excess / n},
      {"ratio_mean", s->ratio / n},
      {"effective_sample_size", ot_log_ratios_sample_size(s)},
      {"clipped_at_0.2", (double)s->clipped / n},
      {"mean_exp_abs", most / n},
  };
  for (int i = 0; s->tokens > 0 && i < OT_COUNT(figures); i++)
    ot_judge_add_figure(j->report, figures[i].name, figures[i].value);
  add_bands(j);
}

static void add_pair_parts(judging *j, const ot_log_ratios *s, bool agrees) {
  const double n = (double)s->tokens;
  ot_judge_add_part(j->report, "tokens", true, "%lld of %lld sequences, with values in both",
                    (long long)j->pair.count, (long long)(j->pair.num_matches - j->pair.left_out));
  if (s->tokens == 0) return;
  ot_judge_add_part(j->report, "pair", agrees, "RMS %.3g nats, largest %.3g (%s), mean %.2g",
                    sqrt(s->squares / n), s->max, ot_logprob_pair_words(&j->pair, 0, s->worst),
                    s->sum / n);
  ot_judge_add_part(j->report, "ratios", agrees,
                    "k1 %.2g, k2 %.2g, k3 %.2g; mean %.4f, samples %.4f, clipped %.2g",
                    0 - s->sum / n, s->squares / n / 2, s->excess / n, s->ratio / n,
                    ot_log_ratios_sample_size(s), (double)s->clipped / n);
}

static void add_departure(judging *j, const departure *d) {
  if (d->beyond == 0) return;
  ot_judge_add_part(j->report, "beyond", false,
                    "%lld tokens, first %s; largest RMS of a text %.3g (%s)", (long long)d->beyond,
                    ot_logprob_pair_words(&j->pair, 0, d->first), d->rms,
                    j->pair.matches[d->match].of[0]->name);
}

static void judge_pair(judging *j) {
  const double rounding = pair_rounding(j);
  const ot_log_ratios sums = sum_ratios(j);
  const departure d = find_departure(j, rounding);
  const double rms = sums.tokens > 0 ? sqrt(sums.squares / (double)sums.tokens) : INFINITY;
  add_pair_parts(j, &sums, rms <= OT_RATIO_FINE * rounding && j->impossible == 0);
  add_departure(j, &d);
  add_figures(j, &sums, &d);
}

// ---- findings ----

static const char *side_in_words(const judging *j, int side) {
  return j->model ? j->file[side].path
                  : ot_arena_format(j->arena, "%s against %s", j->file[0].path, j->file[1].path);
}

static void add_part_of(judging *j, int side) {
  const ot_logprob_verdict *const v = &j->verdict[side];
  const double *const rounding = j->side[side].source.rounding;
  const int type = v->type >= 0 ? v->type : rounding[OT_LOGPROB_BF16] > 0;
  if (!j->model) return;
  ot_judge_add_part(j->report, side == 0 ? "first" : "second", v->type >= 0 && !v->cause,
                    "RMS %.3g nats from float64, %.2g x own error in %s", v->direct,
                    v->direct / rounding[type], type_names[type]);
}

static void find_cause(judging *j, int side) {
  const ot_logprob_verdict *const v = &j->verdict[side];
  const ot_logprob_source *const s = &j->side[side].source;
  ot_judge_finding *const f = ot_judge_find(j->report, v->cause->cause->what);
  f->tensors = side_in_words(j, side);
  f->factor = v->cause->factor;
  f->confirmed = v->rest / s->rounding[v->type];
  f->evidence = ot_arena_format(
      j->arena, "%s: the RMS falls from %.3g to %.3g nats, rounding in %s is %.2g",
      v->cause->cause->sentence, v->direct, v->rest, type_names[v->type], s->rounding[v->type]);
  f->advice = v->cause->cause->advice;
}

// Values that are exactly 0 where the reference is not: no software filled them in.
static int64_t count_zeros(const ot_logprob_source *s) {
  static const double certain = -0.1;
  int64_t zeros = 0;
  for (int64_t t = 0; t < s->count; t++) zeros += s->x[t] == 0 && s->exact[t] < certain;
  return zeros;
}

// How much the RMS grows from the first half of the sequences to the second.
static double growth_of(const judging *j, int side) {
  const ot_logprob_source *const s = &j->side[side].source;
  const int64_t half = j->pair.matches[j->pair.num_matches / 2].first;
  const double early = rms_between(s->x, s->exact, half);
  return half == 0 || early == 0
             ? 1
             : rms_between(s->x + half, s->exact + half, s->count - half) / early;
}

static void find_unexplained(judging *j, int side) {
  static const double grows = 2;
  const ot_logprob_verdict *const v = &j->verdict[side];
  const ot_logprob_source *const s = &j->side[side].source;
  const int64_t zeros = count_zeros(s);
  const bool other = j->model && j->verdict[1 - side].type >= 0 && !j->verdict[1 - side].cause;
  const char *const what = zeros > 0 ? "filled_with_zeros" : other ? "other_weights" : "logprobs";
  ot_judge_finding *const f = ot_judge_find(j->report, what);
  f->tensors = side_in_words(j, side);
  f->evidence = ot_arena_format(
      j->arena, "RMS %.3g nats, and no cause of the table leaves rounding alone", v->direct);
  f->advice = j->model ? "compare settings of the model, weights and attention masks"
                       : "add the CHECKPOINT: then texts and distributions are computed, too";
  if (zeros > 0) {
    f->evidence =
        ot_arena_format(j->arena, "%lld tokens have exactly 0, probability 1", (long long)zeros);
    f->advice = "values that the engine did not return are no zeros (NeMo-RL #4218)";
  } else if (other) {
    const double growth = growth_of(j, side);
    f->evidence = ot_arena_format(
        j->arena, "%s; %s agrees with the checkpoint%s", f->evidence, j->file[1 - side].path,
        growth > grows ? ot_arena_format(j->arena,
                                         "; the difference grows by %.2g from the first "
                                         "half of the sequences to the second",
                                         growth)
                       : "");
    f->advice = "load the weights of this checkpoint: stale ones, or another model, differ so";
  }
}

static void add_sensitivities(judging *j, int side) {
  const ot_logprob_causes *const c = &j->side[side];
  const int type = j->verdict[side].type >= 0 ? j->verdict[side].type : OT_LOGPROB_BF16;
  if (side > 0 || c->source.rounding[type] == 0) return;
  for (int i = 0; i < c->count; i++) {
    const ot_logprob_cause *const cause = c->candidates[i].cause;
    double least = INFINITY;
    bool first = true;
    for (int k = 0; k < i && first; k++) first = c->candidates[k].cause != cause;
    for (int k = i; k < c->count && first; k++) {
      if (c->candidates[k].cause == cause && c->candidates[k].hh > 0)
        least = ot_smaller(least, ot_logprob_sensitivity(&c->candidates[k], &c->source, type));
    }
    if (first && isfinite(least)) ot_judge_add_sensitivity(j->report, cause->what, least);
    if (first && isfinite(least) && least > 1)
      ot_judge_leave_open(j->report, "%s would not show in so few tokens", cause->what);
  }
}

static void leave_open(judging *j) {
  const ot_logprob_verdict *const v = &j->verdict[0];
  const bool guessed = !j->model && j->request->type == OT_JUDGE_AUTO && !v->cause;
  if (guessed && v->type == OT_LOGPROB_BF16)
    ot_judge_leave_open(j->report,
                        "the differences are as large as rounding in bf16, and a fault in float32 "
                        "may be; --type or the CHECKPOINT decides");
  if (j->request->checkpoint && !j->model)
    ot_judge_leave_open(j->report,
                        "no text has the ids of all its tokens from the first one on, so none was "
                        "computed; add prompt ids (vLLM: return_token_ids, echo)");
  else if (j->model && ot_logprob_model_tokens(j->model) < j->pair.count)
    ot_judge_add_part(j->report, "note", true, "%lld of %lld tokens were computed again",
                      (long long)ot_logprob_model_tokens(j->model), (long long)j->pair.count);
}

static void find_all(judging *j) {
  for (int side = 0; side < j->num_sides; side++) {
    add_part_of(j, side);
    if (j->verdict[side].cause) find_cause(j, side);
    if (j->verdict[side].type < 0) find_unexplained(j, side);
  }
  if (j->impossible > 0 && j->report->num_findings == 0) {
    ot_judge_finding *const f = ot_judge_find(j->report, "impossible_tokens");
    f->evidence =
        ot_arena_format(j->arena, "%d tokens cannot be drawn in one file alone", j->impossible);
    f->advice = "sampling masks tokens in one of both: take raw log-probabilities";
  }
  for (int side = 0; side < j->num_sides; side++) add_sensitivities(j, side);
  leave_open(j);
}

// ---- the request ----

static ot_status open_model(judging *j) {
  const ot_judge_logprobs_request *const r = j->request;
  ot_logprob_stream *const streams = ot_arena_array(j->arena, OT_LOGPROB_STREAMS, sizeof *streams);
  ot_logprob_streams(r->type == OT_JUDGE_AUTOCAST ? OT_PLAIN_AUTOCAST : OT_PLAIN_BF16, streams);
  const ot_logprob_model_request request = {.path = r->checkpoint,
                                            .pair = &j->pair,
                                            .num_streams = OT_LOGPROB_STREAMS,
                                            .streams = streams,
                                            .most_tokens = r->most_tokens,
                                            .threads = r->threads,
                                            .progress = r->progress,
                                            .context = r->context};
  OT_TRY(ot_logprob_model_create(&request, &j->model));
  if (ot_logprob_model_texts(j->model) == 0) ot_logprob_model_destroy(&j->model);
  return OT_OK;
}

static ot_status read_files(judging *j) {
  for (int k = 0; k < 2; k++) {
    const ot_logprob_file *const values = j->request->values[k];
    if (values) j->file[k] = *values;
    if (!values) OT_TRY(ot_logprob_file_read(j->request->path[k], j->arena, &j->file[k]));
  }
  return OT_OK;
}

ot_status ot_judge_logprobs(const ot_judge_logprobs_request *request, ot_arena *arena,
                            ot_judge_report *out) {
  judging *const j = ot_arena_take(arena, sizeof *j);
  *out = (ot_judge_report){.arena = arena, .verdict = OT_VERDICT_CLEAN};
  *j = (judging){.request = request, .arena = arena, .report = out};
  OT_TRY(read_files(j));
  OT_TRY(ot_logprob_pair_build(&j->file[0], &j->file[1], arena, &j->pair));
  if (request->checkpoint) OT_TRY(open_model(j));
  out->step = ot_arena_format(
      arena, "log-probabilities, %s and %s%s", j->file[0].path, j->file[1].path,
      j->model ? ot_arena_format(arena, ", %s", ot_logprob_model_words(j->model, arena)) : "");
  judge_sides(j);
  judge_pair(j);
  find_all(j);
  ot_logprob_model_destroy(&j->model);
  return OT_OK;
}
