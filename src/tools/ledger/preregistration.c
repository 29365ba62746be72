// SPDX-License-Identifier: Apache-2.0
#include "ledger/preregistration.h"

#include <math.h>

#include "base/text.h"
#include "ledger/analysis.h"

static const double coverage = 0.95;

static bool is_of(const ot_record_line *line, const char *kind, const char *change,
                  const char *scale, const char *base) {
  return ot_text_equal(line->kind, kind) &&
         ot_text_equal(ot_record_text(line->tree, "change"), change) &&
         ot_text_equal(ot_record_text(line->tree, "scale"), scale) &&
         ot_text_equal(ot_record_text(line->tree, "base"), base);
}

static bool has_any(const ot_ledger *l, const ot_ledger_job *job) {
  const char *const scale = l->policy.scales[job->arm.scale].name;
  for (int64_t i = 0; i < l->record.count; i++)
    if (is_of(&l->record.line[i], "run", job->name, scale, l->base_hash) ||
        is_of(&l->record.line[i], "predict", job->name, scale, l->base_hash))
      return true;
  return false;
}

// ---- the baseline ----

typedef struct falling {
  const ot_baseline *base;  // scales up to the one before
  double step;              // to the new one in ln C, in units of the step before
} falling;

// The line and the power law through the last two scales, and the last.
static void continue_fall(const void *context, int left_out, double *values) {
  const falling *const f = context;
  const ot_baseline *const b = f->base;
  double mean[2] = {0};
  int count = 0;
  for (int k = 0; k < b->seeds; k++) {
    if (k == left_out) continue;
    for (int i = 0; i < 2; i++) mean[i] += b->loss[b->scales - 2 + i][k];
    count++;
  }
  for (int i = 0; i < 2; i++) mean[i] /= count;
  values[0] = mean[1] + f->step * (mean[1] - mean[0]);
  values[1] = mean[1] * pow(mean[1] / mean[0], f->step);
  values[2] = mean[1];
}

static void predict_base(const ot_baseline *base, double ln_compute, ot_measured *out) {
  const double *const x = &base->ln_compute[base->scales - 2];
  const falling f = {base, (ln_compute - x[1]) / (x[1] - x[0])};
  const ot_jackknife jackknife = {continue_fall, &f, base->seeds, 3, coverage};
  ot_measured value[3];
  ot_jackknife_estimate(&jackknife, value);
  const bool falls = value[0].value < value[2].value && f.step > 0;
  if (!falls) value[1].value = NAN;
  *out = value[1];
  // The new mean has an error of its own, like that of the last.
  const double line_se = hypot(value[0].se, value[2].se), last_se = hypot(value[2].se, value[2].se);
  out->low = ot_measured_of(value[0].value, line_se, base->seeds, coverage).low;
  out->high = ot_measured_of(value[2].value, last_se, base->seeds, coverage).high;
}

// ---- a change ----

// How far ln m of other changes moved from the first scale to the second, by their newest looks.
// One whose pairs differ by rounding alone is no change, and tells nothing of others.
static int list_moves(const ot_ledger *l, const char *change, double *moves, int most) {
  const ot_ledger_scale *const scales = l->policy.scales;
  int count = 0;
  for (int64_t i = 0; i < l->record.count && count < most; i++) {
    const ot_node *const look = l->record.line[i].tree;
    const char *const of = ot_record_text(look, "change");
    if (!ot_text_equal(l->record.line[i].kind, "look") || ot_text_equal(of, change)) continue;
    if (ot_record_find(&l->record, "look", "change", of)->tree != look) continue;
    if (ot_text_equal(ot_record_text(look, "by_rounding"), "true")) continue;
    const ot_node *const ln_m = ot_node_child(look, "ln_m");
    if (!ln_m) continue;
    const double move = ot_record_real(ln_m, scales[1].name) - ot_record_real(ln_m, scales[0].name);
    if (isfinite(move)) moves[count++] = move;
  }
  return count;
}

void ot_ledger_predict_change(const ot_baseline *base, const ot_changed *changed, double extra,
                              double move, ot_measured *out) {
  const int s = base->scales - 1;
  ot_baseline *const below = &(ot_baseline){0};
  ot_multiplier m;
  *below = *base;
  below->scales = s;
  ot_multiplier_estimate(below, changed, base->ln_compute[s], &m);
  const ot_measured ln_m = s == 1 ? m.mean : m.at_target;
  const double se = hypot(ln_m.se, m.pair_sd[s - 1] / sqrt(base->seeds));
  ot_measured x = ot_measured_of(ln_m.value + extra, se, base->seeds, coverage);
  x.low = x.value - hypot(x.value - x.low, move);
  x.high = x.value + hypot(x.high - x.value, move);
  double mean = 0;
  for (int k = 0; k < base->seeds; k++) mean += base->loss[s][k] / base->seeds;
  out->value = mean + ot_baseline_loss_at(base, s, x.value);
  out->low = out->high = NAN;
  if (!isfinite(move)) return;
  out->low = mean + ot_baseline_loss_at(base, s, x.high);
  out->high = mean + ot_baseline_loss_at(base, s, x.low);
}

static double find_move(const ot_ledger *l, const ot_ledger_job *job) {
  enum { MOST = 256 };
  double moves[MOST];
  if (job->arm.scale > 1) return 0;
  return ot_ledger_move_within(moves, list_moves(l, job->name, moves, MOST), coverage);
}

// The runs that a prediction takes; `found`: all are there, and finite.
typedef struct basis {
  ot_baseline base;
  ot_ledger_arm_facts facts;
  bool found;
} basis;

static basis *gather(const ot_ledger *ledger, const ot_ledger_job *job, int pairs) {
  const ot_ledger_arm *const arm = &job->arm;
  const bool change = arm->num_changes > 0;
  basis *const b = ot_arena_take(ledger->arena, sizeof *b);
  ot_ledger below = *ledger;
  below.policy.num_scales = arm->scale;
  b->found = !change ||
             ot_ledger_gather(&below, arm->changes, arm->num_changes, pairs, &b->facts) == OT_OK;
  below.policy.num_scales += change;
  b->found =
      b->found && b->facts.diverged == 0 && ot_ledger_gather_base(&below, pairs, &b->base) == OT_OK;
  return b;
}

ot_status ot_ledger_predict(ot_ledger *ledger, const ot_ledger_job *job, int pairs) {
  const ot_ledger_arm *const arm = &job->arm;
  const bool change = arm->num_changes > 0;
  if (arm->budget != 1 || arm->seed >= pairs || arm->scale < (change ? 1 : 2)) return OT_OK;
  if (ot_text_equal(job->name, OT_LEDGER_NULL_CHANGE) || has_any(ledger, job)) return OT_OK;
  basis *const b = gather(ledger, job, pairs);
  if (!b->found) return OT_OK;
  const double ln_compute =
      log(job->model_flops / ot_ledger_forged(arm->changes, arm->num_changes, arm->scale));
  ot_measured loss;
  if (change)
    ot_ledger_predict_change(&b->base, &b->facts.arm, ln_compute - b->base.ln_compute[arm->scale],
                             find_move(ledger, job), &loss);
  else
    predict_base(&b->base, ln_compute, &loss);
  if (!isfinite(loss.value)) return OT_OK;
  ot_json_writer line = ot_record_begin(&ledger->record, "predict", ledger->arena);
  ot_json_text(&line, "change", job->name);
  ot_json_text(&line, "scale", ledger->policy.scales[arm->scale].name);
  ot_json_text(&line, "base", ledger->base_hash);
  ot_json_integer(&line, "pairs", pairs);
  ot_json_real(&line, "loss", loss.value);
  ot_record_add_pair(&line, "ci", loss.low, loss.high);
  return ot_record_append(&ledger->record, &line, ledger->arena);
}

// ---- what became of them ----

// The mean loss of the pairs that were predicted.
static double find_loss(const ot_ledger *l, const ot_ledger_prediction *p, const char *base) {
  double sum = 0;
  int count = 0;
  for (int64_t i = 0; i < l->record.count; i++) {
    const ot_node *const run = l->record.line[i].tree;
    const int64_t seed = ot_record_integer(run, "seed") - l->policy.seeds.base;
    if (!is_of(&l->record.line[i], "run", p->change, p->scale, base)) continue;
    if (ot_record_real(run, "budget") != 1 || seed < 0 || seed >= p->pairs) continue;
    sum += ot_record_real(run, "loss");
    count++;
  }
  return count == p->pairs ? sum / count : NAN;
}

int64_t ot_ledger_list_predictions(const ot_ledger *l, ot_ledger_prediction **out) {
  int64_t count = 0;
  *out = ot_arena_array(l->arena, l->record.count + 1, sizeof **out);
  for (int64_t i = 0; i < l->record.count; i++) {
    const ot_node *const line = l->record.line[i].tree;
    if (!ot_text_equal(l->record.line[i].kind, "predict")) continue;
    ot_ledger_prediction *const p = &(*out)[count++];
    *p = (ot_ledger_prediction){.change = ot_record_text(line, "change"),
                                .scale = ot_record_text(line, "scale"),
                                .pairs = (int)ot_record_integer(line, "pairs"),
                                .loss = ot_record_real(line, "loss"),
                                .low = ot_record_bound(line, "ci", 0),
                                .high = ot_record_bound(line, "ci", 1)};
    p->found = find_loss(l, p, ot_record_text(line, "base"));
    p->bounded = !isnan(p->low) && !isnan(p->high);
    p->held = p->low <= p->found && p->found <= p->high;
  }
  return count;
}
