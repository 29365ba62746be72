// SPDX-License-Identifier: Apache-2.0
// Recorded choices of experts. Rounding chooses other experts for a few tokens, whose gradients are
// then others: with the choices of the record, the step is computed as it was. A choice is
// plausible if the scores of the experts that it prefers are within rounding of those that it
// leaves; a router that limits groups is compared within the groups that it chose from.
#include <math.h>

#include "base/extremes.h"
#include "base/text.h"
#include "describe/moe.h"
#include "judge/assemble_fields.h"
#include "judge/judge_parts.h"

// ---- choices ----

static ot_status check_distinct(const ot_judging *j, const ot_row_building *b,
                                const ot_recorded_tensor *t, const int32_t *choices) {
  const int64_t k = j->step.model.moe.experts_per_token;
  for (int64_t i = 0; i < t->elements; i++) {
    for (int64_t n = i - i % k; n < i; n++)
      OT_CHECK(choices[n] != choices[i], OT_USAGE, "%s: token %lld has expert %d twice",
               ot_field_label(b, t), (long long)(i / k), choices[i]);
  }
  return OT_OK;
}

static ot_status read_batch(ot_judging *j, const ot_layer_tensor *at, int32_t *choices) {
  const ot_recorded_tensor *const t = at->tensor;
  const ot_moe *const moe = &j->step.model.moe;
  const ot_row_building b = {.step = &j->step, .arena = j->arena};
  const ot_field_range range = {0, moe->num_experts - 1, false,
                                "routes are the numbers of the chosen experts, all of them; a "
                                "router that drops tokens is not supported"};
  int32_t *const own = choices + j->recorded.batch[at->batch].first_row * moe->experts_per_token;
  OT_TRY(ot_field_read(&b, t, &range, own));
  return check_distinct(j, &b, t, own);
}

static bool is_whole(const ot_recorded_tensor *t) { return t->pieces[0].elements == t->elements; }

// The choices of a layer, if all its batches have them.
static ot_status read_layer(ot_judging *j, const ot_recorded_layers *found, int layer) {
  const int64_t k = j->step.model.moe.experts_per_token;
  if (ot_recorded_layers_lack(found, layer, j->arena) >= 0) return OT_OK;
  int32_t *const choices = ot_arena_array(j->arena, j->recorded.count * k, sizeof *choices);
  for (int64_t i = 0; i < found->count; i++) {
    if (found->list[i].layer != layer) continue;
    if (!is_whole(found->list[i].tensor)) return OT_OK;
    OT_TRY(read_batch(j, &found->list[i], choices));
  }
  j->routes.choices[layer] = choices;
  return OT_OK;
}

ot_status ot_judge_routes_read(ot_judging *j) {
  const ot_model *const model = &j->step.model;
  const ot_recorded_layers found = ot_recorded_layers_find(
      &j->step, &j->recorded, OT_RECORDED_ROUTES, model->moe.experts_per_token, j->arena);
  ot_judged_routes *const r = &j->routes;
  if (model->moe.num_experts == 0 || found.count + found.left_out == 0) return OT_OK;
  r->choices = ot_arena_array(j->arena, model->num_layers, sizeof *r->choices);
  r->complete = true;
  for (int layer = 0; layer < model->num_layers; layer++) {
    if (!model->moe.layer[layer]) continue;
    OT_TRY(read_layer(j, &found, layer));
    r->complete = r->complete && r->choices[layer];
    r->layers += r->choices[layer] != NULL;
    r->all++;
  }
  j->own.rows.batch.choices = r->choices;
  return OT_OK;
}

// ---- shares of experts in all layers ----

static int64_t share_count(const ot_judging *j) {
  return j->recorded.num_batches * j->step.model.moe.num_experts;
}

void ot_judge_shares_create(ot_judging *j) {
  for (int i = 0; i < 2 && j->step.model.moe.num_experts > 0; i++)
    j->own.layer_shares[i] = ot_arena_array(j->arena, share_count(j), sizeof(double));
}

void ot_judge_shares_clear(ot_judging *j) {
  for (int64_t i = 0; j->own.layer_shares[0] && i < share_count(j); i++)
    j->own.layer_shares[0][i] = j->own.layer_shares[1][i] = 0;
}

// Adds the choices of a layer in batch `b` to `shares`; of all rows, or of those that are judged.
static void add_choices(const ot_judging *j, int64_t b, const int32_t *choices, bool judged,
                        double *shares) {
  const ot_moe *const moe = &j->step.model.moe;
  const ot_step_batch *const batch = &j->recorded.batch[b];
  const int64_t k = moe->experts_per_token, end = batch->first_row + batch->rows;
  int64_t rows = 0;
  for (int64_t r = batch->first_row; r < end; r++) rows += !judged || j->judged[r];
  const double slots = (double)(rows * k * ot_moe_layers(&j->step.model));
  for (int64_t r = batch->first_row; r < end; r++) {
    if (judged && !j->judged[r]) continue;
    for (int64_t i = r * k; i < (r + 1) * k; i++)
      shares[b * moe->num_experts + choices[i]] += 1 / slots;
  }
}

void ot_judge_shares_add(ot_judging *j, const ot_recomputed_exchange *e) {
  if (e->stream != 0 || e->backward || !e->router.choices || !j->own.layer_shares[0]) return;
  for (int64_t b = 0; b < j->recorded.num_batches; b++) {
    add_choices(j, b, e->router.choices, false, j->own.layer_shares[0]);
    add_choices(j, b, e->router.choices, true, j->own.layer_shares[1]);
  }
}

// ---- whether they are plausible ----

void ot_judge_routes_begin(ot_judging *j) {
  ot_judged_routes *const r = &j->routes;
  const int64_t elements = j->recorded.count * j->step.model.moe.num_experts;
  r->tokens = r->wrong = 0;
  r->first_layer = -1;
  for (int i = 0; r->choices && i < OT_OWN_STREAMS; i++)
    r->merits[i] = ot_arena_array(j->arena, elements, sizeof *r->merits[i]);
}

// The root mean square of the judge's own error of merits [count].
static double own_error(const ot_judging *j, int64_t first, int64_t count) {
  const double *const *const m = (const double *const *)j->routes.merits;
  double squares[2] = {0, 0}, size = 0;
  for (int64_t i = first; i < first + count; i++) {
    for (int k = 0; k < 2; k++) squares[k] += (m[k + 1][i] - m[0][i]) * (m[k + 1][i] - m[0][i]);
    size += m[0][i] * m[0][i];
  }
  const double least = j->evidence.unit * j->evidence.unit * size;
  return sqrt(ot_larger(ot_larger(squares[0], squares[1]), least) / (double)count);
}

// How far the best expert that a token leaves stands above the worst that it prefers.
static double gap(const ot_judging *j, int64_t row, const int32_t *choices) {
  const ot_moe *const moe = &j->step.model.moe;
  const int64_t E = moe->num_experts, k = moe->experts_per_token;
  const int64_t size = E / (moe->num_groups > 1 ? moe->num_groups : 1);
  const double *const merits = j->routes.merits[0] + row * E;
  double best = -INFINITY, worst = INFINITY;
  for (int64_t i = 0; i < k; i++) worst = ot_smaller(merits[choices[row * k + i]], worst);
  for (int64_t e = 0; e < E; e++) {
    bool chosen = false, near = false;
    for (int64_t i = 0; i < k; i++) {
      chosen = chosen || choices[row * k + i] == e;
      near = near || choices[row * k + i] / size == e / size;
    }
    if (!chosen && near) best = ot_larger(merits[e], best);
  }
  return best - worst;
}

static void compare_layer(ot_judging *j, int layer) {
  ot_judged_routes *const r = &j->routes;
  const int64_t E = j->step.model.moe.num_experts;
  const double all = own_error(j, 0, j->recorded.count * E);
  for (int64_t row = 0; row < j->recorded.count; row++) {
    const double own = ot_larger(own_error(j, row * E, E), all);
    const double error = gap(j, row, r->choices[layer]) / own;
    if (!j->judged[row]) continue;
    r->tokens++;
    if (!(error > 2 * OT_RATIO_FINE)) continue;
    if (r->wrong++ == 0) {
      r->first_layer = layer;
      r->first_row = row;
    }
    r->worst = ot_larger(error, r->worst);
  }
}

void ot_judge_routes_exchange(ot_judging *j, const ot_recomputed_exchange *e) {
  const int first = j->origin.first;
  const int layer = e->block - 1, stream = e->stream - first;
  ot_judged_routes *const r = &j->routes;
  if (e->backward || !r->choices || layer < 0 || stream < 0 || stream >= OT_OWN_STREAMS) return;
  if (!r->choices[layer] || !e->router.merits) return;
  for (int64_t i = 0; i < j->recorded.count * j->step.model.moe.num_experts; i++)
    r->merits[stream][i] = e->dtype == OT_F64 ? ((const double *)e->router.merits)[i]
                                              : (double)((const float *)e->router.merits)[i];
  if (stream == OT_OWN_STREAMS - 1) compare_layer(j, layer);
}

// ---- the part ----

static const char *wrong_in_words(const ot_judging *j) {
  const ot_judged_routes *const r = &j->routes;
  const ot_step_batch *const batch = &j->recorded.batch[j->recorded.batches[r->first_row]];
  return ot_arena_format(
      j->arena,
      "choices of experts beyond rounding of the recomputed scores: %lld (by up to "
      "%.3g x own error of a score); the first is token %lld of batch %d, data "
      "rank %d, in layer %d",
      (long long)r->wrong, r->worst, (long long)(r->first_row - batch->first_row), batch->micro,
      batch->dp_rank, r->first_layer);
}

void ot_judge_routes(ot_judging *j) {
  const ot_judged_routes *const r = &j->routes;
  ot_judge_report *const report = j->report;
  if (!r->choices || !r->merits[0]) return;
  ot_judge_add_part(report, "routes", r->wrong == 0,
                    "%lld choices in %d of %d layers with experts: %lld beyond rounding",
                    (long long)r->tokens, r->layers, r->all, (long long)r->wrong);
  if (r->wrong == 0) return;
  if (report->num_findings > 0) {
    ot_judge_finding *const f = &report->findings[0];
    f->evidence = ot_arena_format(j->arena, "%s; %s", f->evidence, wrong_in_words(j));
    return;
  }
  ot_judge_finding *const f = ot_judge_find(report, "routes");
  f->tensors = ot_arena_format(j->arena, "layer %d", r->first_layer);
  f->evidence = wrong_in_words(j);
  f->advice = "compare how experts are chosen: bias, groups, scores, and the number for each token";
}
