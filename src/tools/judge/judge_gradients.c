// SPDX-License-Identifier: Apache-2.0
// The verdict on gradients: copies that differ, then errors and what explains them.
#include <math.h>
#include <string.h>

#include "base/extremes.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "judge/judge_parts.h"

const char *ot_judging_axes(const ot_judging *j, uint32_t axes) {
  ot_text_builder text = {.arena = j->arena};
  if (axes == 0) return NULL;
  for (int a = 0; a < j->step.num_axes; a++) {
    if (axes >> a & 1)
      ot_text_appendf(&text, "%s%s", text.length > 0 ? " and " : "", j->step.axes[a].name);
  }
  return ot_text_builder_text(&text);
}

bool ot_judging_add_consequence(ot_judging *j, const char *axes, const char *consequence) {
  for (int i = 0; i < j->report->num_findings; i++) {
    ot_judge_finding *const f = &j->report->findings[i];
    if (!f->axis || !ot_text_equal(f->axis, axes)) continue;
    f->evidence = ot_arena_format(j->arena, "%s; then %s", f->evidence, consequence);
    return true;
  }
  return false;
}

// ---- copies that differ ----

typedef enum copy_fault {
  COPIES_AGREE,
  COPIES_LACK_SUM,   // their sum is right
  COPIES_LACK_MEAN,  // their mean is right
  COPIES_DIFFER,     // neither is
} copy_fault;

static copy_fault judge_copies(const ot_judging *j, int t) {
  if (j->copies[t].differing == 0) return COPIES_AGREE;
  const double own = ot_evidence_ratio(&j->evidence, &j->evidence.tensors[t]);
  const double sum = ot_evidence_ratio(&j->sums, &j->sums.tensors[t]);
  const double mean = ot_evidence_ratio(&j->means, &j->means.tensors[t]);
  if (own <= OT_RATIO_FINE) return COPIES_DIFFER;
  if (sum <= OT_RATIO_FINE) return COPIES_LACK_SUM;
  return mean <= OT_RATIO_FINE ? COPIES_LACK_MEAN : COPIES_DIFFER;
}

// The right values are judged further.
static void use_right_copies(ot_judging *j, int t, copy_fault fault) {
  if (fault == COPIES_LACK_SUM) j->evidence.tensors[t] = j->sums.tensors[t];
  if (fault == COPIES_LACK_MEAN) j->evidence.tensors[t] = j->means.tensors[t];
}

ot_evidence ot_judge_right_copies(const ot_judging *j) {
  ot_judging right = *j;
  const int64_t count = j->evidence.num_tensors;
  right.evidence.tensors = ot_arena_array(j->arena, count + 1, sizeof *right.evidence.tensors);
  memcpy(right.evidence.tensors, j->evidence.tensors,
         (size_t)count * sizeof *right.evidence.tensors);
  for (int t = 0; t < count; t++) use_right_copies(&right, t, judge_copies(j, t));
  return right.evidence;
}

static const char *copies_in_words(const ot_judging *j, copy_fault fault, uint32_t axes,
                                   double relative, double error) {
  const char *const over = ot_judging_axes(j, axes);
  if (fault == COPIES_DIFFER)
    return ot_arena_format(j->arena,
                           "ranks of %s hold different gradients (by %.2g of their length), and "
                           "neither their sum nor their mean is the recomputed one",
                           over, relative);
  return ot_arena_format(
      j->arena,
      "ranks of %s hold different gradients (by %.2g of their length), each %.3g x own error off; "
      "their %s agrees with the recomputed one",
      over, relative, error, fault == COPIES_LACK_SUM ? "sum" : "mean");
}

// All tensors with this fault over these axes are one finding.
static void find_copies(ot_judging *j, const copy_fault *faults, const double *errors, int first) {
  const copy_fault fault = faults[first];
  const uint32_t axes = j->copies[first].differing;
  bool *const members = ot_arena_array(j->arena, j->evidence.num_tensors, sizeof *members);
  double relative = 0, error = 0, rest = 0;
  for (int t = 0; t < j->evidence.num_tensors; t++) {
    members[t] = faults[t] == fault && j->copies[t].differing == axes;
    if (!members[t]) continue;
    relative = ot_larger(relative, j->copies[t].relative);
    error = ot_larger(error, errors[t]);
    rest = ot_larger(rest, ot_evidence_ratio(&j->evidence, &j->evidence.tensors[t]));
  }
  ot_judge_finding *const f =
      ot_judge_find(j->report, fault == COPIES_DIFFER ? "replicas_differ" : "missing_reduction");
  f->tensors = ot_words_of_tensors(&j->evidence, members, j->arena);
  f->axis = ot_judging_axes(j, axes);
  f->factor = fault == COPIES_LACK_SUM ? "sum" : fault == COPIES_LACK_MEAN ? "mean" : NULL;
  f->evidence = copies_in_words(j, fault, axes, relative, error);
  f->confirmed = fault == COPIES_DIFFER ? NAN : rest;
  f->advice =
      "reduce these gradients over that axis after the backward pass (in Megatron, the "
      "parameter attribute sequence_parallel and finalize_model_grads; in DTensor, the "
      "placement of the parameter)";
}

static void judge_all_copies(ot_judging *j) {
  const int count = j->evidence.num_tensors;
  copy_fault *const faults = ot_arena_array(j->arena, count + 1, sizeof *faults);
  double *const errors = ot_arena_array(j->arena, count + 1, sizeof *errors);
  int copied = 0, differing = 0;
  for (int t = 0; t < count; t++) {
    errors[t] = ot_evidence_ratio(&j->evidence, &j->evidence.tensors[t]);
    faults[t] = judge_copies(j, t);
    use_right_copies(j, t, faults[t]);
    copied += j->copies[t].copied != 0;
    differing += faults[t] != COPIES_AGREE;
  }
  for (int t = 0; t < count; t++) {
    bool first = faults[t] != COPIES_AGREE;
    for (int k = 0; k < t && first; k++)
      first = faults[k] != faults[t] || j->copies[k].differing != j->copies[t].differing;
    if (first) find_copies(j, faults, errors, t);
  }
  if (copied > 0)
    ot_judge_add_part(
        j->report, "replicas", differing == 0, "%d tensors on several ranks: %s", copied,
        differing == 0 ? "same bits" : ot_arena_format(j->arena, "%d differ", differing));
}

// ---- what explains errors ----

static const char *name_of_factor(const ot_judging *j, double factor) {
  static const double tolerance = 0.004;
  const char *const words = ot_words_of_factor(j->sizes, j->num_sizes, factor, tolerance, j->arena);
  return words ? words : ot_arena_format(j->arena, "%.5g", factor);
}

static const char *size_in_words(const ot_judging *j, const ot_attribution *a) {
  return a->faint ? "no tensor shows it alone, all together do"
                  : ot_arena_format(j->arena, "without it up to %.3g x own error", a->before);
}

// Whether vector `i` is a loss that is there with the coefficient of config.json.
static bool is_usual(const ot_judging *j, const ot_attribution *a, int i) {
  const ot_hypothesis *const h = &j->hypotheses[a->vectors[i] - OT_EVIDENCE_HYPOTHESES];
  if (h->form != OT_FAULT_LOSS) return false;
  // Some layers alone do not say what the loss was multiplied by.
  return j->request->layers || fabs(a->factor[i] - 1) <= ot_larger(0.02, 5 * a->spread[i]);
}

// Whether an explanation names no fault.
static bool all_usual(const ot_judging *j, const ot_attribution *a) {
  if (a->kind != OT_EXPLAINED_BY_HYPOTHESES || a->scale != 1) return false;
  for (int i = 0; i < a->count; i++) {
    if (!is_usual(j, a, i)) return false;
  }
  return true;
}

static void find_hypotheses(ot_judging *j, const ot_attribution *a) {
  for (int i = 0; i < a->count; i++) {
    const int number = a->vectors[i] - OT_EVIDENCE_HYPOTHESES;
    const ot_hypothesis *const h = &j->hypotheses[number];
    if (h->form == OT_FAULT_LOSS)
      j->router_loss += a->factor[i] * (j->losses[OT_OWN_STREAMS + number] - j->losses[0]);
    if (is_usual(j, a, i)) {
      ot_judge_add_part(j->report, h->fault, true,
                        "added with the coefficient of config.json (%.4g)", a->factor[i]);
      continue;
    }
    ot_judge_finding *const f = ot_judge_find(j->report, h->fault);
    f->tensors = ot_words_of_tensors(&j->evidence, a->members, j->arena);
    f->factor = ot_arena_format(j->arena, "%.4g", a->factor[i]);
    f->evidence = ot_arena_format(j->arena, "%s: projection %.4f +- %.2g; %s", h->sentence,
                                  a->factor[i], a->spread[i], size_in_words(j, a));
    f->advice = h->advice;
    f->confirmed = a->rest;
  }
}

static void find_factor(ot_judging *j, const ot_attribution *a) {
  ot_judge_finding *const f = ot_judge_find(
      j->report, a->num_members == j->evidence.num_tensors ? "factor" : "factor_on_some");
  f->tensors = ot_words_of_tensors(&j->evidence, a->members, j->arena);
  f->factor = name_of_factor(j, a->scale);
  f->evidence = ot_arena_format(j->arena, "gradients are %.6g times the recomputed ones; %s",
                                a->scale, size_in_words(j, a));
  f->advice =
      "see where the loss or the gradients are divided: by ranks, micro-batches or tokens, "
      "or a reduction that sums instead of averaging";
  f->confirmed = a->rest;
}

static void find_weights(ot_judging *j, const ot_attribution *a) {
  ot_judge_finding *const f = ot_judge_find(j->report, "stale_buffer");
  f->tensors = ot_words_of_tensors(&j->evidence, a->members, j->arena);
  f->evidence =
      ot_arena_format(j->arena, "the error is parallel to the weights; %s", size_in_words(j, a));
  f->advice = "see whether weights are gathered into the buffer of gradients";
  f->confirmed = a->rest;
}

// From OT_RATIO_FINDING on; below, the record does not decide.
static void find_unexplained(ot_judging *j, const ot_attribution *a) {
  const char *const tensors = ot_words_of_tensors(&j->evidence, a->members, j->arena);
  if (ot_judging_may_reroute(j) && !j->routes.complete) {
    ot_judge_leave_open(j->report,
                        "%s: up to %.3g x own error, which other choices of experts explain, too "
                        "(record in fp32, or with routes)",
                        tensors, a->before);
    return;
  }
  if (a->before < OT_RATIO_FINDING) {
    ot_judge_leave_open(j->report,
                        "%s: up to %.2g x own error without an explanation (record in fp32, or "
                        "twice, to decide)",
                        tensors, a->before);
    return;
  }
  ot_judge_finding *const f = ot_judge_find(j->report, "gradient");
  f->tensors = tensors;
  f->evidence = ot_arena_format(
      j->arena,
      "up to %.3g x own error, and no hypothesis explains it; in the order of the backward pass it "
      "begins at %s",
      a->before, j->evidence.tensors[a->first].name);
  f->advice = "look at the backward pass of that place; a record with activations() says more";
}

static void find_attribution(ot_judging *j, const ot_attribution *a) {
  switch (a->kind) {
    case OT_EXPLAINED_BY_HYPOTHESES:
      find_hypotheses(j, a);
      if (a->scale != 1) find_factor(j, a);
      return;
    case OT_EXPLAINED_BY_FACTOR:
      find_factor(j, a);
      return;
    case OT_EXPLAINED_BY_WEIGHTS:
      find_weights(j, a);
      return;
    case OT_UNEXPLAINED:
      find_unexplained(j, a);
      return;
  }
}

// ---- hypotheses without effect ----

// Whether a hypothesis moves a gradient by more than rounding of the recomputed one: rotations, for
// one, do not see where positions begin.
static bool has_effect(const ot_judging *j, const ot_evidence *e, int vector) {
  const double unit = j->base == OT_PLAIN_F64 ? 1e-9 : 1e-5;
  double moved = 0, length = 0;
  for (int t = 0; t < e->num_tensors; t++) {
    const ot_evidence_tensor *const at = &e->tensors[t];
    moved += ot_evidence_product(e, at, vector, vector);
    length += ot_evidence_product(e, at, OT_EVIDENCE_GRADIENT, OT_EVIDENCE_GRADIENT);
  }
  return moved > unit * unit * length;
}

void ot_judging_clear_inert(const ot_judging *j, ot_evidence *e) {
  for (int v = OT_EVIDENCE_HYPOTHESES; v < e->num_vectors; v++) {
    if (has_effect(j, e, v)) continue;
    for (int t = 0; t < e->num_tensors; t++) {
      for (int k = 0; k < e->num_vectors; k++)
        e->tensors[t].products[v * e->num_vectors + k] =
            e->tensors[t].products[k * e->num_vectors + v] = 0;
    }
  }
}

bool ot_judge_explains_errors(ot_judging *j) {
  ot_judging_clear_inert(j, &j->evidence);
  const ot_evidence right = ot_judge_right_copies(j);
  const ot_attributions found = ot_attribute_errors(&right, j->hypotheses);
  for (int i = 0; i < found.count; i++) {
    if (found.list[i].kind == OT_UNEXPLAINED) return false;
  }
  return true;
}

// ---- numbers that are not finite ----

static void find_not_finite(ot_judging *j) {
  bool *const members = ot_arena_array(j->arena, j->evidence.num_tensors + 1, sizeof *members);
  int64_t count = 0;
  int first = -1;
  for (int t = 0; t < j->evidence.num_tensors; t++) {
    members[t] = j->evidence.tensors[t].not_finite > 0;
    count += j->evidence.tensors[t].not_finite;
    if (members[t] && first < 0) first = t;
  }
  if (first < 0) return;
  ot_judge_finding *const f = ot_judge_find(j->report, "not_finite");
  f->tensors = ot_words_of_tensors(&j->evidence, members, j->arena);
  f->evidence = ot_arena_format(j->arena,
                                "%lld elements are NaN or infinite; the backward pass meets the "
                                "first of them in %s; the recomputed gradients are finite",
                                (long long)count, j->evidence.tensors[first].name);
  f->advice = "look at the loss scale and at the type of the sums of that place";
}

// ---- the part ----

static void add_sensitivities(ot_judging *j) {
  const double whole = 1;  // a hypothesis that would show at more than itself does not show
  ot_judge_add_sensitivity(j->report, "factor",
                           ot_attribution_sensitivity(&j->evidence, OT_EVIDENCE_GRADIENT));
  for (int i = 0; i < j->num_hypotheses; i++) {
    if (!has_effect(j, &j->evidence, OT_EVIDENCE_HYPOTHESES + i)) continue;
    const double least = ot_attribution_sensitivity(&j->evidence, OT_EVIDENCE_HYPOTHESES + i);
    ot_judge_add_sensitivity(j->report, j->hypotheses[i].fault, least);
    if (j->hypotheses[i].form == OT_FAULT_WHOLE && isfinite(least) && least > whole)
      ot_judge_leave_open(j->report, "%s would not show in this record", j->hypotheses[i].fault);
  }
}

static void add_part(ot_judging *j, bool agrees) {
  const int count = j->evidence.num_tensors;
  double low = INFINITY, high = 0;
  for (int t = 0; t < count; t++) {
    const double ratio = ot_evidence_ratio(&j->evidence, &j->evidence.tensors[t]);
    low = ot_smaller(low, ratio);
    high = ot_larger(high, ratio);
  }
  ot_judge_add_part(j->report, "gradient", agrees,
                    "%d tensors of %lld, %.2g to %.3g x own error (median %.2g)", count,
                    (long long)(count + j->missing), count > 0 ? low : 0, high,
                    ot_evidence_typical_ratio(&j->evidence, j->arena));
}

void ot_judge_add_tensors(ot_judge_report *r, const ot_evidence *e) {
  r->num_tensors = e->num_tensors;
  r->tensors = ot_arena_array(e->arena, e->num_tensors + 1, sizeof *r->tensors);
  for (int t = 0; t < e->num_tensors; t++) {
    const ot_evidence_tensor *const from = &e->tensors[t];
    const double ratio = from->not_finite > 0 ? INFINITY : ot_evidence_ratio(e, from);
    r->tensors[t] = (ot_judged_tensor){from->name, from->kind, from->layer, ratio};
  }
}

void ot_judge_gradients(ot_judging *j) {
  ot_judge_add_tensors(j->report, &j->evidence);  // as recorded: copies are summed further down
  if (j->missing > 0)
    ot_judge_leave_open(j->report, "%lld tensors have no recorded gradient, %s among them",
                        (long long)j->missing, j->first_missing);
  if (j->evidence.num_tensors == 0) return;
  judge_all_copies(j);
  find_not_finite(j);
  ot_judging_clear_inert(j, &j->evidence);
  const bool setting = j->setting.setting != NULL;
  const ot_attributions found =
      setting ? (ot_attributions){0} : ot_attribute_errors(&j->evidence, j->hypotheses);
  bool agrees = !setting;
  for (int i = 0; i < found.count; i++) agrees = agrees && all_usual(j, &found.list[i]);
  add_part(j, agrees);
  ot_judge_setting(j);
  for (int i = 0; i < found.count; i++) find_attribution(j, &found.list[i]);
  add_sensitivities(j);
}
