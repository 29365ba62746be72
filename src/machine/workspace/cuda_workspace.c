// SPDX-License-Identifier: Apache-2.0
// Workspaces of CUDA kernels, and the calls that a launch joins.
#include "workspace/cuda_workspace.h"

#include <stddef.h>

#include "ops/decode.h"
#include "ops/head.h"
#include "ops/head_norm.h"
#include "ops/route.h"
#include "workspace/muon_layout.h"
#include "workspace/workspace.h"
#include "workspace/workspace_rules.h"

enum { DOUBLE = 8, WORD = 4 };  // bytes

static int64_t compute_bytes(const ot_op_execution *op) {
  return ot_dtype_bytes(op->attributes->compute);
}

// Rows of the first input.
static int64_t rows_of(const ot_op_execution *op) { return op->types->in[0].dim[0]; }

// ---- linear layers, norms ----

// Sums of blocks of rows.
static int64_t linear_dw(const ot_op_execution *op) {
  if (!ot_type_present(&op->types->out[1])) return 0;
  return ot_row_blocks(rows_of(op)) * op->types->in[0].dim[1] * compute_bytes(op);
}

// `sums` rows of sums per part.
static int64_t norm_grad(const ot_op_execution *op, int64_t sums) {
  const int64_t rows = sums * ot_parts_of_rows(rows_of(op), OT_CUDA_PARTS);
  return rows * op->types->in[0].dim[1] * compute_bytes(op);
}

static int64_t rmsnorm_grad(const ot_op_execution *op) { return norm_grad(op, 1); }

static int64_t layernorm_grad(const ot_op_execution *op) { return norm_grad(op, 2); }

static int64_t head_norm_grad(const ot_op_execution *op) {
  const ot_head_groups groups = ot_head_groups_of(op->attributes);
  const int64_t width = groups.q_width + groups.k_width;
  return ot_parts_of_rows(rows_of(op), OT_HEAD_NORM_PARTS) * width * compute_bytes(op);
}

// Per part of the rows, its sums and two numbers per source.
static int64_t residual_attention_grad(const ot_op_execution *op) {
  const ot_tensor_type *const stack = &op->types->in[2];
  const int64_t sources = stack->dim[0] + (ot_type_present(&op->types->in[3]) ? 1 : 0);
  const int64_t each = stack->dim[2] + 2 * sources;
  return ot_parts_of_rows(stack->dim[1], OT_CUDA_PARTS) * each * compute_bytes(op);
}

// ---- attention ----

// The largest score of each block.
static int64_t attention(const ot_op_execution *op) {
  const int64_t T = op->attributes->sequence_length;
  const int64_t tiles = (T + OT_ATTENTION_BLOCK_QUERIES - 1) / OT_ATTENTION_BLOCK_QUERIES;
  return rows_of(op) / T * op->attributes->num_heads * tiles * DOUBLE;
}

// do . o of each token and head.
static int64_t attention_grad(const ot_op_execution *op) {
  return rows_of(op) * op->attributes->num_heads * compute_bytes(op);
}

// Sums of blocks of tokens.
static int64_t attention_sinks_grad(const ot_op_execution *op) {
  return ot_row_blocks(rows_of(op)) * op->attributes->num_heads * DOUBLE;
}

// For each head and part of the slots the largest score, the sum and the sum of values.
static int64_t attention_decode(const ot_op_execution *op) {
  const int64_t units = rows_of(op) * op->attributes->num_heads;
  const int64_t parts = ot_decode_parts(ot_paged_slots(&op->types->in[4]));
  return units * parts * (2 + op->attributes->head_dim) * compute_bytes(op);
}

// The absorbed and the rotated query of each head, the mean of latents, and parts as above.
static int64_t latent_decode(const ot_op_execution *op) {
  const int64_t K = op->types->in[1].dim[1], cached = op->types->in[2].dim[2];
  const int64_t parts = ot_decode_parts(ot_paged_slots(&op->types->in[6])) * (2 + K);
  return rows_of(op) * op->attributes->num_heads * (cached + K + parts) * compute_bytes(op);
}

// ---- head ----

int64_t ot_cuda_logits_stride(int64_t V) { return (V + 63) / 64 * 64; }

bool ot_cuda_head_pads(const ot_op_attributes *attributes, const ot_tensor_type *x,
                       const ot_tensor_type *w, int64_t rows) {
  enum { LEAST_ROWS = 128, UNIT = 8 };  // with fewer rows the copy costs more than it gains
  const bool narrow = x->dtype == OT_BF16 && w->dtype == OT_BF16 && attributes->compute == OT_F32;
  return narrow && w->dim[0] % UNIT != 0 && rows >= LEAST_ROWS;
}

ot_cuda_head_layout ot_cuda_head_layout_of(ot_op_kind kind, const ot_op_attributes *attributes,
                                           const ot_op_types *types) {
  enum { ALIGNMENT = 256 };  // bytes of a region
  const ot_tensor_type *const w = &types->in[1];
  const int64_t R = types->in[0].dim[0];
  const ot_head_logits logits = ot_head_logits_of(kind, attributes, types);
  ot_cuda_head_layout layout = {.chunk = logits.chunk,
                                .stride = ot_cuda_logits_stride(w->dim[0]),
                                .w = -1,
                                .logits_dtype = logits.dtype};
  if (kind == OT_OP_HEAD_LOGITS) return layout;
  const int64_t nats = ot_type_present(&types->in[5]) ? 2 : 1;
  layout.logits = (R * DOUBLE * nats + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (ot_cuda_head_pads(attributes, &types->in[0], w, R)) {
    layout.w = layout.logits;
    const int64_t bytes = layout.stride * w->dim[1] * ot_dtype_bytes(w->dtype);
    layout.logits += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
  const int64_t elements = layout.chunk * layout.stride;
  layout.total_bytes = layout.logits + elements * ot_dtype_bytes(layout.logits_dtype);
  return layout;
}

static int64_t head(const ot_op_execution *op) {
  return ot_cuda_head_layout_of(op->kind, op->attributes, op->types).total_bytes;
}

ot_cuda_head_statistics_layout ot_cuda_head_statistics_layout_of(const ot_op_attributes *attributes,
                                                                 const ot_op_types *types) {
  const ot_tensor_type *const x = &types->in[0], *const w = &types->in[1];
  const int64_t rows = attributes->chunk_rows;
  ot_cuda_head_statistics_layout layout = {.stride = ot_cuda_logits_stride(w->dim[0])};
  if (!ot_cuda_head_pads(attributes, x, w, rows)) return layout;
  layout.w = rows * layout.stride * ot_dtype_bytes(attributes->compute);
  layout.total_bytes = layout.w + layout.stride * w->dim[1] * ot_dtype_bytes(w->dtype);
  return layout;
}

static int64_t head_statistics(const ot_op_execution *op) {
  return ot_cuda_head_statistics_layout_of(op->attributes, op->types).total_bytes;
}

ot_cuda_head_gradient_layout ot_cuda_head_gradient_layout_of(const ot_op_attributes *attributes,
                                                             const ot_op_types *types) {
  const ot_tensor_type *const x = &types->in[2], *const w = &types->in[3];
  const int64_t rows = attributes->chunk_rows, V = w->dim[0];
  ot_cuda_head_gradient_layout layout = {.stride = ot_cuda_logits_stride(V), .w = -1};
  if (x->dtype != OT_BF16) return layout;
  layout.total_bytes = rows * layout.stride * ot_dtype_bytes(OT_BF16);
  if (!ot_cuda_head_pads(attributes, x, w, rows)) return layout;
  layout.w = layout.total_bytes;
  layout.total_bytes = layout.w + layout.stride * w->dim[1] * ot_dtype_bytes(w->dtype);
  return layout;
}

static int64_t head_gradient(const ot_op_execution *op) {
  return ot_cuda_head_gradient_layout_of(op->attributes, op->types).total_bytes;
}

// ---- embedding, routing, experts ----

// The rows sorted by id, and their ids.
static int64_t sorted_rows(const ot_op_execution *op) { return 2 * rows_of(op) * WORD; }

// Gates and experts of all ranks' tokens where they take part in the choice.
static int64_t route(const ot_op_execution *op) {
  const ot_tensor_type *const all = &op->types->in[2];
  if (!ot_type_present(all)) return 0;
  return all->dim[0] * ot_route_slots(op->attributes) * (compute_bytes(op) + WORD);
}

// Slots of each expert in each part, and in all.
static int64_t sort_by_expert(const ot_op_execution *op) {
  const int64_t E = op->attributes->num_experts;
  const int64_t parts = ot_route_sort_parts(ot_type_elements(&op->types->in[0]), E);
  return E * (parts + 1) * WORD;
}

// Three sums per part of the rows.
static int64_t route_loss(const ot_op_execution *op) {
  return ot_parts_of_rows(rows_of(op), OT_CUDA_PARTS) * 3 * DOUBLE;
}

// The sums of parts of the slots.
static int64_t expert_bias_dw(const ot_op_execution *op) {
  const int64_t E = op->attributes->num_experts;
  const int64_t parts = ot_expert_bias_parts(ot_type_elements(&op->types->in[2]), E);
  return parts * E * op->types->in[0].dim[1] * compute_bytes(op);
}

// Rows that are sent, or received, in several runs, one for each expert, as NCCL sends them: in
// one.
static int64_t staged(const ot_op_execution *op, const ot_tensor_type *here) {
  return op->attributes->held_experts > 1 ? ot_type_bytes(here) : 0;
}

static int64_t all_to_all_v(const ot_op_execution *op) { return staged(op, &op->types->out[0]); }

static int64_t all_to_all_v_back(const ot_op_execution *op) {
  return staged(op, &op->types->in[1]);
}

// ---- optimizer, checksums ----

static int64_t flat_blocks(const ot_op_execution *op) {
  return ot_cuda_flat_blocks(ot_type_elements(&op->types->in[0]));
}

// A sum for each block.
static int64_t flat_sum(const ot_op_execution *op) { return flat_blocks(op) * DOUBLE; }

static int64_t adamw(const ot_op_execution *op) { return 2 * flat_blocks(op) * DOUBLE; }

static int64_t muon(const ot_op_execution *op) {
  const ot_tensor_type *const g = &op->types->in[0];
  const ot_muon_layout layout = ot_muon_layout_of(g->dim[0], g->dim[1], op->attributes->compute);
  return layout.sums + (2 * flat_blocks(op) + 1) * DOUBLE;
}

// The arguments of OT_JOINED_MOST calls are below the 4 KiB that a launch can have.
const ot_kernel_needs ot_cuda_needs[OT_OP_COUNT] = {
    [OT_OP_EMBEDDING_GRAD] = {.workspace = sorted_rows},
    [OT_OP_POSITION_GRAD] = {.workspace = sorted_rows},
    [OT_OP_LINEAR_DW] = {.workspace = linear_dw},
    [OT_OP_RMSNORM_GRAD] = {.workspace = rmsnorm_grad},
    [OT_OP_LAYERNORM_GRAD] = {.workspace = layernorm_grad},
    [OT_OP_HEAD_NORM_GRAD] = {.workspace = head_norm_grad},
    [OT_OP_ATTENTION] = {.workspace = attention},
    [OT_OP_ATTENTION_GRAD] = {.workspace = attention_grad},
    [OT_OP_ATTENTION_SINKS_GRAD] = {.workspace = attention_sinks_grad},
    [OT_OP_ATTENTION_BLOCK] = {.workspace = attention},
    [OT_OP_ATTENTION_BLOCK_GRAD] = {.workspace = attention_grad},
    [OT_OP_ATTENTION_DECODE] = {.workspace = attention_decode},
    [OT_OP_LATENT_DECODE] = {.workspace = latent_decode},
    [OT_OP_HEAD_LOSS] = {.workspace = head},
    [OT_OP_HEAD_EVALUATE] = {.workspace = head},
    [OT_OP_HEAD_SCORE] = {.workspace = head},
    [OT_OP_HEAD_DRAW] = {.workspace = head},
    [OT_OP_HEAD_STATISTICS] = {.workspace = head_statistics},
    [OT_OP_HEAD_DLOGITS] = {.workspace = ot_head_nats_workspace},
    [OT_OP_HEAD_GRADIENT] = {.workspace = head_gradient},
    [OT_OP_HEAD_GRADIENT_LAST] = {.workspace = head_gradient},
    [OT_OP_HEAD_COUNT] = {.workspace = ot_head_nats_workspace},
    [OT_OP_ROUTE] = {.workspace = route},
    [OT_OP_SORT_BY_EXPERT] = {.workspace = sort_by_expert},
    [OT_OP_ROUTE_LOSS] = {.workspace = route_loss},
    [OT_OP_EXPERT_BIAS_DW] = {.workspace = expert_bias_dw},
    [OT_OP_RESIDUAL_ATTENTION_GRAD] = {.workspace = residual_attention_grad},
    [OT_OP_SUM_SQUARES] = {.workspace = flat_sum, .joined = OT_JOINED_MOST},
    [OT_OP_ADAMW] = {.workspace = adamw, .joined = OT_JOINED_MOST},
    [OT_OP_MUON] = {.workspace = muon},
    [OT_OP_CHECKSUM] = {.workspace = flat_sum},
    [OT_OP_REDUCE_SCATTER] = {.workspace = ot_reduce_scatter_workspace},
    [OT_OP_ALL_REDUCE] = {.workspace = ot_all_reduce_workspace},
    [OT_OP_ALL_TO_ALL_V] = {.workspace = all_to_all_v},
    [OT_OP_ALL_TO_ALL_V_BACK] = {.workspace = all_to_all_v_back},
};
