// SPDX-License-Identifier: Apache-2.0
// All ranks have the same checks, and the same number of findings.
#include "train/live_checks.h"

#include "host/clock.h"
#include "host/heap.h"

static ot_status check_once(ot_session *s, int64_t step, const ot_loop_check *check,
                            ot_arena *arena) {
  ot_loop_findings found = {0};
  OT_TRY(check->run(check->context, s->start.trainer, arena, &found));
  if (!found.audit) return OT_OK;
  if (ot_session_leads(s) && found.note) ot_loop_note(s->request, "%s", found.note);
  if (ot_session_leads(s)) ot_step_log_audit(s, step, &found);
  if (found.count == 0) return OT_OK;
  ot_fail(OT_FINDINGS, "step %lld: the audit of %s found %d: %s", (long long)step, found.audit,
          found.count, found.worst);
  return ot_fail_hint(OT_FINDINGS,
                      "the step was not saved; the same command resumes from the "
                      "checkpoint before it");
}

static ot_status check_all(ot_session *s, int64_t step, ot_arena *arena) {
  const int64_t every = s->run->audit.every;
  for (int i = 0; i < s->request->num_checks; i++) {
    const ot_loop_check *const check = &s->request->checks[i];
    const bool step_after = check->follows && step > 1 && ot_session_due(step - 1, every);
    if (step_after || ot_session_due(step, every)) OT_TRY(check_once(s, step, check, arena));
  }
  return OT_OK;
}

ot_status ot_live_checks_begin(const ot_session *s) {
  for (int i = 0; i < s->request->num_checks; i++) {
    const ot_loop_check *const check = &s->request->checks[i];
    if (check->begin) OT_TRY(check->begin(check->context, s->start.trainer));
  }
  return OT_OK;
}

ot_status ot_live_checks_run(ot_session *s, int64_t step) {
  const double begin_s = ot_clock_s();
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = check_all(s, step, &arena);
  ot_heap_release(&heap);
  if (status == OT_OK && s->request->num_checks > 0 && ot_session_due(step, s->run->audit.every))
    ot_loop_log_timed(&s->start, OT_RUN_EVENT_AUDIT, step, begin_s);
  return status;
}
