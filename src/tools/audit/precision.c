// SPDX-License-Identifier: Apache-2.0
// `audit precision`: whether the planned formats bias the reductions of training. Gradients of some
// micro-batches of the run's data represent the contributions of ranks. They are extrapolated to
// the planned number of ranks and micro-batches, and reduced as planned: over the micro-batches of
// a rank in the accumulation dtype, and over ranks in the communication dtype. A bias against the
// exact sum is distinguished from rounding noise by its t. Checks without data are in
// precision_lint.c.
//
// Gradients at another point of training have another signal-to-noise ratio: the verdict holds for
// the current weights.
#include "audit/audit.h"
#include "audit/bias.h"
#include "audit/contributions.h"
#include "base/text.h"
#include "base/text_builder.h"

// With fewer terms than FEW_TERMS all summation orders are alike. A class of tensors draws at most
// MOST_DRAWN terms, for which sums of more than MOST_DRAWN / ELEMENTS terms have fewer elements,
// though not fewer than LEAST_ELEMENTS.
enum {
  MICRO_BATCHES = 8,
  ELEMENTS = 1024,
  LEAST_ELEMENTS = 32,
  MOST_DRAWN = 1 << 22,
  FEW_TERMS = 16
};

// One reduction of a step.
typedef struct planned_sum {
  const char *name, *what;  // what: the cause if biased; null: for comparison only
  const ot_format *format;
  ot_reduction_kind kind;
  int64_t terms;
  double scale;  // of each term: a rank contributes a sum of micro-batches
} planned_sum;

enum { MOST_SUMS = 8 };

typedef struct precision_audit {
  ot_audit_report *report;
  const ot_run *run;
  int64_t ranks;  // planned ranks of the gradient reduction
  ot_contributions contributions;
  int64_t accumulated;   // micro-batches per rank and step
  int num_sums, judged;  // judged: also per class of tensors
  planned_sum sums[MOST_SUMS];
  int64_t most_terms;
  double *drawn, *terms;  // [most_terms]
  double result[MOST_SUMS][ELEMENTS], exact[MOST_SUMS][ELEMENTS];
  ot_text_builder table;
  ot_json_writer json;
} precision_audit;

// ---- the planned reductions ----

static void add_sum(precision_audit *p, planned_sum sum) {
  if (sum.terms < 2) return;
  if (sum.terms > p->most_terms) p->most_terms = sum.terms;
  p->sums[p->num_sums++] = sum;
}

// The planned ones; then the alternatives for the reduction over ranks in bf16.
static void list_sums(precision_audit *p) {
  const ot_run_precision *const precision = &p->run->precision;
  const bool wire = precision->sum == OT_SUM_WIRE;
  planned_sum ranks = {.name = "ranks",
                       .what = "biased_reduction",
                       .format = ot_format_of(precision->reduce),
                       .kind = wire ? OT_SUM_RING : OT_SUM_EXACT_PARTS,
                       .terms = p->ranks,
                       .scale = (double)p->accumulated};
  add_sum(p, (planned_sum){.name = "micro-batches",
                           .what = "biased_accumulation",
                           .format = ot_format_of(precision->gradients),
                           .kind = OT_SUM_RING,
                           .terms = p->accumulated,
                           .scale = 1});
  add_sum(p, ranks);
  if (ranks.terms < FEW_TERMS) return;
  const planned_sum planned = ranks;
  ranks.name = "ranks, for comparison";
  ranks.what = NULL;
  ranks.format = &ot_format_bf16;
  for (int kind = 0; kind < OT_SUM_KINDS; kind++) {
    ranks.kind = (ot_reduction_kind)kind;
    const bool shown = planned.format == ranks.format && planned.kind == ranks.kind;
    if (!shown) add_sum(p, ranks);
  }
}

// ---- reductions ----

// Sums over ranks differ in their algorithm, so several have the same exact sum.
static bool same_terms(const planned_sum *a, const planned_sum *b) {
  return a->format == b->format && a->terms == b->terms && a->scale == b->scale;
}

static double exact_sum(const precision_audit *p, int index, int64_t element) {
  const planned_sum *const sum = &p->sums[index];
  for (int i = 0; i < index; i++) {
    if (same_terms(sum, &p->sums[i])) return p->exact[i][element];
  }
  return ot_reduction_exact(sum->format, p->terms, sum->terms);
}

static void sum_element(precision_audit *p, ot_gradient_class class, int64_t element) {
  ot_contributions_draw(&p->contributions, class, element, p->most_terms, p->drawn);
  for (int i = 0; i < p->num_sums; i++) {
    const planned_sum *const sum = &p->sums[i];
    for (int64_t k = 0; k < sum->terms; k++) p->terms[k] = p->drawn[k] * sum->scale;
    p->exact[i][element] = exact_sum(p, i, element);
    p->result[i][element] = ot_reduction_emulate(sum->kind, sum->format, p->terms, sum->terms);
  }
}

static void note(precision_audit *p, const planned_sum *sum, ot_gradient_class class,
                 const ot_bias *bias) {
  ot_text_appendf(&p->table, "  %-22s %-5s %-8s %7lld  %-14s %10.3g %9.3g %9.3g %9.2g\n", sum->name,
                  sum->format->name, ot_reduction_kind_name(sum->kind), (long long)sum->terms,
                  ot_gradient_class_name(class), bias->slope, bias->mean_ulp, bias->t, bias->rms);
  ot_json_object(&p->json, NULL);
  ot_json_text(&p->json, "sum", sum->name);
  ot_json_text(&p->json, "format", sum->format->name);
  ot_json_text(&p->json, "algorithm", ot_reduction_kind_name(sum->kind));
  ot_json_integer(&p->json, "terms", sum->terms);
  ot_json_text(&p->json, "tensors", ot_gradient_class_name(class));
  ot_json_integer(&p->json, "elements", bias->count);
  ot_json_real(&p->json, "slope", bias->slope);
  ot_json_real(&p->json, "mean_ulp", bias->mean_ulp);
  ot_json_real(&p->json, "t", bias->t);
  ot_json_real(&p->json, "relative_rms", bias->rms);
  ot_json_end(&p->json);
}

static void find(precision_audit *p, const planned_sum *sum, ot_gradient_class class,
                 const ot_bias *bias) {
  ot_audit_find(
      p->report, sum->what,
      ot_arena_format(p->report->arena, "reduction over %lld %s in %s, %s", (long long)sum->terms,
                      sum->name, sum->format->name, ot_gradient_class_name(class)),
      "accumulate in fp32 (accumulate: wide): the same bytes sent, no bias",
      "predicted from %d micro-batches: the sum keeps %.4g of the signal (slope %+.3g "
      "%%), biased by %+.3g ulp (t = %.3g over %lld elements); noise %.2g",
      p->contributions.micro_batches, 1 + bias->slope, 100 * bias->slope, bias->mean_ulp, bias->t,
      (long long)bias->count, bias->rms);
}

static ot_status judge(precision_audit *p, int index, ot_gradient_class class) {
  const planned_sum *const sum = &p->sums[index];
  const ot_bias_request request = {.result = p->result[index],
                                   .exact = p->exact[index],
                                   .count = p->contributions.count[class],
                                   .format = sum->format};
  ot_bias bias;
  OT_TRY(ot_bias_measure(&request, &bias));
  p->judged += bias.count > 1;
  note(p, sum, class, &bias);
  if (sum->what && ot_bias_judge(&bias) == OT_BIAS_FOUND) find(p, sum, class, &bias);
  return OT_OK;
}

static ot_status try_sums(precision_audit *p) {
  const int64_t affordable = MOST_DRAWN / (p->most_terms > 0 ? p->most_terms : 1);
  const int64_t most = affordable > LEAST_ELEMENTS ? affordable : LEAST_ELEMENTS;
  for (int class = 0; class < OT_GRADIENT_CLASSES; class ++) {
    int64_t *const count = &p->contributions.count[class];
    if (*count > most) *count = most;
    if (*count < 2) continue;
    for (int64_t i = 0; i < *count; i++) sum_element(p, (ot_gradient_class) class, i);
    for (int i = 0; i < p->num_sums; i++) OT_TRY(judge(p, i, (ot_gradient_class) class));
  }
  return OT_OK;
}

// ---- the audit ----

static ot_status run_checks(precision_audit *p) {
  ot_arena *const arena = p->report->arena;
  ot_text_appendf(&p->table, "  %-22s %-5s %-8s %7s  %-14s %10s %9s %9s %9s\n", "reduction over",
                  "in", "by", "terms", "tensors", "slope", "ulp", "t", "noise");
  p->json = ot_json_begin(arena, 0);
  ot_json_object(&p->json, NULL);
  ot_json_array(&p->json, "sums");
  list_sums(p);
  p->drawn = ot_arena_array(arena, p->most_terms + 1, sizeof *p->drawn);
  p->terms = ot_arena_array(arena, p->most_terms + 1, sizeof *p->terms);
  OT_TRY(try_sums(p));
  ot_json_end(&p->json);
  ot_json_end(&p->json);
  p->report->table = ot_text_builder_text(&p->table);
  p->report->figures = p->json.text;
  p->report->summary = ot_arena_format(
      arena, "gradients of %d micro-batches, extrapolated to %lld rank%s of %lld micro-batch%s",
      MICRO_BATCHES, (long long)p->ranks, ot_text_plural(p->ranks, "s"), (long long)p->accumulated,
      ot_text_plural(p->accumulated, "es"));
  if (p->judged > 0) return OT_OK;
  ot_audit_inconclusive(p->report, p->num_sums > 0
                                       ? "no tensor has gradients to compare"
                                       : "there is no reduction; give the planned number of ranks");
  return OT_OK;
}

// Global batch in sequences over one micro-batch on all ranks.
static int64_t count_accumulated(const ot_run *run, int64_t ranks) {
  const int64_t round = run->batch.micro_batch_size * ranks;
  const int64_t count = run->batch.global_batch_size / round;
  return count > 1 ? count : 1;
}

// Gradients are reduced over data and context parallelism.
static int64_t ranks_of(const ot_audit_request *request) {
  ot_world *const world = ot_trainer_world(request->trainer);
  if (request->planned_ranks > 0) return request->planned_ranks;
  return ot_world_data_degree(world) * ot_world_degree(world, OT_AXIS_CP);
}

ot_status ot_audit_precision(const ot_audit_request *request, ot_arena *arena,
                             ot_audit_report *report) {
  *report = (ot_audit_report){.audit = "precision", .arena = arena};
  ot_world *const world = ot_trainer_world(request->trainer);
  const ot_run *const run = ot_trainer_run(request->trainer);
  const int64_t ranks = ranks_of(request);
  precision_audit *const p = ot_arena_array(arena, 1, sizeof *p);
  *p = (precision_audit){.report = report,
                         .run = run,
                         .ranks = ranks,
                         .accumulated = count_accumulated(run, ranks),
                         .table = {.arena = arena}};
  const ot_contributions_request wanted = {.trainer = request->trainer,
                                           .micro_batches = MICRO_BATCHES,
                                           .elements = ELEMENTS,
                                           .seed = request->seed};
  ot_precision_lint(run, report);
  OT_TRY(ot_contributions_read(&wanted, arena, &p->contributions));
  return ot_world_agree(world, ot_world_is_leader(world) ? run_checks(p) : OT_OK);
}
