// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of the nonlinearities.
#include "ops/activation.h"

#include "ops/operands.h"
#include "ops/route.h"

enum { FORWARD_FLOPS = 10, GRAD_FLOPS = 16 };

static ot_status activation_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){"activation", "x", OT_ANY_REAL, 2, {0, 0}}));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_cost activation_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_activation_info, attributes, types, FORWARD_FLOPS * elements);
}

// The output of the forward op, if the gradient writes it again.
static ot_status check_again(const char *op, const ot_tensor_type *y, const ot_tensor_type *dy) {
  return ot_operand_check_optional(
      y, (ot_expected){op, "y", (int)dy->dtype, 2, {dy->dim[0], dy->dim[1]}});
}

static ot_status activation_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const char *const op = "activation_grad";
  const ot_tensor_type *const dy = &types->in[0];
  OT_TRY(ot_operand_check(dy, (ot_expected){op, "dy", OT_ANY_REAL, 2, {0, 0}}));
  OT_TRY(ot_operand_check(&types->in[1],
                          (ot_expected){op, "x", OT_ANY_REAL, 2, {dy->dim[0], dy->dim[1]}}));
  OT_TRY(check_again(op, &types->out[1], dy));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_cost activation_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_activation_grad_info, attributes, types, GRAD_FLOPS * elements);
}

// Offsets of rows sorted by expert; R may include padding rows after offsets[E].
static ot_status check_offsets(const char *op, const ot_op_attributes *attributes,
                               const ot_tensor_type *offsets) {
  return ot_operand_check_optional(
      offsets, (ot_expected){op, "offsets", OT_I32, 1, {ot_route_local_experts(attributes) + 1}});
}

static ot_cost cost_of_used(ot_cost cost, const ot_op_attributes *attributes, int64_t rows,
                            const ot_tensor_type *offsets) {
  if (!ot_type_present(offsets)) return cost;
  const double part = ot_route_used(attributes, rows) / (double)rows;
  cost.other_flops *= part;
  cost.bytes_read *= part;
  return cost;
}

static ot_status glu_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const ot_tensor_type *const x = &types->in[0];
  OT_TRY(ot_operand_check(x, (ot_expected){"glu", "x", OT_ANY_REAL, 2, {0, 0}}));
  OT_CHECK(x->dim[1] % 2 == 0, OT_BUG, "glu: x has %lld columns, expected gate|up, an even number",
           (long long)x->dim[1]);
  OT_TRY(ot_operand_check_optional(
      &types->in[1], (ot_expected){"glu", "scale", (int)attributes->compute, 1, {x->dim[0]}}));
  OT_TRY(check_offsets("glu", attributes, &types->in[2]));
  types->out[0] = ot_type_matrix(x->dtype, x->dim[0], x->dim[1] / 2);
  return OT_OK;
}

static ot_cost glu_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->out[0]);
  const double flops = FORWARD_FLOPS + 1 + ot_type_present(&types->in[1]);
  const ot_cost cost = ot_cost_of_traffic(&ot_glu_info, attributes, types, flops * elements);
  return cost_of_used(cost, attributes, types->out[0].dim[0], &types->in[2]);
}

static ot_status glu_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "glu_grad";
  const ot_tensor_type *const dy = &types->in[0];
  OT_TRY(ot_operand_check(dy, (ot_expected){op, "dy", OT_ANY_REAL, 2, {0, 0}}));
  OT_TRY(ot_operand_check(&types->in[1],
                          (ot_expected){op, "x", OT_ANY_REAL, 2, {dy->dim[0], 2 * dy->dim[1]}}));
  OT_TRY(ot_operand_check_optional(
      &types->in[2], (ot_expected){op, "scale", (int)attributes->compute, 1, {dy->dim[0]}}));
  OT_TRY(check_offsets(op, attributes, &types->in[3]));
  OT_TRY(check_again(op, &types->out[2], dy));
  types->out[0] = ot_type_matrix(dy->dtype, dy->dim[0], 2 * dy->dim[1]);
  types->out[1] = types->in[2];
  return OT_OK;
}

static ot_cost glu_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  const double flops = GRAD_FLOPS + 2 + (ot_type_present(&types->in[2]) ? 3 : 0);
  const ot_cost cost = ot_cost_of_traffic(&ot_glu_grad_info, attributes, types, flops * elements);
  return cost_of_used(cost, attributes, types->in[0].dim[0], &types->in[3]);
}

const ot_op_info ot_activation_info = {
    .name = "activation",
    .num_inputs = 1,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .cheap = true,
    .infer = activation_infer,
    .cost = activation_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_ACTIVATION_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 0}},
             .out = {{OT_REF_DINPUT, 0}, {OT_REF_OUTPUT, 0}}}},
};

const ot_op_info ot_activation_grad_info = {
    .name = "activation_grad",
    .num_inputs = 2,
    .num_outputs = 2,
    .cost_kind = OT_COST_PASS,
    .optional_outputs = 1u << 1,
    .in_place = 1u << 0,
    .infer = activation_grad_infer,
    .cost = activation_grad_cost,
};

const ot_op_info ot_glu_info = {
    .name = "glu",
    .num_inputs = 3,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 1 | 1u << 2,
    .cheap = true,
    .infer = glu_infer,
    .cost = glu_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_GLU_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 0}, {OT_REF_INPUT, 1}, {OT_REF_INPUT, 2}},
             .out = {{OT_REF_DINPUT, 0}, {OT_REF_DINPUT, 1}, {OT_REF_OUTPUT, 0}}}},
};

const ot_op_info ot_glu_grad_info = {
    .name = "glu_grad",
    .num_inputs = 4,
    .num_outputs = 3,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 2 | 1u << 3,
    .optional_outputs = 1u << 1 | 1u << 2,
    .over_first = 1u << 2,
    .infer = glu_grad_infer,
    .cost = glu_grad_cost,
};
