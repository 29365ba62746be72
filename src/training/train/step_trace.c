// SPDX-License-Identifier: Apache-2.0
// Every rank sends its timeline to the leader, who writes.
#include "train/step_trace.h"

#include "record/trace_ranks.h"

static const double patience_s = 2;  // with the reader of a FIFO

static bool selects(const ot_step_trace *trace, const ot_session *s, int64_t step) {
  const ot_loop_request *const request = s->request;
  if (!request->trace_path || trace->failed) return false;
  if (request->trace_to == 0) return step == s->begin_step + 3;
  return step >= request->trace_from && step <= request->trace_to;
}

ot_status ot_step_trace_begin(const ot_step_trace *trace, const ot_session *s, int64_t step,
                              bool *traced) {
  *traced = selects(trace, s, step);
  if (!*traced) return OT_OK;
  return ot_world_agree(s->request->world, ot_trainer_set_events(s->start.trainer, true));
}

static ot_status open_trace(ot_step_trace *trace, const ot_session *s, double start_s) {
  if (trace->trace || !ot_session_leads(s)) return OT_OK;
  trace->begin_s = start_s;
  return ot_trace_create(s->request->trace_path, patience_s, &trace->trace);
}

// `status` is the same on all ranks.
static ot_status end_trace(ot_step_trace *trace, const ot_session *s, ot_status status) {
  if (status != OT_ENVIRONMENT) return status;
  ot_loop_note(s->request, "warning: there is no trace: %s; the run goes on", ot_fail_message());
  ot_trace_destroy(&trace->trace);
  trace->failed = true;
  return OT_OK;
}

ot_status ot_step_trace_write(ot_step_trace *trace, const ot_session *s,
                              const ot_step_report *step) {
  ot_world *const world = s->request->world;
  ot_status status = ot_world_agree(world, open_trace(trace, s, step->start_s));
  const ot_trace_step what = {.run = s->run,
                              .timeline = ot_trainer_timeline(s->start.trainer),
                              .schedule = ot_runtime_schedule(ot_session_runtime(s)),
                              .start_s = step->start_s,
                              .zero_s = trace->begin_s};
  if (status == OT_OK) status = ot_trace_write_ranks(trace->trace, world, &what);
  return end_trace(trace, s, status);
}

ot_status ot_step_trace_finish(ot_step_trace *trace, const ot_session *s) {
  const ot_status status = trace->trace ? ot_trace_finish(trace->trace) : OT_OK;
  return end_trace(trace, s, ot_world_agree(s->request->world, status));
}
