// SPDX-License-Identifier: Apache-2.0
// events.jsonl of a run directory: what happened to the run, one JSON object per line, appended and
// never changed, so it tells of all processes that ran it. Written by rank 0 of the training
// process and by its supervisor, concurrently. docs/report.md lists the events and their keys.
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

#define OT_RUN_EVENTS_FILE "events.jsonl"

// The keys of an event are those of its line below, after "event" and "time".
typedef enum ot_run_event_kind {
  OT_RUN_EVENT_OTHER,        // of another version of this program; only read
  OT_RUN_EVENT_START,        // step ranks attempt from, and: last_step lost_seconds load_seconds
  OT_RUN_EVENT_REWIND,       // step last_step lost_seconds: the process goes back to `step`
  OT_RUN_EVENT_FIRST_STEP,   // step: the first that this process completed
  OT_RUN_EVENT_SAVE,         // step seconds blocked_seconds bytes every
  OT_RUN_EVENT_SAVE_FAILED,  // step reason
  OT_RUN_EVENT_FALLBACK,  // step reason: a newer checkpoint was damaged, that of `step` was loaded
  OT_RUN_EVENT_LOG,       // step reason: what happened to metrics.jsonl or a file of TensorBoard
  OT_RUN_EVENT_STOP,      // step, reason: signal, end, numeric, failure
  OT_RUN_EVENT_VALIDATION,  // step seconds
  OT_RUN_EVENT_AUDIT,       // step seconds
  OT_RUN_EVENT_EVALUATION,  // step seconds
  OT_RUN_EVENT_FAILURE,     // attempt, kind: rank, hang, numeric, environment, launcher; rank host
                            // exit detail
  OT_RUN_EVENT_RESTART,     // attempt ranks waited_seconds
  OT_RUN_EVENT_STRAGGLER,   // step rank host slowdown
  OT_RUN_EVENT_SPIKE,  // step name z first_sample last_sample, action: note, stop, skip, rewind
  OT_RUN_EVENT_KINDS,
} ot_run_event_kind;

// "start", "first_step", ...; "other".
const char *ot_run_event_name(ot_run_event_kind kind);

// Only the members of its kind are written. Read: what a line lacks is -1, NaN or "".
typedef struct ot_run_event {
  ot_run_event_kind kind;
  double time_s;      // since 1970 UTC; 0: when it is appended
  int64_t step;       // completed steps
  int64_t attempt;    // processes that have run it, this one included
  int64_t ranks;      // of the world
  int64_t last_step;  // highest step that had metrics before; > step: these steps are repeated
  double lost_s;      // sum of the step_seconds of those
  double load_s;      // from the start of the process to this event
  double seconds;     // that it took
  double blocked_s;   // of those, in which no step ran
  double waited_s;    // before a restart
  double slowdown;    // time of the rank over the median
  double z;           // of an outlier (health.h)
  int64_t bytes;      // of a checkpoint
  int64_t every;      // steps between saves when it began; 0: no interval
  int64_t first_sample, last_sample;
  int64_t rank, exit;  // of the failed rank: its number and exit status
  const char *from;    // checkpoint, memory, init, nothing
  const char *reason, *failure, *host, *detail, *name, *action;
} ot_run_event;

// Appends a line with one write, durable on return. First removes an incomplete last line, the
// remains of a crash. After a failure (disk full) the file is as before. Safe among processes.
ot_status ot_run_event_append(const char *path, const ot_run_event *event);

typedef struct ot_run_event_list {
  int64_t count;
  ot_run_event *event;  // [count], as appended
} ot_run_event_list;

// The events in the file at `path`, which need not exist, in `arena`. An incomplete last line is
// not one yet; any other line that is no event is an error with its number.
ot_status ot_run_events_read(ot_arena *arena, const char *path, ot_run_event_list *list);

// When the process of a `start` event began to load, as time_s.
double ot_run_event_begin(const ot_run_event *start);

// How many processes have run the run so far, the starts in the file at `path`: 0 if it cannot be
// read. *begin_s (null: not asked for): when the first of them began, in Unix seconds; NaN: none.
int64_t ot_run_events_starts(const char *path, double *begin_s);
