// SPDX-License-Identifier: Apache-2.0
// Chrome trace JSON (opens in Perfetto and chrome://tracing): pid = rank, tid = lane, one complete
// event a task inside one for its segment; tensor collectives stand alone on their lane, messages
// that are under way together in rows of their own. A predicted and a measured timeline come out in
// the same shape, so that they load side by side. A path that ends in .gz is compressed; viewers
// read both.
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

// Goes where files/output_file.h says; a regular file has its name after ot_trace_finish.
ot_status ot_trace_create(const char *path, ot_trace **out);

// Without a finish before, a partial file is removed.
void ot_trace_destroy(ot_trace **trace);

// Names shown in place of the numbers.
ot_status ot_trace_name_process(ot_trace *trace, int pid, const char *name);
ot_status ot_trace_name_thread(ot_trace *trace, int pid, int tid, const char *name);

// Events of one (pid, tid) must nest.
ot_status ot_trace_write(ot_trace *trace, const ot_trace_event *event);

// All spans of `timeline`, `offset_s` later, with the names of rank and lanes.
ot_status ot_trace_write_timeline(ot_trace *trace, const ot_timeline *timeline,
                                  const ot_schedule *schedule, double offset_s);

// Ends the file and gives it its name.
ot_status ot_trace_finish(ot_trace *trace);
