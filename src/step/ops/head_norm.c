// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of the normalisation of queries and keys (qk-norm).
#include "ops/head_norm.h"

#include "ops/operands.h"
#include "ops/rope.h"

static ot_status check_weights(const char *op, const ot_op_attributes *attributes,
                               const ot_tensor_type *wq, const ot_tensor_type *wk) {
  const ot_head_groups groups = ot_head_groups_of(attributes);
  OT_CHECK(attributes->norm_width == 0 || attributes->norm_width == attributes->head_dim, OT_BUG,
           "%s: norm_width is %lld, expected 0 or head_dim %lld", op,
           (long long)attributes->norm_width, (long long)attributes->head_dim);
  OT_TRY(ot_operand_check(wq, (ot_expected){op, "wq", OT_ANY_REAL, 1, {groups.q_width}}));
  return ot_operand_check(wk, (ot_expected){op, "wk", OT_ANY_REAL, 1, {groups.k_width}});
}

static int64_t packed_width(const ot_op_attributes *attributes) {
  return (attributes->num_heads + 2 * attributes->num_kv_heads) * attributes->head_dim;
}

static ot_status check_means(const char *op, const ot_op_attributes *attributes, int64_t rows,
                             const ot_tensor_type *means) {
  OT_CHECK(!ot_type_present(means) || attributes->norm_width == 0, OT_BUG,
           "%s: means are given, but norm_width selects per-head norms", op);
  return ot_operand_check_optional(
      means, (ot_expected){op, "means", (int)attributes->compute, 2, {rows, 2}});
}

// Positions and the table after them; both or none.
static ot_status check_positions(const char *op, const ot_op_attributes *attributes, int64_t rows,
                                 const ot_tensor_type *positions) {
  if (!ot_type_present(&positions[0]) && !ot_type_present(&positions[1])) return OT_OK;
  OT_CHECK(attributes->norm_width > 0 && attributes->head_dim <= OT_ROTATED_HEAD, OT_BUG,
           "%s: positions are given for norms over %lld elements, expected those of heads of up to "
           "%d",
           op, (long long)(attributes->norm_width > 0 ? attributes->head_dim : 0), OT_ROTATED_HEAD);
  return ot_rope_check(op, attributes, rows, &positions[0], &positions[1]);
}

// One row of the table is read per token.
static ot_cost cost_of_rows(const ot_op_info *info, const ot_op_attributes *attributes,
                            const ot_op_types *types, int positions) {
  ot_op_types rows = *types;
  const double elements = (double)ot_type_elements(&types->in[0]);
  const bool rotates = ot_type_present(&types->in[positions]);
  const double each = (info == &ot_head_norm_info ? 4 : 10) + (rotates ? 3 : 0);
  if (rotates) rows.in[positions + 1].dim[0] = types->in[0].dim[0];
  return ot_cost_of_traffic(info, attributes, &rows, each * elements);
}

static ot_status head_norm_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "head_norm";
  const int64_t width = packed_width(attributes);
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "qkv", OT_ANY_REAL, 2, {0, width}}));
  OT_TRY(check_weights(op, attributes, &types->in[1], &types->in[2]));
  OT_TRY(check_means(op, attributes, types->in[0].dim[0], &types->in[3]));
  OT_TRY(check_positions(op, attributes, types->in[0].dim[0], &types->in[4]));
  const ot_head_groups groups = ot_head_groups_of(attributes);
  types->out[0] = types->in[0];
  types->out[1] =
      ot_type_matrix(attributes->compute, types->in[0].dim[0], groups.q_groups + groups.k_groups);
  return OT_OK;
}

static ot_cost head_norm_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return cost_of_rows(&ot_head_norm_info, attributes, types, 4);
}

static ot_status head_norm_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "head_norm_grad";
  const int64_t width = packed_width(attributes);
  const ot_head_groups groups = ot_head_groups_of(attributes);
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dy", OT_ANY_REAL, 2, {0, width}}));
  const int64_t rows = types->in[0].dim[0];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "qkv", OT_ANY_REAL, 2, {rows, width}}));
  OT_TRY(check_weights(op, attributes, &types->in[2], &types->in[3]));
  OT_TRY(ot_operand_check(
      &types->in[4],
      (ot_expected){
          op, "rstd", (int)attributes->compute, 2, {rows, groups.q_groups + groups.k_groups}}));
  OT_TRY(check_means(op, attributes, rows, &types->in[5]));
  OT_TRY(check_positions(op, attributes, rows, &types->in[6]));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_cost head_norm_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return cost_of_rows(&ot_head_norm_grad_info, attributes, types, 6);
}

// ---- partial means ----

static ot_status head_means_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "head_means";
  const int64_t width = packed_width(attributes);
  OT_CHECK(attributes->norm_width == 0, OT_BUG, "%s: norm_width is %lld, expected 0", op,
           (long long)attributes->norm_width);
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "qkv", OT_ANY_REAL, 2, {0, width}}));
  const int64_t rows = types->in[0].dim[0];
  types->out[0] = ot_type_matrix(attributes->compute, rows, 2);
  if (!ot_type_present(&types->in[1])) return OT_OK;
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "dy", OT_ANY_REAL, 2, {rows, width}}));
  OT_TRY(check_weights(op, attributes, &types->in[2], &types->in[3]));
  return ot_operand_check(&types->in[4],
                          (ot_expected){op, "rstd", (int)attributes->compute, 2, {rows, 2}});
}

static ot_cost head_means_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  const double each = ot_type_present(&types->in[1]) ? 4 : 2;
  return ot_cost_of_traffic(&ot_head_means_info, attributes, types, each * elements);
}

const ot_op_info ot_head_means_info = {
    .name = "head_means",
    .num_inputs = 5,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4,
    .infer = head_means_infer,
    .cost = head_means_cost,
};

// Not cheap: the gradient of attention reads y before the gradient here runs, so that y would be
// recomputed by a pass of its own.
const ot_op_info ot_head_norm_info = {
    .name = "head_norm",
    .num_inputs = 6,
    .num_outputs = 2,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 3 | 1u << 4 | 1u << 5,
    .infer = head_norm_infer,
    .cost = head_norm_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_HEAD_NORM_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0},
                    {OT_REF_INPUT, 0},
                    {OT_REF_INPUT, 1},
                    {OT_REF_INPUT, 2},
                    {OT_REF_OUTPUT, 1},
                    {OT_REF_NONE, 0},
                    {OT_REF_INPUT, 4},
                    {OT_REF_INPUT, 5}},
             .out = {{OT_REF_DINPUT, 0}, {OT_REF_ACCUMULATOR, 1}, {OT_REF_ACCUMULATOR, 2}}}},
};

const ot_op_info ot_head_norm_grad_info = {
    .name = "head_norm_grad",
    .num_inputs = 8,
    .num_outputs = 3,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 5 | 1u << 6 | 1u << 7,
    .optional_outputs = 1u << 1 | 1u << 2,
    .accumulated_outputs = 1u << 1 | 1u << 2,
    .infer = head_norm_grad_infer,
    .cost = head_norm_grad_cost,
};
