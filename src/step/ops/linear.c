// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of linear layers.
#include "ops/linear.h"

#include "ops/operands.h"

static ot_status linear_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const char *const op = "linear";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t R = types->in[0].dim[0];
  const int64_t C = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "w", OT_ANY_REAL, 2, {0, C}}));
  const int64_t O = types->in[1].dim[0];
  OT_TRY(ot_operand_check_optional(&types->in[2], (ot_expected){op, "bias", OT_ANY_REAL, 1, {O}}));
  OT_TRY(ot_operand_check_optional(&types->in[3],
                                   (ot_expected){op, "residual", OT_ANY_REAL, 2, {R, O}}));
  types->out[0] = ot_type_matrix(types->in[0].dtype, R, O);
  return OT_OK;
}

static ot_status linear_dx_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const char *const op = "linear_dx";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dy", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t R = types->in[0].dim[0];
  const int64_t O = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "w", OT_ANY_REAL, 2, {O, 0}}));
  const int64_t C = types->in[1].dim[1];
  OT_TRY(ot_operand_check_optional(&types->in[2],
                                   (ot_expected){op, "partial", OT_ANY_REAL, 2, {R, C}}));
  types->out[0] = ot_type_matrix(types->in[0].dtype, R, C);
  return OT_OK;
}

static ot_status linear_dw_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const char *const op = "linear_dw";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dy", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t R = types->in[0].dim[0];
  const int64_t O = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "x", OT_ANY_REAL, 2, {R, 0}}));
  const int64_t C = types->in[1].dim[1];
  OT_TRY(
      ot_operand_check_optional(&types->out[0], (ot_expected){op, "dw", OT_ANY_REAL, 2, {O, C}}));
  OT_TRY(
      ot_operand_check_optional(&types->out[1], (ot_expected){op, "dbias", OT_ANY_REAL, 1, {O}}));
  return OT_OK;
}

static ot_status linear_wide_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  OT_TRY(linear_infer(attributes, types));
  types->out[0].dtype = attributes->compute;
  return OT_OK;
}

static ot_status linear_wide_dx_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  OT_TRY(linear_dx_infer(attributes, types));
  types->out[0].dtype = types->in[1].dtype;
  return OT_OK;
}

// 2 R O C FLOPs. Inputs 0 and 1 share one of the three extents, dimension `shared_dim` of input 0.
static double multiply_flops(const ot_op_types *types, int shared_dim) {
  return 2 * (double)ot_type_elements(&types->in[0]) * (double)ot_type_elements(&types->in[1]) /
         (double)types->in[0].dim[shared_dim];
}

static ot_cost linear_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const int additions = ot_type_present(&types->in[2]) + ot_type_present(&types->in[3]);
  const double elements = (double)ot_type_elements(&types->out[0]);
  ot_cost cost = ot_cost_of_traffic(&ot_linear_info, attributes, types, additions * elements);
  cost.matrix_flops = multiply_flops(types, 1);
  return cost;
}

static ot_cost linear_dx_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double additions = (double)ot_type_elements(&types->in[2]);
  ot_cost cost = ot_cost_of_traffic(&ot_linear_dx_info, attributes, types, additions);
  cost.matrix_flops = multiply_flops(types, 1);
  return cost;
}

static ot_cost linear_dw_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const bool has_bias = ot_type_present(&types->out[1]);
  const double additions = has_bias ? (double)ot_type_elements(&types->in[0]) : 0;
  ot_cost cost = ot_cost_of_traffic(&ot_linear_dw_info, attributes, types, additions);
  if (ot_type_present(&types->out[0])) {
    cost.matrix_flops = multiply_flops(types, 0);
  } else {
    cost.bytes_read -= (double)ot_type_bytes(&types->in[1]);
  }
  return cost;
}

const ot_op_info ot_linear_info = {
    .name = "linear",
    .num_inputs = 4,
    .num_outputs = 1,
    .optional_inputs = 1u << 2 | 1u << 3,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_LINEAR,
    .infer = linear_infer,
    .cost = linear_cost,
    .num_vjp_steps = 3,
    .vjp = {{.op = OT_OP_LINEAR_DX,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 1}, {OT_REF_PARTIAL, 0}},
             .out = {{OT_REF_DINPUT, 0}}},
            {.pass = true,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 3}}},
            {.op = OT_OP_LINEAR_DW,
             .phase = OT_VJP_WEIGHT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 0}},
             .out = {{OT_REF_ACCUMULATOR, 1}, {OT_REF_ACCUMULATOR, 2}}}},
};

const ot_op_info ot_linear_dx_info = {
    .name = "linear_dx",
    .num_inputs = 3,
    .num_outputs = 1,
    .optional_inputs = 1u << 2,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_LINEAR,
    .infer = linear_dx_infer,
    .cost = linear_dx_cost,
};

const ot_op_info ot_linear_dw_info = {
    .name = "linear_dw",
    .num_inputs = 2,
    .num_outputs = 2,
    .optional_outputs = 1u << 0 | 1u << 1,
    .accumulated_outputs = 1u << 0 | 1u << 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_LINEAR,
    .infer = linear_dw_infer,
    .cost = linear_dw_cost,
};

static ot_cost linear_wide_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const bool biased = ot_type_present(&types->in[2]);
  const double additions = biased ? (double)ot_type_elements(&types->out[0]) : 0;
  ot_cost cost = ot_cost_of_traffic(&ot_linear_wide_info, attributes, types, additions);
  cost.matrix_flops = multiply_flops(types, 1);
  return cost;
}

static ot_cost linear_wide_dx_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double additions = (double)ot_type_elements(&types->in[2]);
  ot_cost cost = ot_cost_of_traffic(&ot_linear_wide_dx_info, attributes, types, additions);
  cost.matrix_flops = multiply_flops(types, 1);
  return cost;
}

const ot_op_info ot_linear_wide_info = {
    .name = "linear_wide",
    .num_inputs = 3,
    .num_outputs = 1,
    .optional_inputs = 1u << 2,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = linear_wide_infer,
    .cost = linear_wide_cost,
    .num_vjp_steps = 2,
    .vjp = {{.op = OT_OP_LINEAR_WIDE_DX,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 1}, {OT_REF_PARTIAL, 0}},
             .out = {{OT_REF_DINPUT, 0}}},
            {.op = OT_OP_LINEAR_DW,
             .phase = OT_VJP_WEIGHT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 0}},
             .out = {{OT_REF_ACCUMULATOR, 1}, {OT_REF_ACCUMULATOR, 2}}}},
};

const ot_op_info ot_linear_wide_dx_info = {
    .name = "linear_wide_dx",
    .num_inputs = 3,
    .num_outputs = 1,
    .optional_inputs = 1u << 2,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = linear_wide_dx_infer,
    .cost = linear_wide_dx_cost,
};
