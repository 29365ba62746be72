// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of load balancing.
#include "ops/route_balance.h"

#include "ops/operands.h"
#include "ops/route.h"

enum { LOSS_FLOPS = 16, UPDATE_FLOPS = 3 };

// B: the sequences of `rows` tokens from first_row on, including one that begins earlier.
static int64_t sequences_of(const ot_op_attributes *a, int64_t rows) {
  return (a->first_row + rows + a->sequence_length - 1) / a->sequence_length;
}

static ot_status route_count_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "route_count";
  const int64_t S = ot_route_slots(attributes);
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "experts", OT_I32, 2, {0, S}}));
  const int64_t least = sequences_of(attributes, types->in[0].dim[0]);
  OT_CHECK(attributes->num_sequences >= least, OT_BUG,
           "%s: tokens of %lld sequences, but num_sequences=%lld", op, (long long)least,
           (long long)attributes->num_sequences);
  types->out[0] =
      ot_type_matrix(attributes->compute, attributes->num_sequences, attributes->num_experts);
  return OT_OK;
}

static ot_cost route_count_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double slots = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_route_count_info, attributes, types, slots);
}

static ot_status check_loss(const char *op, const ot_op_attributes *a, const ot_tensor_type *logits,
                            const ot_tensor_type *counts, const ot_tensor_type *inverse) {
  const int compute = (int)a->compute;
  const int64_t E = a->num_experts;
  OT_TRY(ot_operand_check(logits, (ot_expected){op, "logits", compute, 2, {0, E}}));
  OT_TRY(ot_operand_check(counts, (ot_expected){op, "counts", compute, 2, {0, E}}));
  return ot_operand_check(inverse, (ot_expected){op, "inverse_sequences", OT_F64, 1, {1}});
}

static ot_status route_loss_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "route_loss";
  OT_TRY(check_loss(op, attributes, &types->in[0], &types->in[2], &types->in[3]));
  const int64_t R = types->in[0].dim[0];
  OT_TRY(ot_operand_check(
      &types->in[1], (ot_expected){op, "experts", OT_I32, 2, {R, ot_route_slots(attributes)}}));
  OT_TRY(ot_operand_check_optional(&types->in[4], (ot_expected){op, "rounds", OT_I32, 1, {1}}));
  return ot_operand_check(&types->out[0], (ot_expected){op, "sums", OT_F64, 1, {OT_EXPERT_SUMS}});
}

static ot_cost route_loss_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_route_loss_info, attributes, types, LOSS_FLOPS * elements);
}

static ot_status route_loss_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "route_loss_grad";
  OT_TRY(check_loss(op, attributes, &types->in[0], &types->in[1], &types->in[2]));
  const int64_t R = types->in[0].dim[0];
  OT_TRY(ot_operand_check_optional(
      &types->in[3],
      (ot_expected){op, "partial", (int)attributes->compute, 2, {R, attributes->num_experts}}));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_cost route_loss_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_route_loss_grad_info, attributes, types, LOSS_FLOPS * elements);
}

static ot_status route_load_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "route_load";
  const int64_t S = ot_route_slots(attributes);
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "experts", OT_I32, 2, {0, S}}));
  return ot_operand_check(&types->out[0],
                          (ot_expected){op, "load", OT_ANY_REAL, 1, {attributes->num_experts}});
}

static ot_cost route_load_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double slots = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_route_load_info, attributes, types, slots);
}

static ot_cost route_bias_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double n = (double)ot_type_elements(&types->in[0]);
  ot_cost cost = ot_cost_of_traffic(&ot_route_bias_info, attributes, types, UPDATE_FLOPS * n);
  const bool master = ot_type_present(&types->out[1]);
  cost.bytes_read += (double)ot_type_bytes(&types->out[master ? 1 : 0]);
  return cost;
}

const ot_op_info ot_route_count_info = {
    .name = "route_count",
    .num_inputs = 1,
    .num_outputs = 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = route_count_infer,
    .cost = route_count_cost,
};

const ot_op_info ot_route_loss_info = {
    .name = "route_loss",
    .num_inputs = 5,
    .num_outputs = 1,
    .optional_inputs = 1u << 4,
    .effect_outputs = 1u << 0,
    .purity = OT_PURITY_EFFECT,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = route_loss_infer,
    .cost = route_loss_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_ROUTE_LOSS_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_INPUT, 0}, {OT_REF_INPUT, 2}, {OT_REF_INPUT, 3}, {OT_REF_PARTIAL, 0}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_route_loss_grad_info = {
    .name = "route_loss_grad",
    .num_inputs = 4,
    .num_outputs = 1,
    .optional_inputs = 1u << 3,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = route_loss_grad_infer,
    .cost = route_loss_grad_cost,
};

const ot_op_info ot_route_load_info = {
    .name = "route_load",
    .num_inputs = 1,
    .num_outputs = 1,
    .accumulated_outputs = 1u << 0,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = route_load_infer,
    .cost = route_load_cost,
};

const ot_op_info ot_route_bias_info = {
    .name = "route_bias",
    .num_inputs = 2,
    .num_outputs = 3,
    .optional_outputs = 1u << 1 | 1u << 2,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_EXPERT_PASS,
    .cost = route_bias_cost,
};
