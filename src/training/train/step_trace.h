// SPDX-License-Identifier: Apache-2.0
// The Chrome trace of steps that the request selects (record/trace.h). One that cannot be written
// ends itself, not the run. Private to train/. All functions are collective over the world, except
// destroy.
#pragma once

#include "record/trace.h"
#include "train/session.h"

typedef struct ot_step_trace {
  ot_trace *trace;  // on the leader, from the first traced step on
  double begin_s;   // clock when that step began
  bool failed;      // there is no trace any more; the same on all ranks
} ot_step_trace;

// Before `step`: *traced, and if so the executor records events.
ot_status ot_step_trace_begin(const ot_step_trace *trace, const ot_session *s, int64_t step,
                              bool *traced);

// After a traced step.
ot_status ot_step_trace_write(ot_step_trace *trace, const ot_session *s,
                              const ot_step_report *step);

// After the last step.
ot_status ot_step_trace_finish(ot_step_trace *trace, const ot_session *s);
