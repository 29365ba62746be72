// SPDX-License-Identifier: Apache-2.0
// (L(w + h d) - L(w - h d)) / 2h with d = g / |g| must be |g|.
#include "audit/slope_check.h"

#include <math.h>
#include <stdlib.h>

#include "audit/log_probability.h"
#include "audit/one_rank.h"
#include "base/text.h"
#include "checkpoint/elements.h"
#include "data/feed.h"
#include "describe/moe.h"

// Of a micro-batch: mean nats of a target, and what routers add to it.
typedef struct losses {
  double tokens, routers;
} losses;

typedef struct slope_check {
  const ot_slope_request *request;
  ot_arena *arena;
  ot_audit_report *report;
  ot_slope_figures *figures;
  ot_run alone;
  ot_trainer *trainer;       // of one rank
  ot_probe_weights weights;  // in float64
  ot_probe *probe;
  ot_rows rows;
  double *logits;
  double *gradient, *kept;  // of the tensor that is looked at
} slope_check;

// ---- weights ----

static int64_t largest_parameter(const ot_graph *graph) {
  int64_t largest = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    const int64_t n = ot_parameter_elements(&graph->parameters[i]);
    if (n > largest) largest = n;
  }
  return largest;
}

static void widen_weights(slope_check *s) {
  const ot_probe_weights *const from = s->request->weights;
  const int count = from->graph->num_parameters;
  s->weights = (ot_probe_weights){.graph = from->graph, .dtype = OT_F64};
  ot_arena arena = ot_heap_arena_create(&s->weights.heap);
  s->weights.values = ot_arena_array(&arena, count, sizeof *s->weights.values);
  for (int i = 0; i < count; i++) {
    const int64_t n = ot_parameter_elements(&from->graph->parameters[i]);
    s->weights.values[i] = NULL;
    if (!from->values[i]) continue;
    s->weights.values[i] = ot_arena_array(&arena, n, sizeof(double));
    ot_elements_convert(from->dtype, from->values[i], OT_F64, s->weights.values[i], n);
  }
  const int64_t largest = largest_parameter(from->graph);
  s->gradient = ot_arena_array(&arena, largest, sizeof *s->gradient);
  s->kept = ot_arena_array(&arena, largest, sizeof *s->kept);
}

// ---- losses ----

// What the losses of routers add to that of tokens.
static double weigh_routers(const slope_check *s, const double sums[OT_EXPERT_SUMS]) {
  const ot_model *const model = &s->alone.model;
  return ot_moe_aux_weight(model) * sums[OT_EXPERT_AUX_LOSS] +
         model->moe.z_coefficient * sums[OT_EXPERT_Z_LOSS];
}

// By the forward that hands out logits.
static ot_status ask_losses(slope_check *s, losses *out) {
  const int64_t vocab = s->alone.model.vocab_size;
  double sum = 0;
  int64_t count = 0;
  OT_TRY(ot_probe_reload(s->probe, &s->weights));
  OT_TRY(ot_probe_forward(s->probe, &s->rows, s->logits));
  for (int64_t i = 0; i < s->rows.B * s->rows.T; i++) {
    if (s->rows.targets[i] < 0) continue;
    sum -= ot_log_probability(s->logits + i * vocab, vocab, s->rows.targets[i]);
    count++;
  }
  *out = (losses){.tokens = count > 0 ? sum / (double)count : 0};
  if (s->alone.model.moe.num_experts > 0) {
    double sums[OT_EXPERT_SUMS];
    ot_probe_expert_sums(s->probe, sums);
    out->routers = weigh_routers(s, sums);
  }
  return OT_OK;
}

static double tolerance_of(const slope_check *s, double wide, double narrow) {
  return s->alone.precision.compute == OT_F64 ? wide : narrow;
}

static void compare_loss(slope_check *s, const char *where, double got, double wanted) {
  if (fabs(got - wanted) <= tolerance_of(s, 1e-9, 1e-4) * fabs(wanted)) return;
  const ot_finding finding = {
      .what = "loss_differs",
      .where = where,
      .evidence = ot_arena_format(s->arena, "%.9g nats; by the logits of the model it is %.9g", got,
                                  wanted),
      .advice =
          "the forward of training is not that of evaluation: compare masks, windows, scales "
          "and targets"};
  ot_audit_report_add(s->report, &finding, s->arena);
}

static ot_status check_losses(slope_check *s, double trained) {
  losses truth;
  OT_TRY(ask_losses(s, &truth));
  compare_loss(s, "the loss of a training step", trained, truth.tokens);
  if (s->alone.model.moe.num_experts == 0) return OT_OK;
  double sums[OT_EXPERT_SUMS];
  ot_instance_expert_sums(ot_trainer_instance(s->trainer), sums);
  compare_loss(s, "the losses of routers in a training step", weigh_routers(s, sums),
               truth.routers);
  return OT_OK;
}

// ---- slopes ----

static double norm_of(const double *values, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += values[i] * values[i];
  return sqrt(sum);
}

static ot_status read_gradient(slope_check *s, int index) {
  ot_instance *const instance = ot_trainer_instance(s->trainer);
  const ot_parameter *const p = &ot_instance_whole(instance)->parameters[index];
  const ot_dtype dtype = ot_instance_copy_dtype(instance, OT_COPY_GRADIENT);
  const ot_parameter_rows range = {.parameter = index, .copy = OT_COPY_GRADIENT, .rows = p->rows};
  const int64_t n = ot_parameter_elements(p);
  if (dtype == OT_F64) return ot_instance_read(instance, &range, s->gradient);
  OT_TRY(ot_instance_read(instance, &range, s->kept));
  ot_elements_convert(dtype, s->kept, OT_F64, s->gradient, n);
  return OT_OK;
}

// Slope of the loss along d, at the weights, by a step of `share` of them.
static ot_status measure(slope_check *s, int index, double share, double length, double *slope) {
  const int64_t n = ot_parameter_elements(&s->weights.graph->parameters[index]);
  double *const w = s->weights.values[index];
  // Small beside the tensor; of one that began at zero, beside what it may become.
  const double h = share * fmax(norm_of(w, n), 0.02 * sqrt((double)n));
  double sides[2];
  for (int64_t i = 0; i < n; i++) s->kept[i] = w[i];
  for (int side = 0; side < 2; side++) {
    const double by = (side == 0 ? h : -h) / length;
    for (int64_t i = 0; i < n; i++) w[i] = s->kept[i] + by * s->gradient[i];
    losses asked;
    OT_TRY(ask_losses(s, &asked));
    sides[side] = asked.tokens + asked.routers;
  }
  for (int64_t i = 0; i < n; i++) w[i] = s->kept[i];
  *slope = (sides[0] - sides[1]) / (2 * h);
  return OT_OK;
}

static void find(slope_check *s, const ot_parameter *p, double length, double slope) {
  const ot_finding finding = {
      .what = "gradient_is_no_derivative",
      .where = p->parts[0].hf_name,
      .evidence = ot_arena_format(s->arena,
                                  "|gradient| is %.6g, the slope of the loss along it %.6g "
                                  "(ratio %.6g)",
                                  length, slope, slope / length),
      .advice =
          "the backward is not that of the forward: compare their constants, from the head "
          "to this tensor"};
  ot_audit_report_add(s->report, &finding, s->arena);
}

static ot_status check_parameter(slope_check *s, int index, double floor) {
  const ot_parameter *const p = &s->weights.graph->parameters[index];
  OT_TRY(read_gradient(s, index));
  const double length = norm_of(s->gradient, ot_parameter_elements(p));
  if (length <= floor) return OT_OK;
  // Where a step sends a token to another expert, the loss jumps: then a smaller one.
  const double tolerance = tolerance_of(s, 2e-5, 2e-4);
  double slope, difference;
  OT_TRY(measure(s, index, 1e-5, length, &slope));
  difference = fabs(slope - length) / length;
  if (!(difference <= tolerance) && s->alone.model.moe.num_experts > 0) {
    OT_TRY(measure(s, index, 1e-7, length, &slope));
    difference = fabs(slope - length) / length;
  }
  s->figures->tensors++;
  if (!(difference <= s->figures->largest)) s->figures->largest = difference;
  if (!(difference <= tolerance)) find(s, p, length, slope);
  return OT_OK;
}

// Tensors whose gradient is rounding alone (a bias of keys) have no slope to speak of.
static ot_status check_slopes(slope_check *s) {
  enum { MOST_FINDINGS = 5 };
  const ot_graph *const graph = s->weights.graph;
  const int stride = 1 + (graph->num_parameters - 1) / s->request->most_tensors;
  double largest = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    if (!ot_parameter_is_trained(&graph->parameters[i])) continue;
    OT_TRY(read_gradient(s, i));
    largest = fmax(largest, norm_of(s->gradient, ot_parameter_elements(&graph->parameters[i])));
  }
  for (int i = 0; i < graph->num_parameters; i += stride) {
    if (!ot_parameter_is_trained(&graph->parameters[i]) || s->report->num_findings >= MOST_FINDINGS)
      continue;
    OT_TRY(check_parameter(s, i, 1e-4 * largest));
  }
  return OT_OK;
}

// ---- the whole ----

static ot_status prepare(slope_check *s) {
  const ot_position position = ot_trainer_position(s->request->trainer);
  const ot_run *const run = &s->alone;
  ot_feed *feed = NULL;
  OT_TRY(
      ot_trainer_create_hooked(run, NULL, ot_trainer_get_hooks(s->request->trainer), &s->trainer));
  OT_TRY(ot_probe_weights_load(s->request->weights, ot_trainer_instance(s->trainer)));
  ot_trainer_set_position(s->trainer, &position);
  const ot_probe_request request = {.model = &run->model,
                                    .sequences = run->batch.micro_batch_size,
                                    .tokens = run->data.sequence_length,
                                    .compute = OT_F64,
                                    .storage = OT_F64,
                                    .threads = run->threads,
                                    .weights = &s->weights};
  OT_TRY(ot_probe_create(&request, &s->probe));
  OT_TRY(ot_rows_create(request.sequences, request.tokens, &s->rows));
  const int64_t logits = request.sequences * request.tokens * run->model.vocab_size;
  s->logits = malloc((size_t)logits * sizeof *s->logits);
  OT_CHECK(s->logits, OT_ENVIRONMENT, "out of memory for the logits of a micro-batch");
  ot_status status = ot_feed_create(run, &feed);
  if (status == OT_OK) status = ot_feed_train(feed, position.next_sample, &s->rows);
  ot_feed_destroy(&feed);
  return status;
}

static ot_status check(slope_check *s) {
  ot_step_report step;
  OT_TRY(prepare(s));
  OT_TRY(ot_trainer_step(s->trainer, &step));
  OT_TRY(check_losses(s, step.loss));
  return check_slopes(s);
}

// The run on one rank in its compute type, without dropout; several sequences where they are short,
// so that what few tokens meet (a window, a document's end) is met.
static ot_run run_of(const ot_run *run) {
  enum { SEQUENCES = 8, TOKENS = 4096 };
  ot_run one = ot_one_rank_run(run, false);
  const int64_t fit = TOKENS / run->data.sequence_length;
  int64_t sequences = run->batch.global_batch_size;
  sequences = sequences > SEQUENCES ? SEQUENCES : sequences;
  sequences = sequences > fit ? fit : sequences;
  if (sequences > one.batch.micro_batch_size) {
    one.batch.micro_batch_size = one.batch.global_batch_size = sequences;
  }
  const ot_dtype wide = run->precision.compute == OT_F64 ? OT_F64 : OT_F32;
  one.precision.compute = one.precision.params = one.precision.master = wide;
  one.model.embedding_dropout = one.model.attention_dropout = one.model.residual_dropout = 0;
  return one;
}

ot_status ot_slope_check(const ot_slope_request *request, ot_arena *arena, ot_audit_report *report,
                         ot_slope_figures *figures) {
  *figures = (ot_slope_figures){0};
  slope_check s = {.request = request, .arena = arena, .report = report, .figures = figures};
  s.alone = run_of(ot_trainer_run(request->trainer));
  int64_t bytes = 0;
  OT_TRY(ot_one_rank_bytes(&s.alone, &bytes));
  figures->left_out = bytes > request->most_bytes;
  if (figures->left_out) return OT_OK;
  widen_weights(&s);
  const ot_status status = check(&s);
  ot_trainer_destroy(&s.trainer);
  ot_probe_destroy(&s.probe);
  ot_rows_release(&s.rows);
  ot_probe_weights_release(&s.weights);
  free(s.logits);
  return status;
}
