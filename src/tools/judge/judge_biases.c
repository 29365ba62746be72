// SPDX-License-Identifier: Apache-2.0
// The verdict on biases of routers, which no gradient moves (Wang et al. 2024, arXiv 2408.15664):
//   after = before + rate sign(mean load - load)
// with the loads of the step, counted from its choices of experts. Choices that rounding may change
// leave the sign open.
#include <math.h>

#include "base/extremes.h"
#include "base/text.h"
#include "judge/judge_parts.h"

// Loads are counted where the model is balanced so.
static bool is_balanced_by_bias(const ot_judging *j) {
  const ot_moe *const moe = &j->step.model.moe;
  return moe->num_experts > 0 && moe->balance == OT_MOE_BALANCE_BIAS && moe->bias_rate > 0;
}

void ot_judge_biases_begin(ot_judging *j) {
  const int64_t elements = j->step.model.num_layers * j->step.model.moe.num_experts;
  for (int i = 0; i < OT_OWN_STREAMS && is_balanced_by_bias(j); i++)
    j->loads[i] = ot_arena_array(j->arena, elements, sizeof *j->loads[i]);
}

void ot_judge_biases_exchange(ot_judging *j, const ot_recomputed_exchange *e) {
  const ot_moe *const moe = &j->step.model.moe;
  const int layer = e->block - 1;
  const bool counted = e->stream < OT_OWN_STREAMS && j->loads[0] && e->router.choices;
  if (e->backward || !counted) return;
  double *const loads = j->loads[e->stream] + layer * moe->num_experts;
  for (int64_t i = 0; i < j->recorded.count * moe->experts_per_token; i++)
    loads[e->router.choices[i]] += 1;
}

// A bias vector of one layer, before and after the step.
typedef struct moved_bias {
  int layer;
  const char *name;
  double unit;             // roundoff of its type
  double *before, *after;  // [E]
} moved_bias;

typedef struct biases {
  ot_judging *judging;
  int64_t decided, moved, wrong;  // experts
  double product;                 // of changes and the right ones, over the rate squared
  const char *first;              // tensor with a wrong one
  double change;                  // of the first wrong one
  int64_t expert;
} biases;

// 1, 0 or -1 times the rate; NAN where rounding decides.
static double right_change(const ot_judging *j, int layer, int64_t expert) {
  const ot_moe *const moe = &j->step.model.moe;
  const double mean =
      (double)(j->recorded.count * moe->experts_per_token) / (double)moe->num_experts;
  const int64_t at = layer * moe->num_experts + expert;
  const double below = mean - j->loads[0][at];
  for (int i = 1; i < OT_OWN_STREAMS; i++) {
    const double again = mean - j->loads[i][at];
    if ((again > 0) != (below > 0) || (again < 0) != (below < 0)) return NAN;
  }
  return below > 0 ? moe->bias_rate : below < 0 ? -moe->bias_rate : 0;
}

static void judge_bias(biases *b, const moved_bias *m) {
  const ot_judging *const j = b->judging;
  const double rate = j->step.model.moe.bias_rate;
  for (int64_t e = 0; e < j->step.model.moe.num_experts; e++) {
    const double right = right_change(j, m->layer, e), change = m->after[e] - m->before[e];
    const double rounding = 4 * m->unit * (fabs(m->before[e]) + fabs(m->after[e]) + rate);
    b->moved += change != 0;
    if (isnan(right)) continue;
    b->decided++;
    b->product += change * right / (rate * rate);
    if (fabs(change - right) <= rounding) continue;
    if (b->wrong++ > 0) continue;
    b->first = m->name;
    b->change = change;
    b->expert = e;
  }
}

static ot_status read_bias(const ot_judging *j, const ot_recorded_view *view, ot_arena *scratch,
                           double **out) {
  const int64_t count = view->elements;
  *out = ot_arena_array(scratch, count, sizeof **out);
  const ot_assembly_request request = {.view = view, .count = count, .dtype = OT_F64};
  return ot_assemble(&j->step, &request, NULL, *out, NULL);
}

// The master copies if the record has them.
static ot_status judge_tensor(biases *b, const ot_recorded_tensor *t) {
  ot_judging *const j = b->judging;
  const char *rest;
  moved_bias m = {.layer = ot_layer_of_module(t->name, &rest), .name = t->name};
  ot_recorded_view before, after;
  const bool master = ot_recorded_find(&j->step, OT_RECORDED_MASTER_AFTER, t->name, &after) &&
                      ot_recorded_find(&j->step, OT_RECORDED_MASTER, t->name, &before);
  const bool stored = master || (ot_recorded_find(&j->step, OT_RECORDED_AFTER, t->name, &after) &&
                                 ot_recorded_find(&j->step, OT_RECORDED_WEIGHT, t->name, &before));
  const int64_t experts = j->step.model.moe.num_experts;
  if (!stored || before.elements != experts || after.elements != experts) return OT_OK;
  if (m.layer < 0 || m.layer >= j->step.model.num_layers) return OT_OK;
  m.unit = ot_dtype_roundoff(after.tensor->dtype);
  OT_TRY(read_bias(j, &before, j->arena, &m.before));
  OT_TRY(read_bias(j, &after, j->arena, &m.after));
  judge_bias(b, &m);
  return OT_OK;
}

static void find_biases(const biases *b) {
  ot_judging *const j = b->judging;
  const ot_moe *const moe = &j->step.model.moe;
  ot_judge_finding *const f = ot_judge_find(j->report, "router_bias");
  f->tensors = b->first;
  f->factor = ot_arena_format(j->arena, "%.4g", b->product / (double)b->decided);
  f->evidence = ot_arena_format(
      j->arena,
      "%lld of %lld biases of experts moved otherwise than by %.4g against their loads; the first "
      "is that of expert %lld, by %.4g",
      (long long)b->wrong, (long long)b->decided, moe->bias_rate, (long long)b->expert, b->change);
  f->advice = "compare the sign of the update, its rate, and how often a step makes it";
}

ot_status ot_judge_biases(ot_judging *j) {
  biases b = {.judging = j};
  const bool open = ot_judging_may_reroute(j) && !j->routes.complete;
  if (!j->loads[0] || open) return OT_OK;
  for (int64_t i = 0; i < j->step.num_tensors; i++) {
    const ot_recorded_tensor *const t = &j->step.tensors[i];
    if (t->kind == OT_RECORDED_AFTER && ot_text_find(t->name, "e_score_correction_bias"))
      OT_TRY(judge_tensor(&b, t));
  }
  if (b.decided == 0) return OT_OK;
  if (b.moved == 0) {  // as in fine-tuning
    ot_judge_add_part(j->report, "biases", true, "biases of experts did not move");
    return OT_OK;
  }
  ot_judge_add_part(j->report, "biases", b.wrong == 0,
                    "%lld biases of experts moved by %.4g against their loads",
                    (long long)(b.decided - b.wrong), j->step.model.moe.bias_rate);
  if (b.wrong > 0) find_biases(&b);
  return OT_OK;
}
