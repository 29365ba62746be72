// SPDX-License-Identifier: Apache-2.0
// Runs one micro-batch of a model forward and backward on the programs of its graph, for all ranks
// of a tp x cp split side by side in one thread: kernels for each rank in turn, collectives by hand
// over the ranks' memory. No schedule, no arena layout, no threads: what a program means, and no
// more. Weights, tokens and documents are functions of their place in the whole, so that any two
// splits run the same thing.
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

// Builds the graph of every rank and fills weights and batch. A refusal fails the test.
void runner_create(const runner_request *request, runner **out);
void runner_destroy(runner **r);

// All blocks forward, then backward (in train mode), each rank in its turn.
void runner_run(runner *r);

// The graph of a rank; rank = cp_index * tp + tp_index.
const ot_graph *runner_graph(const runner *r, int rank);

// Fails unless two runs of one model agree: output and its gradient at every block's end, loss,
// maxima, and the gradient of every HF tensor, summed over the ranks that its parts and cp say;
// differences up to `tolerance` of the largest magnitude of each tensor.
void runner_expect_equal(runner *whole, runner *split, double tolerance);
