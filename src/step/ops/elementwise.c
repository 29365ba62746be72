// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of the elementwise ops.
#include "ops/elementwise.h"

#include "ops/operands.h"

// Philox: ten rounds of two multiplications for four words.
enum { DROPOUT_FLOPS = 12 };

static ot_status add_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  ot_expected expected = {.op = "add", .operand = "a", OT_ANY_REAL, types->in[0].rank, {0}};
  OT_TRY(ot_operand_check(&types->in[0], expected));
  expected.operand = "b";
  for (int i = 0; i < OT_MAX_DIMS; i++) expected.dim[i] = types->in[0].dim[i];
  OT_TRY(ot_operand_check(&types->in[1], expected));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_cost add_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_add_info, attributes, types, elements);
}

static ot_status bias_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const char *const op = "bias";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t R = types->in[0].dim[0];
  const int64_t C = types->in[0].dim[1];
  OT_TRY(ot_operand_check_optional(&types->in[1], (ot_expected){op, "bias", OT_ANY_REAL, 1, {C}}));
  OT_TRY(ot_operand_check_optional(&types->in[2],
                                   (ot_expected){op, "residual", OT_ANY_REAL, 2, {R, C}}));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_cost bias_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const int additions = ot_type_present(&types->in[1]) + ot_type_present(&types->in[2]);
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_bias_info, attributes, types, additions * elements);
}

// ---- gate ----

static ot_status check_gate(const char *op, const ot_op_attributes *attributes,
                            const ot_tensor_type *x, const ot_tensor_type *logits) {
  OT_TRY(ot_operand_check(x, (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  return ot_operand_check(logits,
                          (ot_expected){op, "logits", (int)attributes->compute, 2, {x->dim[0], 1}});
}

static ot_status gate_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const ot_tensor_type *const x = &types->in[0];
  OT_TRY(check_gate("gate", attributes, x, &types->in[1]));
  OT_TRY(ot_operand_check_optional(
      &types->in[2], (ot_expected){"gate", "residual", OT_ANY_REAL, 2, {x->dim[0], x->dim[1]}}));
  types->out[0] = *x;
  return OT_OK;
}

static ot_cost gate_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_gate_info, attributes, types, 2 * elements);
}

static ot_status gate_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const ot_tensor_type *const dy = &types->in[0];
  OT_TRY(check_gate("gate_grad", attributes, &types->in[1], &types->in[2]));
  OT_TRY(ot_operand_check(
      dy, (ot_expected){
              "gate_grad", "dy", OT_ANY_REAL, 2, {types->in[1].dim[0], types->in[1].dim[1]}}));
  types->out[0] = *dy;
  types->out[1] = types->in[2];
  return OT_OK;
}

static ot_cost gate_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_gate_grad_info, attributes, types, 3 * elements);
}

// ---- dropout ----

static ot_status check_context(const char *op, const ot_op_attributes *a) {
  if (a->context_size <= 1) return OT_OK;
  OT_CHECK(a->context_index >= 0 && a->context_index < a->context_size, OT_BUG,
           "%s: context_index %d is not in [0, %d)", op, a->context_index, a->context_size);
  OT_CHECK(a->context != OT_CONTEXT_RING || a->sequence_length % 2 == 0, OT_BUG,
           "%s: %lld tokens of a sequence are not two blocks of equal length", op,
           (long long)a->sequence_length);
  return OT_OK;
}

// The tokens of B sequences, or a range of them on one rank.
static ot_status check_dropout(const char *op, const char *first, const ot_op_attributes *a,
                               ot_op_types *types) {
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, first, OT_ANY_REAL, 2, {0, 0}}));
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "sample_ids", OT_I64, 1, {0}}));
  const int64_t rows = types->in[0].dim[0];
  const int64_t samples = types->in[1].dim[0];
  const int64_t length = a->sequence_length;
  OT_CHECK(length > 0 && a->first_row >= 0 && a->first_row + rows <= samples * length, OT_BUG,
           "%s: rows %lld to %lld of %lld sequences of %lld", op, (long long)a->first_row,
           (long long)(a->first_row + rows), (long long)samples, (long long)length);
  OT_CHECK(a->dropout >= 0 && a->dropout < 1, OT_BUG, "%s: probability is %g, expected [0, 1)", op,
           a->dropout);
  OT_TRY(check_context(op, a));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_status dropout_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  return check_dropout("dropout", "x", attributes, types);
}

static ot_status dropout_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  return check_dropout("dropout_grad", "dy", attributes, types);
}

static ot_cost dropout_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_dropout_info, attributes, types, DROPOUT_FLOPS * elements);
}

static ot_cost absmax_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_absmax_info, attributes, types, elements);
}

static ot_cost cast_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_cast_info, attributes, types, elements);
}

static ot_status inverse_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){"inverse", "n", OT_F64, 1, {1}}));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_cost inverse_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return ot_cost_of_traffic(&ot_inverse_info, attributes, types, 1);
}

static ot_cost zero_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return ot_cost_of_traffic(&ot_zero_info, attributes, types, 0);
}

const ot_op_info ot_add_info = {
    .name = "add",
    .num_inputs = 2,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .in_place = 1u << 0,
    .cheap = true,
    .infer = add_infer,
    .cost = add_cost,
    .num_vjp_steps = 2,
    .vjp = {{.pass = true, .in = {{OT_REF_DOUTPUT, 0}}, .out = {{OT_REF_DINPUT, 0}}},
            {.pass = true, .in = {{OT_REF_DOUTPUT, 0}}, .out = {{OT_REF_DINPUT, 1}}}},
};

const ot_op_info ot_bias_info = {
    .name = "bias",
    .num_inputs = 3,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 1 | 1u << 2,
    .in_place = 1u << 0,
    .cheap = true,
    .infer = bias_infer,
    .cost = bias_cost,
    .num_vjp_steps = 3,
    .vjp = {{.pass = true, .in = {{OT_REF_DOUTPUT, 0}}, .out = {{OT_REF_DINPUT, 0}}},
            {.pass = true, .in = {{OT_REF_DOUTPUT, 0}}, .out = {{OT_REF_DINPUT, 2}}},
            {.op = OT_OP_LINEAR_DW,
             .phase = OT_VJP_WEIGHT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_NONE, 0}, {OT_REF_ACCUMULATOR, 1}}}},
};

const ot_op_info ot_gate_info = {
    .name = "gate",
    .num_inputs = 3,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .optional_inputs = 1u << 2,
    .in_place = 1u << 0,
    .cheap = true,
    .infer = gate_infer,
    .cost = gate_cost,
    .num_vjp_steps = 2,
    .vjp = {{.op = OT_OP_GATE_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 0}, {OT_REF_INPUT, 1}},
             .out = {{OT_REF_DINPUT, 0}, {OT_REF_DINPUT, 1}}},
            {.pass = true, .in = {{OT_REF_DOUTPUT, 0}}, .out = {{OT_REF_DINPUT, 2}}}},
};

const ot_op_info ot_gate_grad_info = {
    .name = "gate_grad",
    .num_inputs = 3,
    .num_outputs = 2,
    .cost_kind = OT_COST_PASS,
    .in_place = 1u << 0,
    .infer = gate_grad_infer,
    .cost = gate_grad_cost,
};

const ot_op_info ot_dropout_info = {
    .name = "dropout",
    .num_inputs = 2,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .in_place = 1u << 0,
    .cheap = true,
    .infer = dropout_infer,
    .cost = dropout_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_DROPOUT_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 1}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_dropout_grad_info = {
    .name = "dropout_grad",
    .num_inputs = 2,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .in_place = 1u << 0,
    .infer = dropout_grad_infer,
    .cost = dropout_cost,
};

const ot_op_info ot_absmax_info = {
    .name = "absmax",
    .num_inputs = 1,
    .num_outputs = 1,
    .effect_outputs = 1u << 0,
    .purity = OT_PURITY_EFFECT,
    .cost_kind = OT_COST_PASS,
    .cost = absmax_cost,
};

const ot_op_info ot_cast_info = {
    .name = "cast",
    .num_inputs = 1,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .cheap = true,
    .cost = cast_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_CAST,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_zero_info = {
    .name = "zero",
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .cost = zero_cost,
};

const ot_op_info ot_inverse_info = {
    .name = "inverse",
    .num_inputs = 1,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .in_place = 1u << 0,
    .infer = inverse_infer,
    .cost = inverse_cost,
};
