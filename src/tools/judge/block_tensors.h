// SPDX-License-Identifier: Apache-2.0
// The tensors of one block after another: weights, read from files into the parameters of a graph,
// and values of parameters, such as gradients, in the order of the files. A line is a row of a
// file. Memory is reserved once, for the largest block.
#pragma once

#include "checkpoint/weights.h"
#include "judge/plain.h"

// Elements [first, first + count) of a tensor in the order of its file to `out` [count]; blocks.
typedef struct ot_block_reader {
  ot_status (*read)(void *context, const ot_weight_tensor *tensor, int64_t first, int64_t count,
                    double *out);
  void *context;
} ot_block_reader;

typedef struct ot_block_tensors {
  const ot_graph *graph;
  ot_block_reader reader;
  ot_weight_map map;
  int block;             // that is loaded
  int64_t *offset;       // [num_parameters] the parameter's first element in a buffer for its block
  int64_t elements;      // of the largest block: of such a buffer
  double *wide;          // [elements] weights of the loaded block
  float *narrow;         // [elements] the same
  float *rounded;        // [elements] the same, rounded to bf16; null: that type is not wanted
  const void **weights;  // [num_parameters] scratch of ot_block_tensors_weights
} ot_block_tensors;

// `types`: those that are wanted, 1 << OT_PLAIN_F64 | ... Keeps `graph`; memory is
// in `arena`.
ot_status ot_block_tensors_create(const ot_graph *graph, const ot_block_reader *reader,
                                  unsigned types, ot_arena *arena, ot_block_tensors *out);

// Reads the weights of a block, which replace those of the block before. A tied head has the
// weights of the embedding. Errors are those of the reader. Blocks.
ot_status ot_block_tensors_load(ot_block_tensors *tensors, int block);

// [num_parameters of the loaded block] its weights for ot_plain_block, of a wanted type; valid
// until the next call.
const void *const *ot_block_tensors_weights(const ot_block_tensors *tensors, ot_plain_type type);

static inline int64_t ot_weight_lines(const ot_weight_tensor *t) {
  return t->transposed ? t->cols : t->rows;
}

static inline int64_t ot_weight_line_elements(const ot_weight_tensor *t) {
  return t->transposed ? t->rows : t->cols;
}

// Lines of a tensor that are read and measured at once: all, or about 2^18 elements, at least one
// line.
int64_t ot_weight_chunk_lines(const ot_weight_tensor *tensor);

// Lines [first, first + count) of a tensor, made of values of parameters.
typedef struct ot_weight_lines_request {
  const ot_graph *graph;
  const ot_weight_tensor *tensor;
  int64_t first, count;
  ot_dtype dtype;             // of the values: OT_F64 or OT_F32
  const void *const *values;  // [num_parameters] those of the tensor: [rows, cols]
  bool add;                   // to what `out` has
} ot_weight_lines_request;

void ot_weight_lines_gather(const ot_weight_lines_request *request, double *out);
