// SPDX-License-Identifier: Apache-2.0
// Interpreter 1: prices schedules. Replays orders on a cluster description and fills the timelines
// that the executor fills from a clock, span by span, so that "predicted against measured" is a
// subtraction. It sees schedules and the cluster; not the model, the mesh or the plan. Pure.
//
// Each lane is a clock. An entry starts when its lane is free and the entries it waits for are
// done; its tasks run one after the other, but for collectives on the tensor lane, which run beside
// the tasks behind them until one waits or the entry ends, and messages, which are under way
// together. A compute task takes (roofline: Williams, Waterman and Patterson 2009)
//
//   max(matrix_flops / device.flops[compute type], (bytes_read + bytes_written) / bandwidth)
//     + other_flops / other_flops_per_s + launch_s
//
// On a device that packs (describe/cluster.h) traffic comes on top of products, arithmetic on
// elements hides behind traffic, and attention multiplies whole tiles:
//
//   (matrix_flops + padded_flops) / device.flops
//     + max(bytes / bandwidth, other_flops / other_flops_per_s) + launch_s
//
// and a communication of S bytes among n ranks, over the innermost level of links that joins them
// all, with latency a and b seconds a byte (Thakur, Rabenseifner and Gropp 2005; a sum is an
// exchange of blocks and a local sum in rank order, as comm/ makes it):
//
//   all_gather, all_to_all      (n-1) a + (n-1)/n S b
//   reduce_scatter              the same + the local sum: S / bandwidth + (n-1)/n elements / other
//   all_reduce                  reduce_scatter + all_gather
//   shift, message              a + S b, a message from when both sides have started it
//
// and launch_s each. What is in the body of a repeat takes so long as often as more_rounds says:
// all its rounds are one span. Where `orthant bench` has measured a kind of kernel or a collective,
// its own constants count instead (price_measured.h), and shared_cores.h lets ranks share cores.
// On accelerators, tasks take what docs/pricing.md says, and an entry what its tasks take together
// with the host that starts them and with traffic next to its kernels (ot_price_entry_delay); a
// step ends with ot_price_step_s. Ranks are devices in order. NOT modelled: caches (a kernel's rate
// is that of a step's usual traffic), lanes that share an interconnect, rounds that wait for their
// last collective, ranks that are late, stored types narrower than the compute type.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/price.h"

// Replays order `order` of `schedule`, whose other ranks are taken to be in step: nobody is waited
// for, and a message is under way from its start on. `timeline` gets one span for each task, in the
// order of entries and tasks, in `arena`; its total_s is when the last lane is done. Each distinct
// segment is priced once. OT_USAGE when a rate is missing or not positive or the cluster is too
// small, naming what needs it; OT_BUG for an entry that waits for one that does not come before it.
// Cost: O(tasks of the order).
ot_status ot_schedule_simulate(const ot_schedule *schedule, int order,
                               const ot_simulation *simulation, ot_arena *arena,
                               ot_timeline *timeline);

// The same order on every stage of a pipeline.
typedef struct ot_pipeline_replay {
  const ot_schedule *const *schedules;  // [num_stages] of one rank of each stage, by stage
  int num_stages;                       // >= 1
  ot_order_kind kind;
  int micro_batches;
} ot_pipeline_replay;

// Replays the orders of all stages together; within a stage all ranks are in step. Messages between
// two stages meet by their tag, first sent to first received; collectives of the groups that reach
// over stages (world, stages, tied) start when the last stage has come. `timelines` [num_stages] as
// of ot_schedule_simulate. The step takes as long as the longest of them. OT_BUG when a message has
// no other side, when stages come to different collectives, or when they wait for each other,
// naming the stages and where they stand. Cost: O(tasks of all orders).
ot_status ot_schedules_simulate(const ot_pipeline_replay *replay, const ot_simulation *simulation,
                                ot_arena *arena, ot_timeline *timelines);
