// SPDX-License-Identifier: Apache-2.0
// State that program_runner.c fills and runner_compare.c reads.
#pragma once

#include "host/heap.h"
#include "kernels/kernels.h"
#include "support/op_case.h"
#include "support/program_runner.h"

enum { RUNNER_MAX_RANKS = 16 };

typedef struct runner_rank {
  ot_graph graph;
  void *batch[OT_BATCH_FIELDS];
  void *constant[OT_MAX_CONSTANTS];
  double scalars[OT_STEP_SCALARS];
  double *statistics;  // [num_blocks][OT_BLOCK_STATISTICS]
  void **weight;       // [num_parameters]; a tied use shares its owner's
  void **gradient;     // [num_parameters], one per use
  bool *added;         // [num_parameters] the gradient has been written
  void ***value;       // [num_blocks][num_values of its program]
} runner_rank;

struct runner {
  ot_heap heap;
  ot_arena arena;
  runner_request request;
  int ranks;
  runner_rank *rank;  // [ranks]
};

const ot_program *runner_program(const runner_rank *rank, int block);

// Position in the whole sequence of token `row` of a sequence on this rank.
int64_t runner_place(const runner *r, int rank, int64_t row);
