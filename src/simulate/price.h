// SPDX-License-Identifier: Apache-2.0
// What one task takes on a device of a cluster, and what moving bytes takes: the formulas of
// docs/pricing.md. Beside the simulator, the planner calls these for work that it does not write
// out as a schedule; so a group of ranks is given by its shape.
#pragma once

#include "describe/cluster.h"
#include "describe/kernel_style.h"
#include "ops/op.h"
#include "schedule/schedule.h"

// What schedules are priced on.
typedef struct ot_simulation {
  const ot_cluster *cluster;     // its device is what one rank has, whatever its number of threads
  double other_flops_per_s;      // elementwise work and reductions of one device, > 0
  double launch_s;               // host time of one task, >= 0; of this program's own kernels
  const ot_kernel_style *style;  // null: this program's own kernels
  ot_dtype products;             // with a style: type that layers multiply in
  int expert_ranks;    // tasks hold all experts, which are spread over so many ranks; 0: over one
  bool expert_biases;  // of other software: added one expert after the other
  double stretch;      // kernels take so many times as long, because others want their
                       // cores; 0: as the cluster is crowded
  double more_rounds;  // how often bodies of repeats run, on average; 0: what comes fits in round 0
} ot_simulation;

// `cluster` as the ranks of a run find it (ot_cluster_share), the kernels of `style`, and layers
// that multiply in `products`.
ot_simulation ot_simulation_of(const ot_cluster *cluster, const ot_kernel_style *style,
                               ot_dtype products);

// The ranks first, first + stride, ..., size of them.
typedef struct ot_group_shape {
  int size;    // 1 = alone; 0 = there is no such group
  int first;   // world rank
  int stride;  // >= 1 where size > 1
} ot_group_shape;

// What a task takes: on the device or on the wire, and of the host to start it.
typedef struct ot_price {
  double device_s;
  double host_s;
} ot_price;

// OT_USAGE unless rates are positive and times and rounds not negative.
ot_status ot_price_check(const ot_simulation *simulation);

// `task` on a rank whose groups are `shapes`; a message from when both sides have started it.
// attributes.group_index says which member of a group the rank is. OT_USAGE when a rate is missing.
ot_status ot_price_task(const ot_simulation *simulation,
                        const ot_group_shape shapes[OT_GROUP_KINDS], const ot_task *task,
                        ot_price *price);

// How often task `task` of `segment` runs: `more_rounds` times in a body of a repeat, else once.
double ot_price_times(const ot_simulation *simulation, const ot_segment *segment, int task);

// What the tasks of one entry take, as they run one after the other.
typedef struct ot_entry_work {
  double compute_s;  // kernels
  double exposed_s;  // the lane waits for collectives of its own tasks
  double beside_s;   // collectives on the tensor lane, exposed or not
  double host_s;     // to start all of them
} ot_entry_work;

// What the entry takes beyond compute_s + exposed_s.
typedef struct ot_entry_delay {
  double slower_s;  // kernels, while collectives run at the same time
  double host_s;    // the device waits for the host, where that runs ahead
} ot_entry_delay;

ot_entry_delay ot_price_entry_delay(const ot_simulation *simulation, const ot_entry_work *work);

// True where the host starts tasks ahead of the device: then ot_entry_delay has its time; else each
// task takes both parts of its price, one after the other.
bool ot_price_host_ahead(const ot_simulation *simulation);

// Both parts as one. Where the host runs ahead, the slower one counts; and where they are close,
// now one and now the other is slower within the work: (device^3 + host^3)^(1/3), which is 1.26
// times the longer one at most. Else one comes after the other.
double ot_price_total_s(const ot_simulation *simulation, ot_price price);

// A collective (OT_OP_ALL_GATHER ... OT_OP_SHIFT) among the ranks of `shape`.
typedef struct ot_collective {
  ot_op_kind op;
  ot_group_shape shape;
  double bytes;  // of the whole: what all_gather gives to each rank, what the others take from it
  double elements;  // of the whole, where op adds up; else 0
} ot_collective;

// 0 for a group of one.
ot_status ot_price_collective(const ot_simulation *simulation, const ot_collective *collective,
                              ot_price *price);

// `bytes` from world rank `from` to `to`.
ot_status ot_price_message(const ot_simulation *simulation, int from, int to, double bytes,
                           ot_price *price);

// A kernel that reads and writes `bytes` of the device's memory in all and multiplies nothing.
ot_price ot_price_pass(const ot_simulation *simulation, double bytes);

// By how much `work_s` of kernels becomes longer while `traffic_s` of collectives runs beside them.
double ot_price_beside_s(const ot_simulation *simulation, double work_s, double traffic_s);

// A step of `devices` devices whose work takes `work_s`: with what the host does between steps and
// with waiting for the slowest device.
double ot_price_step_s(const ot_simulation *simulation, int devices, double work_s);
