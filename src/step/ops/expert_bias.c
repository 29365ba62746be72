// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of the expert biases.
#include "ops/expert_bias.h"

#include "ops/operands.h"

static ot_status check_bias(const char *op, const ot_op_attributes *a, const ot_tensor_type *bias) {
  OT_TRY(ot_operand_check(bias, (ot_expected){op, "bias", OT_ANY_REAL, 1, {0}}));
  OT_CHECK(bias->dim[0] % a->num_experts == 0, OT_BUG,
           "%s: bias has %lld elements for %lld experts", op, (long long)bias->dim[0],
           (long long)a->num_experts);
  return OT_OK;
}

static ot_status expert_bias_infer(const ot_op_attributes *a, ot_op_types *types) {
  const char *const op = "expert_bias";
  const int compute = (int)a->compute;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "gates", compute, 2, {0, 0}}));
  const int64_t R = types->in[0].dim[0], S = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "experts", OT_I32, 2, {R, S}}));
  OT_TRY(check_bias(op, a, &types->in[2]));
  const int64_t C = types->in[2].dim[0] / a->num_experts;
  OT_TRY(ot_operand_check_optional(&types->in[3],
                                   (ot_expected){op, "addend", OT_ANY_REAL, 2, {R, C}}));
  const bool given = ot_type_present(&types->in[3]);
  types->out[0] = ot_type_matrix(types->in[given ? 3 : 2].dtype, R, C);
  return OT_OK;
}

static ot_status expert_bias_dx_infer(const ot_op_attributes *a, ot_op_types *types) {
  const char *const op = "expert_bias_dx";
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "experts", OT_I32, 2, {0, 0}}));
  const int64_t R = types->in[1].dim[0], S = types->in[1].dim[1];
  OT_TRY(check_bias(op, a, &types->in[2]));
  const int64_t C = types->in[2].dim[0] / a->num_experts;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dy", OT_ANY_REAL, 2, {R, C}}));
  const ot_expected gates = {op, "partial", (int)a->compute, 2, {R, S}};
  OT_TRY(ot_operand_check_optional(&types->in[3], gates));
  types->out[0] = ot_type_matrix(a->compute, R, S);
  return OT_OK;
}

static ot_status expert_bias_dw_infer(const ot_op_attributes *a, ot_op_types *types) {
  const char *const op = "expert_bias_dw";
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "gates", (int)a->compute, 2, {0, 0}}));
  const int64_t R = types->in[1].dim[0], S = types->in[1].dim[1];
  OT_TRY(ot_operand_check(&types->in[2], (ot_expected){op, "experts", OT_I32, 2, {R, S}}));
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dy", OT_ANY_REAL, 2, {R, 0}}));
  const int64_t elements = a->num_experts * types->in[0].dim[1];
  return ot_operand_check(&types->out[0], (ot_expected){op, "dbias", OT_ANY_REAL, 1, {elements}});
}

// A multiply-add per slot of `experts` and column of `rows`.
static double slot_flops(const ot_tensor_type *experts, const ot_tensor_type *rows) {
  return 2 * (double)experts->dim[1] * (double)ot_type_elements(rows);
}

static ot_cost expert_bias_cost(const ot_op_attributes *a, const ot_op_types *types) {
  const double flops = slot_flops(&types->in[1], &types->out[0]);
  return ot_cost_of_traffic(&ot_expert_bias_info, a, types, flops);
}

static ot_cost expert_bias_dx_cost(const ot_op_attributes *a, const ot_op_types *types) {
  const double flops = slot_flops(&types->in[1], &types->in[0]);
  return ot_cost_of_traffic(&ot_expert_bias_dx_info, a, types, flops);
}

static ot_cost expert_bias_dw_cost(const ot_op_attributes *a, const ot_op_types *types) {
  const double flops = slot_flops(&types->in[2], &types->in[0]);
  return ot_cost_of_traffic(&ot_expert_bias_dw_info, a, types, flops);
}

const ot_op_info ot_expert_bias_info = {
    .name = "expert_bias",
    .num_inputs = 4,
    .num_outputs = 1,
    .optional_inputs = 1u << 3,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_EXPERT_PASS,
    .cheap = true,
    .infer = expert_bias_infer,
    .cost = expert_bias_cost,
    .num_vjp_steps = 3,
    .vjp = {{.op = OT_OP_EXPERT_BIAS_DX,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 1}, {OT_REF_INPUT, 2}, {OT_REF_PARTIAL, 0}},
             .out = {{OT_REF_DINPUT, 0}}},
            {.op = OT_OP_EXPERT_BIAS_DW,
             .phase = OT_VJP_WEIGHT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 0}, {OT_REF_INPUT, 1}},
             .out = {{OT_REF_ACCUMULATOR, 2}}},
            {.pass = true,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 3}}}},
};

const ot_op_info ot_expert_bias_dx_info = {
    .name = "expert_bias_dx",
    .num_inputs = 4,
    .num_outputs = 1,
    .optional_inputs = 1u << 3,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = expert_bias_dx_infer,
    .cost = expert_bias_dx_cost,
};

const ot_op_info ot_expert_bias_dw_info = {
    .name = "expert_bias_dw",
    .num_inputs = 3,
    .num_outputs = 1,
    .accumulated_outputs = 1u << 0,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = expert_bias_dw_infer,
    .cost = expert_bias_dw_cost,
};
