// SPDX-License-Identifier: Apache-2.0
// Trainable tensors of a model as the graph builders lay them out. A parameter is a row-major
// matrix (or vector) inside the flat bucket of its block; it is made of *parts*, the smallest
// pieces with a meaning of their own (q, k, v, gate, up): what Muon treats as one matrix, what
// norms are reported for, and what maps to a slice of a tensor in HF files.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum ot_parameter_kind {
  OT_PARAMETER_MATRIX,     // weight of a linear layer inside a block: Muon, decay
  OT_PARAMETER_EMBEDDING,  // token and position tables, output head: AdamW, decay
  OT_PARAMETER_VECTOR,     // norms and biases: AdamW, no decay
  OT_PARAMETER_BUFFER,     // kept, split and saved as weights are, but no weight: the bias of a
                           // router, whose accumulator holds loads (ops/route_balance.h)
} ot_parameter_kind;

typedef enum ot_initial { OT_INITIAL_NORMAL, OT_INITIAL_ZERO, OT_INITIAL_ONE } ot_initial;

// A name that ends in "[i]" is that of matrix (or vector) i of a tensor of several.
// One slice: rows [first_row, first_row + rows) of the parameter are the entries
// [hf_first, hf_first + rows) along the output dimension, of size hf_rows, of tensor `hf_name`, and
// of those the columns [hf_first_col, hf_first_col + cols of the parameter) of hf_cols. Where a
// tensor is split over tp, a rank's parameter holds its rows or its columns only.
typedef struct ot_parameter_part {
  const char *hf_name;
  int64_t first_row, rows;
  int64_t hf_first, hf_rows;
  int64_t hf_first_col, hf_cols;
  bool transposed;   // HF stores [in, out] (GPT-2's Conv1D); never for vectors
  bool interleaved;  // HF has the rows of the tensor's two halves in turn, 0, n/2, 1, n/2 + 1, ...
  int sum_group;     // ot_group_kind whose ranks hold copies of this part and use them on different
                     // values, so that its gradient is a sum over them; -1: none (data and context
                     // parallel ranks aside, over which every gradient is a sum)
  bool counted;      // this rank counts the part (norms, files): the first that holds the copy
} ot_parameter_part;

typedef struct ot_parameter {
  const char *name;    // unique, "layers.3.attention.qkv.weight"
  int block;           // index of the block whose bucket holds it
  int64_t offset;      // elements from the start of the bucket; a multiple of 32
  int rank;            // 1 or 2
  int64_t rows, cols;  // of this rank; cols = 1 for vectors
  ot_parameter_kind kind;
  ot_initial initial;
  double initial_std;  // of OT_INITIAL_NORMAL
  int tied_to;         // parameter whose storage this use reads, or -1. A tied use has an
                       // accumulator of its own and no weights; it has no parts
  int num_parts;
  ot_parameter_part *parts;  // [num_parts], covering rows in order without gaps
} ot_parameter;

static inline int64_t ot_parameter_elements(const ot_parameter *parameter) {
  return parameter->rows * parameter->cols;
}

// True for weights with a gradient of their own: no tied use, no buffer.
static inline bool ot_parameter_is_trained(const ot_parameter *parameter) {
  return parameter->tied_to < 0 && parameter->kind != OT_PARAMETER_BUFFER;
}
