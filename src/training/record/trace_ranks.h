// SPDX-License-Identifier: Apache-2.0
// A step of all ranks in one trace. Timelines are sent to the leader unchanged; it plans the other
// ranks' schedules again for the names of their tasks.
#pragma once

#include "host/clock.h"
#include "record/trace.h"
#include "runtime/model_runtime.h"
#include "runtime/run_world.h"
#include "schedule/timeline.h"

typedef struct ot_trace_step {
  const ot_run *run;
  const ot_timeline *timeline;  // of this rank
  const ot_schedule *schedule;  // of this rank
  double start_s;               // ot_clock_s at the start of the order
  double zero_s;                // the leader's clock at the start of the trace
} ot_trace_step;

// Writes the timelines of all ranks to `trace`, the leader's (null elsewhere). Clocks of one
// machine are comparable; others are aligned at a barrier. Collective over the world. Blocks.
ot_status ot_trace_write_ranks(ot_trace *trace, ot_world *world, const ot_trace_step *step);
