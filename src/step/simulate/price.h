// SPDX-License-Identifier: Apache-2.0
// Cost of one task on a device of a cluster, and of data transfers: the formulas of
// docs/pricing.md. The planner also calls these for work without a schedule, so a group of ranks is
// given by its shape.
#pragma once

#include "describe/cluster.h"
#include "describe/kernel_style.h"
#include "ops/op.h"
#include "schedule/schedule.h"

// Machine and software for which schedules are priced.
typedef struct ot_simulation {
  const ot_cluster *cluster;     // its device is one rank, with any number of threads
  double other_flops_per_s;      // elementwise work and reductions on one device, > 0
  double launch_s;               // host time per launch, >= 0; Orthant's own kernels
  const ot_kernel_style *style;  // null: Orthant's own kernels
  ot_dtype products;             // with a style: GEMM dtype of layers
  int expert_ranks;    // tasks hold all experts; they are sharded over this many ranks; 0: one
  bool expert_biases;  // other frameworks: added expert by expert
  double stretch;      // slowdown factor of kernels because other ranks share their cores; 0: from
                       // the cluster's threads_per_core
  double more_rounds;  // mean iterations of repeat bodies; 0: one pass holds all tokens
  double more_rows;    // rows of an iteration over those of a pass with even loads; 0: as many
} ot_simulation;

// `cluster` as seen by the ranks of a run (ot_cluster_share), with the kernels of `style` and
// layers with GEMMs in `products`.
ot_simulation ot_simulation_of(const ot_cluster *cluster, const ot_kernel_style *style,
                               ot_dtype products);

// `size` ranks first, first + stride, ...
typedef struct ot_group_shape {
  int size;    // 1 = single rank; 0 = no such group
  int first;   // world rank
  int stride;  // >= 1 if size > 1
  int near;    // of these, the ranks that all but the outermost links join; 0: as their places say
} ot_group_shape;

// Cost of a task: on the device or link, and on the host to start it.
typedef struct ot_price {
  double device_s;
  double host_s;
  double load_s;  // collectives: of device_s, the time that slows down concurrent kernels
} ot_price;

// OT_USAGE unless rates are positive, and times and rounds non-negative.
ot_status ot_price_check(const ot_simulation *simulation);

// Cost of `task` on a rank whose groups are `shapes`; of a message, from when both sides have
// started it. attributes.group_index is the rank's index in the group. OT_USAGE if a rate is
// missing.
ot_status ot_price_task(const ot_simulation *simulation,
                        const ot_group_shape shapes[OT_GROUP_KINDS], const ot_task *task,
                        ot_price *price);

// How often task `index` of `segment` runs: `more_rounds` times in a loop body, else once.
double ot_price_times(const ot_simulation *simulation, const ot_segment *segment, int index);

// Gives `task`, a copy of that task, the rows of an iteration if it is in a loop body.
void ot_price_rows(const ot_simulation *simulation, const ot_segment *segment, int index,
                   ot_task *task);

// Work of the tasks of one entry, run one after the other.
typedef struct ot_entry_work {
  double compute_s;     // kernel time
  double exposed_s;     // the lane waits for collectives of its own tasks
  double overlapped_s;  // collectives on the tensor lane, hidden or exposed
  double load_s;        // of these, ot_price.load_s
  double host_s;        // host time to start all tasks
} ot_entry_work;

// Time of the entry in addition to compute_s + exposed_s.
typedef struct ot_entry_delay {
  double slower_s;  // slowdown of kernels by concurrent collectives
  double host_s;    // the device waits for the host, if the host runs ahead
} ot_entry_delay;

ot_entry_delay ot_price_entry_delay(const ot_simulation *simulation, const ot_entry_work *work);

// True if the host starts tasks ahead of the device: ot_entry_delay then has its time. Otherwise
// each task takes both parts of its price, one after the other.
bool ot_price_host_ahead(const ot_simulation *simulation);

// Combines both parts. If the host runs ahead, the slower one determines the time; if they are
// close, the bottleneck alternates within the work: (device^3 + host^3)^(1/3), at most 1.26 times
// the longer one. Otherwise the sum.
double ot_price_total_s(const ot_simulation *simulation, ot_price price);

// A collective (OT_OP_ALL_GATHER ... OT_OP_SHIFT) among the ranks of `shape`.
typedef struct ot_collective {
  ot_op_kind op;
  ot_group_shape shape;
  double bytes;     // full size: output of all_gather, input of the others, on each rank
  double elements;  // full size, if op reduces; else 0
} ot_collective;

// 0 for a group of one.
ot_status ot_price_collective(const ot_simulation *simulation, const ot_collective *collective,
                              ot_price *price);

// Cost of `bytes` from world rank `from` to `to`.
ot_status ot_price_message(const ot_simulation *simulation, int from, int to, double bytes,
                           ot_price *price);

// Cost of a kernel without GEMMs that reads and writes `bytes` of device memory in total.
ot_price ot_price_pass(const ot_simulation *simulation, double bytes);

// Seconds by which concurrent collectives of `load_s` (ot_price) slow down `work_s` of kernels.
double ot_price_overlap_slowdown_s(const ot_simulation *simulation, double work_s, double load_s);

// Time of a step on `devices` devices whose work takes `work_s`: adds host time between steps and
// waiting for the slowest device.
double ot_price_step_s(const ot_simulation *simulation, int devices, double work_s);
