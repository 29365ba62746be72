// SPDX-License-Identifier: Apache-2.0
// The verdict on the update: each tensor's weights after the step follow from its own moments and
// the settings of its group (adamw.h); copies of weights are equal.
#include <math.h>
#include <string.h>

#include "base/extremes.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "host/heap.h"
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
  double worst;                                   // ratio
  double least_rate, least_decay, least_moments;  // errors that would have shown
  double decay;                                   // the largest of all groups
  int hidden;                                     // tensors on which such a decay does not show
  const char *first_hidden;
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

// ---- the tensors of a parameter ----

// The first NEEDED must be recorded.
enum {
  BEFORE,
  AFTER,
  FIRST,
  SECOND,
  GRADIENT,
  NEEDED,
  FIRST_BEFORE = NEEDED,
  SECOND_BEFORE,
  MOVED,
  CHUNK = 1 << 18
};

// The tensors that the step holds of a parameter; kinds that it lacks have none.
typedef struct moved {
  const char *name;
  int64_t elements;
  ot_recorded_view view[MOVED];
  uint32_t axes[MOVED];      // over which copies differ
  double unit, moment_unit;  // unit roundoff of weights and moments
} moved;

static ot_status find_kind(const ot_judging *j, ot_recorded_kind kind, int index, moved *m) {
  ot_recorded_view *const view = &m->view[index];
  if (!ot_recorded_find(&j->step, kind, m->name, view)) {
    *view = (ot_recorded_view){0};
    return OT_OK;
  }
  OT_CHECK(view->elements == m->elements, OT_USAGE,
           "%s: %s of %s has %lld elements, the weights after the step have %lld", j->step.path,
           ot_recorded_kind_name(kind), m->name, (long long)view->elements, (long long)m->elements);
  return OT_OK;
}

static double unit_of(const moved *m, int index) {
  const ot_recorded_tensor *const tensor = m->view[index].tensor;
  return tensor ? ot_dtype_roundoff(tensor->dtype) : 0;
}

// The master weights are judged if the record has them.
static ot_status find_moved(const ot_judging *j, const ot_recorded_tensor *t, moved *m) {
  *m = (moved){.name = t->name, .elements = t->elements};
  const bool master = ot_recorded_find(&j->step, OT_RECORDED_MASTER_AFTER, t->name, &m->view[0]);
  const ot_recorded_kind kinds[MOVED] = {
      [BEFORE] = master ? OT_RECORDED_MASTER : OT_RECORDED_WEIGHT,
      [AFTER] = master ? OT_RECORDED_MASTER_AFTER : OT_RECORDED_AFTER,
      [FIRST] = OT_RECORDED_M,
      [SECOND] = OT_RECORDED_V,
      [GRADIENT] = OT_RECORDED_GRAD,
      [FIRST_BEFORE] = OT_RECORDED_M_BEFORE,
      [SECOND_BEFORE] = OT_RECORDED_V_BEFORE,
  };
  for (int k = 0; k < MOVED; k++) OT_TRY(find_kind(j, kinds[k], k, m));
  m->unit = unit_of(m, AFTER);
  m->moment_unit = unit_of(m, FIRST);
  return OT_OK;
}

static bool is_whole(const moved *m) {
  for (int k = 0; k < NEEDED; k++) {
    if (!m->view[k].tensor) return false;
  }
  return true;
}

// Elements of the chunk that begins at element `first`.
static int64_t chunk_elements(const moved *m, int64_t first) {
  const int64_t left = m->elements - first;
  return left < CHUNK ? left : CHUNK;
}

// Reads a chunk of all kinds into `scratch`.
static ot_status read_moved(const ot_judging *j, moved *m, int64_t first, ot_arena *scratch,
                            double **values) {
  const int64_t count = chunk_elements(m, first);
  for (int k = 0; k < MOVED; k++) {
    if (!m->view[k].tensor) continue;
    ot_assembly copies;
    values[k] = ot_arena_array(scratch, count, sizeof *values[k]);
    const ot_assembly_request request = {
        .view = &m->view[k], .first = first, .count = count, .dtype = OT_F64};
    OT_TRY(ot_assemble(&j->step, &request, scratch, values[k], &copies));
    m->axes[k] |= copies.differing_axes;
  }
  return OT_OK;
}

// Reads a chunk and adds it to `sums`, if there are settings and the record has all kinds.
static ot_status measure_chunk(const ot_judging *j, moved *m, int64_t first,
                               const ot_adamw_settings *settings, ot_adamw_sums *sums) {
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  double *values[MOVED] = {NULL};
  const ot_status status = read_moved(j, m, first, &scratch, values);
  const ot_adamw_values all = {values[BEFORE],       values[AFTER],    values[FIRST],
                               values[SECOND],       values[GRADIENT], values[FIRST_BEFORE],
                               values[SECOND_BEFORE]};
  if (status == OT_OK && settings && is_whole(m))
    ot_adamw_measure(settings, &all, chunk_elements(m, first), sums);
  ot_heap_release(&heap);
  return status;
}

// ---- findings ----

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
  const double least = ot_larger(0.05 * ot_larger(s->decay, 0.01), OT_RATIO_FINE * r->decay_unit);
  const double shown = r->decay * s->rate / r->rate;
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

// The relative error of moments that is a finding. `noise`: what their rounding makes of it.
static double moments_error(double noise) { return ot_larger(8 * noise, 1e-5); }

static void find_moments(updating *u, const char *name, const ot_adamw_result *r) {
  const double off = fabs(r->square - 1);
  if (!(r->clip_rest > moments_error(r->clip_noise)) && !(off > moments_error(r->square_noise)))
    return;
  const update_fault fault = {
      .what = "update_moments",
      .evidence = ot_arena_format(
          u->judging->arena,
          "what the step added to the moments is not its gradient: in the first it is off by %.2g "
          "of its length, in the second its root is %.5g times |gradient|",
          r->clip_rest, r->square),
      .advice = "compare the betas, and whether moments begin at zero or as recorded",
      .worst = ot_larger(off, r->clip_rest),
      .confirmed = NAN};
  add_fault(u, name, &fault);
}

// Keeps the errors that would have shown on a tensor.
static void keep_sensitivity(updating *u, const char *name, const ot_adamw_result *r) {
  const double decay = OT_RATIO_FINE * r->decay_unit;
  u->least_rate = ot_smaller(u->least_rate, OT_RATIO_FINE * r->rate_unit);
  u->least_decay = ot_smaller(u->least_decay, decay);
  if (isfinite(r->square))
    u->least_moments =
        ot_smaller(u->least_moments, moments_error(ot_smaller(r->clip_noise, r->square_noise)));
  if (!(decay > u->decay) || u->decay == 0) return;
  if (u->hidden++ == 0) u->first_hidden = name;
}

static void add_sensitivities(const updating *u) {
  ot_judge_report *const report = u->judging->report;
  ot_judge_add_sensitivity(report, "update_rate", u->least_rate);
  ot_judge_add_sensitivity(report, "update_decay", u->least_decay);
  if (isfinite(u->least_moments))
    ot_judge_add_sensitivity(report, "update_moments", u->least_moments);
  if (u->hidden == 0) return;
  ot_judge_add_part(
      report, "note", true,
      "a decay of %.3g is below rounding in %d of %d tensors, %s among them: whether it "
      "is applied does not show there (record fp32 or master weights)",
      u->decay, u->hidden, u->compared, u->first_hidden);
}

static double largest_decay(const ot_recorded_step *step) {
  double largest = 0;
  for (int64_t i = 0; i < step->num_groups; i++)
    largest = ot_larger(largest, setting_of(&step->groups[i], "weight_decay", 0, 0));
  return largest;
}

// The clip factor is the same for all tensors.
static void keep_clip(updating *u, const ot_adamw_result *r, const char *name, double unit) {
  if (!isfinite(r->clip) || 8 * r->clip_noise > ot_larger(8 * unit, 1e-4)) return;
  u->clip_unit = unit;
  if (!u->clip_first) {
    u->clip_first = name;
    u->clip_low = u->clip_high = r->clip;
  }
  u->clip_low = ot_smaller(u->clip_low, r->clip);
  u->clip_high = ot_larger(u->clip_high, r->clip);
}

static void judge_sums(updating *u, const moved *m, const ot_adamw_settings *settings,
                       const ot_adamw_sums *sums) {
  const ot_adamw_units units = {.weights = m->unit, .moments = m->moment_unit};
  const ot_adamw_result r = ot_adamw_judge(settings, sums, &units);
  u->compared++;
  u->worst = ot_larger(u->worst, r.ratio);
  if (r.ratio > OT_RATIO_FINE) find_update(u, m->name, settings, &r);
  find_moments(u, m->name, &r);
  keep_sensitivity(u, m->name, &r);
  keep_clip(u, &r, m->name, m->moment_unit);
}

static ot_status judge_weights(updating *u, const ot_recorded_tensor *t) {
  ot_judging *const j = u->judging;
  moved m;
  ot_adamw_settings settings;
  ot_adamw_sums sums = {0};
  OT_TRY(find_moved(j, t, &m));
  const bool known = read_settings(ot_recorded_group_of(&j->step, t->name), &settings);
  for (int64_t first = 0; first < m.elements; first += CHUNK)
    OT_TRY(measure_chunk(j, &m, first, known ? &settings : NULL, &sums));
  if (m.axes[BEFORE]) find_copies(u, t->name, m.axes[BEFORE], "weights before the step");
  if (m.axes[AFTER]) find_copies(u, t->name, m.axes[AFTER], "weights after the step");
  if (known && is_whole(&m)) judge_sums(u, &m, &settings, &sums);
  return OT_OK;
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

static void note_absence(ot_judging *j) {
  bool after = false;
  for (int64_t i = 0; i < j->step.num_tensors; i++)
    after = after || j->step.tensors[i].kind == OT_RECORDED_AFTER;
  ot_judge_add_part(j->report, "note", true, "the update is not compared: %s",
                    after ? "no weights with moments and a group of AdamW with lr and step are "
                            "recorded"
                          : "no weights after the step are recorded");
}

ot_status ot_judge_update(ot_judging *j) {
  updating u = {.judging = j,
                .least_rate = INFINITY,
                .least_decay = INFINITY,
                .least_moments = INFINITY,
                .decay = largest_decay(&j->step)};
  for (int64_t i = 0; i < j->step.num_tensors; i++) {
    if (j->step.tensors[i].kind == OT_RECORDED_AFTER)
      OT_TRY(judge_weights(&u, &j->step.tensors[i]));
  }
  find_clip(&u);
  report_faults(&u);
  if (u.compared == 0) {
    note_absence(j);
    return OT_OK;
  }
  ot_judge_add_part(j->report, "update", u.num_faults == 0,
                    "%d tensors after AdamW, up to %.2g roundings", u.compared, u.worst);
  add_sensitivities(&u);
  return OT_OK;
}
