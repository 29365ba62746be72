// SPDX-License-Identifier: Apache-2.0
#include "ledger/decision.h"

#include <math.h>

const char *const ot_ledger_verdict_names[OT_LEDGER_VERDICTS + 1] = {
    [OT_LEDGER_UNDECIDED] = "undecided", [OT_LEDGER_BETTER] = "better",
    [OT_LEDGER_WORSE] = "worse",         [OT_LEDGER_EQUAL] = "equal",
    [OT_LEDGER_WITHHELD] = "withheld",   [OT_LEDGER_VETOED] = "vetoed"};

void ot_looks_set_levels(ot_looks *looks) {
  static const int usual[] = {4, 8, 16};
  static const double levels[] = {0.00145, 0.00689, 0.01957};
  bool same = looks->count == 3 && looks->one_sided == 0.025;
  for (int i = 0; same && i < 3; i++) same = looks->pairs[i] == usual[i];
  for (int i = 0; i < looks->count; i++)
    looks->level[i] = same ? levels[i] : looks->one_sided / looks->count;
}

// gamma_j before division by the sum, j from 1.
static double share(double j) {
  const double l = log(j < 2 ? 2 : j);
  return 1 / (j * l * l);
}

double ot_candidate_factor(const ot_looks *looks, int index, int accepted) {
  const int terms = 100000;
  double sum = 1 / log(terms + 0.5), levels = 0;  // the integral of the rest
  for (int j = terms; j >= 1; j--) sum += share(j);
  const double alpha = looks->one_sided * share(index + 1) / sum * (1 + accepted);
  if (alpha >= looks->one_sided) return 1;
  for (int i = 0; i < looks->count; i++) levels += looks->level[i];
  return fmin(1, alpha / levels);
}

ot_ledger_verdict ot_decide(const ot_decision *d, const ot_measured *mean) {
  const ot_looks *const looks = d->looks;
  const double level = looks->level[d->look] * d->factor;
  if (d->neutral)
    return ot_measured_within(mean, looks->pairs[d->look], 1 - 2 * looks->one_sided,
                              d->margins->neutral)
               ? OT_LEDGER_EQUAL
               : OT_LEDGER_UNDECIDED;
  if (mean->p <= level)
    return mean->value > log(d->margins->too_good) ? OT_LEDGER_WITHHELD : OT_LEDGER_BETTER;
  if (1 - mean->p <= level && mean->value <= log(d->margins->harmful)) return OT_LEDGER_WORSE;
  if (mean->high < log(d->margins->practical)) return OT_LEDGER_EQUAL;
  return OT_LEDGER_UNDECIDED;
}

ot_ledger_prior ot_ledger_prior_of(const ot_measured *e, int count) {
  ot_ledger_prior prior = {.count = count};
  double noise = 0, squares = 0;
  for (int i = 0; i < count; i++) {
    prior.mean += e[i].value / count;
    noise += e[i].se * e[i].se / count;
  }
  if (count < 3) return prior;
  for (int i = 0; i < count; i++)
    squares += (e[i].value - prior.mean) * (e[i].value - prior.mean) / (count - 1);
  prior.sd = sqrt(fmax(0, squares - noise));
  return prior;
}

double ot_ledger_shrink(const ot_ledger_prior *prior, const ot_measured *e) {
  const double own = prior->sd * prior->sd, noise = e->se * e->se;
  if (prior->count < 3 || own + noise == 0) return e->value;
  return (own * e->value + noise * prior->mean) / (own + noise);
}

double ot_smallest_effect(double sd, int pairs) { return sd * (1.96 + 0.84) / sqrt(pairs - 2.0); }

double ot_ledger_move_within(const double *moves, int count, double coverage) {
  double squares = 0;
  if (count == 0) return INFINITY;
  for (int i = 0; i < count; i++) squares += moves[i] * moves[i] / count;
  return ot_student_quantile(0.5 + coverage / 2, count) * sqrt(squares);
}
