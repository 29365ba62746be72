// SPDX-License-Identifier: Apache-2.0
// The price of a live teacher in a step, for plans and for predictions of runs
// alike: it reads each micro-batch once, with all its weights on one rank.
#pragma once

#include "describe/cluster.h"
#include "describe/run.h"

typedef struct ot_teacher_price {
  int64_t parameters;    // 0: there is no teacher
  int64_t bytes;         // of its arena, on each rank that runs it
  double micro_batch_s;  // to read one of the run's micro-batches
} ot_teacher_price;

// Finds the price of the teacher of a run, whose model is in files.
typedef struct ot_teacher_pricer {
  // cluster  as its ranks see it (ot_cluster_share)
  ot_status (*price)(void *context, const ot_run *run, const ot_cluster *cluster, int threads,
                     ot_teacher_price *out);
  void *context;
} ot_teacher_pricer;

// Seconds by which the teacher makes a step of `step_s` longer. Without ranks of its own it reads a
// rank's micro-batches before the step, on the ranks with the head; on `ranks` of its own, which
// share those of `dp` ranks, the next step's while this one runs.
double ot_teacher_wait_s(const ot_teacher_price *price, int ranks, int dp, int64_t micro_batches,
                         double step_s);
