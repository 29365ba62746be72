// SPDX-License-Identifier: Apache-2.0
// When replicas are compared, and what is said of it.
#include "audit/audit_ranks.h"

#include "audit/one_rank.h"
#include "audit/reference.h"
#include "base/text.h"

static ot_replica_moment moment_of(const ot_trainer *trainer, int64_t seed) {
  const ot_position position = ot_trainer_position(trainer);
  return (ot_replica_moment){.micro_batches = ot_trainer_micro_batches(trainer),
                             .words = {[OT_WORD_SEED] = seed,
                                       [OT_WORD_STEP] = position.step,
                                       [OT_WORD_NEXT_SAMPLE] = position.next_sample,
                                       [OT_WORD_TOKENS] = position.tokens}};
}

static int64_t seed_of(const ot_trainer *trainer) {
  return (int64_t)ot_instance_shape(ot_trainer_instance(trainer))->request.seed;
}

static ot_status look(const ot_trainer *trainer, ot_replicas *replicas, ot_arena *arena,
                      ot_audit_report *report) {
  const ot_replica_moment moment = moment_of(trainer, seed_of(trainer));
  return ot_replicas_compare(replicas, &moment, arena, report);
}

static ot_status create(const ot_trainer *trainer, const ot_team *team, ot_replicas **out) {
  const bool many = ot_team_size(team) > 1;
  return ot_replicas_create(ot_trainer_instance(trainer), many ? ot_team_mesh(team) : NULL,
                            many ? ot_team_comm(team) : NULL, out);
}

// ---- the command ----

// What one audit saw.
typedef struct course {
  ot_trainer *trainer;
  ot_replicas *replicas;
  int steps;  // to take
  int looks, ranks;
  int64_t first_step, last_step;
  double seconds;  // of all looks
  ot_replica_figures figures;
  ot_reference_figures reference;
  double rate;  // largest learning rate of the steps
} course;

static void note_reference(const ot_reference_figures *f, ot_json_writer *json, ot_arena *arena,
                           ot_audit_report *report) {
  ot_json_real(json, "one_rank_difference", f->largest);
  ot_json_integer(json, "fewest_targets", f->fewest_targets);
  ot_json_integer(json, "most_targets", f->most_targets);
  const bool equal = f->fewest_targets == f->most_targets;
  report->table = ot_arena_format(
      arena,
      "  one rank makes of the next step: loss %.9g beside %.9g, gradients within %.2g;\n"
      "  micro-batches of %lld to %lld targets%s\n",
      f->reference, f->loss, f->largest, (long long)f->fewest_targets, (long long)f->most_targets,
      equal ? ": as many in each, so that a mean of means would not show" : "");
}

static void summarize(const course *c, ot_arena *arena, ot_audit_report *report) {
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
  if (c->reference.compared) note_reference(&c->reference, &json, arena, report);
  ot_json_end(&json);
  report->figures = json.text;
  if (c->ranks == 1) return;
  report->summary = ot_arena_format(
      arena,
      "%d ranks, after steps %lld to %lld: %.4g MB with replicas, %.4g MB without; %.3g ms a look",
      c->ranks, (long long)c->first_step, (long long)c->last_step, compared * 1e-6, single * 1e-6,
      c->seconds / c->looks * 1e3);
}

static ot_status take_looks(course *c, ot_arena *arena, ot_audit_report *report) {
  c->first_step = ot_trainer_position(c->trainer).step;
  for (c->looks = 0; c->looks <= c->steps && report->num_findings == 0; c->looks++) {
    ot_step_report step;
    if (c->looks > 0) {
      OT_TRY(ot_trainer_step(c->trainer, &step));
      c->rate = step.learning_rate > c->rate ? step.learning_rate : c->rate;
    }
    OT_TRY(look(c->trainer, c->replicas, arena, report));
    c->figures = ot_replicas_figures(c->replicas);
    c->seconds += c->figures.seconds;
  }
  c->last_step = ot_trainer_position(c->trainer).step;
  return OT_OK;
}

// A bias of keys adds the same to all scores of a query, which softmax does not see: but for
// rounding it has no gradient.
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

// A tensor that a step has not moved by one part in 10^12 has no gradient, or is not updated.
static ot_status check_moved(const course *c, ot_arena *arena, ot_audit_report *report) {
  ot_health health;
  const ot_graph *const graph = ot_instance_whole(ot_trainer_instance(c->trainer));
  if (c->rate <= 0) return OT_OK;
  OT_TRY(ot_trainer_health(c->trainer, arena, &health));
  for (int i = 0; i < health.num_tensors; i++) {
    if (health.update_ratio[i].value > 1e-12 || !moves(graph, i)) continue;
    const ot_finding finding = {
        .what = "never_moved",
        .where = health.update_ratio[i].name,
        .evidence = ot_arena_format(arena, "|update| / |weight| is %.3g, |gradient| %.3g",
                                    health.update_ratio[i].value, health.gradient_norm[i].value),
        .advice = "is it used, is its gradient summed, has its group a learning rate?"};
    ot_audit_report_add(report, &finding, arena);
  }
  return OT_OK;
}

// What one rank with all the memory makes of the next step.
static ot_status check_reference(course *c, ot_team *team, ot_arena *arena,
                                 ot_audit_report *report) {
  const ot_reference_request request = {
      .trainer = c->trainer, .team = team, .most_bytes = ot_audit_bytes(c->trainer)};
  if (c->ranks == 1 || report->num_findings > 0) return OT_OK;
  return ot_reference_compare(&request, arena, report, &c->reference);
}

// What was not compared, or not decided.
static void leave_open(const course *c, ot_arena *arena, ot_audit_report *report) {
  const ot_reference_figures *const f = &c->reference;
  if (c->ranks == 1) {
    const char *const why = "one rank has no replicas; give --ranks N or start it under mpirun";
    ot_audit_report_leave_open(report, why, arena);
    return;
  }
  if (c->figures.compared_bytes == 0) {
    ot_audit_report_leave_open(report,
                               "no weight and no optimizer state has a replica on this mesh; "
                               "scalars, counters and batches agree",
                               arena);
  }
  if (report->num_findings > 0) return;
  if (!f->compared) {
    ot_audit_report_leave_open(
        report, "the step was not compared with that of one rank, which lacks the memory for it",
        arena);
  } else if (f->tensors == 0) {
    ot_audit_report_leave_open(report, "no tensor has a gradient to compare with that of one rank",
                               arena);
  } else if (f->undecided) {
    ot_audit_report_leave_open(
        report,
        ot_arena_format(arena,
                        "gradients differ by up to %.2g from those of one rank, which may be "
                        "tokens that rounding sent to other experts: look again with "
                        "precision.compute=fp32",
                        f->largest),
        arena);
  }
}

ot_status ot_audit_ranks(ot_trainer *trainer, ot_team *team, int steps, ot_arena *arena,
                         ot_audit_report *report) {
  *report = (ot_audit_report){.audit = "ranks"};
  course c = {.trainer = trainer, .steps = steps, .ranks = ot_team_size(team)};
  OT_TRY(create(trainer, team, &c.replicas));
  const ot_status status = take_looks(&c, arena, report);
  ot_replicas_destroy(&c.replicas);
  OT_TRY(status);
  OT_TRY(check_moved(&c, arena, report));
  OT_TRY(check_reference(&c, team, arena, report));
  summarize(&c, arena, report);
  leave_open(&c, arena, report);
  return OT_OK;
}

// ---- within training ----

ot_status ot_ranks_watch_look(void *context, ot_trainer *trainer, ot_arena *arena,
                              ot_loop_findings *findings) {
  ot_ranks_watch *const watch = context;
  ot_audit_report report = {.audit = "ranks"};
  if (!watch->replicas) OT_TRY(create(trainer, watch->team, &watch->replicas));
  OT_TRY(look(trainer, watch->replicas, arena, &report));
  *findings = (ot_loop_findings){.audit = report.audit, .count = report.num_findings};
  if (report.num_findings == 0) return OT_OK;
  const ot_finding *const first = &report.findings[0];
  findings->text = ot_audit_report_print(&report, arena);
  findings->worst = ot_arena_format(arena, "%s, %s", first->where, first->evidence);
  return OT_OK;
}
