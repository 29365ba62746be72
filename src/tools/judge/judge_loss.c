// SPDX-License-Identifier: Apache-2.0
// The verdict on the recorded loss of the step: that of the targets, perhaps with those of routers.
#include <math.h>

#include "base/dtype.h"
#include "base/extremes.h"
#include "base/text.h"
#include "judge/judge_parts.h"

bool ot_judging_loss(const ot_judging *j, double *mean, bool *several) {
  int count = 0;
  double low = INFINITY, high = -INFINITY;
  *mean = 0;
  for (int rank = 0; rank < j->step.world; rank++) {
    double loss;
    if (!ot_recorded_scalar_of(&j->step, "loss", rank, &loss)) continue;
    *mean += loss;
    low = ot_smaller(low, loss);
    high = ot_larger(high, loss);
    count++;
  }
  *mean /= count > 0 ? count : 1;
  *several = high > low;
  return count > 0;
}

// Two own runs may agree by chance: relative rounding of the mean if that of each token is one of
// the type, independent of the others.
static double rounding_of_mean(const ot_judging *j) {
  const bool narrow = j->type == OT_PLAIN_BF16 || j->type == OT_PLAIN_AUTOCAST;
  int64_t targets = 0;
  for (int64_t i = 0; i < j->recorded.num_batches; i++) targets += j->recorded.batch[i].targets;
  return narrow && targets > 0 ? ot_dtype_roundoff(OT_BF16) / sqrt((double)targets) : 0;
}

void ot_judge_loss(ot_judging *j) {
  static const double logged = 1e-5;  // relative: losses are logged as float32 sums
  double mean;
  bool several;
  j->loss = NAN;
  if (!ot_judging_loss(j, &mean, &several)) return;
  const double right = j->losses[0];
  const double own =
      ot_larger(ot_larger(fabs(j->losses[1] - right), fabs(j->losses[2] - right)),
                ot_larger(logged / OT_RATIO_FINE, rounding_of_mean(j)) * fabs(right));
  const double ratio = fabs(mean - right) / own;
  const bool agrees = ratio <= OT_RATIO_FINE;
  ot_judge_add_part(j->report, "loss", agrees,
                    "%.7g recorded%s, %.7g recomputed (%.2g x own error)", mean,
                    several ? " (mean of ranks)" : "", right, ratio);
  j->loss_own = own;
  if (!agrees) j->loss = mean;
}

// The finding of this class, or null.
static ot_judge_finding *known_finding(const ot_judging *j, const ot_hypothesis *h) {
  for (int i = 0; i < j->report->num_findings; i++) {
    if (ot_text_equal(j->report->findings[i].what, h->fault)) return &j->report->findings[i];
  }
  return NULL;
}

// The same, or a new one.
static ot_judge_finding *finding_of(ot_judging *j, const ot_hypothesis *h) {
  ot_judge_finding *const known = known_finding(j, h);
  if (known) return known;
  ot_judge_finding *const f = ot_judge_find(j->report, h->fault);
  f->evidence = h->sentence;
  f->advice = h->advice;
  return f;
}

static bool is_loss(const ot_judging *j, double loss) {
  return fabs(j->loss - loss) <= OT_RATIO_FINE * j->loss_own;
}

// Whether the recorded loss is `loss`, which the hypothesis says.
static bool explain_loss(ot_judging *j, const ot_hypothesis *h, double loss) {
  if (!is_loss(j, loss)) return false;
  ot_judge_finding *const f = finding_of(j, h);
  f->evidence = ot_arena_format(j->arena, "%s; the recorded loss is that of this fault, %.7g",
                                f->evidence, loss);
  return true;
}

// " and ln tp more than it": a softmax over a vocabulary that ranks repeat. Or "".
static const char *logarithm_in_words(const ot_judging *j) {
  for (int i = 0; i < j->num_sizes; i++) {
    const double more = log(j->sizes[i].size);
    if (more > 0 && fabs(j->loss - j->losses[0] - more) <= OT_RATIO_FINE * j->loss_own)
      return ot_arena_format(j->arena, " and ln %s more than it", j->sizes[i].name);
  }
  return "";
}

// Whether the recorded loss is the sum of that of the targets and those of routers: as gradients
// show, or, where other choices of experts hide what they show, with the coefficient of
// config.json.
static bool has_router_losses(ot_judging *j) {
  double right = j->losses[0] + j->router_loss;
  for (int i = 0; i < j->num_hypotheses && ot_judging_may_reroute(j) && !is_loss(j, right); i++) {
    if (j->hypotheses[i].form == OT_FAULT_LOSS) right = j->losses[OT_OWN_STREAMS + i];
  }
  if (!is_loss(j, right)) return false;
  for (int i = 0; i < j->report->num_parts; i++) {
    ot_judged_part *const part = &j->report->parts[i];
    if (!ot_text_equal(part->name, "loss")) continue;
    part->agrees = true;
    part->words = ot_arena_format(j->arena, "%s; %.7g with those of routers", part->words, right);
  }
  return true;
}

void ot_judge_explain_loss(ot_judging *j) {
  if (isnan(j->loss) || has_router_losses(j)) return;
  if (j->setting.setting && explain_loss(j, j->setting.hypothesis, j->setting.loss)) return;
  for (int i = 0; i < j->num_hypotheses; i++) {
    const ot_hypothesis *const h = &j->hypotheses[i];
    // A setting may have any value, so that the loss of one value alone says nothing.
    if (h->form != OT_FAULT_WHOLE && !known_finding(j, h)) continue;
    if (explain_loss(j, h, j->losses[OT_OWN_STREAMS + i])) return;
  }
  const double factor = j->loss / j->losses[0];
  ot_judge_finding *const f = ot_judge_find(j->report, "loss");
  f->factor = ot_words_of_factor(j->sizes, j->num_sizes, factor, 0.002, j->arena);
  f->evidence = ot_arena_format(j->arena, "the recorded loss is %.7g times the recomputed one%s",
                                factor, logarithm_in_words(j));
  f->advice = "see what the logged loss is a mean of: tokens, micro-batches, ranks";
}
