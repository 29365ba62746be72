// SPDX-License-Identifier: Apache-2.0
// When each task of a schedule ran, or would run: the executor fills it from a clock, the simulator
// from costs; the same code analyses both. Times are seconds from the start of the order.
//
//   compute    a kernel on the compute lane; all other time there is idle
//   exposed    communication time during which nothing is computed: the union of intervals, less
//              compute, never a sum of durations
//   bubble     idle time up to the last forward or backward task in which no collective is in
//              flight and no other lane runs a kernel: the rank waits for pipeline messages or for
//              nothing. (p-1)/(m+p-1) of the step on the first stage of balanced 1F1B
//
// A collective counts from its start to its end, on any lane. A message may be in flight long
// before it is needed, so it counts while the compute lane waits for it: from the end of earlier
// work to its arrival; if it is in flight after the last entry of the compute lane, from there on.
// So a bubble that a message ends is also exposed time of the pipeline. Ranks that wait for each
// other after their last backward wait in a collective, and are exposed there.
//
// A measured timeline has one span on the compute lane for a repeat with all its iterations, and
// none for the tasks of its body: their communication counts as compute. A simulated one has spans
// for them, each as long as all its iterations (ot_price_times). Likewise, tasks that one launch
// runs (joined.h) have one measured span, of the first, and a simulated one each.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"
#include "ops/collective.h"

typedef struct ot_schedule ot_schedule;

// One run of a task; for a communication, until its completion was observed; for a repeat, all its
// iterations.
typedef struct ot_span {
  int32_t entry;  // index in the order
  int32_t task;   // index in the entry's segment
  double start_s;
  double end_s;
  int32_t lane;  // ot_lane of the task
} ot_span;

typedef struct ot_timeline {
  int order;          // index of the order in the schedule
  int rank;           // world rank
  int64_t num_spans;  // at most one per task of each entry
  int64_t capacity;   // size of spans
  ot_span *spans;     // [capacity], sorted by start on each lane
  double total_s;     // length of the whole order
} ot_timeline;

// Axis of a communication's group (describe/groups.h); dense and expert data parallelism share one.
typedef enum ot_timeline_axis {
  OT_TIMELINE_TP,
  OT_TIMELINE_CP,
  OT_TIMELINE_EP,
  OT_TIMELINE_PP,
  OT_TIMELINE_DP,
  OT_TIMELINE_WORLD,  // counts, norms, losses: a few numbers over all ranks or cp x dp
  OT_TIMELINE_AXES,
} ot_timeline_axis;

// Class of compute-lane kernels, by the phase of their entry.
typedef enum ot_timeline_part {
  OT_TIMELINE_FORWARD,
  OT_TIMELINE_RECOMPUTE,
  OT_TIMELINE_BACKWARD,
  OT_TIMELINE_UPDATE,  // optimizer, and all other work outside micro-batches
  OT_TIMELINE_PARTS,
} ot_timeline_part;

// Result of analysing a timeline.
typedef struct ot_timeline_summary {
  double total_s;
  double compute_s;                  // union of kernels on the compute lane
  double idle_s;                     // total_s - compute_s
  double part_s[OT_TIMELINE_PARTS];  // parts of compute_s
  double bubble_s;                   // see above
  double bubble_fraction;            // bubble_s / total_s
  double matrix_flops;               // all tasks, recompute included
  double model_flops;                // 3 x forward, as in MFU; see ot_order_flops
  double exposed_s;                  // all communication, and kernels on other lanes
  double exposed_axis_s[OT_TIMELINE_AXES];
  double exposed_op_s[OT_TIMELINE_AXES][OT_COMMUNICATIONS];
} ot_timeline_summary;

// Allocates nothing. Cost: O(spans), except for spans that overlap on several lanes.
ot_timeline_summary ot_timeline_summarize(const ot_timeline *timeline, const ot_schedule *schedule);

ot_timeline_axis ot_timeline_axis_of(ot_group_kind group);

// "tp", "cp", "ep", "pp", "dp", "world".
const char *ot_timeline_axis_name(ot_timeline_axis axis);

// "forward", "recompute", "backward", "update".
const char *ot_timeline_part_name(ot_timeline_part part);
