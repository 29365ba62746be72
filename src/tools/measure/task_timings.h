// SPDX-License-Identifier: Apache-2.0
// Times of the kernels of a step by what they do: launches of one op with the same work (terms of
// price_measured.h) share one row. Times of a measured or a simulated timeline are added alike, so
// predicted and measured steps can be compared row by row.
#pragma once

#include "measure/measure_parts.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/price_measured.h"

// Runs of equal launches.
typedef struct ot_task_timing {
  ot_op_kind op;
  double terms[OT_KERNEL_TERMS];
  ot_timings *runs;
} ot_task_timing;

// Zero but for `arena`: empty.
typedef struct ot_task_timings {
  ot_arena *arena;
  ot_task_timing *rows;
  int64_t count, capacity;
  ot_timings gaps;  // between kernels of a segment, on the compute lane
} ot_task_timings;

// Adds the kernels of a measured timeline, each `less_s` shorter.
void ot_task_timings_add(ot_task_timings *timings, const ot_timeline *timeline,
                         const ot_schedule *schedule, double less_s);

// Adds all runs of `from`.
void ot_task_timings_join(ot_task_timings *timings, const ot_task_timings *from);

// Adds the kernels of a simulated timeline, in which each task of a launch has its own span.
void ot_task_timings_add_simulated(ot_task_timings *timings, const ot_timeline *timeline,
                                   const ot_schedule *schedule);
