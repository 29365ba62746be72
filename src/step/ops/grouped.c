// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of the grouped GEMM of experts.
#include "ops/grouped.h"

#include "ops/operands.h"
#include "ops/route.h"

static ot_status check_experts(const char *op, const ot_op_attributes *attributes, int64_t rows,
                               const ot_tensor_type *offsets) {
  const int64_t E = ot_route_local_experts(attributes);
  OT_TRY(ot_operand_check(offsets, (ot_expected){op, "offsets", OT_I32, 1, {E + 1}}));
  OT_CHECK(rows % E == 0, OT_BUG, "%s: w has %lld rows for %lld experts", op, (long long)rows,
           (long long)E);
  return OT_OK;
}

static ot_status grouped_linear_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "grouped_linear";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t C = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "w", OT_ANY_REAL, 2, {0, C}}));
  OT_TRY(check_experts(op, attributes, types->in[1].dim[0], &types->in[2]));
  OT_TRY(ot_operand_check_optional(
      &types->in[3], (ot_expected){op, "bias", OT_ANY_REAL, 1, {types->in[1].dim[0]}}));
  types->out[0] = ot_type_matrix(types->in[0].dtype, types->in[0].dim[0],
                                 types->in[1].dim[0] / ot_route_local_experts(attributes));
  return OT_OK;
}

static ot_status grouped_linear_dx_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "grouped_linear_dx";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dy", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t rows = types->in[0].dim[1] * ot_route_local_experts(attributes);
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "w", OT_ANY_REAL, 2, {rows, 0}}));
  OT_TRY(check_experts(op, attributes, rows, &types->in[2]));
  types->out[0] = ot_type_matrix(types->in[0].dtype, types->in[0].dim[0], types->in[1].dim[1]);
  return OT_OK;
}

static ot_status grouped_linear_dw_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "grouped_linear_dw";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dy", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t N = types->in[0].dim[0];
  const int64_t rows = types->in[0].dim[1] * ot_route_local_experts(attributes);
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "x", OT_ANY_REAL, 2, {N, 0}}));
  OT_TRY(check_experts(op, attributes, rows, &types->in[2]));
  OT_TRY(ot_operand_check_optional(&types->out[1],
                                   (ot_expected){op, "dbias", OT_ANY_REAL, 1, {rows}}));
  return ot_operand_check(&types->out[0],
                          (ot_expected){op, "dw", OT_ANY_REAL, 2, {rows, types->in[1].dim[1]}});
}

// ---- cost ----

// FLOPs are 2 N O C for the rows in use: all N except dropped and remote ones. Only experts with
// rows are read.
// Bytes of padding rows of `type`, which are not read.
static double unread_bytes(const ot_op_attributes *attributes, const ot_tensor_type *type) {
  const double rows = (double)type->dim[0];
  return (1 - ot_route_used(attributes, type->dim[0]) / rows) * (double)ot_type_bytes(type);
}

static ot_cost product_cost(const ot_op_info *info, const ot_op_attributes *attributes,
                            const ot_op_types *types, double width) {
  const double N = ot_route_used(attributes, types->in[0].dim[0]);
  const double E = (double)ot_route_local_experts(attributes);
  const double met = N < E ? N : E;
  ot_cost cost = ot_cost_of_traffic(info, attributes, types, 0);
  cost.matrix_flops = 2 * N * (double)types->in[0].dim[1] * width;
  cost.bytes_read -= (1 - met / E) * (double)ot_type_bytes(&types->in[1]);
  cost.bytes_read -= unread_bytes(attributes, &types->in[0]);
  // The rows of an expert are rounded up.
  cost.padded_flops = cost.matrix_flops * met * (OT_GROUPED_ROWS - 1) / 2 / N;
  return cost;
}

static ot_cost grouped_linear_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double width = (double)types->in[1].dim[0] / (double)ot_route_local_experts(attributes);
  ot_cost cost = product_cost(&ot_grouped_linear_info, attributes, types, width);
  const bool biased = ot_type_present(&types->in[3]);
  if (biased) cost.other_flops = ot_route_used(attributes, types->in[0].dim[0]) * width;
  return cost;
}

static ot_cost grouped_linear_dx_cost(const ot_op_attributes *attributes,
                                      const ot_op_types *types) {
  return product_cost(&ot_grouped_linear_dx_info, attributes, types, (double)types->in[1].dim[1]);
}

static ot_cost grouped_linear_dw_cost(const ot_op_attributes *attributes,
                                      const ot_op_types *types) {
  ot_cost cost = ot_cost_of_traffic(&ot_grouped_linear_dw_info, attributes, types, 0);
  const double N = ot_route_used(attributes, types->in[0].dim[0]);
  cost.matrix_flops = 2 * N * (double)types->in[0].dim[1] * (double)types->in[1].dim[1];
  for (int i = 0; i < 2; i++) cost.bytes_read -= unread_bytes(attributes, &types->in[i]);
  if (ot_type_present(&types->out[1])) cost.other_flops = N * (double)types->in[0].dim[1];
  return cost;
}

const ot_op_info ot_grouped_linear_info = {
    .name = "grouped_linear",
    .num_inputs = 4,
    .num_outputs = 1,
    .optional_inputs = 1u << 3,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_GROUPED,
    .infer = grouped_linear_infer,
    .cost = grouped_linear_cost,
    .num_vjp_steps = 2,
    .vjp = {{.op = OT_OP_GROUPED_LINEAR_DX,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 1}, {OT_REF_INPUT, 2}},
             .out = {{OT_REF_DINPUT, 0}}},
            {.op = OT_OP_GROUPED_LINEAR_DW,
             .phase = OT_VJP_WEIGHT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 0}, {OT_REF_INPUT, 2}},
             .out = {{OT_REF_ACCUMULATOR, 1}, {OT_REF_ACCUMULATOR, 3}}}},
};

const ot_op_info ot_grouped_linear_dx_info = {
    .name = "grouped_linear_dx",
    .num_inputs = 3,
    .num_outputs = 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_GROUPED,
    .infer = grouped_linear_dx_infer,
    .cost = grouped_linear_dx_cost,
};

const ot_op_info ot_grouped_linear_dw_info = {
    .name = "grouped_linear_dw",
    .num_inputs = 3,
    .num_outputs = 2,
    .optional_outputs = 1u << 1,
    .accumulated_outputs = 1u << 0 | 1u << 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_GROUPED,
    .infer = grouped_linear_dw_infer,
    .cost = grouped_linear_dw_cost,
};
