// SPDX-License-Identifier: Apache-2.0
// How much of a step is communication that nothing hides. Timelines of all ranks (schedule's own
// reading of them: interval unions against the compute lane) are averaged over some steps; so are
// calls, bytes and busy time of each kind of collective on each axis, so that a finding can say
// what is slow and what to try.
//
// Times in a collective include waiting for the last rank: which one that is, its compute time
// says.
#pragma once

#include "audit/audit_report.h"
#include "comm/comm.h"
#include "describe/run.h"
#include "schedule/timeline.h"

// One kind of communication on one axis, of one rank in one step.
typedef struct ot_overlap_flow {
  double calls, bytes;  // bytes that the rank sends, as ot_comm_sent_bytes counts
  double busy_s;        // sum of durations
  double exposed_s;
} ot_overlap_flow;

// Sums over steps of one rank; then, after ot_overlap_merge, means over ranks and steps.
typedef struct ot_overlap {
  int ranks, steps;
  double step_s, compute_s, exposed_s, bubble_s;
  double exposed_axis_s[OT_TIMELINE_AXES];
  ot_overlap_flow flow[OT_TIMELINE_AXES][OT_COMMUNICATIONS];
  double slowest_compute_s;  // of a rank; after the merge
  int slowest_rank;
} ot_overlap;

// Adds one step.
void ot_overlap_add(ot_overlap *overlap, const ot_timeline *timeline, const ot_schedule *schedule);

// Puts the ranks together. `comm` null: one rank. Collective over the world. Blocks.
ot_status ot_overlap_merge(ot_overlap *overlap, ot_comm *comm, ot_arena *arena);

// What the finding of a run depends on, apart from its times.
typedef struct ot_overlap_run {
  const ot_run *run;
  int micro_batches;
  bool shares_cores;  // more threads than cores: times say little
} ot_overlap_run;

// Findings, figures and table, into a report that has its arena.
void ot_overlap_judge(const ot_overlap *overlap, const ot_overlap_run *run,
                      ot_audit_report *report);
