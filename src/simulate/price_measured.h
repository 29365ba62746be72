// SPDX-License-Identifier: Apache-2.0
// What a task takes on a machine that `orthant bench` has measured: the formula of ot_kernel_rates
// (describe/cluster.h), and that of collectives. The bench fits its constants with the same terms.
#pragma once

#include "simulate/price.h"

// What the time of a kernel is made of, in the order of the fields of ot_kernel_rates.
typedef enum ot_kernel_term {
  OT_KERNEL_CALL,    // 1
  OT_KERNEL_FORK,    // 1 where several threads share it
  OT_KERNEL_MATRIX,  // flops / threads that share it
  OT_KERNEL_OTHER,
  OT_KERNEL_BYTES,
  OT_KERNEL_TERMS,
} ot_kernel_term;

void ot_kernel_terms(const ot_task *task, double terms[OT_KERNEL_TERMS]);

// Seconds of `task` when nothing else wants its cores. False when nobody measured such a kernel.
bool ot_price_measured_kernel(const ot_cluster *cluster, const ot_task *task, double *seconds);

// Seconds of `collective` from when all have come; `bytes` as of ot_collective. False when nobody
// measured such a collective among any number of ranks.
bool ot_price_measured_collective(const ot_cluster *cluster, const char *op, int ranks,
                                  double bytes, double *seconds);
