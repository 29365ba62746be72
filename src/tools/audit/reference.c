// SPDX-License-Identifier: Apache-2.0
// Compares gradients at some rows of every parameter, by dot products.
#include "audit/reference.h"

#include <math.h>
#include <stdlib.h>

#include "audit/variant.h"
#include "base/rng.h"

enum { ROWS_OF_A_PARAMETER = 16, STREAM_ROWS = 0x726f77 };

typedef struct comparison {
  ot_trainer *trainer, *alone;  // alone: null on all ranks but the leader
  ot_trainer *wide;             // the same with weights in fp32, on the leader of a narrow run
  ot_run run, wide_run;         // of `alone` and `wide`
  ot_audit_report *report;
  ot_reference_figures *figures;
  double tolerance, doubt;
  double *row[3];  // [widest row] of the run, `alone` and `wide`
  int findings;    // gradient findings so far
} comparison;

double ot_reference_tolerance(const ot_run *run) {
  const bool narrow = run->precision.params == OT_BF16;
  // With tensor parallelism partial products are rounded; otherwise rounding differs from one rank
  // only where the last bit of a sum decides.
  if (narrow && run->parallel.tp > 1) return 0.1;
  if (run->precision.reduce == OT_BF16 || run->precision.gradients == OT_BF16) return 0.1;
  if (narrow) return 0.01;
  return run->precision.compute == OT_F64 ? 1e-9 : 1e-3;
}

// Where partial sums are rounded, over tp or ep, a token may be routed to another expert; a wrong
// reduction affects a gradient no more than that.
double ot_reference_limit(const ot_run *run) {
  const bool parts = run->parallel.tp > 1 || run->parallel.ep > 1;
  const bool chooses = run->model.moe.num_experts > 0;
  const bool strays = run->precision.params == OT_BF16 && parts && chooses;
  return strays ? 0.5 : ot_reference_tolerance(run);
}

// ---- gradients ----

// <a, b>, <a, a>, <b, b>, <a - b, a - b> over the compared rows; b is the reference. Its rounding:
// <b - w, b - w>, <w, w>, where w has wide weights; 0 if it is not known.
typedef struct products {
  double ab, aa, bb, dd;
  double rounded, ww;
} products;

static const ot_graph *whole_of(const comparison *c) {
  return ot_runtime_whole_graph(ot_trainer_runtime(c->trainer));
}

static ot_status compare_row(const comparison *c, int parameter, int64_t row, products *sum) {
  const ot_parameter *const p = &whole_of(c)->parameters[parameter];
  const ot_parameter_rows range = {parameter, OT_COPY_GRADIENT, row, 1};
  OT_TRY(ot_variant_read(ot_trainer_runtime(c->trainer), range, c->row[0]));
  if (!c->alone) return OT_OK;
  OT_TRY(ot_variant_read(ot_trainer_runtime(c->alone), range, c->row[1]));
  if (c->wide) OT_TRY(ot_variant_read(ot_trainer_runtime(c->wide), range, c->row[2]));
  for (int64_t i = 0; i < p->cols; i++) {
    const double a = c->row[0][i], b = c->row[1][i], w = c->wide ? c->row[2][i] : b;
    sum->rounded += (b - w) * (b - w);
    sum->ww += w * w;
    sum->ab += a * b;
    sum->aa += a * a;
    sum->bb += b * b;
    sum->dd += (a - b) * (a - b);
  }
  return OT_OK;
}

// A gradient in which terms cancel is rounded by more than the tolerance, on one rank too. Another
// order of summation may differ by a few times that.
static double allowed_of(const comparison *c, const products *sum) {
  static const double times = 3;
  return fmax(c->doubt, times * sqrt(sum->rounded / fmax(sum->ww, 1e-300)));
}

static void find(comparison *c, const ot_parameter *p, const products *sum, double difference) {
  enum { MOST_FINDINGS = 5 };
  if (c->findings++ >= MOST_FINDINGS) return;
  const double factor = sum->ab / sum->bb, cosine = sum->ab / sqrt(sum->aa * sum->bb);
  const bool scaled = cosine > 1 - 1e-4;
  ot_audit_find(c->report, scaled ? "gradient_scale" : "gradient_direction", p->name,
                scaled ? "a scale is missing or applied twice: compare the factor with the degrees "
                         "and with the number of micro-batches"
                       : "a reduction over an axis is missing, or its parts have wrong weights",
                "the gradient of this layout is %.6g times that of one rank, cosine %.6g, relative "
                "difference %.3g (allowed: %.3g)",
                factor, cosine, difference, allowed_of(c, sum));
}

// Vectors are compared whole, matrices at some rows.
static ot_status compare_parameter(comparison *c, int parameter) {
  const ot_parameter *const p = &whole_of(c)->parameters[parameter];
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
  if (!(difference <= allowed_of(c, &sum))) find(c, p, &sum, difference);
  c->figures->undecided |= !(difference <= c->tolerance);
  return OT_OK;
}

static ot_status compare_gradients(comparison *c) {
  const ot_graph *const graph = whole_of(c);
  for (int i = 0; i < graph->num_parameters; i++) {
    if (graph->parameters[i].tied_to < 0) OT_TRY(compare_parameter(c, i));
  }
  return OT_OK;
}

static void compare_loss(comparison *c) {
  const ot_reference_figures *const f = c->figures;
  if (fabs(f->loss - f->reference) <= c->tolerance * fabs(f->reference)) return;
  ot_audit_find(c->report, "loss_normalisation", "the loss of a step",
                "the loss must be the sum over all unmasked targets of the step divided by their "
                "number, not a mean of means over ranks or micro-batches",
                "%.10g on this layout, %.10g on one rank", f->loss, f->reference);
}

// ---- targets ----

// Fewest and most targets of the micro-batches of this rank's step.
static ot_status count_targets(const ot_trainer *trainer, int64_t counts[2]) {
  const ot_runtime *const runtime = ot_trainer_runtime(trainer);
  const ot_graph *const graph = ot_runtime_graph(runtime, OT_MODE_TRAIN);
  const ot_tensor_type type = ot_graph_batch_type(graph, OT_BATCH_TARGETS);
  const int64_t rows = ot_type_elements(&type);
  int32_t *const targets = malloc((size_t)rows * sizeof *targets);
  OT_CHECK(targets, OT_ENVIRONMENT, "out of memory for the targets of a micro-batch");
  for (int m = 0; m < ot_trainer_micro_batches(trainer); m++) {
    int64_t count = 0;
    ot_runtime_read_batch(runtime, OT_MODE_TRAIN, m, OT_BATCH_TARGETS, targets);
    for (int64_t i = 0; i < rows; i++) count += targets[i] >= 0;
    if (m == 0 || count < counts[0]) counts[0] = count;
    if (m == 0 || count > counts[1]) counts[1] = count;
  }
  free(targets);
  return OT_OK;
}

// With equal counts a mean of means equals the mean, so the check cannot detect it.
static ot_status compare_targets(const comparison *c) {
  ot_world *const world = ot_trainer_world(c->trainer);
  ot_arena *const arena = c->report->arena;
  ot_reference_figures *const f = c->figures;
  const int ranks = ot_world_size(world);
  int64_t *const fewest = ot_arena_array(arena, ranks, sizeof *fewest);
  int64_t *const most = ot_arena_array(arena, ranks, sizeof *most);
  int64_t counts[2] = {0, 0};
  OT_TRY(ot_world_agree(world, count_targets(c->trainer, counts)));
  OT_TRY(ot_world_allgather(world, counts[0], fewest));
  OT_TRY(ot_world_allgather(world, counts[1], most));
  f->fewest_targets = fewest[0];
  f->most_targets = most[0];
  for (int i = 1; i < ranks; i++) {
    if (fewest[i] < f->fewest_targets) f->fewest_targets = fewest[i];
    if (most[i] > f->most_targets) f->most_targets = most[i];
  }
  return OT_OK;
}

// ---- the audit ----

// Runs the step as one micro-batch if memory allows, so that interactions between micro-batches
// show; else with the run's micro-batches.
static ot_status create_alone(comparison *c) {
  const ot_run *const run = ot_trainer_run(c->trainer);
  const ot_position position = ot_trainer_position(c->trainer);
  const ot_variant variant = {c->trainer, &c->run, true, ot_trainer_get_hooks(c->trainer)};
  bool *const fits = &c->figures->compared;
  c->run = ot_variant_one_rank(c->trainer);
  c->run.batch.global_batch_size = ot_run_global_batch(run, position.step, position.tokens);
  c->run.batch.micro_batch_size = c->run.batch.global_batch_size;
  OT_TRY(ot_variant_fits(&variant, fits));
  if (!*fits) {
    c->run.batch.micro_batch_size = run->batch.micro_batch_size;
    OT_TRY(ot_variant_fits(&variant, fits));
  }
  if (!*fits) return OT_OK;
  OT_TRY(ot_variant_create(&variant, &c->alone));
  if (c->alone) ot_trainer_set_position(c->alone, &position);
  return OT_OK;
}

// With wide weights, if the run's are narrow and memory allows.
static ot_status create_wide(comparison *c) {
  const ot_position position = ot_trainer_position(c->trainer);
  const ot_variant variant = {c->trainer, &c->wide_run, true, ot_trainer_get_hooks(c->trainer)};
  bool fits = false;
  if (c->run.precision.params != OT_BF16) return OT_OK;
  c->wide_run = c->run;
  c->wide_run.precision.params = OT_F32;
  OT_TRY(ot_variant_fits(&variant, &fits));
  if (!fits) return OT_OK;
  OT_TRY(ot_variant_create(&variant, &c->wide));
  if (c->wide) ot_trainer_set_position(c->wide, &position);
  return OT_OK;
}

static ot_status step_and_compare(comparison *c) {
  ot_step_report step, alone = {0}, wide;
  OT_TRY(ot_trainer_step(c->trainer, &step));
  OT_TRY(compare_targets(c));
  OT_TRY(ot_world_agree(ot_trainer_world(c->trainer),
                        c->alone ? ot_trainer_step(c->alone, &alone) : OT_OK));
  OT_TRY(ot_world_agree(ot_trainer_world(c->trainer),
                        c->wide ? ot_trainer_step(c->wide, &wide) : OT_OK));
  c->figures->loss = step.loss;
  c->figures->reference = alone.loss;
  OT_TRY(compare_gradients(c));
  if (c->alone) compare_loss(c);
  return OT_OK;
}

ot_status ot_reference_compare(ot_trainer *trainer, ot_audit_report *report,
                               ot_reference_figures *figures) {
  *figures = (ot_reference_figures){0};
  comparison c = {.trainer = trainer,
                  .report = report,
                  .figures = figures,
                  .tolerance = ot_reference_tolerance(ot_trainer_run(trainer)),
                  .doubt = ot_reference_limit(ot_trainer_run(trainer))};
  for (int i = 0; i < OT_COUNT(c.row); i++) {
    c.row[i] = ot_arena_array(report->arena, ot_graph_widest_row(whole_of(&c)), sizeof(double));
  }
  ot_status status = create_alone(&c);
  if (status == OT_OK && figures->compared) status = create_wide(&c);
  if (status == OT_OK && figures->compared) status = step_and_compare(&c);
  ot_trainer_destroy(&c.alone);
  ot_trainer_destroy(&c.wide);
  return status;
}
