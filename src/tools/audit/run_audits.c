// SPDX-License-Identifier: Apache-2.0
// Turns reports into the findings of a run.
#include <stdlib.h>

#include "audit/audit.h"
#include "audit/compute_check.h"
#include "audit/replicas.h"
#include "audit/state_watch.h"
#include "base/text.h"

enum { CHECKS = OT_AUDIT_COMPUTE + 1 };

// One audit of a model in its current state.
typedef struct model_watch {
  ot_audit_call call;
  bool noted;  // an inconclusive result was logged
} model_watch;

struct ot_run_audits {
  const ot_run *run;
  ot_trainer *trainer;  // since the begin
  ot_replicas *replicas;
  ot_state_watch *state;
  ot_compute_audit compute;
  model_watch models[CHECKS];
  int count;
  ot_loop_check checks[CHECKS];
};

// ---- models ----

// The leader's texts, on all ranks.
static ot_status share(ot_world *world, const ot_audit_report *report, ot_arena *arena,
                       ot_loop_findings *findings) {
  char worst[OT_WORLD_TEXT] = "";
  double count = ot_world_is_leader(world) ? report->num_findings : 0;
  OT_TRY(ot_world_allreduce(world, &count, 1));
  findings->count = (int)count;
  if (count == 0) return OT_OK;
  if (ot_world_is_leader(world)) {
    const ot_finding *const first = &report->findings[0];
    ot_text_format(worst, sizeof worst, "%s in %s, %s", first->what, first->where, first->evidence);
    findings->text = ot_audit_report_print(report);
  }
  OT_TRY(ot_world_broadcast(world, worst));
  findings->worst = ot_arena_format(arena, "%s", worst);
  return OT_OK;
}

// Every call draws other tokens and positions.
static ot_status check_model(void *context, ot_trainer *trainer, ot_arena *arena,
                             ot_loop_findings *findings) {
  model_watch *const w = context;
  ot_world *const world = ot_trainer_world(trainer);
  const int64_t step = ot_trainer_position(trainer).step;
  const ot_audit_request request = {.trainer = trainer,
                                    .seed = (uint64_t)(ot_trainer_run(trainer)->seed + step)};
  ot_audit_report report = {0};
  // Ranks may wait long for their leader.
  ot_world_set_timeout(world, 0);
  OT_TRY(w->call(&request, arena, &report));
  *findings = (ot_loop_findings){.audit = report.audit};
  if (report.verdict == OT_VERDICT_INCONCLUSIVE && !w->noted) {
    findings->note =
        ot_arena_format(arena, "the audit of %s is inconclusive: %s", report.audit, report.summary);
    w->noted = true;
  }
  return share(world, &report, arena, findings);
}

// ---- state ----

static ot_status check_state(void *context, ot_trainer *trainer, ot_arena *arena,
                             ot_loop_findings *findings) {
  ot_run_audits *const a = context;
  const int64_t step = ot_trainer_position(trainer).step;
  OT_TRY(ot_state_watch_report(a->state, arena, findings));
  if (step % ot_trainer_run(trainer)->audit.every == 0) ot_state_watch_take(a->state);
  return OT_OK;
}

// ---- before the updates of a step ----

static void before_update(void *context) {
  ot_run_audits *const a = context;
  const int64_t step = ot_trainer_position(a->trainer).step + 1;
  if (a->state) ot_state_watch_before_update(a->state);
  if (a->replicas && step % a->run->audit.every == 0) ot_replicas_before_update(a->replicas);
}

static void pause_steps(ot_run_audits *a, ot_trainer *trainer) {
  const ot_executor_pause pause = {OT_PHASE_UPDATE, before_update, a};
  a->trainer = trainer;
  ot_executor_set_pause(ot_runtime_executor(ot_trainer_runtime(trainer)), &pause);
}

static ot_status begin_ranks(void *context, ot_trainer *trainer) {
  ot_run_audits *const a = context;
  if (a->run->audit.every == 0) return OT_OK;
  pause_steps(a, trainer);
  return ot_replicas_create(trainer, &a->replicas);
}

static ot_status begin_state(void *context, ot_trainer *trainer) {
  ot_run_audits *const a = context;
  if (a->run->audit.every == 0) return OT_OK;
  pause_steps(a, trainer);
  OT_TRY(ot_state_watch_create(trainer, &a->state));
  ot_state_watch_take(a->state);
  return OT_OK;
}

static ot_status compare_ranks(void *context, ot_trainer *trainer, ot_arena *arena,
                               ot_loop_findings *findings) {
  ot_run_audits *const a = context;
  return ot_ranks_check(&a->replicas, trainer, arena, findings);
}

// ---- all ----

static ot_loop_check check_of(ot_run_audits *a, ot_audit_check check) {
  static const ot_audit_call calls[CHECKS] = {
      [OT_AUDIT_CAUSALITY] = ot_audit_causality,
      [OT_AUDIT_PRECISION] = ot_audit_precision,
      [OT_AUDIT_DRIFT] = ot_audit_drift,
  };
  if (check == OT_AUDIT_RANKS) {
    return (ot_loop_check){.run = compare_ranks, .begin = begin_ranks, .context = a};
  }
  if (check == OT_AUDIT_STATE) {
    return (ot_loop_check){.run = check_state, .begin = begin_state, .context = a, .follows = true};
  }
  if (check == OT_AUDIT_COMPUTE) {
    return (ot_loop_check){.run = ot_compute_check, .context = &a->compute};
  }
  a->models[check].call = calls[check];
  return (ot_loop_check){.run = check_model, .context = &a->models[check]};
}

ot_status ot_run_audits_create(const ot_run *run, ot_world *world, ot_run_audits **out) {
  ot_run_audits *const a = calloc(1, sizeof *a);
  OT_TRY(ot_world_agree(world, a ? OT_OK : ot_fail(OT_ENVIRONMENT, "out of memory for audits")));
  a->run = run;
  for (int check = 0; check < CHECKS; check++) {
    bool wanted = false;
    for (int64_t i = 0; i < run->audit.num_checks; i++) {
      wanted = wanted || (int)run->audit.checks[i] == check;
    }
    if (wanted) a->checks[a->count++] = check_of(a, (ot_audit_check)check);
  }
  *out = a;
  return OT_OK;
}

void ot_run_audits_destroy(ot_run_audits **audits) {
  if (!audits || !*audits) return;
  ot_replicas_destroy(&(*audits)->replicas);
  ot_state_watch_destroy(&(*audits)->state);
  free(*audits);
  *audits = NULL;
}

const ot_loop_check *ot_run_audits_checks(const ot_run_audits *audits, int *count) {
  *count = audits->count;
  return audits->checks;
}
