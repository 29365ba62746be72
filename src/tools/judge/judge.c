// SPDX-License-Identifier: Apache-2.0
#include "judge/judge.h"

#include "base/dtype.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "judge/judge_parts.h"

const char *const ot_judge_type_names[OT_JUDGE_TYPES + 1] = {
    [OT_JUDGE_AUTO] = "auto",
    [OT_JUDGE_FP32] = "fp32",
    [OT_JUDGE_BF16] = "bf16",
    [OT_JUDGE_AUTOCAST] = "autocast",
};

// ---- the step of the record ----

// The rows of a record as those of the plain model: groups of experts are its batches.
static void build_rows(ot_judging *j) {
  const ot_step_rows *const from = &j->recorded;
  ot_plain_batch *const b = &j->own.rows.batch;
  int64_t *const first = ot_arena_array(j->arena, from->count, sizeof *first);
  int64_t *const sequence = ot_arena_array(j->arena, from->count, sizeof *sequence);
  int64_t *const ends = ot_arena_array(j->arena, from->num_batches, sizeof *ends);
  int32_t *const micro = ot_arena_array(j->arena, from->count, sizeof *micro);
  int32_t *const dp_rank = ot_arena_array(j->arena, from->count, sizeof *dp_rank);
  double *const weights = ot_arena_array(j->arena, from->count, sizeof *weights), sum = 0;
  for (int64_t r = 0; r < from->count; r++) sum += (double)from->weights[r];
  for (int64_t r = 0; r < from->count; r++) {
    const ot_step_batch *const batch = &from->batch[from->batches[r]];
    first[r] = from->documents[r];
    sequence[r] = from->sequences[r];
    micro[r] = batch->micro;
    dp_rank[r] = batch->dp_rank;
    weights[r] = sum > 0 ? (double)from->weights[r] / sum : 0;
  }
  for (int64_t i = 0; i < from->num_batches; i++)
    ends[i] = from->batch[i].first_row + from->batch[i].rows;
  *b = (ot_plain_batch){.rows = from->count,
                        .ids = from->ids,
                        .targets = from->targets,
                        .positions = from->positions,
                        .first = first,
                        .weights = weights,
                        .num_groups = (int)from->num_batches,
                        .group_end = ends,
                        .group_weight = 1.0 / (double)from->num_batches};
  j->own.rows.sequence = sequence;
  j->own.rows.micro = micro;
  j->own.rows.dp_rank = dp_rank;
  j->own.model = j->step.model;
  j->own.losses = OT_PLAIN_MAIN;
}

// Padding is documents without a target: software computes it as it likes.
static void find_judged_rows(ot_judging *j) {
  const ot_plain_batch *const b = &j->own.rows.batch;
  bool *const targets = ot_arena_array(j->arena, b->rows, sizeof *targets);
  bool *const judged = ot_arena_array(j->arena, b->rows, sizeof *judged);
  for (int64_t r = 0; r < b->rows; r++) {
    if (b->targets[r] >= 0) targets[b->first[r]] = true;
  }
  for (int64_t r = 0; r < b->rows; r++) judged[r] = targets[b->first[r]];
  j->judged = j->own.rows.judged = judged;
}

static ot_dtype weight_type(const ot_recorded_step *step) {
  for (int64_t i = 0; i < step->num_tensors; i++) {
    if (step->tensors[i].kind == OT_RECORDED_WEIGHT) return step->tensors[i].dtype;
  }
  return OT_F32;
}

static void choose_types(ot_judging *j) {
  const ot_dtype weights = weight_type(&j->step);
  j->type = j->request->type == OT_JUDGE_BF16       ? OT_PLAIN_BF16
            : j->request->type == OT_JUDGE_AUTOCAST ? OT_PLAIN_AUTOCAST
            : j->request->type == OT_JUDGE_FP32     ? OT_PLAIN_F32
            : weights == OT_BF16                    ? OT_PLAIN_BF16
            : weights == OT_F64                     ? OT_PLAIN_F64
                                                    : OT_PLAIN_F32;
  j->base = j->type == OT_PLAIN_F32 || j->type == OT_PLAIN_F64 ? OT_PLAIN_F64 : OT_PLAIN_F32;
}

static int micro_batches(const ot_judging *j) {
  int most = 0;
  for (int64_t i = 0; i < j->recorded.num_batches; i++)
    most = j->recorded.batch[i].micro >= most ? j->recorded.batch[i].micro + 1 : most;
  return most;
}

static void list_sizes(ot_judging *j) {
  const ot_step_size others[] = {
      {"micro_batches", micro_batches(j)}, {"dp", j->step.dp_size}, {"loss_scale", 65536}};
  for (int a = 0; a < j->step.num_axes; a++)
    j->sizes[j->num_sizes++] = (ot_step_size){j->step.axes[a].name, j->step.axes[a].size};
  for (int i = 0; i < OT_COUNT(others); i++) j->sizes[j->num_sizes++] = others[i];
}

static const char *mesh_in_words(const ot_judging *j) {
  ot_text_builder text = {.arena = j->arena};
  for (int a = 0; a < j->step.num_axes; a++)
    ot_text_appendf(&text, "%s %d ", j->step.axes[a].name, j->step.axes[a].size);
  ot_text_appendf(&text, "on %d rank%s", j->step.world, ot_text_plural(j->step.world, "s"));
  return ot_text_builder_text(&text);
}

static const char *step_in_words(const ot_judging *j) {
  static const char *const types[] = {[OT_PLAIN_F64] = "fp64",
                                      [OT_PLAIN_F32] = "fp32",
                                      [OT_PLAIN_BF16] = "bf16",
                                      [OT_PLAIN_AUTOCAST] = "fp32 weights, products in bf16"};
  const int64_t batches = j->recorded.num_batches;
  return ot_arena_format(
      j->arena, "%s, %s parameters, recorded by %s: %s, %lld batch%s, %s tokens, %s",
      j->step.model.model_type,
      ot_figure_count(j->arena, (double)ot_model_parameters(&j->step.model)), j->step.software,
      mesh_in_words(j), (long long)batches, ot_text_plural(batches, "es"),
      ot_figure_count(j->arena, (double)j->recorded.count), types[j->type]);
}

// ---- autocast ----

static bool is_far(const ot_judging *j, const ot_evidence *e, double far) {
  return ot_evidence_typical_ratio(e, j->arena) > far;
}

// Float32 weights do not say whether matrix products were made in bf16. If they were, all gradients
// are far from float32 rounding, and at that of bf16. An error that a hypothesis reduces to
// float32 rounding is a fault, even where rounding in bf16 is larger.
static bool try_autocast(ot_judging *j) {
  static const double far = 100;
  const bool open = j->request->type == OT_JUDGE_AUTO && j->type == OT_PLAIN_F32;
  if (!open || !is_far(j, &j->evidence, far) || ot_judge_explains_errors(j)) return false;
  j->type = OT_PLAIN_AUTOCAST;
  j->base = OT_PLAIN_F32;
  return true;
}

// An error that a setting explains is a fault, even where rounding in bf16 is larger.
static ot_status find_setting_in_float(ot_judging *as_autocast, ot_judging *as_float) {
  if (!ot_judge_suspects_setting(as_float)) return OT_OK;
  OT_TRY(ot_judge_fit_settings(as_float));
  if (as_float->setting.setting) *as_autocast = *as_float;
  return OT_OK;
}

// Whether errors are rounding of products in bf16, or a fault and such rounding. A tensor without
// that rounding says that there were none.
static bool fits_autocast(ot_judging *j) {
  static const double exact = 0.05;
  const ot_evidence right = ot_judge_right_copies(j);
  if (!is_far(j, &right, OT_RATIO_FINE)) return true;
  for (int t = 0; t < right.num_tensors; t++) {
    const double ratio = ot_evidence_ratio(&right, &right.tensors[t]);
    if (ratio > 0 && ratio < exact) return false;
  }
  return ot_judge_explains_errors(j);
}

// Computes the step in the types that fit the errors.
static ot_status measure_in_types(ot_judged_pass *p) {
  OT_TRY(ot_judge_measure(p));
  ot_judged_pass *const as_float = ot_arena_take(p->judgings[0].arena, sizeof *as_float);
  bool tried[2] = {false}, fits = false;
  *as_float = *p;
  for (int i = 0; i < p->count; i++) tried[i] = try_autocast(&p->judgings[i]);
  if (!tried[0] && !tried[1]) return OT_OK;
  OT_TRY(ot_judge_measure(p));
  for (int i = 0; i < p->count; i++) {
    if (!tried[i]) continue;
    if (fits_autocast(&p->judgings[i])) {
      fits = true;
      OT_TRY(find_setting_in_float(&p->judgings[i], &as_float->judgings[i]));
    } else {
      p->judgings[i] = as_float->judgings[i];
    }
  }
  if (!fits) *p = *as_float;
  return OT_OK;
}

ot_status ot_judged_pass_measure(ot_judged_pass *p) {
  OT_TRY(measure_in_types(p));
  for (int i = 0; i < p->count; i++) {
    if (!p->judgings[i].setting.setting) OT_TRY(ot_judge_fit_settings(&p->judgings[i]));
  }
  return OT_OK;
}

// ---- the record ----

ot_status ot_judging_open(ot_judging *j) {
  OT_TRY(ot_recorded_read(j->request->record, j->arena, &j->step));
  OT_TRY(ot_assemble_rows(&j->step, j->arena, &j->recorded));
  OT_CHECK(j->recorded.count > 0, OT_USAGE, "%s: the record has no batch", j->step.path);
  build_rows(j);
  choose_types(j);
  list_sizes(j);
  find_judged_rows(j);
  OT_TRY(ot_judge_layers_check(j));
  OT_TRY(ot_judge_routes_read(j));
  ot_judge_shares_create(j);
  j->num_hypotheses = ot_hypotheses_list(&j->own, j->arena, OT_JUDGE_HYPOTHESES, j->cases);
  for (int i = 0; i < j->num_hypotheses; i++) j->hypotheses[i] = *j->cases[i].hypothesis;
  return OT_OK;
}

static ot_status judge_parts(ot_judging *j) {
  const bool whole = !j->request->layers;
  if (whole) ot_judge_loss(j);
  ot_judge_gradients(j);
  ot_judge_origin(j);
  ot_judge_routes(j);
  if (!whole) {
    ot_judge_layers_part(j);
    return OT_OK;
  }
  ot_judge_explain_loss(j);
  ot_judge_norm(j);
  OT_TRY(ot_judge_update(j));
  return ot_judge_biases(j);
}

ot_status ot_judging_conclude(ot_judging *j) {
  j->report->step = step_in_words(j);
  ot_judge_batches(j);
  OT_TRY(judge_parts(j));
  for (int i = 0; i < j->step.num_notes; i++)
    ot_judge_add_part(j->report, "note", true, "%s", j->step.notes[i]);
  return OT_OK;
}

ot_status ot_judge_record(const ot_judge_request *request, ot_arena *arena, ot_judge_report *out) {
  ot_judged_pass *const p = ot_arena_take(arena, sizeof *p);
  ot_judging *const j = &p->judgings[0];
  *out = (ot_judge_report){.arena = arena, .verdict = OT_VERDICT_CLEAN};
  *j = (ot_judging){.request = request, .arena = arena, .report = out};
  p->count = 1;
  OT_TRY(ot_judging_open(j));
  OT_TRY(ot_judged_pass_measure(p));
  return ot_judging_conclude(j);
}
