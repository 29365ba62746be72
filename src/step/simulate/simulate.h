// SPDX-License-Identifier: Apache-2.0
// Interpreter 1: prices schedules. Replays orders on a cluster description and fills the same
// timelines as the executor, span by span, so that "predicted against measured" is a subtraction.
// It sees schedules and the cluster; not the model, the mesh or the plan. Pure.
//
// Each lane is a clock. An entry starts when its lane is free and the entries it waits for are
// complete. Its tasks run one after the other, with two exceptions: collectives on the tensor lane
// run concurrently with later tasks until one waits or the entry ends, and messages are in flight
// together. A compute task takes (roofline: Williams, Waterman and Patterson 2009)
//
//   max(matrix_flops / device.flops[compute type], (bytes_read + bytes_written) / bandwidth)
//     + other_flops / other_flops_per_s + launch_s
//
// On a device that packs operands (describe/cluster.h) memory traffic adds to GEMM time,
// elementwise arithmetic overlaps with traffic, and attention multiplies whole tiles:
//
//   (matrix_flops + padded_flops) / device.flops
//     + max(bytes / bandwidth, other_flops / other_flops_per_s) + launch_s
//
// and a collective of S bytes among n ranks, over the innermost level of links that connects them,
// with latency a and b seconds per byte (Thakur, Rabenseifner and Gropp 2005; a reduction is an
// all-to-all of blocks and a local sum in rank order, as in comm/):
//
//   all_gather, all_to_all      (n-1) a + (n-1)/n S b
//   reduce_scatter              the same + the local sum: S / bandwidth + (n-1)/n elements / other
//   all_reduce                  reduce_scatter + all_gather
//   shift, message              a + S b, a message from when both sides have started it
//
// plus launch_s each. Tasks in a loop body take more_rounds times as long: all iterations are one
// span. For kernels and collectives measured by `orthant bench`, the measured constants apply
// (price_measured.h), and shared_cores.h lets ranks share cores. On accelerators, docs/pricing.md
// gives the cost of tasks; an entry adds the host that starts them and the traffic concurrent with
// its kernels (ot_price_entry_delay); a step ends with ot_price_step_s. Ranks are devices in order.
// Collectives of several lanes that cross between measured hosts share the link (link_calendar.h).
// NOT modelled: caches (a kernel's rate is that of a step's usual traffic), lanes that share
// another interconnect, loop iterations that wait for their last collective, late ranks, storage
// dtypes narrower than the compute dtype.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/price.h"

// Replays order `order` of `schedule` and assumes that all other ranks are in step: no rank waits
// for another, and a message starts when it is posted. `timeline` gets one span per task, in the
// order of entries and tasks, in `arena`; total_s is the end of the last lane. Each distinct
// segment is priced once. OT_USAGE names what needs a rate that is missing or not positive, or a
// larger cluster; OT_BUG if an entry waits for a later one. Cost: O(tasks of the order).
ot_status ot_schedule_simulate(const ot_schedule *schedule, int order,
                               const ot_simulation *simulation, ot_arena *arena,
                               ot_timeline *timeline);

// The same order on all stages of a pipeline.
typedef struct ot_pipeline_replay {
  const ot_schedule *const *schedules;  // [num_stages] one rank per stage
  int num_stages;                       // >= 1
  ot_order_kind kind;
  int micro_batches;
} ot_pipeline_replay;

// Replays the orders of all stages together; within a stage all ranks are in step. Messages between
// two stages match by tag, in order; collectives of groups that span stages (world, stages, tied)
// start when the last stage arrives. `timelines` [num_stages] as in ot_schedule_simulate. The step
// takes as long as the longest of them. OT_BUG names the stages and their positions if a message
// has no counterpart, stages reach different collectives, or there is a deadlock. Cost: O(tasks of
// all orders).
ot_status ot_schedules_simulate(const ot_pipeline_replay *replay, const ot_simulation *simulation,
                                ot_arena *arena, ot_timeline *timelines);
