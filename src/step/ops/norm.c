// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of rmsnorm and layernorm.
#include "ops/norm.h"

#include "ops/operands.h"

static ot_status rmsnorm_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "rmsnorm";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t rows = types->in[0].dim[0];
  const int64_t columns = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "w", OT_ANY_REAL, 1, {columns}}));
  types->out[0] = types->in[0];
  types->out[1] = ot_type_vector(attributes->compute, rows);
  return OT_OK;
}

static ot_cost rmsnorm_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_rmsnorm_info, attributes, types, 4 * elements);
}

// The output of the forward op, if the gradient writes it again.
static ot_status check_again(const char *op, const ot_tensor_type *y, const ot_tensor_type *dy) {
  return ot_operand_check_optional(
      y, (ot_expected){op, "y", (int)dy->dtype, 2, {dy->dim[0], dy->dim[1]}});
}

static ot_status rmsnorm_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "rmsnorm_grad";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dy", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t rows = types->in[0].dim[0];
  const int64_t columns = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "x", OT_ANY_REAL, 2, {rows, columns}}));
  OT_TRY(ot_operand_check(&types->in[2], (ot_expected){op, "w", OT_ANY_REAL, 1, {columns}}));
  OT_TRY(ot_operand_check(&types->in[3],
                          (ot_expected){op, "rstd", (int)attributes->compute, 1, {rows}}));
  OT_TRY(ot_operand_check_optional(&types->in[4],
                                   (ot_expected){op, "partial", OT_ANY_REAL, 2, {rows, columns}}));
  OT_TRY(check_again(op, &types->out[2], &types->in[0]));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_cost rmsnorm_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_rmsnorm_grad_info, attributes, types, 10 * elements);
}

static ot_status layernorm_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "layernorm";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t rows = types->in[0].dim[0];
  const int64_t columns = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "w", OT_ANY_REAL, 1, {columns}}));
  OT_TRY(
      ot_operand_check_optional(&types->in[2], (ot_expected){op, "b", OT_ANY_REAL, 1, {columns}}));
  types->out[0] = types->in[0];
  types->out[1] = ot_type_vector(attributes->compute, rows);
  types->out[2] = ot_type_vector(attributes->compute, rows);
  return OT_OK;
}

static ot_cost layernorm_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_layernorm_info, attributes, types, 7 * elements);
}

static ot_status layernorm_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "layernorm_grad";
  const int statistic = (int)attributes->compute;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dy", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t rows = types->in[0].dim[0];
  const int64_t columns = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "x", OT_ANY_REAL, 2, {rows, columns}}));
  OT_TRY(ot_operand_check(&types->in[2], (ot_expected){op, "w", OT_ANY_REAL, 1, {columns}}));
  OT_TRY(ot_operand_check(&types->in[3], (ot_expected){op, "mean", statistic, 1, {rows}}));
  OT_TRY(ot_operand_check(&types->in[4], (ot_expected){op, "rstd", statistic, 1, {rows}}));
  OT_TRY(ot_operand_check_optional(&types->in[5],
                                   (ot_expected){op, "partial", OT_ANY_REAL, 2, {rows, columns}}));
  OT_TRY(
      ot_operand_check_optional(&types->in[6], (ot_expected){op, "b", OT_ANY_REAL, 1, {columns}}));
  OT_TRY(check_again(op, &types->out[3], &types->in[0]));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_cost layernorm_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_layernorm_grad_info, attributes, types, 13 * elements);
}

const ot_op_info ot_rmsnorm_info = {
    .name = "rmsnorm",
    .num_inputs = 2,
    .num_outputs = 2,
    .cost_kind = OT_COST_PASS,
    .cheap = true,
    .infer = rmsnorm_infer,
    .cost = rmsnorm_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_RMSNORM_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0},
                    {OT_REF_INPUT, 0},
                    {OT_REF_INPUT, 1},
                    {OT_REF_OUTPUT, 1},
                    {OT_REF_PARTIAL, 0}},
             .out = {{OT_REF_DINPUT, 0}, {OT_REF_ACCUMULATOR, 1}, {OT_REF_OUTPUT, 0}}}},
};

const ot_op_info ot_rmsnorm_grad_info = {
    .name = "rmsnorm_grad",
    .num_inputs = 5,
    .num_outputs = 3,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 4,
    .optional_outputs = 1u << 1 | 1u << 2,
    .accumulated_outputs = 1u << 1,
    .over_first = 1u << 2,
    .infer = rmsnorm_grad_infer,
    .cost = rmsnorm_grad_cost,
};

const ot_op_info ot_layernorm_info = {
    .name = "layernorm",
    .num_inputs = 3,
    .num_outputs = 3,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 2,
    .cheap = true,
    .infer = layernorm_infer,
    .cost = layernorm_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_LAYERNORM_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0},
                    {OT_REF_INPUT, 0},
                    {OT_REF_INPUT, 1},
                    {OT_REF_OUTPUT, 1},
                    {OT_REF_OUTPUT, 2},
                    {OT_REF_PARTIAL, 0},
                    {OT_REF_INPUT, 2}},
             .out = {{OT_REF_DINPUT, 0},
                     {OT_REF_ACCUMULATOR, 1},
                     {OT_REF_ACCUMULATOR, 2},
                     {OT_REF_OUTPUT, 0}}}},
};

const ot_op_info ot_layernorm_grad_info = {
    .name = "layernorm_grad",
    .num_inputs = 7,
    .num_outputs = 4,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 5 | 1u << 6,
    .optional_outputs = 1u << 1 | 1u << 2 | 1u << 3,
    .accumulated_outputs = 1u << 1 | 1u << 2,
    .over_first = 1u << 3,
    .infer = layernorm_grad_infer,
    .cost = layernorm_grad_cost,
};
