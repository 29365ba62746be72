// SPDX-License-Identifier: Apache-2.0
// Layouts of the workspaces of CUDA kernels, which size them and place their regions. Pure.
#pragma once

#include "ops/op.h"
#include "workspace/blocks.h"

// ---- how work is divided into blocks of threads ----

enum {
  OT_CUDA_FLAT_BLOCKS = 1056,  // for sums over whole tensors, at most: 8 on each of 132
  OT_CUDA_FLAT_ITEMS = 1024,   // elements of one, at least
  OT_CUDA_PARTS = 264,         // of rows, for gradients of weights
  OT_HEAD_NORM_PARTS = 2 * OT_CUDA_PARTS,
  OT_ATTENTION_BLOCK_QUERIES = 16,  // queries of a head that one block has, at least
  OT_DECODE_SLOTS = 64,             // slots of a cache that one block has
};

static inline int64_t ot_cuda_flat_blocks(int64_t items) {
  return ot_block_count(items, OT_CUDA_FLAT_BLOCKS, OT_CUDA_FLAT_ITEMS);
}

// The rows of each of at most `most` parts, and the number of parts.
static inline int64_t ot_rows_of_part(int64_t rows, int64_t most) {
  return rows > most ? (rows + most - 1) / most : 1;
}

static inline int64_t ot_parts_of_rows(int64_t rows, int64_t most) {
  const int64_t each = ot_rows_of_part(rows, most);
  return rows > 0 ? (rows + each - 1) / each : 1;
}

// Number of blocks for a sequence of `slots`.
static inline int64_t ot_decode_parts(int64_t slots) {
  return (slots + OT_DECODE_SLOTS - 1) / OT_DECODE_SLOTS;
}

// The slots of each of the parts that OT_OP_EXPERT_BIAS_DW sums, and their number: the more experts
// there are, the fewer.
static inline int64_t ot_expert_bias_slots(int64_t slots, int64_t num_experts) {
  const int64_t most = num_experts < 264 ? 264 / num_experts : 1, least = 1024;
  const int64_t each = (slots + most - 1) / most;
  return each > least ? each : least;
}

static inline int64_t ot_expert_bias_parts(int64_t slots, int64_t num_experts) {
  const int64_t each = ot_expert_bias_slots(slots, num_experts);
  return slots > 0 ? (slots + each - 1) / each : 1;
}

// Slots of OT_OP_SORT_BY_EXPERT are sorted in parts of this many consecutive ones, at least as many
// as there are experts.
static inline int64_t ot_route_sort_each(int64_t slots, int64_t num_experts) {
  const int64_t most = 1056, least = num_experts > 256 ? num_experts : 256;
  const int64_t each = (slots + most - 1) / most;
  return ((each > least ? each : least) + 31) / 32 * 32;
}

static inline int64_t ot_route_sort_parts(int64_t slots, int64_t num_experts) {
  const int64_t each = ot_route_sort_each(slots, num_experts);
  return slots > 0 ? (slots + each - 1) / each : 1;
}

// ---- head.h, head_parts.h: in bytes ----

// Elements between rows of logits.
int64_t ot_cuda_logits_stride(int64_t V);

// bf16 products run at a fraction of their speed where the extent of a row of an operand is no
// multiple of 16 bytes, whatever its stride. In the head these are rows of V logits. So if V is no
// multiple of 8 and the rows of x are not few, w is copied with zero rows up to the stride of
// logits, so that two of the three products have that extent; the third, dw, is one of V - V % 8
// rows and one of the rest (kernels/cuda/head_products.cuh).
bool ot_cuda_head_pads(const ot_op_attributes *attributes, const ot_tensor_type *x,
                       const ot_tensor_type *w, int64_t rows);

// Logits are stored as ot_head_logits_of says; their gradient replaces them.
typedef struct ot_cuda_head_layout {
  int64_t chunk, stride;
  int64_t nats;    // [R] f64, with weights twice
  int64_t w;       // [stride, C]: w and zero rows; -1: w itself serves
  int64_t logits;  // [chunk, stride]
  ot_dtype logits_dtype;
  int64_t total_bytes;
} ot_cuda_head_layout;

ot_cuda_head_layout ot_cuda_head_layout_of(ot_op_kind kind, const ot_op_attributes *attributes,
                                           const ot_op_types *types);

// The workspace of OT_OP_HEAD_STATISTICS: nothing, or where ot_cuda_head_pads is true the logits
// and the copy of w.
typedef struct ot_cuda_head_statistics_layout {
  int64_t stride;
  int64_t logits;  // [chunk, stride]
  int64_t w;       // [stride, C]: w and zero rows
  int64_t total_bytes;
} ot_cuda_head_statistics_layout;

// Reads the types of x and w.
ot_cuda_head_statistics_layout ot_cuda_head_statistics_layout_of(const ot_op_attributes *attributes,
                                                                 const ot_op_types *types);

// The workspace of OT_OP_HEAD_GRADIENT: with bf16 x, dlogits are narrowed before the products, and
// w is copied where ot_cuda_head_pads is true.
typedef struct ot_cuda_head_gradient_layout {
  int64_t stride;   // elements between rows of dlogits in the workspace
  int64_t dlogits;  // [chunk, stride]
  int64_t w;        // [stride, C]: w and zero rows; -1: w itself serves
  int64_t total_bytes;
} ot_cuda_head_gradient_layout;

// Reads the types of x and w.
ot_cuda_head_gradient_layout ot_cuda_head_gradient_layout_of(const ot_op_attributes *attributes,
                                                             const ot_op_types *types);
