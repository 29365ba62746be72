// SPDX-License-Identifier: Apache-2.0
// Only the reports of rank 0 are used; all ranks continue or stop together.
#include "support/user_audits.h"

#include <stdio.h>
#include <string.h>

#include "audit/audit.h"
#include "audit/state_watch.h"
#include "runtime/health.h"
#include "support/scratch.h"

enum { CAUSALITY_TRIALS = 3, DRIFT_TOKENS = 16 };

const char *user_stage_name(user_stage stage) {
  static const char *const names[] = {"settings", "start",     "step",     "ranks",  "causality",
                                      "drift",    "precision", "training", "nothing"};
  return names[stage];
}

typedef struct session {
  const user_request *request;
  user_report *report;
  char directory[SCRATCH_BYTES];
  user_stage stage;  // that is running
} session;

typedef struct place {
  session *s;
  audit_rank *rank;
  ot_arena *arena;
  const char *checkpoint;
} place;

// ---- stages ----

static ot_status look(const place *p, user_stage stage, ot_audit_report *report) {
  static const ot_audit_call calls[] = {[USER_STEP] = ot_audit_step,
                                        [USER_RANKS] = ot_audit_ranks,
                                        [USER_CAUSALITY] = ot_audit_causality,
                                        [USER_DRIFT] = ot_audit_drift,
                                        [USER_PRECISION] = ot_audit_precision};
  const user_request *const q = p->s->request;
  const ot_audit_request request = {.trainer = p->rank->trainer,
                                    .seed = stage == USER_PRECISION ? 3 : 7,
                                    .trials = CAUSALITY_TRIALS,
                                    .tokens = DRIFT_TOKENS,
                                    .planned_ranks = q->planned_ranks,
                                    .steps = 1,
                                    .checkpoint = p->checkpoint,
                                    .amend_rows = q->swapped,
                                    .amend_model = q->decoder,
                                    .amend_files = q->exported};
  return calls[stage](&request, p->arena, report);
}

// Copies the first finding of rank 0, if any, into the report; sets *found on all ranks.
static ot_status conclude(const place *p, user_stage stage, const ot_audit_report *report,
                          bool *found) {
  double count = ot_world_is_leader(p->rank->world) ? report->num_findings : 0;
  if (count > 0) {
    const ot_finding *const f = &report->findings[0];
    p->s->report->stage = stage;
    snprintf(p->s->report->text, sizeof p->s->report->text, "%s: %s: %s", f->what, f->where,
             f->evidence);
  }
  if (ot_world_is_leader(p->rank->world) && report->verdict == OT_VERDICT_INCONCLUSIVE) {
    p->s->report->inconclusive++;
  }
  OT_TRY(ot_world_allreduce(p->rank->world, &count, 1));
  *found = count > 0;
  return OT_OK;
}

// ---- training ----

static void note_spike(const place *p, const char *what, const ot_step_report *step, double z) {
  if (!ot_world_is_leader(p->rank->world)) return;
  p->s->report->stage = USER_TRAINING;
  snprintf(p->s->report->text, sizeof p->s->report->text, "spike: %s at step %lld: z = %.3g", what,
           (long long)step->step, z);
}

// The hashes of the previous step must still hold before the update.
static ot_status note_state(const place *p, ot_state_watch *watch, bool *found) {
  ot_loop_findings findings = {0};
  OT_TRY(ot_state_watch_report(watch, p->arena, &findings));
  if (findings.count == 0) return OT_OK;
  *found = true;
  if (!ot_world_is_leader(p->rank->world)) return OT_OK;
  p->s->report->stage = USER_TRAINING;
  snprintf(p->s->report->text, sizeof p->s->report->text, "state: %s", findings.worst);
  return OT_OK;
}

static ot_status take_steps(const place *p, ot_state_watch *watch, bool *found) {
  ot_spike_monitor loss = {0}, norm = {0};
  for (int i = 0; i < p->s->request->training_steps && !*found; i++) {
    ot_step_report step;
    ot_state_watch_take(watch);
    OT_TRY(ot_trainer_step(p->rank->trainer, &step));
    OT_TRY(note_state(p, watch, found));
    if (ot_spike_add(&loss, step.loss)) {
      note_spike(p, "loss", &step, loss.z);
      *found = true;
    } else if (ot_spike_add(&norm, step.gradient_norm)) {
      note_spike(p, "gradient norm", &step, norm.z);
      *found = true;
    }
  }
  return OT_OK;
}

static void before_update(void *watch) { ot_state_watch_before_update(watch); }

static ot_status train(const place *p, bool *found) {
  ot_state_watch *watch = NULL;
  OT_TRY(ot_state_watch_create(p->rank->trainer, &watch));
  const ot_executor_pause pause = {OT_PHASE_UPDATE, before_update, watch};
  ot_executor_set_pause(ot_runtime_executor(ot_trainer_runtime(p->rank->trainer)), &pause);
  const ot_status status = take_steps(p, watch, found);
  ot_executor_set_pause(ot_runtime_executor(ot_trainer_runtime(p->rank->trainer)), NULL);
  ot_state_watch_destroy(&watch);
  OT_TRY(status);
  if (*found || p->s->request->training_steps == 0) return OT_OK;
  ot_audit_report report = {0};
  OT_TRY(look(p, USER_RANKS, &report));
  return conclude(p, USER_TRAINING, &report, found);
}

// ---- the session ----

static ot_status begin(place *p) {
  const user_request *const q = p->s->request;
  ot_step_report step;
  if (q->created) q->created(p->rank->trainer, q->created_context);
  if (p->rank->rank == 0) p->s->stage = USER_TRAINING;
  if (!q->resumes) return OT_OK;
  OT_TRY(audit_step(p->rank, &step));
  OT_TRY(audit_step(p->rank, &step));
  p->checkpoint = ot_arena_format(p->arena, "%s/checkpoint", p->s->directory);
  OT_TRY(ot_trainer_save(p->rank->trainer, p->checkpoint));
  return ot_trainer_resume(p->rank->trainer, p->checkpoint);
}

static ot_status go_through(place *p) {
  bool found = false;
  OT_TRY(begin(p));
  for (int i = USER_STEP; i < USER_TRAINING && !found; i++) {
    // Replica audit first, unless there is a checkpoint to compare with.
    const bool turned = !p->checkpoint && (i == USER_STEP || i == USER_RANKS);
    const int stage = turned ? USER_STEP + USER_RANKS - i : i;
    ot_audit_report report = {0};
    if (p->rank->rank == 0) p->s->stage = (user_stage)stage;
    OT_TRY(look(p, (user_stage)stage, &report));
    OT_TRY(conclude(p, (user_stage)stage, &report, &found));
  }
  if (p->rank->rank == 0) p->s->stage = USER_TRAINING;
  return found ? OT_OK : train(p, &found);
}

static ot_status body(audit_rank *rank) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  place p = {.s = rank->context, .rank = rank, .arena = &arena};
  const ot_status status = go_through(&p);
  ot_heap_release(&heap);
  return status;
}

// Rejects settings that no data could make valid, before the run.
static void check_settings(ot_run *run, void *context) {
  session *const s = context;
  const audit_request *const wanted = &s->request->run;
  if (wanted->settings) wanted->settings(run, wanted->settings_context);
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_audit_report report = {.arena = &arena};
  ot_precision_lint(run, &report);
  if (report.num_findings > 0) {
    s->report->stage = USER_SETTINGS;
    snprintf(s->report->text, sizeof s->report->text, "%s: %s", report.findings[0].what,
             report.findings[0].evidence);
  }
  ot_heap_release(&heap);
}

user_report user_audits(const user_request *request) {
  user_report report = {.stage = USER_NOTHING};
  session s = {.request = request, .report = &report, .stage = USER_START};
  audit_request run = request->run;
  run.settings = check_settings;
  run.settings_context = &s;
  scratch_create(s.directory);
  const ot_status status = audit_run(&run, body, &s);
  scratch_destroy(s.directory);
  if (status != OT_OK && report.stage == USER_NOTHING) {
    report.stage = status == OT_NUMERIC ? USER_TRAINING : s.stage;
    snprintf(report.text, sizeof report.text, "%s", ot_fail_message());
  }
  return report;
}
