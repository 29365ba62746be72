// SPDX-License-Identifier: Apache-2.0
// The plain model: a second implementation of the forward and backward pass of every decoder, in
// loops that a person can read, by which training steps of other software, and of Orthant itself,
// are computed again. It shares only the matrix product with the kernels of the trainer. Blocks and
// their parameters are those of a graph of the whole model on one rank in train mode: embedding,
// layers, head. The caller runs them one after another and keeps what they exchange; nothing but
// scratch lasts from call to call, and a layer computes its values again for its gradient. Dropout
// is off.
#pragma once

#include "graph/graph.h"
#include "host/heap.h"

// How a step is computed. Values are stored as double for OT_PLAIN_F64, else as float.
typedef enum ot_plain_type {
  OT_PLAIN_F64,
  OT_PLAIN_F32,
  OT_PLAIN_BF16,      // modules in bf16: their results and gradients are rounded to bf16; inside a
                      // norm, a softmax and the loss, values are float32. Weights are given rounded
  OT_PLAIN_AUTOCAST,  // operands and results of matrix products are rounded to bf16, except
                      // attention scores, which fused kernels keep; the rest is float32
} ot_plain_type;

// Losses whose gradients are wanted.
enum {
  OT_PLAIN_MAIN = 1,     // of the targets
  OT_PLAIN_BALANCE = 2,  // load balancing, with the coefficient of the model (ot_moe_aux_weight)
  OT_PLAIN_Z = 4,        // model.moe.z_coefficient times the mean squared log-sum-exp of the router
};

// The tokens of a step, or of some of its micro-batches: R rows, one sequence after another.
typedef struct ot_plain_batch {
  int64_t rows;              // R >= 1
  const int32_t *ids;        // [R]
  const int32_t *targets;    // [R]; -1: none
  const int32_t *positions;  // [R]
  const int64_t *first;      // [R] first row that the row may see: where its document begins
  const double *weights;     // [R] factor of the row in the loss: 1 / number of targets of the step
  // Experts are balanced within groups of consecutive rows: sequences, or micro-batches.
  int num_groups;
  const int64_t *group_end;  // [num_groups] the row after each group, ascending, the last one R
  double group_weight;       // factor of each group in router losses: 1 / number of groups
  const bool *counted;       // [R] rows that router losses are of; null: all
  const double *shares;  // [num_groups, E] share of the slots of a group that each expert has in
                         // the balancing loss, where that is not the layer's own (a loss over
                         // all layers together); null: the layer's own
  const int32_t *const *choices;  // [num_layers][R, k] experts of each token, in any order; the
                                  // array or a layer null: chosen by the scores
} ot_plain_batch;

// Memory of calls, in pieces, each twice as large as all before. Models of which one is called
// after another may share it. Zero at first; ends with ot_heap_release of its heap.
enum { OT_PLAIN_MOST_PIECES = 48 };

typedef struct ot_plain_scratch {
  ot_heap heap;
  char *piece[OT_PLAIN_MOST_PIECES];
  int64_t bytes[OT_PLAIN_MOST_PIECES];
} ot_plain_scratch;

typedef struct ot_plain_request {
  const ot_graph *graph;        // kept
  const ot_plain_batch *batch;  // kept
  ot_plain_type type;
  bool reversed;  // another order of sums: the second half of each matrix product first, rows
                  // backwards. bf16 mostly hides that, so there half of the numbers are also
                  // rounded to either neighbour, as after other roundings before them
  int threads;
  unsigned losses;            // OT_PLAIN_MAIN | ...
  ot_plain_scratch *scratch;  // kept; null: the model has its own
} ot_plain_request;

// The graph of the whole model for a batch of `rows` rows, in `arena`; keeps `model`.
ot_status ot_plain_build_graph(const ot_model *model, int64_t rows, ot_arena *arena, ot_graph *out);

typedef struct ot_plain ot_plain;

// OT_USAGE for a graph that is sharded, a routing that drops tokens, parameters that the plain
// model does not know, and a batch with values out of range.
ot_status ot_plain_create(const ot_plain_request *request, ot_plain **out);
void ot_plain_destroy(ot_plain **plain);

// OT_F64 or OT_F32: the dtype of all tensors below, called real.
ot_dtype ot_plain_dtype(ot_plain_type type);

// N: the number of [R, C] tensors that enter block `block`: 0 for the embedding, else 1 or, with
// Attention Residuals, the embedding, the outputs of finished blocks of sub-layers and the partial
// sum of the current one. What a block returns enters the next one.
int64_t ot_plain_inputs(const ot_plain *plain, int block);

// The router of a MoE layer.
typedef struct ot_plain_router {
  const int32_t *choices;  // [R, k], given or chosen; valid until the next call, as is the next
  const void *merits;      // [R, E] real: scores with their bias, of which the largest are chosen
  double balance, z;       // losses before their coefficients, times group weights
} ot_plain_router;

// A block with its parameters in the graph's order: graph->blocks[index].num_parameters pointers,
// each to [rows, cols] real. A tied head has the weight of the embedding.
typedef struct ot_plain_block {
  int index;  // in graph->blocks
  const void *const *weights;
  void *const *gradients;  // to these, gradients are added; null, or for one parameter: not wanted.
                           // Buffers have none
  ot_plain_router *router;  // receives the router of the layer, zeros if it has none; or null
} ot_plain_block;

// The embedding and layers.
//   x [N, R, C] real, null for the embedding -> y [N of the next block, R, C] real, not x
void ot_plain_forward(ot_plain *plain, const ot_plain_block *block, const void *x, void *y);

// The gradient of the embedding or a layer.
//   x as in forward, dy [N of the next block, R, C] -> dx [N, R, C], null for the embedding; not dy
void ot_plain_backward(ot_plain *plain, const ot_plain_block *block, const void *x, const void *dy,
                       void *dx);

// The head. Returns the loss of the targets, in nats times weights; dx [N, R, C] receives its
// gradient (zero without OT_PLAIN_MAIN). With dx null no gradient is computed.
double ot_plain_head(ot_plain *plain, const ot_plain_block *block, const void *x, void *dx);

// The logits [V] of row `row`, valid during the call.
typedef void ot_plain_row(void *context, int64_t row, const double *logits);

// Calls `receive` with the logits of each row, in order.
void ot_plain_logits(ot_plain *plain, const ot_plain_block *block, const void *x,
                     ot_plain_row *receive, void *context);
