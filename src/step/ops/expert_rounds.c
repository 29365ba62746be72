// SPDX-License-Identifier: Apache-2.0
// Shapes and VJP of the overflow passes; their cost is in the ops of the loop body.
#include "ops/expert_rounds.h"

#include "ops/operands.h"

static ot_status rounds_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  OT_TRY(ot_operand_check(&types->in[0],
                          (ot_expected){"overflow_passes", "rows", OT_ANY_REAL, 2, {0}}));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_status dx_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const char *const op = "overflow_passes_dx";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "partial_rows", OT_ANY_REAL, 2, {0}}));
  types->out[0] = types->in[0];
  types->out[1] = types->in[1];
  return OT_OK;
}

static ot_status dw_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  return ot_operand_check(&types->in[0],
                          (ot_expected){"overflow_passes_dw", "dhome", OT_ANY_REAL, 2, {0}});
}

const ot_op_info ot_more_rounds_info = {
    .name = "overflow_passes",
    .num_inputs = 10,
    .num_outputs = 1,
    .optional_inputs = 1u << 9,
    .purity = OT_PURITY_SAVED,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = rounds_infer,
    .num_vjp_steps = 2,
    .vjp = {{.op = OT_OP_OVERFLOW_PASSES_DX,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_PARTIAL, 0},
                    {OT_REF_PARTIAL, 1},
                    {OT_REF_DOUTPUT, 0},
                    {OT_REF_INPUT, 2},
                    {OT_REF_INPUT, 3},
                    {OT_REF_INPUT, 4},
                    {OT_REF_INPUT, 5},
                    {OT_REF_INPUT, 6},
                    {OT_REF_INPUT, 7},
                    {OT_REF_INPUT, 8},
                    {OT_REF_INPUT, 9}},
             .out = {{OT_REF_DINPUT, 0}, {OT_REF_DINPUT, 1}}},
            {.op = OT_OP_OVERFLOW_PASSES_DW,
             .phase = OT_VJP_WEIGHT,
             .in = {{OT_REF_DOUTPUT, 0},
                    {OT_REF_INPUT, 2},
                    {OT_REF_INPUT, 3},
                    {OT_REF_INPUT, 4},
                    {OT_REF_INPUT, 5},
                    {OT_REF_INPUT, 6},
                    {OT_REF_INPUT, 7},
                    {OT_REF_INPUT, 8},
                    {OT_REF_INPUT, 9}},
             .out = {{OT_REF_ACCUMULATOR, 4}, {OT_REF_ACCUMULATOR, 5}, {OT_REF_ACCUMULATOR, 9}}}},
};

const ot_op_info ot_more_rounds_dx_info = {
    .name = "overflow_passes_dx",
    .num_inputs = 11,
    .num_outputs = 2,
    .optional_inputs = 1u << 10,
    .purity = OT_PURITY_SAVED,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = dx_infer,
};

const ot_op_info ot_more_rounds_dw_info = {
    .name = "overflow_passes_dw",
    .num_inputs = 9,
    .num_outputs = 3,
    .optional_inputs = 1u << 8,
    .optional_outputs = 1u << 2,
    .accumulated_outputs = 1u << 0 | 1u << 1 | 1u << 2,
    .purity = OT_PURITY_SAVED,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = dw_infer,
};
