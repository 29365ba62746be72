// SPDX-License-Identifier: Apache-2.0
// The verdict on the update: each tensor's weights after the step follow from its own moments and
// the settings of its group (adamw.h); copies of weights are equal.
#include <math.h>
#include <string.h>

#include "base/extremes.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "judge/adamw.h"
#include "judge/judge_parts.h"

// The tensors with one fault, which are one finding.
typedef struct update_fault {
  const char *what, *axis, *advice;
  const char *factor, *evidence;  // of the worst
  double worst, confirmed;
  int count;
  const char *names;  // of the first tensors
} update_fault;

enum { FAULTS = 16, NAMES = 4 };

typedef struct updating {
  ot_judging *judging;
  int compared;
  double worst;  // ratio
  double clip_low, clip_high, clip_unit;
  const char *clip_first;  // a tensor
  int num_faults;
  update_fault faults[FAULTS];
} updating;

// Adds a tensor to the fault of this kind. `evidence` is that of the finding if it is the worst.
static void add_fault(updating *u, const char *name, const update_fault *fault) {
  ot_arena *const arena = u->judging->arena;
  int i = 0;
  while (i < u->num_faults && (!ot_text_equal(u->faults[i].what, fault->what) ||
                               !ot_text_equal(u->faults[i].axis ? u->faults[i].axis : "",
                                              fault->axis ? fault->axis : "")))
    i++;
  if (i == FAULTS) return;
  update_fault *const f = &u->faults[i];
  if (i == u->num_faults) {
    *f = *fault;
    f->names = "";
    f->count = 0;
    u->num_faults++;
  }
  if (fault->worst > f->worst) {
    f->worst = fault->worst;
    f->factor = fault->factor;
    f->evidence = fault->evidence;
    f->confirmed = fault->confirmed;
  }
  if (name && f->count++ < NAMES)
    f->names = ot_arena_format(arena, "%s%s%s", f->names, f->count > 1 ? ", " : "", name);
}

static void report_faults(const updating *u) {
  ot_judging *const j = u->judging;
  for (int i = 0; i < u->num_faults; i++) {
    const update_fault *const from = &u->faults[i];
    if (from->axis && ot_judging_add_consequence(j, from->axis, from->evidence)) continue;
    ot_judge_finding *const f = ot_judge_find(j->report, from->what);
    f->tensors = from->count > NAMES
                     ? ot_arena_format(j->arena, "%s and %d more", from->names, from->count - NAMES)
                 : from->count > 0 ? from->names
                                   : NULL;
    f->axis = from->axis;
    f->factor = from->factor;
    f->evidence = from->evidence;
    f->advice = from->advice;
    f->confirmed = from->confirmed;
  }
}

static double setting_of(const ot_recorded_group *g, const char *name, int index,
                         double otherwise) {
  const ot_recorded_setting *const s = ot_recorded_setting_of(g, name);
  return s && index < s->count ? s->value[index] : otherwise;
}

static bool read_settings(const ot_recorded_group *g, ot_adamw_settings *out) {
  const bool adamw = g && g->optimizer && ot_text_find(g->optimizer, "Adam");
  if (!adamw) return false;
  *out = (ot_adamw_settings){.rate = setting_of(g, "lr", 0, NAN),
                             .beta1 = setting_of(g, "betas", 0, 0.9),
                             .beta2 = setting_of(g, "betas", 1, 0.999),
                             .epsilon = setting_of(g, "eps", 0, 1e-8),
                             .decay = setting_of(g, "weight_decay", 0, 0),
                             .step = (int64_t)setting_of(g, "step", 0, 0)};
  return isfinite(out->rate) && out->step >= 1;
}

// The values of a kind, as many as `t` has, or null; *differing: axes over which copies differ.
static ot_status read_kind(const ot_judging *j, ot_recorded_kind kind, const ot_recorded_tensor *t,
                           uint32_t *differing, double **out) {
  ot_recorded_view view;
  ot_assembly copies;
  *out = NULL;
  if (!ot_recorded_find(&j->step, kind, t->name, &view)) return OT_OK;
  OT_CHECK(view.elements == t->elements, OT_USAGE,
           "%s: %s of %s has %lld elements, the weights after the step have %lld", j->step.path,
           ot_recorded_kind_name(kind), t->name, (long long)view.elements, (long long)t->elements);
  double *const values = ot_arena_array(j->arena, view.elements, sizeof *values);
  const ot_assembly_request whole = {.view = &view, .count = view.elements, .dtype = OT_F64};
  OT_TRY(ot_assemble(&j->step, &whole, j->arena, values, &copies));
  *differing = copies.differing_axes;
  *out = values;
  return OT_OK;
}

static void find_copies(updating *u, const char *name, uint32_t axes, const char *what) {
  const update_fault fault = {
      .what = "replicas_differ",
      .axis = ot_judging_axes(u->judging, axes),
      .evidence = ot_arena_format(u->judging->arena, "ranks hold different %s", what),
      .advice = "see whether gradients, norm or clipping differ between these ranks",
      .worst = 1,
      .confirmed = NAN};
  add_fault(u, name, &fault);
}

static void find_update(updating *u, const char *name, const ot_adamw_settings *s,
                        const ot_adamw_result *r) {
  ot_arena *const arena = u->judging->arena;
  const bool explained = r->rest <= OT_RATIO_FINE;
  const bool rate = fabs(r->rate / s->rate - 1) > 0.01;
  // The decay is a factor of the rate, be it that of the group or the one that the weights show.
  const double least = 0.05 * ot_larger(s->decay, 0.01), shown = r->decay * s->rate / r->rate;
  const bool decay = fabs(r->decay - s->decay) > least && !(fabs(shown - s->decay) <= least);
  const update_fault fault = {
      .what = !explained ? "update"
              : decay    ? "update_decay"
              : rate     ? "update_rate"
                         : "update",
      .factor = explained && !decay ? ot_arena_format(arena, "%.5g", r->rate / s->rate) : NULL,
      .evidence = ot_arena_format(arena,
                                  "weights after the step are up to %.3g roundings from AdamW; "
                                  "they show a rate of %.6g (of "
                                  "the group: %.6g) and a decay of %.4g (%.4g)",
                                  r->ratio, r->rate, s->rate, r->decay, s->decay),
      .advice = "compare the groups of the optimizer, its step count and its epsilon",
      .worst = r->ratio,
      .confirmed = explained ? r->rest : NAN};
  add_fault(u, name, &fault);
}

// `unit`: unit roundoff of the stored moments.
static void find_moments(updating *u, const char *name, const ot_adamw_result *r, double unit) {
  const double exact = ot_larger(8 * unit, 1e-5), off = fabs(r->square - 1);
  if (!(r->clip_rest > exact) && !(off > exact)) return;
  const update_fault fault = {
      .what = "update_moments",
      .evidence = ot_arena_format(
          u->judging->arena,
          "the moments of a first step are not those of its gradient: the first is off by %.2g of "
          "its length, the root of the second is %.5g times |gradient|",
          r->clip_rest, r->square),
      .advice = "compare the betas, and whether moments begin at zero",
      .worst = ot_larger(off, r->clip_rest),
      .confirmed = NAN};
  add_fault(u, name, &fault);
}

// The clip factor is the same for all tensors.
static void keep_clip(updating *u, const ot_adamw_result *r, const char *name, double unit) {
  if (!isfinite(r->clip)) return;
  u->clip_unit = unit;
  if (!u->clip_first) {
    u->clip_first = name;
    u->clip_low = u->clip_high = r->clip;
  }
  u->clip_low = ot_smaller(u->clip_low, r->clip);
  u->clip_high = ot_larger(u->clip_high, r->clip);
}

// The values of a tensor, and the unit roundoff of its weights and moments.
typedef struct moved {
  int64_t count;
  double *before, *after, *first, *second, *gradient;  // [count] or null
  double unit, moment_unit;
} moved;

static ot_status judge_tensor(updating *u, const char *name, const moved *m) {
  const ot_judging *const j = u->judging;
  ot_adamw_settings settings;
  ot_adamw_sums sums = {0};
  if (!read_settings(ot_recorded_group_of(&j->step, name), &settings)) return OT_OK;
  const ot_adamw_values values = {m->before, m->after, m->first, m->second, m->gradient};
  ot_adamw_measure(&settings, &values, m->count, &sums);
  const ot_adamw_result r = ot_adamw_judge(&settings, &sums, m->unit);
  u->compared++;
  u->worst = ot_larger(u->worst, r.ratio);
  if (r.ratio > OT_RATIO_FINE) find_update(u, name, &settings, &r);
  find_moments(u, name, &r, m->moment_unit);
  keep_clip(u, &r, name, m->moment_unit);
  return OT_OK;
}

static ot_status judge_weights(updating *u, const ot_recorded_tensor *t) {
  ot_judging *const j = u->judging;
  ot_recorded_view view;
  const bool master = ot_recorded_find(&j->step, OT_RECORDED_MASTER_AFTER, t->name, &view);
  const ot_recorded_kind before = master ? OT_RECORDED_MASTER : OT_RECORDED_WEIGHT;
  const ot_recorded_kind after = master ? OT_RECORDED_MASTER_AFTER : OT_RECORDED_AFTER;
  const ot_dtype dtype = master ? view.tensor->dtype : t->dtype;
  uint32_t axes[5] = {0};
  moved m = {.count = t->elements, .unit = ot_dtype_roundoff(dtype)};
  OT_TRY(read_kind(j, before, t, &axes[0], &m.before));
  OT_TRY(read_kind(j, after, t, &axes[1], &m.after));
  OT_TRY(read_kind(j, OT_RECORDED_M, t, &axes[2], &m.first));
  OT_TRY(read_kind(j, OT_RECORDED_V, t, &axes[3], &m.second));
  OT_TRY(read_kind(j, OT_RECORDED_GRAD, t, &axes[4], &m.gradient));
  if (axes[0]) find_copies(u, t->name, axes[0], "weights before the step");
  if (axes[1]) find_copies(u, t->name, axes[1], "weights after the step");
  if (!m.before || !m.after || !m.first || !m.second || !m.gradient) return OT_OK;
  const bool narrow = ot_recorded_find(&j->step, OT_RECORDED_M, t->name, &view);
  m.moment_unit = narrow ? ot_dtype_roundoff(view.tensor->dtype) : 0;
  return judge_tensor(u, t->name, &m);
}

static void find_clip(updating *u) {
  ot_judging *const j = u->judging;
  const double exact = ot_larger(8 * u->clip_unit, 1e-4);
  double limit, norm;
  if (!u->clip_first) return;
  if (u->clip_high - u->clip_low > exact * fabs(u->clip_high)) {
    const update_fault fault = {
        .what = "clip_differs",
        .evidence =
            ot_arena_format(j->arena, "tensors were clipped by different factors, %.6g to %.6g",
                            u->clip_low, u->clip_high),
        .advice = "clip all gradients by one norm, that of the whole model",
        .worst = 1,
        .confirmed = NAN};
    add_fault(u, NULL, &fault);
    return;
  }
  if (!ot_recorded_scalar_of(&j->step, "clip", 0, &limit) ||
      !ot_recorded_scalar_of(&j->step, "norm", 0, &norm))
    return;
  const double right = limit > 0 && norm > limit ? limit / (norm + 1e-6) : 1;
  if (fabs(u->clip_low - right) <= exact * right) return;
  const update_fault fault = {
      .what = "clip",
      .factor = ot_arena_format(j->arena, "%.6g", u->clip_low / right),
      .evidence = ot_arena_format(
          j->arena,
          "gradients were multiplied by %.6g; a norm of %.6g and a limit of %.6g give %.6g",
          u->clip_low, norm, limit, right),
      .advice = "see where gradients are clipped, and by which norm",
      .worst = 1,
      .confirmed = NAN};
  add_fault(u, NULL, &fault);
}

ot_status ot_judge_update(ot_judging *j) {
  updating u = {.judging = j};
  for (int64_t i = 0; i < j->step.num_tensors; i++) {
    if (j->step.tensors[i].kind == OT_RECORDED_AFTER)
      OT_TRY(judge_weights(&u, &j->step.tensors[i]));
  }
  find_clip(&u);
  report_faults(&u);
  if (u.compared > 0)
    ot_judge_add_part(j->report, "update", u.num_faults == 0,
                      "%d tensors after AdamW, up to %.2g roundings", u.compared, u.worst);
  return OT_OK;
}
