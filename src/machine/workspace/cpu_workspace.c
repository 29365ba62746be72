// SPDX-License-Identifier: Apache-2.0
// Workspaces of CPU kernels.
#include "workspace/cpu_workspace.h"

#include <assert.h>
#include <stddef.h>

#include "base/extremes.h"
#include "base/status.h"
#include "ops/attention.h"
#include "ops/decode.h"
#include "ops/grouped.h"
#include "ops/head.h"
#include "ops/head_norm.h"
#include "ops/operands.h"
#include "ops/route.h"
#include "workspace/blocks.h"
#include "workspace/muon_layout.h"
#include "workspace/workspace_rules.h"

enum {
  VECTOR_BYTES = 64,
  WIDENED_ELEMENTS = 1 << 19,  // of w, widened at a time: a compromise between the size of the
                               // workspace and the cost of a pass over x for each block
  WIDENED_UNIT = 64,
};

static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Elements that fill whole cache lines.
static int64_t padded(int64_t elements) { return round_up(elements, 16); }

// The offset of `elements` more after `*top`, a multiple of 64 bytes.
static int64_t reserve(int64_t *top, int64_t elements) {
  const int64_t at = *top;
  *top += padded(elements);
  return at;
}

static int64_t compute_bytes(const ot_op_execution *op) {
  return ot_dtype_bytes(op->attributes->compute);
}

// ---- linear layers ----

// Rows of C elements that are widened at a time.
static int64_t widened_rows(int64_t C) {
  const int64_t rows = WIDENED_ELEMENTS / C / WIDENED_UNIT * WIDENED_UNIT;
  return rows > WIDENED_UNIT ? rows : WIDENED_UNIT;
}

ot_linear_layout ot_linear_layout_of(ot_dtype compute, const ot_tensor_type *rows,
                                     const ot_tensor_type *outputs, const ot_tensor_type *w,
                                     bool has_bias_gradient) {
  const int64_t R = rows->dim[0];
  const int64_t C = rows->dim[1];
  const int64_t O = outputs->dim[1];
  const bool multiplies = ot_type_present(w);
  const bool widens_w = multiplies && w->dtype != compute;
  const bool widens_outputs = multiplies && outputs->dtype != compute;
  const int64_t block = widens_w || widens_outputs ? ot_smaller_whole(widened_rows(C), O) : O;
  ot_linear_layout layout = {.block = block, .w = -1, .wide = -1, .tall = -1, .sums = -1};
  int64_t *const top = &layout.elements;
  if (widens_w) layout.w = reserve(top, block * C);
  if (multiplies && rows->dtype != compute) layout.wide = reserve(top, R * C);
  if (widens_outputs) layout.tall = reserve(top, R * block);
  if (has_bias_gradient) layout.sums = reserve(top, ot_row_blocks(R) * O);
  return layout;
}

static int64_t linear(const ot_op_execution *op) {
  const ot_op_types *const t = op->types;
  const ot_linear_layout layout =
      ot_linear_layout_of(op->attributes->compute, &t->in[0], &t->out[0], &t->in[1], false);
  return layout.elements * compute_bytes(op);
}

static int64_t linear_dx(const ot_op_execution *op) {
  const ot_op_types *const t = op->types;
  const ot_linear_layout layout =
      ot_linear_layout_of(op->attributes->compute, &t->out[0], &t->in[0], &t->in[1], false);
  return layout.elements * compute_bytes(op);
}

static int64_t linear_dw(const ot_op_execution *op) {
  const ot_op_types *const t = op->types;
  const bool bias = ot_type_present(&t->out[1]);
  const ot_linear_layout layout =
      ot_linear_layout_of(op->attributes->compute, &t->in[1], &t->in[0], &t->out[0], bias);
  return layout.elements * compute_bytes(op);
}

// ---- products of experts ----

enum { BLOCK_COLUMNS = 256, TILE_ROWS = 128, SUMMED_ROWS = 512 };
static_assert(TILE_ROWS % OT_GROUPED_ROWS == 0 && BLOCK_COLUMNS % OT_GROUPED_COLUMNS == 0,
              "whole register tiles");

ot_grouped_layout ot_grouped_layout_of(const ot_op_attributes *attributes, ot_op_kind kind,
                                       const ot_op_types *types) {
  const ot_tensor_type *const in = types->in;
  const int64_t N = in[0].dim[0];
  ot_grouped_layout l = {.E = ot_route_local_experts(attributes)};
  if (kind == OT_OP_GROUPED_LINEAR_DW) {
    l.block = ot_smaller_whole(BLOCK_COLUMNS, in[0].dim[1]);
    l.depth = ot_smaller_whole(SUMMED_ROWS, N);
    l.operand = in[0].dtype == attributes->compute ? 0 : padded(l.depth * l.block);
    l.matrix = in[1].dtype == attributes->compute ? 0 : padded(l.depth * in[1].dim[1]);
    l.result = types->out[0].dtype == attributes->compute ? 0 : padded(l.block * in[1].dim[1]);
    l.elements = l.operand + l.matrix + l.result;
    return l;
  }
  l.depth = in[0].dim[1];
  l.block = ot_smaller_whole(BLOCK_COLUMNS, types->out[0].dim[1]);
  l.tile = round_up(ot_smaller_whole(TILE_ROWS, N), OT_GROUPED_ROWS);
  const int64_t columns = round_up(l.block, OT_GROUPED_COLUMNS);
  const bool narrow = in[0].dtype != attributes->compute;
  l.matrix = columns * l.depth;
  l.operand = padded((narrow ? l.tile : OT_GROUPED_ROWS) * l.depth);
  l.result = l.tile * columns;
  l.elements = l.matrix + l.operand + l.result;
  return l;
}

static int64_t grouped(const ot_op_execution *op) {
  const ot_grouped_layout layout = ot_grouped_layout_of(op->attributes, op->kind, op->types);
  return layout.elements * compute_bytes(op) * op->attributes->threads;
}

// ---- norms ----

// The widened weights, and `sums` rows of sums per block of rows.
static int64_t norm_grad(const ot_op_execution *op, int64_t sums) {
  const ot_tensor_type *const dy = &op->types->in[0];
  return (1 + sums * ot_row_blocks(dy->dim[0])) * dy->dim[1] * compute_bytes(op);
}

static int64_t rmsnorm_grad(const ot_op_execution *op) { return norm_grad(op, 1); }

static int64_t layernorm_grad(const ot_op_execution *op) { return norm_grad(op, 2); }

static int64_t head_norm_grad(const ot_op_execution *op) {
  const ot_head_groups groups = ot_head_groups_of(op->attributes);
  const int64_t width = groups.q_width + groups.k_width;
  return ot_row_blocks(op->types->in[0].dim[0]) * width * compute_bytes(op);
}

// The widened query, and per block of rows its sums and two numbers per source.
static int64_t residual_attention_grad(const ot_op_execution *op) {
  const ot_tensor_type *const stack = &op->types->in[2];
  const int64_t sources = stack->dim[0] + (ot_type_present(&op->types->in[3]) ? 1 : 0);
  const int64_t each = stack->dim[2] + 2 * sources;
  return (stack->dim[2] + ot_row_blocks(stack->dim[1]) * each) * compute_bytes(op);
}

// ---- attention ----

enum {
  KEY_UNIT = 8,
  UNITS_A_THREAD = 4,       // forward: units per thread, to keep the load imbalance small
  BACKWARD_UNITS_LEAST = 8  // backward: depends only on the shape, since partial sums are added in
                            // order
};

static bool is_gradient(ot_op_kind kind) {
  return kind == OT_OP_ATTENTION_GRAD || kind == OT_OP_ATTENTION_BLOCK_GRAD;
}

ot_attention_layout ot_attention_layout_of(ot_op_kind kind, const ot_op_attributes *attributes,
                                           const ot_tensor_type *qkv) {
  const bool backward = is_gradient(kind);
  const int64_t T = attributes->sequence_length;
  const int64_t groups = qkv->dim[0] / T * attributes->num_kv_heads;
  const int64_t tiles = (T + OT_ATTENTION_QUERIES - 1) / OT_ATTENTION_QUERIES *
                        (attributes->num_heads / attributes->num_kv_heads);
  const int64_t wanted =
      backward ? BACKWARD_UNITS_LEAST : (int64_t)attributes->threads * UNITS_A_THREAD;
  const int64_t parts = (wanted + groups - 1) / groups;
  const int64_t width =
      round_up(attributes->head_dim, VECTOR_BYTES / ot_dtype_bytes(attributes->compute));
  ot_attention_layout layout = {
      .parts = parts < tiles ? parts : tiles, .keys = round_up(T, KEY_UNIT), .width = width};
  layout.units = groups * layout.parts;
  const int64_t sequences = layout.keys * width;
  const int64_t tile = OT_ATTENTION_QUERIES * width;
  const int64_t scores = OT_ATTENTION_QUERIES * OT_ATTENTION_KEYS;
  // forward: k, v; q and o transposed; scores.
  // backward: k, v, dk, dv; q, do, each also transposed, and dq transposed; p, ds.
  layout.slot =
      backward ? 4 * sequences + 5 * tile + 2 * scores : 2 * sequences + 2 * tile + scores;
  layout.partial = backward && layout.parts > 1 ? 2 * sequences : 0;
  layout.maxima = attributes->threads * layout.slot + layout.units * layout.partial;
  layout.elements = layout.maxima + (backward ? 0 : padded(layout.units * 2));
  return layout;
}

static int64_t attention(const ot_op_execution *op) {
  const ot_tensor_type *const qkv = &op->types->in[is_gradient(op->kind) ? 1 : 0];
  const ot_attention_layout layout = ot_attention_layout_of(op->kind, op->attributes, qkv);
  return layout.elements * compute_bytes(op);
}

ot_decode_layout ot_decode_layout_of(const ot_op_attributes *attributes) {
  const int64_t lanes = VECTOR_BYTES / ot_dtype_bytes(attributes->compute);
  const int64_t width = round_up(attributes->head_dim, lanes);
  const int64_t rows = OT_DECODE_ROWS * (attributes->num_heads / attributes->num_kv_heads);
  ot_decode_layout layout = {.width = width};
  layout.keys = layout.queries + rows * width;
  layout.values = layout.keys + OT_DECODE_KEYS * width;
  layout.scores = layout.values + OT_DECODE_KEYS * width;
  layout.sums = layout.scores + rows * OT_DECODE_KEYS;
  layout.state = layout.sums + rows * width;
  layout.elements = layout.state + round_up(2 * rows, lanes);
  return layout;
}

// A list of units [R, 2] int32, then the scratch of each thread.
static int64_t attention_decode(const ot_op_execution *op) {
  const int64_t list = round_up(op->types->in[0].dim[0] * 8, VECTOR_BYTES);
  const int64_t elements = ot_decode_layout_of(op->attributes).elements;
  return list + op->attributes->threads * elements * compute_bytes(op);
}

// Per thread: the absorbed query and the rotated one, the mean of latents, and scores.
static int64_t latent_decode(const ot_op_execution *op) {
  const int64_t elements = 2 * op->types->in[2].dim[2] + ot_paged_slots(&op->types->in[6]);
  return op->attributes->threads * elements * compute_bytes(op);
}

// ---- head ----

ot_head_layout ot_head_layout_of(ot_op_kind kind, const ot_op_attributes *attributes,
                                 const ot_op_types *types) {
  const ot_dtype compute = attributes->compute;
  const int64_t C = types->in[0].dim[1];
  const int64_t V = types->in[1].dim[0];
  const bool whole = kind == OT_OP_HEAD_LOGITS;
  const ot_tensor_type *const dw = &types->out[1];
  const bool loss = kind == OT_OP_HEAD_LOSS;
  const bool widens_dw = loss && ot_type_present(dw) && dw->dtype != compute;
  const bool widens_w = types->in[1].dtype != compute || widens_dw;
  const bool widens_x = types->in[0].dtype != compute;
  ot_head_layout layout = {.chunk = ot_head_logits_of(kind, attributes, types).chunk,
                           .stride = whole ? V : padded(V),
                           .block = widens_w ? ot_smaller_whole(widened_rows(C), V) : V,
                           .logits = -1,
                           .x = -1,
                           .w = -1,
                           .dx = -1,
                           .nats = -1};
  const int64_t nats = ot_type_present(&types->in[5]) ? 2 : 1;
  int64_t *const top = &layout.elements;
  if (!whole) layout.nats = reserve(top, layout.chunk * 2 * nats);
  if (!whole) layout.logits = reserve(top, layout.chunk * layout.stride);
  if (widens_x) layout.x = reserve(top, layout.chunk * C);
  if (widens_w) layout.w = reserve(top, layout.block * C);
  if (loss && widens_x) layout.dx = reserve(top, layout.chunk * C);
  return layout;
}

static int64_t head(const ot_op_execution *op) {
  return ot_head_layout_of(op->kind, op->attributes, op->types).elements * compute_bytes(op);
}

static ot_tensor_type chunk_of(const ot_op_execution *op, const ot_tensor_type *x) {
  return ot_type_matrix(x->dtype, op->attributes->chunk_rows, x->dim[1]);
}

// The workspaces of the products.
static int64_t head_statistics(const ot_op_execution *op) {
  const ot_op_types *const t = op->types;
  const ot_op_types product = {.in = {chunk_of(op, &t->in[0]), t->in[1]}, .out = {t->out[0]}};
  return linear(&(ot_op_execution){OT_OP_LINEAR, op->attributes, &product});
}

static int64_t head_gradient(const ot_op_execution *op) {
  const ot_op_types *const t = op->types;
  const ot_tensor_type x = chunk_of(op, &t->in[2]);
  const ot_op_types dx = {.in = {t->in[1], t->in[3]}, .out = {x}};
  const ot_op_types dw = {.in = {t->in[1], x}, .out = {t->out[1]}};
  return ot_larger_whole(linear_dx(&(ot_op_execution){OT_OP_LINEAR_DX, op->attributes, &dx}),
                         linear_dw(&(ot_op_execution){OT_OP_LINEAR_DW, op->attributes, &dw}));
}

// ---- embedding, routing ----

// For a bf16 table: the first row of each id, and after each row the next row with the same id.
static int64_t scatter(const ot_op_execution *op) {
  const ot_tensor_type *const table = &op->types->out[0];
  if (table->dtype == op->attributes->compute) return 0;
  return (table->dim[0] + op->types->in[0].dim[0]) * (int64_t)sizeof(int32_t);
}

// Per expert, the best tokens so far of a sequence; preceded by gates and experts of all ranks'
// tokens where they take part in the choice.
static int64_t route(const ot_op_execution *op) {
  const ot_op_attributes *const a = op->attributes;
  const bool all = ot_type_present(&op->types->in[2]);
  const int64_t rows = op->types->in[all ? 2 : 0].dim[0];
  const int64_t slot = compute_bytes(op) + (int64_t)sizeof(int32_t);
  const int64_t bytes = all ? rows * ot_route_slots(a) * slot : 0;
  const bool ranks = a->routing == OT_MOE_DROP_BY_SCORE || a->routing == OT_MOE_EXPERT_CHOICE;
  if (!ranks) return bytes;
  const int64_t kept = rows / ot_route_tokens(a) * a->num_experts;
  return bytes + kept * a->capacity * (int64_t)sizeof(int32_t);
}

// Two sums per block of rows.
static int64_t route_loss(const ot_op_execution *op) {
  return ot_row_blocks(op->types->in[0].dim[0]) * 2 * (int64_t)sizeof(double);
}

// ---- optimizer ----

static int64_t flat_sums(int64_t items, int64_t sums) {
  return ot_flat_blocks(items) * sums * (int64_t)sizeof(double);
}

static int64_t sum_squares(const ot_op_execution *op) {
  return flat_sums(ot_type_elements(&op->types->in[0]), 1);
}

static int64_t adamw(const ot_op_execution *op) {
  return flat_sums(ot_type_elements(&op->types->in[0]), 2);
}

static int64_t muon(const ot_op_execution *op) {
  const ot_tensor_type *const g = &op->types->in[0];
  const ot_muon_layout layout = ot_muon_layout_of(g->dim[0], g->dim[1], op->attributes->compute);
  return layout.sums + flat_sums(g->dim[0] * g->dim[1], 2);
}

const ot_kernel_needs ot_cpu_needs[OT_OP_COUNT] = {
    [OT_OP_EMBEDDING_GRAD] = {.workspace = scatter},
    [OT_OP_POSITION_GRAD] = {.workspace = scatter},
    [OT_OP_LINEAR] = {.workspace = linear},
    [OT_OP_LINEAR_DX] = {.workspace = linear_dx},
    [OT_OP_LINEAR_DW] = {.workspace = linear_dw},
    [OT_OP_LINEAR_WIDE] = {.workspace = linear},
    [OT_OP_LINEAR_WIDE_DX] = {.workspace = linear_dx},
    [OT_OP_RMSNORM_GRAD] = {.workspace = rmsnorm_grad},
    [OT_OP_LAYERNORM_GRAD] = {.workspace = layernorm_grad},
    [OT_OP_HEAD_NORM_GRAD] = {.workspace = head_norm_grad},
    [OT_OP_ATTENTION] = {.workspace = attention},
    [OT_OP_ATTENTION_GRAD] = {.workspace = attention},
    [OT_OP_ATTENTION_BLOCK] = {.workspace = attention},
    [OT_OP_ATTENTION_BLOCK_GRAD] = {.workspace = attention},
    [OT_OP_ATTENTION_DECODE] = {.workspace = attention_decode},
    [OT_OP_LATENT_DECODE] = {.workspace = latent_decode},
    [OT_OP_HEAD_LOSS] = {.workspace = head},
    [OT_OP_HEAD_EVALUATE] = {.workspace = head},
    [OT_OP_HEAD_SCORE] = {.workspace = head},
    [OT_OP_HEAD_LOGITS] = {.workspace = head},
    [OT_OP_HEAD_DRAW] = {.workspace = head},
    [OT_OP_HEAD_STATISTICS] = {.workspace = head_statistics},
    [OT_OP_HEAD_DLOGITS] = {.workspace = ot_head_nats_workspace},
    [OT_OP_HEAD_GRADIENT] = {.workspace = head_gradient},
    [OT_OP_HEAD_GRADIENT_LAST] = {.workspace = head_gradient},
    [OT_OP_ROUTE] = {.workspace = route},
    [OT_OP_ROUTE_LOSS] = {.workspace = route_loss},
    [OT_OP_GROUPED_LINEAR] = {.workspace = grouped},
    [OT_OP_GROUPED_LINEAR_DX] = {.workspace = grouped},
    [OT_OP_GROUPED_LINEAR_DW] = {.workspace = grouped},
    [OT_OP_RESIDUAL_ATTENTION_GRAD] = {.workspace = residual_attention_grad},
    [OT_OP_SUM_SQUARES] = {.workspace = sum_squares},
    [OT_OP_ADAMW] = {.workspace = adamw},
    [OT_OP_MUON] = {.workspace = muon},
    [OT_OP_REDUCE_SCATTER] = {.workspace = ot_reduce_scatter_workspace},
    [OT_OP_ALL_REDUCE] = {.workspace = ot_all_reduce_workspace},
};
