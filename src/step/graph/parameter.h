// SPDX-License-Identifier: Apache-2.0
// Trainable tensors of a model as the graph builders lay them out. A parameter is a row-major
// matrix (or vector) inside the flat bucket of its block. It consists of *parts* (q, k, v, gate,
// up): the unit that an optimizer of whole matrices updates, that norms are reported for and that
// maps to a slice of a tensor in HF files.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum ot_parameter_kind {
  OT_PARAMETER_MATRIX,     // weight of a linear layer inside a block: the run's optimizer, decay
  OT_PARAMETER_EMBEDDING,  // token and position tables, output head: AdamW, decay
  OT_PARAMETER_VECTOR,     // norms and biases: AdamW, no decay
  OT_PARAMETER_BUFFER,     // placed, sharded and saved like weights but not trained by gradients:
                           // the router's bias, whose accumulator holds expert loads
                           // (ops/route_balance.h)
} ot_parameter_kind;

typedef enum ot_initial {
  OT_INITIAL_NORMAL,
  OT_INITIAL_ZERO,
  OT_INITIAL_GAIN,  // of a norm: 1, less the norm's offset
} ot_initial;

// A name that ends in "[i]" is matrix (or vector) i of a stacked tensor. One slice maps rows
// [first_row, first_row + rows) of the parameter to rows [hf_first, hf_first + rows) of the hf_rows
// of tensor `hf_name` (its output dimension), and all columns of the parameter to the columns from
// hf_first_col on of the hf_cols. With tp a rank's parameter holds only its rows or columns.
typedef struct ot_parameter_part {
  const char *hf_name;
  int64_t first_row, rows;
  int64_t hf_first, hf_rows;
  int64_t hf_first_col, hf_cols;
  bool transposed;   // HF stores [in, out] (GPT-2's Conv1D); never for vectors
  bool interleaved;  // HF interleaves the rows of the tensor's two halves: 0, n/2, 1, n/2 + 1, ...
  int sum_group;     // ot_group_kind whose ranks hold copies of this part and use them on different
                     // values, so that its gradient is reduced over them; -1: none (besides dp and
                     // cp, over which every gradient is reduced)
  bool counted;      // this rank counts the part (norms, files): the first rank that holds a copy
  // Set by the parametrization (graph/parametrize.h).
  double initial;  // OT_INITIAL_NORMAL: the standard deviation, else the value
  double
      constant;  // that the weight includes: its gradient times this is that of the weight without
  double rate_factor, decay_factor, epsilon_factor;  // multiply the optimizer's lr, weight_decay
                                                     // and eps
} ot_parameter_part;

typedef struct ot_parameter {
  const char *name;    // unique, "layers.3.attention.qkv.weight"
  int block;           // index of the block whose bucket holds it
  int64_t offset;      // elements from the start of the bucket; a multiple of 32
  int rank;            // 1 or 2
  int64_t rows, cols;  // of this rank; cols = 1 for vectors
  ot_parameter_kind kind;
  ot_initial initial;
  double initial_std;  // of OT_INITIAL_NORMAL, in the standard parametrization
  int tied_to;         // parameter whose storage this use reads, or -1. A tied use has its own
                       // accumulator, but no weights and no parts
  int num_parts;
  ot_parameter_part *parts;  // [num_parts], covering rows in order without gaps
} ot_parameter;

static inline int64_t ot_parameter_elements(const ot_parameter *parameter) {
  return parameter->rows * parameter->cols;
}

// True for weights with their own gradient: not for tied uses and buffers.
static inline bool ot_parameter_is_trained(const ot_parameter *parameter) {
  return parameter->tied_to < 0 && parameter->kind != OT_PARAMETER_BUFFER;
}
