// SPDX-License-Identifier: Apache-2.0
// Cost of a task on a machine measured by `orthant bench`: the formula of ot_kernel_rates
// (describe/cluster.h), and that of collectives. The bench fits its constants with the same terms.
#pragma once

#include "simulate/price.h"

// Terms of a kernel's time, in the order of the fields of ot_kernel_rates.
typedef enum ot_kernel_term {
  OT_KERNEL_CALL,    // 1; 0 if the task joins another
  OT_KERNEL_FORK,    // 1 if several threads share it
  OT_KERNEL_MATRIX,  // FLOPs / threads that share it
  OT_KERNEL_OTHER,
  OT_KERNEL_BYTES,
  OT_KERNEL_TERMS,
} ot_kernel_term;

void ot_kernel_terms(const ot_task *task, double terms[OT_KERNEL_TERMS]);

// Seconds of `task` without contention for its cores. False if no such kernel was measured, on a
// GPU in the precision of the simulation.
bool ot_price_measured_kernel(const ot_simulation *simulation, const ot_task *task,
                              double *seconds);

// True if a group is on several hosts that were measured.
bool ot_price_crosses_hosts(const ot_cluster *cluster, const ot_group_shape *shape);

// Seconds of the collective or message `op` in the group `shape` after all ranks have reached it;
// `bytes` as in ot_collective. False if it was not measured for any number of ranks. In a group on
// several hosts, the bytes that cross between hosts take the time.
bool ot_price_measured_collective(const ot_cluster *cluster, const char *op,
                                  const ot_group_shape *shape, double bytes, double *seconds);
