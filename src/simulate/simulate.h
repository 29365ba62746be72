// SPDX-License-Identifier: Apache-2.0
// Interpreter 1: prices a schedule. Plays one order on a cluster description and fills the timeline
// that the executor fills from a clock, span by span, so that "predicted against measured" is a
// subtraction. It sees the schedule and the cluster; not the model, the mesh or the plan. Pure.
//
// Each lane is a clock. An entry starts when its lane is free and the entry it waits for is done;
// its tasks run one after the other on the entry's lane, as they do in the executor. A compute task
// takes (roofline: Williams, Waterman and Patterson 2009)
//
//   max(matrix_flops / device.flops[compute type], (bytes_read + bytes_written) / bandwidth)
//     + other_flops / other_flops_per_s + launch_s
//
// at the peak figures of the cluster. NOT modelled yet, and what a measured cluster file will
// bring: the efficiency of matrix products by shape, of memory by access pattern and size (caches),
// of kernels that overlap elementwise work with traffic, lanes that share memory bandwidth, the
// speed of stored types narrower than the compute type. Predictions are lower bounds but for
// launch_s and other_flops_per_s, and for data that stay in caches.
#pragma once

#include "describe/cluster.h"
#include "schedule/schedule.h"

// What a schedule is priced on.
typedef struct ot_simulation {
  const ot_cluster *cluster;  // its device is what one rank has, whatever its number of threads
  double other_flops_per_s;   // elementwise work and reductions of one device, > 0
  double launch_s;            // host time of one task, >= 0
} ot_simulation;

// Plays order `order` of `schedule` on rank 0. `timeline` gets one span for each task, in the order
// of entries and tasks, in `arena`; its total_s is when the last lane is done. Each distinct
// segment is priced once. OT_USAGE when a rate is missing or not positive, naming what needs it;
// OT_BUG for an entry that waits for one that does not come before it. Cost: O(tasks of the order).
ot_status ot_schedule_simulate(const ot_schedule *schedule, int order,
                               const ot_simulation *simulation, ot_arena *arena,
                               ot_timeline *timeline);
