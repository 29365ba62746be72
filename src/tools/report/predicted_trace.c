// SPDX-License-Identifier: Apache-2.0
// Actions are on the compute lane of their stage; gaps are waiting times.
#include <math.h>

#include "base/text.h"
#include "host/heap.h"
#include "record/trace.h"
#include "report/plan_report.h"

typedef struct tracing {
  const ot_candidate *candidate;
  ot_replayed_step step;
  ot_trace *trace;
  bool split;  // weight gradients are separate actions
} tracing;

static int rank_of(const tracing *t, int stage) {
  return stage * t->candidate->tp * t->candidate->cp * t->candidate->dp;
}

static ot_phase phase_of(const tracing *t, ot_replayed_kind kind) {
  switch (kind) {
    case OT_REPLAYED_FORWARD:
      return OT_PHASE_FORWARD;
    case OT_REPLAYED_BACKWARD:
      return t->split ? OT_PHASE_INPUT : OT_PHASE_BACKWARD;
    case OT_REPLAYED_WEIGHT:
      return OT_PHASE_WEIGHT;
    case OT_REPLAYED_UPDATE:
      return OT_PHASE_UPDATE;
    case OT_REPLAYED_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

static ot_status write_names(const tracing *t) {
  for (int i = 0; i < t->candidate->pp; i++) {
    char name[64];
    ot_text_format(name, sizeof name, "stage %d, rank %d", i, rank_of(t, i));
    OT_TRY(ot_trace_name_process(t->trace, rank_of(t, i), name));
    OT_TRY(ot_trace_name_thread(t->trace, rank_of(t, i), OT_LANE_COMPUTE,
                                ot_lane_name(OT_LANE_COMPUTE)));
  }
  return OT_OK;
}

static ot_status write_action(const tracing *t, const ot_replayed_action *a) {
  const char *const phase = ot_phase_name(phase_of(t, a->kind));
  char name[32], arguments[96];
  if (a->micro_batch < 0) {
    ot_text_format(name, sizeof name, "%s", phase);
    ot_text_format(arguments, sizeof arguments, "{\"stage\":%d}", a->stage);
  } else {
    ot_text_format(name, sizeof name, "%s %d", phase, a->micro_batch);
    ot_text_format(arguments, sizeof arguments, "{\"stage\":%d,\"chunk\":%d,\"micro_batch\":%d}",
                   a->stage, a->chunk, a->micro_batch);
  }
  const ot_trace_event event = {.name = name,
                                .category = phase,
                                .start_s = a->start_s,
                                .end_s = a->end_s,
                                .pid = rank_of(t, a->stage),
                                .tid = OT_LANE_COMPUTE,
                                .arguments = arguments};
  return ot_trace_write(t->trace, &event);
}

static ot_status write_step(tracing *t) {
  for (int64_t i = 0; i < t->step.num_actions; i++) {
    if (t->step.actions[i].kind == OT_REPLAYED_WEIGHT) t->split = true;
  }
  OT_TRY(write_names(t));
  for (int64_t i = 0; i < t->step.num_actions; i++) {
    OT_TRY(write_action(t, &t->step.actions[i]));
  }
  return ot_trace_finish(t->trace);
}

static ot_status replay(ot_estimator *estimator, const char *path, ot_arena *arena, tracing *t) {
  OT_TRY(ot_estimate_replay(estimator, t->candidate, arena, &t->step));
  OT_TRY(ot_trace_create(path, INFINITY, &t->trace));
  return write_step(t);
}

ot_status ot_predicted_trace_write(ot_estimator *estimator, const ot_candidate *candidate,
                                   const char *path) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  tracing t = {.candidate = candidate};
  const ot_status status = replay(estimator, path, &arena, &t);
  ot_trace_destroy(&t.trace);
  ot_heap_release(&heap);
  return status;
}
