// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of the permutation between tokens and rows sorted by expert.
#include "ops/dispatch.h"

#include "ops/operands.h"
#include "ops/route.h"

static ot_status check_places(const char *op, const ot_op_attributes *attributes, int64_t rows,
                              const ot_tensor_type *place, const ot_tensor_type *offsets) {
  const int64_t places = ot_route_destinations(attributes);
  OT_TRY(ot_operand_check(place, (ot_expected){op, "place", OT_I32, 2, {rows, places}}));
  return ot_operand_check_optional(
      offsets, (ot_expected){op, "offsets", OT_I32, 1, {attributes->num_experts + 1}});
}

static ot_status dispatch_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "dispatch";
  const int compute = (int)attributes->compute;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t R = types->in[0].dim[0];
  const int64_t S = ot_route_slots(attributes);
  OT_TRY(ot_operand_check_optional(&types->in[1], (ot_expected){op, "gates", compute, 2, {R, S}}));
  OT_TRY(check_places(op, attributes, R, &types->in[2], &types->in[3]));
  const int64_t N = ot_route_rows(attributes, R);
  types->out[0] = ot_type_matrix(types->in[0].dtype, N, types->in[0].dim[1]);
  types->out[1] = (ot_tensor_type){0};
  if (ot_type_present(&types->in[1])) types->out[1] = ot_type_vector(attributes->compute, N);
  return OT_OK;
}

static ot_status combine_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "combine";
  OT_TRY(ot_operand_check(&types->in[2], (ot_expected){op, "place", OT_I32, 2, {0, 0}}));
  const int64_t R = types->in[2].dim[0];
  const int64_t N = ot_route_rows(attributes, R);
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "rows", OT_ANY_REAL, 2, {N, 0}}));
  const int64_t C = types->in[0].dim[1];
  OT_TRY(ot_operand_check_optional(
      &types->in[1], (ot_expected){op, "row_gates", (int)attributes->compute, 1, {N}}));
  OT_TRY(check_places(op, attributes, R, &types->in[2], &types->in[3]));
  OT_TRY(ot_operand_check_optional(&types->in[4],
                                   (ot_expected){op, "addend", OT_ANY_REAL, 2, {R, C}}));
  types->out[0] = ot_type_matrix(types->in[0].dtype, R, C);
  types->out[1] = (ot_tensor_type){0};
  if (ot_type_present(&types->in[1])) {
    types->out[1] = ot_type_matrix(attributes->compute, R, ot_route_slots(attributes));
  }
  return OT_OK;
}

// A token is read once and stays in cache for all of its rows.
static ot_cost dispatch_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return ot_cost_of_traffic(&ot_dispatch_info, attributes, types, 0);
}

static ot_cost combine_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double additions = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_combine_info, attributes, types, additions);
}

const ot_op_info ot_dispatch_info = {
    .name = "dispatch",
    .num_inputs = 4,
    .num_outputs = 2,
    .optional_inputs = 1u << 1 | 1u << 3,
    .optional_outputs = 1u << 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_EXPERT_PASS,
    .cheap = true,
    .infer = dispatch_infer,
    .cost = dispatch_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_COMBINE,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0},
                    {OT_REF_DOUTPUT, 1},
                    {OT_REF_INPUT, 2},
                    {OT_REF_INPUT, 3},
                    {OT_REF_PARTIAL, 0}},
             .out = {{OT_REF_DINPUT, 0}, {OT_REF_DINPUT, 1}}}},
};

const ot_op_info ot_combine_info = {
    .name = "combine",
    .num_inputs = 5,
    .num_outputs = 2,
    .optional_inputs = 1u << 1 | 1u << 4,
    .optional_outputs = 1u << 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = combine_infer,
    .cost = combine_cost,
    .num_vjp_steps = 2,
    .vjp = {{.op = OT_OP_DISPATCH,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_DOUTPUT, 1}, {OT_REF_INPUT, 2}, {OT_REF_INPUT, 3}},
             .out = {{OT_REF_DINPUT, 0}, {OT_REF_DINPUT, 1}}},
            {.pass = true,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 4}}}},
};
