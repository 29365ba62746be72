// SPDX-License-Identifier: Apache-2.0
// RMSNorm of the queries and keys inside packed rows q|k|v; the values pass unchanged.
//
// A group is the set of elements under one root mean square: each head when norm_width = head_dim
// (qwen3; weights wq [D] and wk [D] shared by the heads), the whole q and the whole k of a row when
// norm_width = 0 (olmo2, olmo3, olmoe; wq [H*D], wk [G*D]).
// OT_OP_HEAD_NORM       y = x * rstd * (w + norm_offset), rstd = 1 / sqrt(mean(x^2) + epsilon)
//   qkv [R, (H+2G)*D] real -> y stored like qkv, rstd [R, H+G] (or [R, 2]) compute type.
//   With positions [R] i32 and table (rope.h), for norms per head: y is then rotated as by
//   OT_OP_ROPE, in the same pass and without a rounding in between. D is at most OT_ROTATED_HEAD.
// OT_OP_HEAD_NORM_GRAD  as rmsnorm_grad in each group; dx of the values is dy. With positions, dy
// is
//   the gradient of the rotated y.
//   dy, qkv [R, (H+2G)*D] real -> dx stored like dy, acc dwq, acc dwk real, each may be
//   absent. Sums over rows are made by blocks of rows (blocks.h), heads in order within a row.
// With norm_width = 0 the heads may be sharded over the ranks of attributes.group. Then each of the
// two ops is a composite (graph/expand.h): OT_OP_HEAD_MEANS computes m of this rank, [R, 2] compute
// type, for q and k; with n = group_size
//   without dy  sum(x^2) / (n * width)
//   with dy     sum(dy * (w + norm_offset) * x) * rstd / (n * width)
// The sum of m over the ranks is the mean over the whole row, also with replicated k heads; the op
// then reads it as `means`.
// Attributes: num_heads, num_kv_heads, head_dim, norm_width, norm_offset, epsilon, rotary_dim.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_head_norm_info;
extern const ot_op_info ot_head_norm_grad_info;
extern const ot_op_info ot_head_means_info;

enum { OT_ROTATED_HEAD = 1024 };

// How a packed row is divided into groups.
typedef struct ot_head_groups {
  int64_t q_groups, k_groups;  // H and G, or 1 and 1
  int64_t q_width, k_width;    // elements of a group, and of wq and wk
  int64_t v_width;             // elements copied unchanged
} ot_head_groups;

static inline ot_head_groups ot_head_groups_of(const ot_op_attributes *attributes) {
  const int64_t heads = attributes->num_heads;
  const int64_t kv_heads = attributes->num_kv_heads;
  const int64_t head_dim = attributes->head_dim;
  const bool whole = attributes->norm_width == 0;
  return (ot_head_groups){.q_groups = whole ? 1 : heads,
                          .k_groups = whole ? 1 : kv_heads,
                          .q_width = whole ? heads * head_dim : head_dim,
                          .k_width = whole ? kv_heads * head_dim : head_dim,
                          .v_width = kv_heads * head_dim};
}
