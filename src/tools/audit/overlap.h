// SPDX-License-Identifier: Apache-2.0
// How much communication of a step is exposed. Timelines of all ranks (interval unions against the
// compute lane, as in schedule/) are averaged over some steps; so are calls, bytes and busy time of
// each kind of collective on each axis, so that a finding can name the slow one and a remedy.
//
// Times in a collective include waiting for the last rank; compute times tell which rank that is.
#pragma once

#include "audit/audit_report.h"
#include "comm/comm.h"
#include "describe/run.h"
#include "schedule/timeline.h"

// One kind of communication on one axis, for one rank and step.
typedef struct ot_overlap_flow {
  double calls, bytes;  // sent by the rank, as ot_comm_sent_bytes counts
  double busy_s;        // sum of durations
  double exposed_s;
} ot_overlap_flow;

// Sums over steps of one rank; after ot_overlap_merge, means over ranks and steps.
typedef struct ot_overlap {
  int ranks, steps;
  double step_s, compute_s, exposed_s, bubble_s;
  double exposed_axis_s[OT_TIMELINE_AXES];
  ot_overlap_flow flow[OT_TIMELINE_AXES][OT_COMMUNICATIONS];
  double slowest_compute_s;  // slowest rank; after the merge
  int slowest_rank;
} ot_overlap;

// Adds one step.
void ot_overlap_add(ot_overlap *overlap, const ot_timeline *timeline, const ot_schedule *schedule);

// Combines the ranks. `comm` null: one rank. Collective over the world. Blocks.
ot_status ot_overlap_merge(ot_overlap *overlap, ot_comm *comm, ot_arena *arena);

// The properties of a run, other than times, that its findings depend on.
typedef struct ot_overlap_run {
  const ot_run *run;
  int micro_batches;
  bool shares_cores;  // more threads than cores: times are unreliable
} ot_overlap_run;

// Writes findings, figures and table into a report that has its arena.
void ot_overlap_judge(const ot_overlap *overlap, const ot_overlap_run *run,
                      ot_audit_report *report);
