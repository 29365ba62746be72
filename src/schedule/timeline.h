// SPDX-License-Identifier: Apache-2.0
// When each task of a schedule ran, or would run: filled by the executor from a clock and by the
// simulator from prices, read by one piece of code whoever filled it. Times are seconds from the
// start of the order.
//
//   compute    a kernel on the compute lane; everything else that may happen there is idle time
//   exposed    time of communication during which nothing is computed: the union of intervals,
//              less compute, never a sum of durations
//   bubble     idle time up to the last forward or backward task in which no collective is under
//              way and no other lane runs a kernel: only messages of the pipeline are waited for,
//              or nothing. (p-1)/(m+p-1) of the step on the first stage of balanced 1F1B
//
// A collective is counted from its start to its end, on any lane. A message may be under way for
// long without anybody caring, so it is counted while the compute lane waits for it: from the end
// of what ran before an entry that waits for it, until it is there; and if it is under way behind
// the last entry of the compute lane, from there on. So a bubble is exposed time of the pipeline,
// too, where a message ends it. Ranks that wait for each other behind their last backward wait in a
// collective, and are exposed there.
//
// A measured timeline has one span for a repeat and all its rounds, on the compute lane, and none
// for the tasks of its body: their communication counts as computing. A simulated one has them,
// each as long as all its rounds (ot_price_times).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"
#include "ops/collective.h"

typedef struct ot_schedule ot_schedule;

// One task's run: of a communication, from its start until it was seen done; of a repeat, all its
// rounds.
typedef struct ot_span {
  int32_t entry;  // index in the order
  int32_t task;   // index in the entry's segment
  double start_s;
  double end_s;
  int32_t lane;  // ot_lane that it ran on
} ot_span;

typedef struct ot_timeline {
  int order;          // which order of the schedule was run
  int rank;           // world rank
  int64_t num_spans;  // at most one a task of each entry
  int64_t capacity;   // spans that fit
  ot_span *spans;     // [capacity], in order of their start on each lane
  double total_s;     // length of the whole order
} ot_timeline;

// What communication is counted under: the axis of its group (describe/groups.h), those of data
// parallelism, dense and expert, together.
typedef enum ot_timeline_axis {
  OT_TIMELINE_TP,
  OT_TIMELINE_CP,
  OT_TIMELINE_EP,
  OT_TIMELINE_PP,
  OT_TIMELINE_DP,
  OT_TIMELINE_WORLD,  // counts, norms, losses: a few numbers, of all ranks or of cp x dp
  OT_TIMELINE_AXES,
} ot_timeline_axis;

// What kernels of the compute lane are counted under, by the phase of their entry.
typedef enum ot_timeline_part {
  OT_TIMELINE_FORWARD,
  OT_TIMELINE_RECOMPUTE,
  OT_TIMELINE_BACKWARD,
  OT_TIMELINE_UPDATE,  // optimizer, and all else between micro-batches and steps
  OT_TIMELINE_PARTS,
} ot_timeline_part;

// What one reading of a timeline says.
typedef struct ot_timeline_summary {
  double total_s;
  double compute_s;                  // union of kernels on the compute lane
  double idle_s;                     // total_s - compute_s
  double part_s[OT_TIMELINE_PARTS];  // of compute_s
  double bubble_s;                   // see above
  double bubble_fraction;            // bubble_s / total_s
  double matrix_flops;               // of all tasks, recompute included
  double model_flops;                // 3 x forward: what MFU counts, see ot_order_flops
  double exposed_s;                  // of all communication, and of kernels on other lanes
  double exposed_axis_s[OT_TIMELINE_AXES];
  double exposed_op_s[OT_TIMELINE_AXES][OT_COMMUNICATIONS];
} ot_timeline_summary;

// Allocates nothing. Cost: O(spans), but for spans that overlap on several lanes.
ot_timeline_summary ot_timeline_summarize(const ot_timeline *timeline, const ot_schedule *schedule);

ot_timeline_axis ot_timeline_axis_of(ot_group_kind group);

// "tp", "cp", "ep", "pp", "dp", "world".
const char *ot_timeline_axis_name(ot_timeline_axis axis);

// "forward", "recompute", "backward", "update".
const char *ot_timeline_part_name(ot_timeline_part part);
