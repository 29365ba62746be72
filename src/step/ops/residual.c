// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of residual_attention.
#include "ops/residual.h"

#include "ops/operands.h"

static int64_t sources_of(const ot_tensor_type *stack, const ot_tensor_type *last) {
  return stack->dim[0] + (ot_type_present(last) ? 1 : 0);
}

// stack, last? and query? from input `first` on.
static ot_status check_sources(const char *op, const ot_op_types *types, int first) {
  const ot_tensor_type *const in = &types->in[first];
  OT_TRY(ot_operand_check(&in[0], (ot_expected){op, "stack", OT_ANY_REAL, 3, {0, 0, 0}}));
  const int64_t rows = in[0].dim[1], columns = in[0].dim[2];
  const int stored = (int)in[0].dtype;
  OT_TRY(ot_operand_check_optional(&in[1], (ot_expected){op, "last", stored, 2, {rows, columns}}));
  return ot_operand_check_optional(&in[2], (ot_expected){op, "query", OT_ANY_REAL, 1, {columns}});
}

static ot_status residual_attention_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  OT_TRY(check_sources("residual_attention", types, 0));
  const ot_tensor_type *const stack = &types->in[0];
  const int64_t sources = sources_of(stack, &types->in[1]);
  types->out[0] = ot_type_matrix(stack->dtype, stack->dim[1], stack->dim[2]);
  types->out[1] = ot_type_matrix(attributes->compute, stack->dim[1], sources);
  types->out[2] = types->out[1];
  return OT_OK;
}

// Multiply-adds per element of a source: its square, its product with the query, its share of the
// mix.
static ot_cost residual_attention_cost(const ot_op_attributes *attributes,
                                       const ot_op_types *types) {
  const double elements =
      (double)sources_of(&types->in[0], &types->in[1]) * (double)ot_type_elements(&types->out[0]);
  return ot_cost_of_traffic(&ot_residual_attention_info, attributes, types, 6 * elements);
}

static ot_status residual_attention_grad_infer(const ot_op_attributes *attributes,
                                               ot_op_types *types) {
  const char *const op = "residual_attention_grad";
  OT_TRY(check_sources(op, types, 2));
  const ot_tensor_type *const stack = &types->in[2];
  const int64_t rows = stack->dim[1], columns = stack->dim[2];
  const int64_t sources = sources_of(stack, &types->in[3]);
  const int stored = (int)stack->dtype, statistic = (int)attributes->compute;
  OT_TRY(ot_operand_check_optional(
      &types->in[0],
      (ot_expected){op, "partial_stack", stored, 3, {stack->dim[0], rows, columns}}));
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "dy", stored, 2, {rows, columns}}));
  OT_TRY(
      ot_operand_check(&types->in[5], (ot_expected){op, "weights", statistic, 2, {rows, sources}}));
  OT_TRY(ot_operand_check(&types->in[6], (ot_expected){op, "rstd", statistic, 2, {rows, sources}}));
  OT_TRY(ot_operand_check_optional(&types->in[7],
                                   (ot_expected){op, "partial_last", stored, 2, {rows, columns}}));
  types->out[0] = *stack;
  types->out[1] = types->in[3];
  return OT_OK;
}

static ot_cost residual_attention_grad_cost(const ot_op_attributes *attributes,
                                            const ot_op_types *types) {
  const double elements =
      (double)sources_of(&types->in[2], &types->in[3]) * (double)ot_type_elements(&types->in[1]);
  return ot_cost_of_traffic(&ot_residual_attention_grad_info, attributes, types, 12 * elements);
}

const ot_op_info ot_residual_attention_info = {
    .name = "residual_attention",
    .num_inputs = 3,
    .num_outputs = 3,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 1 | 1u << 2,
    .cheap = true,
    .infer = residual_attention_infer,
    .cost = residual_attention_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_RESIDUAL_ATTENTION_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_PARTIAL, 0},
                    {OT_REF_DOUTPUT, 0},
                    {OT_REF_INPUT, 0},
                    {OT_REF_INPUT, 1},
                    {OT_REF_INPUT, 2},
                    {OT_REF_OUTPUT, 1},
                    {OT_REF_OUTPUT, 2},
                    {OT_REF_PARTIAL, 1}},
             .out = {{OT_REF_DINPUT, 0}, {OT_REF_DINPUT, 1}, {OT_REF_ACCUMULATOR, 2}}}},
};

const ot_op_info ot_residual_attention_grad_info = {
    .name = "residual_attention_grad",
    .num_inputs = 8,
    .num_outputs = 3,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 0 | 1u << 3 | 1u << 4 | 1u << 7,
    .optional_outputs = 1u << 1 | 1u << 2,
    .accumulated_outputs = 1u << 2,
    .in_place = 1u << 0,
    .infer = residual_attention_grad_infer,
    .cost = residual_attention_grad_cost,
};
