// SPDX-License-Identifier: Apache-2.0
// Runs one micro-batch of a model forward and backward on the programs of its graph, for all ranks
// of a tp x cp split in one thread: kernels rank by rank, collectives as loops over the memory of
// all ranks. No schedule, no arena layout, no threads: only the semantics of a program. Weights,
// tokens and documents are functions of their global index, so any two splits compute the same
// result.
#pragma once

#include "graph/graph.h"

typedef struct runner_request {
  const ot_model *model;  // kept
  ot_mode mode;           // train or evaluate
  int tp, cp;
  ot_context_parallel context;
  int64_t micro_batch_size, sequence_length, head_chunk_rows;
  ot_dtype compute, storage;
} runner_request;

typedef struct runner runner;

// Builds the graph of every rank and fills weights and batch. Fails the test on an error.
void runner_create(const runner_request *request, runner **out);
void runner_destroy(runner **r);

// Runs all blocks forward, then (in train mode) backward, rank by rank.
void runner_run(runner *r);

// The graph of a rank; rank = cp_index * tp + tp_index.
const ot_graph *runner_graph(const runner *r, int rank);

// Fails unless two runs of one model agree: output of every block and its gradient, loss, maxima,
// and the gradient of every HF tensor, reduced over the ranks that its parts and cp specify.
// Tolerance is relative to the largest magnitude of each tensor.
void runner_expect_equal(runner *whole, runner *split, double tolerance);
