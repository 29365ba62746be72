// SPDX-License-Identifier: Apache-2.0
// Recomputation: gradients of some samples, computed by the rank that trains on them and again by
// another rank of data parallelism with the same weights, must have the same bits before they are
// reduced. A rank that computes wrong bits is found although no replica of its result exists.
//
//   data rank     0      1      2      3
//   own           g(0)   g(1)   g(2)   g(3)
//   neighbour's   g(1)'  g(2)'  g(3)'  g(0)'     g(i)' != g(i): rank i - 1 or rank i
//
// Both then repeat theirs. A rank that does not repeat its own bits has a transient fault, else a
// third rank decides, if there is one. With experts, the neighbour is that of another group of
// ranks that share their experts.
#pragma once

#include "train/loop.h"

typedef struct ot_compute_audit {
  bool noted;  // the run was told what is not covered
} ot_compute_audit;

// The callback of an ot_loop_check; `audit` is an ot_compute_audit. Takes no step. Collective
// over the world. Blocks. Costs two forward and backward passes of one micro-batch, of as many as a
// step has if the pipeline needs them.
ot_status ot_compute_check(void *audit, ot_trainer *trainer, ot_arena *arena,
                           ot_loop_findings *findings);
