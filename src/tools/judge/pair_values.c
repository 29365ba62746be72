// SPDX-License-Identifier: Apache-2.0
// Loss, norm and weights of two records of one step.
#include <math.h>

#include "base/extremes.h"
#include "base/text.h"
#include "judge/pair_parts.h"
#include "judge/same_step.h"

// Both records may be that far from the recomputed step, on either side of it.
static const double apart = 2 * OT_RATIO_FINE;

// ---- scalars ----

// `own`: how far rounding moves the scalar; 0: it is not known.
static void compare_scalars(const comparison *c, const char *name, const double values[2],
                            double own) {
  const double difference = fabs(values[1] - values[0]);
  if (ot_judged_equal(values[0], values[1])) {
    ot_judge_add_part(c->report, name, true, "%.9g in both", values[0]);
    return;
  }
  c->pair->same_values = false;
  ot_judge_add_part(c->report, name, difference <= apart * own,
                    "%.9g and %.9g (%.2g x own error apart)", values[0], values[1],
                    difference / own);
}

void ot_compare_loss(const comparison *c) {
  double values[2];
  bool several;
  for (int i = 0; i < 2; i++) {
    if (!ot_judging_loss(&c->pass->judgings[i], &values[i], &several)) return;
  }
  compare_scalars(c, "loss", values,
                  ot_larger(c->pass->judgings[0].loss_own, c->pass->judgings[1].loss_own));
}

// The own error of a norm is at most that of all gradients together, and a float32 sum of squares.
static double own_of_norm(const comparison *c, double norm) {
  static const double sum = 1e-5;
  const ot_evidence *const e = &c->pass->between;
  double square = 0;
  for (int t = 0; t < e->num_tensors; t++) {
    const double own = ot_evidence_own(e, &e->tensors[t]);
    square += own * own;
  }
  return ot_larger(sqrt(square), sum / apart * norm);
}

void ot_compare_norm(const comparison *c) {
  double values[2];
  for (int i = 0; i < 2; i++) {
    if (!ot_recorded_scalar_of(&c->pass->judgings[i].step, "norm", 0, &values[i])) return;
  }
  compare_scalars(c, "norm", values, own_of_norm(c, values[0]));
}

// ---- weights after the step ----

typedef struct moved_weights {
  int compared, same;    // tensors; those with the same values
  double apart;          // largest difference, in lengths of the change of a tensor
  double roundings;      // the same in roundings of the weights
  const char *farthest;  // by roundings
} moved_weights;

// A tensor before the step and after it in the first record, and after it in the second.
typedef struct moved_tensor {
  ot_paired_views views;
  double unit;  // unit roundoff of what is stored
  bool same;
  double change, difference, length;  // squares
} moved_tensor;

// The weights that the optimizer moves: its own copy where both records have that.
static bool find_views(const comparison *c, const char *name, moved_tensor *out) {
  static const ot_recorded_kind kinds[][2] = {{OT_RECORDED_MASTER, OT_RECORDED_MASTER_AFTER},
                                              {OT_RECORDED_WEIGHT, OT_RECORDED_AFTER}};
  const ot_recorded_step *const a = &c->pass->judgings[0].step;
  const ot_recorded_step *const b = &c->pass->judgings[1].step;
  ot_recorded_view *const views = out->views.views;
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    if (!ot_recorded_find(a, kinds[i][0], name, &views[0]) ||
        !ot_recorded_find(a, kinds[i][1], name, &views[1]) ||
        !ot_recorded_find(b, kinds[i][1], name, &views[2]))
      continue;
    out->unit = ot_larger(ot_dtype_roundoff(views[1].tensor->dtype),
                          ot_dtype_roundoff(views[2].tensor->dtype));
    return views[0].elements == views[1].elements && views[1].elements == views[2].elements;
  }
  return false;
}

static void add_chunk(void *context, double *const *values, int64_t first, int64_t count) {
  moved_tensor *const m = context;
  (void)first;
  for (int64_t i = 0; i < count; i++) {
    const double before = values[0][i], one = values[1][i], other = values[2][i];
    m->same = m->same && ot_judged_equal(one, other);
    m->change += (one - before) * (one - before);
    m->difference += (other - one) * (other - one);
    m->length += one * one;
  }
}

static ot_status compare_tensor(const comparison *c, const char *name, moved_weights *out) {
  const ot_recorded_step *const a = &c->pass->judgings[0].step;
  const ot_recorded_step *const b = &c->pass->judgings[1].step;
  moved_tensor m = {.views = {3, {a, a, b}, {{0}}}, .same = true};
  if (!find_views(c, name, &m)) return OT_OK;
  OT_TRY(ot_paired_views_read(&m.views, add_chunk, &m));
  out->compared++;
  out->same += m.same;
  if (m.same) return OT_OK;
  const double roundings = sqrt(m.difference / m.length) / m.unit;
  out->apart = ot_larger(out->apart, sqrt(m.difference / m.change));
  if (out->farthest && !(roundings > out->roundings)) return OT_OK;
  out->roundings = roundings;
  out->farthest = name;
  return OT_OK;
}

// With the same gradients, loss and norm, the same settings give the same weights.
static bool is_update_different(const comparison *c, const moved_weights *m) {
  return c->pair->same_values && m->farthest && !(m->roundings <= OT_RATIO_FINE);
}

static void find_update(const comparison *c, const moved_weights *m) {
  if (c->pair->departs[0] || c->pair->departs[1]) return;
  ot_judge_finding *const f = ot_judge_find(c->report, "update_differs");
  f->tensors = m->farthest;
  f->evidence = ot_arena_format(
      c->arena,
      "gradients, norm and settings are the same, but weights after the step are up to %.3g "
      "roundings apart",
      m->roundings);
  f->advice = "compare the moments before the step, and the optimizers of both";
}

ot_status ot_compare_weights(const comparison *c) {
  const ot_recorded_step *const step =
      ot_finer_names(&c->pass->judgings[0].step, &c->pass->judgings[1].step);
  moved_weights m = {0};
  for (int64_t i = 0; i < step->num_tensors; i++) {
    if (step->tensors[i].kind == OT_RECORDED_AFTER)
      OT_TRY(compare_tensor(c, step->tensors[i].name, &m));
  }
  if (m.compared == 0) return OT_OK;
  const bool differs = is_update_different(c, &m);
  if (differs) find_update(c, &m);
  if (m.same < m.compared) c->pair->same_values = false;
  const bool follows = !differs && (m.same == m.compared || !c->beyond);
  ot_judge_add_part(
      c->report, "weights", follows,
      m.same == m.compared
          ? "%d tensors after the step: same bits"
          : "%d tensors after the step, %d of them with the same bits; up to %.2g of the change "
            "apart",
      m.compared, m.same, m.apart);
  return OT_OK;
}
