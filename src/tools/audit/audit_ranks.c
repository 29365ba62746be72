// SPDX-License-Identifier: Apache-2.0
// `audit ranks`: compares replicas before the trainer's next step and after each following step, up
// to the first finding. Then checks that every tensor was updated and, where one rank has the
// memory, that one rank computes the same step (reference.h).
#include "audit/audit.h"
#include "audit/reference.h"
#include "audit/replicas.h"

enum { STEPS = 2 };

// The observations of one audit.
typedef struct course {
  ot_trainer *trainer;
  ot_replicas *replicas;
  ot_audit_report *report;
  int steps;  // to take
  int looks, ranks;
  int64_t first_step, last_step;
  double seconds;  // of all comparisons
  ot_replica_figures figures;
  ot_reference_figures reference;
  double rate;  // largest learning rate of the steps
} course;

static void note_reference(const course *c, ot_json_writer *json) {
  const ot_reference_figures *const f = &c->reference;
  ot_json_real(json, "one_rank_difference", f->largest);
  ot_json_integer(json, "fewest_targets", f->fewest_targets);
  ot_json_integer(json, "most_targets", f->most_targets);
  const bool equal = f->fewest_targets == f->most_targets;
  c->report->table = ot_arena_format(
      c->report->arena,
      "  the next step on one rank: loss %.9g, here %.9g; gradients within %.2g;\n"
      "  micro-batches of %lld to %lld targets%s\n",
      f->reference, f->loss, f->largest, (long long)f->fewest_targets, (long long)f->most_targets,
      equal ? ": equal, so a mean of means would not be detected" : "");
}

static void summarize(const course *c) {
  ot_arena *const arena = c->report->arena;
  const double compared = (double)c->figures.compared_bytes,
               single = (double)c->figures.single_bytes;
  ot_json_writer json = ot_json_begin(arena, 0);
  ot_json_object(&json, NULL);
  ot_json_integer(&json, "ranks", c->ranks);
  ot_json_integer(&json, "looks", c->looks);
  ot_json_integer(&json, "first_step", c->first_step);
  ot_json_integer(&json, "last_step", c->last_step);
  ot_json_integer(&json, "compared_bytes", c->figures.compared_bytes);
  ot_json_integer(&json, "single_bytes", c->figures.single_bytes);
  ot_json_real(&json, "seconds_per_look", c->seconds / c->looks);
  if (c->reference.compared) note_reference(c, &json);
  ot_json_end(&json);
  c->report->figures = json.text;
  if (c->ranks == 1) return;
  c->report->summary =
      ot_arena_format(arena,
                      "%d ranks, after steps %lld to %lld: %.4g MB with replicas, %.4g MB without; "
                      "%.3g ms per check",
                      c->ranks, (long long)c->first_step, (long long)c->last_step, compared * 1e-6,
                      single * 1e-6, c->seconds / c->looks * 1e3);
}

static ot_status run_looks(course *c) {
  c->first_step = ot_trainer_position(c->trainer).step;
  for (c->looks = 0; c->looks <= c->steps && c->report->num_findings == 0; c->looks++) {
    ot_step_report step;
    if (c->looks > 0) {
      OT_TRY(ot_trainer_step(c->trainer, &step));
      c->rate = step.learning_rate > c->rate ? step.learning_rate : c->rate;
    }
    const ot_replica_moment moment = ot_replica_moment_of(c->trainer);
    OT_TRY(ot_replicas_compare(c->replicas, &moment, c->report));
    c->figures = ot_replicas_figures(c->replicas);
    c->seconds += c->figures.seconds;
  }
  c->last_step = ot_trainer_position(c->trainer).step;
  return OT_OK;
}

// A key bias adds the same to all scores of a query, and softmax is invariant to that: its gradient
// is zero up to rounding.
static bool moves(const ot_graph *graph, int tensor) {
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    if (tensor < p->num_parts) {
      const bool keys = tensor == 1 && p->num_parts == 3 && p->kind == OT_PARAMETER_VECTOR;
      return !keys && p->kind != OT_PARAMETER_BUFFER;
    }
    tensor -= p->num_parts;
  }
  return true;
}

// A tensor that a step changes by less than one part in 10^12 has no gradient or is not updated.
static ot_status check_moved(const course *c) {
  ot_health health;
  const ot_graph *const graph = ot_runtime_whole_graph(ot_trainer_runtime(c->trainer));
  if (c->rate <= 0) return OT_OK;
  OT_TRY(ot_trainer_health(c->trainer, c->report->arena, &health));
  for (int i = 0; i < health.num_tensors; i++) {
    const double ratio = health.update_ratio[i].value;
    if (ratio > 1e-12 || !moves(graph, i)) continue;
    ot_audit_find(c->report, "never_moved", health.update_ratio[i].name,
                  "check its use, the reduction of its gradient and its learning rate",
                  "|update| / |weight| is %.3g, |gradient| %.3g", ratio,
                  health.gradient_norm[i].value);
  }
  return OT_OK;
}

// Reports comparisons that were not made or not decided.
static void leave_open(const course *c) {
  const ot_reference_figures *const f = &c->reference;
  ot_audit_report *const report = c->report;
  if (c->ranks == 1) {
    ot_audit_inconclusive(report,
                          "one rank has no replicas; give --ranks N or start it under mpirun");
    return;
  }
  if (c->figures.compared_bytes == 0) {
    ot_audit_inconclusive(report,
                          "no weight and no optimizer state has a replica on this mesh; "
                          "scalars, counters and batches agree");
  }
  if (report->num_findings > 0) return;
  if (!f->compared) {
    ot_audit_inconclusive(
        report, "the step was not compared with that of one rank, which lacks the memory for it");
  } else if (f->tensors == 0) {
    ot_audit_inconclusive(report, "no tensor has a gradient to compare with that of one rank");
  } else if (f->undecided) {
    ot_audit_inconclusive(report,
                          "gradients differ by up to %.2g from those of one rank, which may be "
                          "tokens that rounding routed to other experts: repeat with "
                          "precision.compute=fp32",
                          f->largest);
  }
}

ot_status ot_audit_ranks(const ot_audit_request *request, ot_arena *arena,
                         ot_audit_report *report) {
  *report = (ot_audit_report){.audit = "ranks", .arena = arena};
  course c = {.trainer = request->trainer,
              .report = report,
              .steps = request->steps > 0 ? request->steps : STEPS,
              .ranks = ot_world_size(ot_trainer_world(request->trainer))};
  OT_TRY(ot_replicas_create(c.trainer, &c.replicas));
  const ot_status status = run_looks(&c);
  ot_replicas_destroy(&c.replicas);
  OT_TRY(status);
  OT_TRY(check_moved(&c));
  if (c.ranks > 1 && report->num_findings == 0) {
    OT_TRY(ot_reference_compare(c.trainer, report, &c.reference));
  }
  summarize(&c);
  leave_open(&c);
  return OT_OK;
}

ot_status ot_ranks_check(void *replicas, ot_trainer *trainer, ot_arena *arena,
                         ot_loop_findings *findings) {
  ot_replicas **const r = replicas;
  ot_audit_report report = {.audit = "ranks", .arena = arena};
  const ot_replica_moment moment = ot_replica_moment_of(trainer);
  if (!*r) OT_TRY(ot_replicas_create(trainer, r));
  OT_TRY(ot_replicas_compare(*r, &moment, &report));
  *findings = (ot_loop_findings){.audit = report.audit, .count = report.num_findings};
  if (report.num_findings == 0) return OT_OK;
  const ot_finding *const first = &report.findings[0];
  findings->text = ot_audit_report_print(&report);
  findings->worst = ot_arena_format(arena, "%s, %s", first->where, first->evidence);
  return OT_OK;
}
