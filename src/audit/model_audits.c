// SPDX-License-Identifier: Apache-2.0
// How much each audit looks at.
#include "audit/model_audits.h"

#include "audit/causality.h"
#include "audit/drift.h"
#include "audit/precision.h"

enum { TRIALS = 16, DRIFT_TOKENS = 128 };

static ot_status audit_causality(const ot_model_audit_request *q, ot_arena *arena,
                                 ot_audit_report *report) {
  const ot_causality_request request = {.trainer = q->trainer,
                                        .team = ot_trainer_team(q->trainer),
                                        .trials = TRIALS,
                                        .seed = q->seed};
  return ot_audit_causality(&request, arena, report);
}

static ot_status audit_drift(const ot_model_audit_request *q, ot_arena *arena,
                             ot_audit_report *report) {
  const ot_drift_request request = {
      .trainer = q->trainer, .team = ot_trainer_team(q->trainer), .tokens = DRIFT_TOKENS};
  return ot_audit_drift(&request, arena, report);
}

// Gradients are summed over data and context parallelism.
static ot_status audit_precision(const ot_model_audit_request *q, ot_arena *arena,
                                 ot_audit_report *report) {
  ot_team *const team = ot_trainer_team(q->trainer);
  const int live = ot_team_data_degree(team) * ot_team_degree(team, OT_AXIS_CP);
  const ot_precision_request request = {.trainer = q->trainer,
                                        .team = team,
                                        .ranks = q->planned_ranks > 0 ? q->planned_ranks : live,
                                        .seed = q->seed};
  return ot_audit_precision(&request, arena, report);
}

ot_status ot_audit_model(const ot_model_audit_request *request, ot_arena *arena,
                         ot_audit_report *report) {
  switch (request->check) {
    case OT_AUDIT_CAUSALITY:
      return audit_causality(request, arena, report);
    case OT_AUDIT_PRECISION:
      return audit_precision(request, arena, report);
    case OT_AUDIT_DRIFT:
      return audit_drift(request, arena, report);
    case OT_AUDIT_RANKS:
    case OT_AUDIT_OVERLAP:
    case OT_AUDIT_STATE:
      break;
  }
  OT_UNREACHABLE();
}
