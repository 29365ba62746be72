// SPDX-License-Identifier: Apache-2.0
// Chrome trace JSON (for Perfetto and chrome://tracing): pid = rank, tid = lane, one complete event
// per task inside the event of its segment; tensor collectives are on their own lane, concurrent
// messages in separate rows. Predicted and measured timelines have the same format, so that they
// can be loaded together. A path that ends in .gz is compressed; viewers read both.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"

typedef struct ot_trace ot_trace;

// One bar. Times are seconds from the start of the trace.
typedef struct ot_trace_event {
  const char *name;
  const char *category;
  double start_s, end_s;
  int pid, tid;
  const char *arguments;  // one JSON object, or null
} ot_trace_event;

// Writes as files/output_file.h describes; a regular file gets its name in ot_trace_finish. A
// stream is written there as a whole, and fails there if nobody reads it for `patience_s` seconds;
// infinity: waits for the reader.
ot_status ot_trace_create(const char *path, double patience_s, ot_trace **out);

// Without a finish before, removes the partial file.
void ot_trace_destroy(ot_trace **trace);

// Names shown instead of the numbers.
ot_status ot_trace_name_process(ot_trace *trace, int pid, const char *name);
ot_status ot_trace_name_thread(ot_trace *trace, int pid, int tid, const char *name);

// Events of one (pid, tid) must nest.
ot_status ot_trace_write(ot_trace *trace, const ot_trace_event *event);

// All spans of `timeline`, shifted by `offset_s`, with the names of rank and lanes.
ot_status ot_trace_write_timeline(ot_trace *trace, const ot_timeline *timeline,
                                  const ot_schedule *schedule, double offset_s);

// Ends the file and renames it.
ot_status ot_trace_finish(ot_trace *trace);
