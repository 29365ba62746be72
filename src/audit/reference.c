// SPDX-License-Identifier: Apache-2.0
// Gradients are compared at some rows of every parameter: dot products of both with each other.
#include "audit/reference.h"

#include <math.h>
#include <stdlib.h>

#include "audit/one_rank.h"
#include "base/rng.h"
#include "checkpoint/elements.h"

enum { ROWS_OF_A_PARAMETER = 16, STREAM_ROWS = 0x726f77 };

typedef struct comparison {
  ot_trainer *trainer, *alone;
  ot_instance *instance, *reference;
  ot_arena *arena;
  ot_audit_report *report;
  ot_reference_figures *figures;
  double tolerance, doubt;
  void *raw;       // a row as it is stored
  double *row[2];  // [widest row] of both
  int findings;    // of gradients, so far
} comparison;

double ot_reference_tolerance(const ot_run *run) {
  const bool narrow = run->precision.params == OT_BF16;
  // Tensor parallelism rounds parts of a product; else nothing is rounded otherwise than alone, but
  // where the last bit of a sum decides.
  if (narrow && run->parallel.tp > 1) return 0.1;
  if (run->precision.reduce == OT_BF16 || run->precision.gradients == OT_BF16) return 0.1;
  if (narrow) return 0.01;
  return run->precision.compute == OT_F64 ? 1e-9 : 1e-3;
}

// Where parts of sums are rounded, over tp or ep, a token may go to another expert; but what a
// wrong sum does to a gradient is no larger.
double ot_reference_doubt(const ot_run *run) {
  const bool parts = run->parallel.tp > 1 || run->parallel.ep > 1;
  const bool chooses = run->model.moe.num_experts > 0;
  const bool strays = run->precision.params == OT_BF16 && parts && chooses;
  return strays ? 0.5 : ot_reference_tolerance(run);
}

// ---- gradients ----

// <a, b>, <a, a>, <b, b>, <a - b, a - b> over what was compared; b is the reference.
typedef struct products {
  double ab, aa, bb, dd;
} products;

static void widen(const comparison *c, ot_instance *instance, int64_t cols, double *row) {
  ot_elements_convert(ot_instance_copy_dtype(instance, OT_COPY_GRADIENT), c->raw, OT_F64, row,
                      cols);
}

static ot_status compare_row(const comparison *c, int parameter, int64_t row, products *sum) {
  const ot_parameter *const p = &ot_instance_whole(c->reference)->parameters[parameter];
  const ot_parameter_rows range = {
      .parameter = parameter, .copy = OT_COPY_GRADIENT, .first_row = row, .rows = 1};
  OT_TRY(ot_instance_lead_read(c->instance, &range, c->raw));
  widen(c, c->instance, p->cols, c->row[0]);
  OT_TRY(ot_instance_read(c->reference, &range, c->raw));
  widen(c, c->reference, p->cols, c->row[1]);
  for (int64_t i = 0; i < p->cols; i++) {
    const double a = c->row[0][i], b = c->row[1][i];
    sum->ab += a * b;
    sum->aa += a * a;
    sum->bb += b * b;
    sum->dd += (a - b) * (a - b);
  }
  return OT_OK;
}

static void find(comparison *c, const ot_parameter *p, const products *sum, double difference) {
  enum { MOST_FINDINGS = 5 };
  if (c->findings++ >= MOST_FINDINGS) return;
  const double factor = sum->ab / sum->bb, cosine = sum->ab / sqrt(sum->aa * sum->bb);
  const bool scaled = cosine > 1 - 1e-4;
  const ot_finding finding = {
      .what = scaled ? "gradient_scale" : "gradient_direction",
      .where = ot_arena_format(c->arena, "%s", p->name),
      .evidence = ot_arena_format(
          c->arena,
          "the gradient of this layout is %.6g times that of one rank, cosine %.6g, relative "
          "difference %.3g (allowed: %.3g)",
          factor, cosine, difference, c->doubt),
      .advice = scaled ? "a scale is missing or made twice: compare the factor with the degrees, "
                         "and with the number of micro-batches"
                       : "a sum over an axis is missing, or its parts are weighed wrongly"};
  ot_audit_report_add(c->report, &finding, c->arena);
}

// Vectors are compared whole; of matrices, some rows.
static ot_status compare_parameter(comparison *c, int parameter) {
  const ot_parameter *const p = &ot_instance_whole(c->reference)->parameters[parameter];
  const int64_t most = p->rank == 1 ? p->rows : ROWS_OF_A_PARAMETER;
  const int64_t rows = p->rows < most ? p->rows : most;
  products sum = {0};
  for (int64_t i = 0; i < rows; i++) {
    const uint64_t stream = STREAM_ROWS + (uint64_t)parameter;
    const int64_t row = (int64_t)ot_rng_permute(1, stream, (uint64_t)i, (uint64_t)p->rows);
    OT_TRY(compare_row(c, parameter, row, &sum));
  }
  if (sum.aa == 0 && sum.bb == 0) return OT_OK;
  c->figures->tensors++;
  const double difference = sqrt(sum.dd / fmax(sum.bb, 1e-300));
  if (!(difference <= c->figures->largest)) c->figures->largest = difference;
  if (!(difference <= c->doubt)) find(c, p, &sum, difference);
  c->figures->undecided |= !(difference <= c->tolerance);
  return OT_OK;
}

static ot_status compare_gradients(comparison *c) {
  const ot_graph *const graph = ot_instance_whole(c->reference);
  for (int i = 0; i < graph->num_parameters; i++) {
    if (graph->parameters[i].tied_to < 0) OT_TRY(compare_parameter(c, i));
  }
  return OT_OK;
}

static void compare_loss(comparison *c) {
  const ot_reference_figures *const f = c->figures;
  if (fabs(f->loss - f->reference) <= c->tolerance * fabs(f->reference)) return;
  const ot_finding finding = {
      .what = "loss_normalisation",
      .where = "the loss of a step",
      .evidence = ot_arena_format(c->arena, "%.10g on this layout, %.10g on one rank", f->loss,
                                  f->reference),
      .advice =
          "a loss is the sum over all unmasked targets of the step over their number, not a "
          "mean of the ranks' or the micro-batches' means"};
  ot_audit_report_add(c->report, &finding, c->arena);
}

// ---- the step, alone ----

static ot_status step_alone(comparison *c, const ot_probe_weights *weights,
                            const ot_position *position) {
  OT_TRY(ot_probe_weights_load(weights, c->reference));
  ot_trainer_set_position(c->alone, position);
  ot_step_report step;
  OT_TRY(ot_trainer_step(c->alone, &step));
  c->figures->reference = step.loss;
  return OT_OK;
}

static ot_status compare_alone(comparison *c, const ot_probe_weights *weights,
                               const ot_position *position) {
  const size_t widest = (size_t)ot_graph_widest_row(ot_instance_whole(c->reference));
  c->raw = malloc(3 * widest * sizeof(double));
  OT_CHECK(c->raw, OT_ENVIRONMENT, "out of memory");
  c->row[0] = (double *)c->raw + widest;
  c->row[1] = c->row[0] + widest;
  ot_status status = step_alone(c, weights, position);
  if (status == OT_OK) status = compare_gradients(c);
  if (status == OT_OK) compare_loss(c);
  free(c->raw);
  return status;
}

static ot_status lead(comparison *c, const ot_run *alone, const ot_probe_weights *weights,
                      const ot_position *position) {
  ot_status status =
      ot_trainer_create_hooked(alone, NULL, ot_trainer_get_hooks(c->trainer), &c->alone);
  if (status == OT_OK) {
    c->reference = ot_trainer_instance(c->alone);
    status = compare_alone(c, weights, position);
  }
  ot_trainer_destroy(&c->alone);
  const ot_status dismissed = ot_instance_dismiss(c->instance);
  return status != OT_OK ? status : dismissed;
}

// ---- targets ----

// Of the micro-batches of this rank's step: the fewest and the most.
static ot_status count_targets(const ot_trainer *trainer, int64_t counts[2]) {
  const ot_instance *const instance = ot_trainer_instance(trainer);
  const ot_graph *const graph = ot_instance_graph(instance, OT_MODE_TRAIN);
  const ot_tensor_type type = ot_graph_batch_type(graph, OT_BATCH_TARGETS);
  const int64_t rows = ot_type_elements(&type);
  int32_t *const targets = malloc((size_t)rows * sizeof *targets);
  OT_CHECK(targets, OT_ENVIRONMENT, "out of memory for the targets of a micro-batch");
  for (int m = 0; m < ot_trainer_micro_batches(trainer); m++) {
    int64_t count = 0;
    ot_instance_read_batch(instance, OT_MODE_TRAIN, m, OT_BATCH_TARGETS, targets);
    for (int64_t i = 0; i < rows; i++) count += targets[i] >= 0;
    if (m == 0 || count < counts[0]) counts[0] = count;
    if (m == 0 || count > counts[1]) counts[1] = count;
  }
  free(targets);
  return OT_OK;
}

// Where all have as many, a mean of means is the mean, and nothing shows.
static ot_status compare_targets(ot_trainer *trainer, ot_arena *arena, ot_reference_figures *f) {
  ot_team *const team = ot_trainer_team(trainer);
  const int ranks = ot_team_size(team);
  int64_t *const fewest = ot_arena_array(arena, ranks, sizeof *fewest);
  int64_t *const most = ot_arena_array(arena, ranks, sizeof *most);
  int64_t counts[2] = {0, 0};
  OT_TRY(ot_team_agree(team, count_targets(trainer, counts)));
  OT_TRY(ot_team_collect(team, counts[0], fewest));
  OT_TRY(ot_team_collect(team, counts[1], most));
  f->fewest_targets = fewest[0];
  f->most_targets = most[0];
  for (int i = 1; i < ranks; i++) {
    if (fewest[i] < f->fewest_targets) f->fewest_targets = fewest[i];
    if (most[i] > f->most_targets) f->most_targets = most[i];
  }
  return OT_OK;
}

// ---- the whole ----

// The step in one micro-batch where there is the memory, so that what micro-batches do to each
// other shows; else in the run's own.
static ot_status choose_run(const ot_reference_request *request, ot_run *alone, bool *fits) {
  const ot_run *const run = ot_trainer_run(request->trainer);
  const ot_position position = ot_trainer_position(request->trainer);
  int64_t bytes = 0;
  *alone = ot_one_rank_run(run, true);
  alone->batch.global_batch_size = ot_run_global_batch(run, position.step, position.tokens);
  alone->batch.micro_batch_size = alone->batch.global_batch_size;
  OT_TRY(ot_one_rank_bytes(alone, &bytes));
  if (bytes > request->most_bytes) {
    alone->batch.micro_batch_size = run->batch.micro_batch_size;
    OT_TRY(ot_one_rank_bytes(alone, &bytes));
  }
  *fits = bytes <= request->most_bytes;
  return OT_OK;
}

static ot_status step_and_compare(comparison *c, const ot_run *alone,
                                  const ot_probe_weights *weights) {
  ot_team *const team = ot_trainer_team(c->trainer);
  const ot_position position = ot_trainer_position(c->trainer);
  ot_step_report step;
  OT_TRY(ot_trainer_step(c->trainer, &step));
  OT_TRY(compare_targets(c->trainer, c->arena, c->figures));
  c->figures->compared = true;
  c->figures->loss = step.loss;
  return ot_team_agree(team, ot_team_leads(team) ? lead(c, alone, weights, &position)
                                                 : ot_instance_serve(c->instance));
}

ot_status ot_reference_compare(const ot_reference_request *request, ot_arena *arena,
                               ot_audit_report *report, ot_reference_figures *figures) {
  *figures = (ot_reference_figures){0};
  ot_run alone;
  bool fits = false;
  OT_TRY(ot_team_agree(request->team, choose_run(request, &alone, &fits)));
  if (!fits) return OT_OK;
  comparison c = {.trainer = request->trainer,
                  .instance = ot_trainer_instance(request->trainer),
                  .arena = arena,
                  .report = report,
                  .figures = figures,
                  .tolerance = ot_reference_tolerance(ot_trainer_run(request->trainer)),
                  .doubt = ot_reference_doubt(ot_trainer_run(request->trainer))};
  ot_probe_weights weights;
  ot_status status = ot_probe_weights_read(c.instance, request->team, &weights);
  if (status == OT_OK) status = step_and_compare(&c, &alone, &weights);
  ot_probe_weights_release(&weights);
  return status;
}
