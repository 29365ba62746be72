// SPDX-License-Identifier: Apache-2.0
// Settings that are far from those of config.json. Gradients are not linear over such a distance,
// so that the setting is fitted by Gauss and Newton's method: the step is computed with the value
// that is known so far, and the error that is left is projected on the derivative there. The first
// value is the best of the usual ones and that of config.json. A setting is named when the step
// that is computed with it leaves rounding alone.
#include <math.h>

#include "base/extremes.h"
#include "base/text.h"
#include "host/heap.h"
#include "judge/judge_parts.h"
#include "judge/setting.h"

enum { ROUNDS = 10 };

typedef struct fitting {
  ot_judging *judging;  // whose errors are explained
  ot_heap heap;
  ot_arena arena;
  ot_judged_pass *pass;                      // of its copy, with other settings
  const ot_hypothesis *moving[OT_SETTINGS];  // hypotheses that move each; null: without effect
  double start[OT_SETTINGS], distance[OT_SETTINGS];  // value to begin with, and what it leaves
} fitting;

// ---- what is left ----

// The square of the errors that `factor` times vector `vector` leaves (-1: of all errors), in own
// errors, over all elements.
static double distance_with(const ot_evidence *e, int vector, double factor) {
  const ot_factor_request one = {.count = vector >= 0, .vectors = {vector}};
  double sum = 0;
  for (int t = 0; t < e->num_tensors; t++) {
    const double rest = ot_factor_rest(e, &one, &factor, t);
    sum += rest * rest * (double)e->tensors[t].elements;
  }
  return sum;
}

static bool fit_factor(const ot_evidence *e, int vector, double *factor) {
  const ot_factor_request one = {.count = 1, .vectors = {vector}};
  ot_factor_fit fit;
  const bool found = ot_factor_fit_find(e, &one, &fit);
  *factor = found ? fit.factor[0] : NAN;
  return found;
}

bool ot_judge_suspects_setting(const ot_judging *j) {
  static const double much = 0.25;  // of the squared error; of rounding it is far less
  const double whole = distance_with(&j->evidence, -1, 0);
  for (int i = 0; i < j->num_hypotheses; i++) {
    const int vector = OT_EVIDENCE_HYPOTHESES + i;
    double factor;
    if (ot_setting_of_fault(j->hypotheses[i].fault) && fit_factor(&j->evidence, vector, &factor) &&
        distance_with(&j->evidence, vector, factor) < (1 - much) * whole)
      return true;
  }
  return false;
}

static bool is_rounding(const ot_evidence *e) {
  return ot_evidence_largest_ratio(e) <= OT_RATIO_FINE &&
         ot_evidence_typical_ratio(e, e->arena) <= OT_RATIO_TYPICAL;
}

// ---- steps with other settings ----

// A copy of the record's state, whose step is computed in place of the record's.
static ot_judging *begin_trial(fitting *f) {
  ot_judging *const trial = &f->pass->judgings[0];
  f->pass->count = 1;
  *trial = *f->judging;
  trial->arena = &f->arena;
  trial->num_hypotheses = 0;
  return trial;
}

static void add_case(ot_judging *trial, const ot_setting *setting, const ot_hypothesis *moving,
                     double value) {
  ot_hypothesis_case *const c = &trial->cases[trial->num_hypotheses];
  *c = (ot_hypothesis_case){moving, trial->own};
  setting->set(&c->changed.model, value);
  trial->hypotheses[trial->num_hypotheses++] = *moving;
}

// The first value of each setting.
static ot_status find_starts(fitting *f) {
  double values[OT_SETTINGS][OT_SETTING_USUAL];
  int counts[OT_SETTINGS] = {0}, vector = OT_EVIDENCE_HYPOTHESES;
  ot_judging *const trial = begin_trial(f);
  for (int s = 0; s < OT_SETTINGS; s++) {
    if (!f->moving[s]) continue;
    counts[s] = ot_setting_usual(&ot_setting_table[s], &trial->own.model, values[s]);
    for (int i = 0; i < counts[s]; i++)
      add_case(trial, &ot_setting_table[s], f->moving[s], values[s][i]);
  }
  OT_TRY(ot_judge_measure(f->pass));
  for (int s = 0; s < OT_SETTINGS; s++) {
    f->start[s] = ot_setting_table[s].get(&trial->own.model);
    f->distance[s] = distance_with(&trial->evidence, -1, 0);
    for (int i = 0; i < counts[s]; i++, vector++) {
      const double distance = distance_with(&trial->evidence, vector, 1);
      if (!(distance < f->distance[s])) continue;
      f->distance[s] = distance;
      f->start[s] = values[s][i];
    }
  }
  return OT_OK;
}

// Small, so that few tokens go to other experts; in float32, the effect of a small move is
// rounding.
static double share_of(const ot_judging *j, const ot_setting *setting) {
  return j->base == OT_PLAIN_F64 ? 1e-5 : ot_smaller(1, setting->share);
}

// The value that the factor `factor` of a move by `share` says.
static double moved(const ot_setting *setting, double value, double factor, double share) {
  static const double most = 0.1;  // of the value, downwards, and in logarithms upwards
  const double further = setting->linear ? 1 + factor * share : pow(1 + share, factor);
  return value * (setting->linear ? ot_larger(most, further)
                                  : ot_larger(most, ot_smaller(further, 1 / most)));
}

// ---- Gauss and Newton's method ----

static void keep(const fitting *f, int s, double value) {
  const ot_judging *const trial = &f->pass->judgings[0];
  ot_judged_setting *const out = &f->judging->setting;
  *out = (ot_judged_setting){.setting = &ot_setting_table[s],
                             .hypothesis = f->moving[s],
                             .value = value,
                             .before = ot_evidence_largest_ratio(&f->judging->evidence),
                             .rest = ot_evidence_largest_ratio(&trial->evidence),
                             .loss = trial->losses[0]};
}

// Fits setting `s`. Ends early where its rounds do not approach.
static ot_status approach(fitting *f, int s) {
  static const double approaches = 0.7;
  const ot_setting *const setting = &ot_setting_table[s];
  const double share = share_of(f->judging, setting);
  double best = f->start[s], value = best, least = INFINITY, factor = NAN;
  int refused = 0;
  for (int round = 0; round < ROUNDS && refused < 3 && isfinite(value); round++) {
    ot_judging *const trial = begin_trial(f);
    setting->set(&trial->own.model, value);
    add_case(trial, setting, f->moving[s], (1 + share) * value);
    OT_TRY(ot_judge_measure(f->pass));
    const double distance = distance_with(&trial->evidence, -1, 0);
    double next;
    (void)fit_factor(&trial->evidence, OT_EVIDENCE_HYPOTHESES, &next);
    if (is_rounding(&trial->evidence)) {
      keep(f, s, isfinite(next) ? moved(setting, value, next, share) : value);
      return OT_OK;
    }
    if (distance < approaches * least) {
      best = value;
      least = distance;
      factor = next;
    } else {
      factor /= 4;
      refused++;
    }
    value = moved(setting, best, factor, share);
  }
  return OT_OK;
}

// All settings, the one that leaves least first, until one is named.
static ot_status approach_all(fitting *f) {
  for (int k = 0; k < OT_SETTINGS && !f->judging->setting.setting; k++) {
    int nearest = -1;
    for (int s = 0; s < OT_SETTINGS; s++) {
      if (f->moving[s] && (nearest < 0 || f->distance[s] < f->distance[nearest])) nearest = s;
    }
    if (nearest < 0) break;
    OT_TRY(approach(f, nearest));
    f->moving[nearest] = NULL;
  }
  return OT_OK;
}

// Whether a setting may be what is wrong: it moves most tensors, far beyond rounding, and all
// copies alike.
static bool may_be_setting(ot_judging *j) {
  const ot_evidence *const e = &j->evidence;
  int bad = 0;
  for (int t = 0; t < e->num_tensors; t++) {
    if (j->copies[t].differing || e->tensors[t].not_finite > 0) return false;
    bad += ot_evidence_ratio(e, &e->tensors[t]) > OT_RATIO_FINE;
  }
  return bad > 0 && 2 * bad >= e->num_tensors && ot_evidence_largest_ratio(e) >= OT_RATIO_FINDING &&
         !ot_judge_explains_errors(j);
}

ot_status ot_judge_fit_settings(ot_judging *j) {
  if (!may_be_setting(j)) return OT_OK;
  fitting f = {.judging = j};
  f.arena = ot_heap_arena_create(&f.heap);
  f.pass = ot_arena_take(&f.arena, sizeof *f.pass);
  for (int i = 0; i < j->num_hypotheses; i++) {
    const ot_setting *const setting = ot_setting_of_fault(j->hypotheses[i].fault);
    if (setting) f.moving[setting - ot_setting_table] = j->cases[i].hypothesis;
  }
  ot_status status = find_starts(&f);
  if (status == OT_OK) status = approach_all(&f);
  ot_heap_release(&f.heap);
  return status;
}

// ---- the finding ----

void ot_judge_setting(ot_judging *j) {
  const ot_judged_setting *const s = &j->setting;
  if (!s->setting) return;
  const double from = s->setting->get(&j->own.model);
  bool *const members = ot_arena_array(j->arena, j->evidence.num_tensors, sizeof *members);
  for (int t = 0; t < j->evidence.num_tensors; t++)
    members[t] = ot_evidence_ratio(&j->evidence, &j->evidence.tensors[t]) > OT_RATIO_FINE;
  ot_judge_finding *const f = ot_judge_find(j->report, s->hypothesis->fault);
  f->tensors = ot_words_of_tensors(&j->evidence, members, j->arena);
  f->factor = ot_arena_format(j->arena, "%.4g", s->value / from);
  f->evidence =
      ot_arena_format(j->arena, "%s %.4g in place of %.4g; without it up to %.3g x own error",
                      s->setting->words, s->value, from, s->before);
  f->advice = s->hypothesis->advice;
  f->confirmed = s->rest;
}
