// SPDX-License-Identifier: Apache-2.0
// A step of all ranks in one trace. Timelines travel to the leader as they are; what their tasks
// were called it knows from planning the other ranks' schedules again.
#pragma once

#include "host/clock.h"
#include "runtime/instance.h"
#include "schedule/timeline.h"
#include "train/team.h"
#include "train/trace.h"

typedef struct ot_trace_step {
  const ot_run *run;
  const ot_timeline *timeline;  // of this rank
  const ot_schedule *schedule;  // of this rank
  double start_s;               // ot_clock_s when the order began
  double zero_s;                // the leader's clock at the beginning of the trace
} ot_trace_step;

// Writes the timelines of all ranks to `trace`, which is the leader's (null elsewhere). Clocks of
// one machine are compared as they are, those of others by when they leave a barrier. Collective
// over the world. Blocks.
ot_status ot_trace_write_ranks(ot_trace *trace, ot_team *team, const ot_trace_step *step);
