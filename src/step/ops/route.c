// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of routing.
#include "ops/route.h"

#include "base/extremes.h"
#include "ops/operands.h"

enum { SCORE_FLOPS = 12, GRAD_FLOPS = 8 };

int64_t ot_route_slots(const ot_op_attributes *attributes) {
  const bool chosen = attributes->routing == OT_MOE_EXPERT_CHOICE;
  return chosen ? attributes->num_experts : attributes->experts_per_token;
}

int64_t ot_route_local_experts(const ot_op_attributes *attributes) {
  return attributes->held_experts > 0 ? attributes->held_experts : attributes->num_experts;
}

int64_t ot_route_copies(const ot_op_attributes *attributes) {
  return attributes->expert_copies > 1 ? attributes->expert_copies : 1;
}

int64_t ot_route_destinations(const ot_op_attributes *attributes) {
  return ot_route_slots(attributes) * ot_route_copies(attributes);
}

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Sequence blocks of t tokens are concatenated. A rank's tokens begin at a multiple of `tokens`, so
// at most t - gcd tokens into a block.
int64_t ot_route_sequences(const ot_op_attributes *attributes, int64_t tokens) {
  const int64_t t = attributes->sequence_length;
  const int64_t into = t - common_divisor(tokens, t);
  return (into + tokens + t - 1) / t;
}

int64_t ot_route_rows(const ot_op_attributes *attributes, int64_t tokens) {
  const int64_t all = tokens * ot_route_slots(attributes);
  if (attributes->routing == OT_MOE_DROPLESS) return all * ot_route_copies(attributes);
  const int64_t sequences = ot_route_sequences(attributes, tokens);
  const int64_t kept = sequences * attributes->num_experts * attributes->capacity;
  return (kept < all ? kept : all) * ot_route_copies(attributes);
}

int64_t ot_route_even_rows(const ot_op_attributes *attributes, int64_t tokens) {
  const int64_t all = ot_route_rows(attributes, tokens);
  if (attributes->routing == OT_MOE_DROPLESS) return all;
  const int64_t T = ot_route_tokens(attributes);
  const int64_t taken = tokens * attributes->num_experts * attributes->capacity;
  return ot_smaller_whole((taken + T - 1) / T * ot_route_copies(attributes), all);
}

double ot_route_used(const ot_op_attributes *attributes, int64_t rows) {
  int64_t even = rows;
  if (attributes->exchange_rows > 0) even = attributes->copy_rows * ot_route_copies(attributes);
  if (attributes->even_rows > 0) even = attributes->even_rows;
  return (double)ot_smaller_whole(even, rows);
}

// `rows`: the tokens that take part in the choice.
static ot_status check_choice(const char *op, const ot_op_attributes *a, int64_t rows) {
  const bool alone = a->routing == OT_MOE_DROPLESS;
  const int64_t T = ot_route_tokens(a);
  OT_CHECK(a->num_experts >= 1 && a->num_experts <= OT_MAX_EXPERTS && a->experts_per_token >= 1 &&
               a->experts_per_token <= a->num_experts,
           OT_BUG, "%s: %lld experts per token of %lld", op, (long long)a->experts_per_token,
           (long long)a->num_experts);
  OT_CHECK(a->num_groups >= 1 && a->num_experts % a->num_groups == 0, OT_BUG,
           "%s: %lld experts in %lld groups", op, (long long)a->num_experts,
           (long long)a->num_groups);
  OT_CHECK(alone || (a->capacity >= 1 && a->capacity <= T && rows % T == 0), OT_BUG,
           "%s: capacity %lld does not fit %lld tokens in sequences of %lld", op,
           (long long)a->capacity, (long long)rows, (long long)T);
  return OT_OK;
}

// Checks the position of this rank's tokens among those of all ranks, in blocks of equal length.
static ot_status check_own(const char *op, const ot_op_attributes *a, int64_t rows, int64_t whole) {
  const int64_t pieces = a->context_size > 1 ? a->context_size : 1;
  const int64_t piece = whole / pieces;
  OT_CHECK(whole % pieces == 0 && a->context_index >= 0 && a->context_index < pieces &&
               a->first_row >= 0 && a->first_row + rows <= piece,
           OT_BUG, "%s: tokens %lld to %lld of block %d of %lld, of %lld tokens", op,
           (long long)a->first_row, (long long)(a->first_row + rows), a->context_index,
           (long long)pieces, (long long)whole);
  OT_CHECK(pieces == 1 || a->context != OT_CONTEXT_RING || a->sequence_length % 2 == 0, OT_BUG,
           "%s: %lld tokens of a sequence are not two blocks of equal length", op,
           (long long)a->sequence_length);
  return OT_OK;
}

static const ot_tensor_type *chosen_of(const ot_op_types *types) {
  return ot_type_present(&types->in[2]) ? &types->in[2] : &types->in[0];
}

static ot_status route_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "route";
  const int64_t E = attributes->num_experts;
  OT_TRY(ot_operand_check(&types->in[0],
                          (ot_expected){op, "logits", (int)attributes->compute, 2, {0, E}}));
  OT_TRY(ot_operand_check_optional(&types->in[1], (ot_expected){op, "bias", OT_ANY_REAL, 1, {E}}));
  OT_TRY(ot_operand_check_optional(
      &types->in[2], (ot_expected){op, "whole", (int)attributes->compute, 2, {0, E}}));
  const int64_t R = types->in[0].dim[0];
  const int64_t whole = chosen_of(types)->dim[0];
  OT_TRY(check_choice(op, attributes, whole));
  if (ot_type_present(&types->in[2])) OT_TRY(check_own(op, attributes, R, whole));
  types->out[0] = ot_type_matrix(attributes->compute, R, ot_route_slots(attributes));
  types->out[1] = ot_type_matrix(OT_I32, R, ot_route_slots(attributes));
  return OT_OK;
}

static ot_cost route_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(chosen_of(types));
  const double passes = SCORE_FLOPS + (double)attributes->experts_per_token;
  return ot_cost_of_traffic(&ot_route_info, attributes, types, passes * elements);
}

static ot_status route_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "route_grad";
  const int compute = (int)attributes->compute;
  const int64_t S = ot_route_slots(attributes);
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dgates", compute, 2, {0, S}}));
  const int64_t R = types->in[0].dim[0];
  const int64_t E = attributes->num_experts;
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "logits", compute, 2, {R, E}}));
  OT_TRY(ot_operand_check(&types->in[2], (ot_expected){op, "experts", OT_I32, 2, {R, S}}));
  OT_TRY(
      ot_operand_check_optional(&types->in[3], (ot_expected){op, "partial", compute, 2, {R, E}}));
  types->out[0] = types->in[1];
  return OT_OK;
}

static ot_cost route_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[1]);
  return ot_cost_of_traffic(&ot_route_grad_info, attributes, types,
                            (SCORE_FLOPS + GRAD_FLOPS) * elements);
}

static ot_status route_order_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "sort_by_expert";
  const int64_t S = ot_route_slots(attributes);
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "experts", OT_I32, 2, {0, S}}));
  types->out[0] = ot_type_matrix(OT_I32, types->in[0].dim[0], ot_route_destinations(attributes));
  types->out[1] = ot_type_vector(OT_I32, attributes->num_experts + 1);
  return OT_OK;
}

static ot_cost route_order_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_route_order_info, attributes, types, 2 * elements);
}

const ot_op_info ot_route_info = {
    .name = "route",
    .num_inputs = 3,
    .num_outputs = 2,
    .optional_inputs = 1u << 1 | 1u << 2,
    .purity = OT_PURITY_SAVED,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = route_infer,
    .cost = route_cost,
    .num_vjp_steps = 2,
    .vjp =
        {{.op = OT_OP_ROUTE_GRAD,
          .phase = OT_VJP_INPUT,
          .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 0}, {OT_REF_OUTPUT, 1}, {OT_REF_PARTIAL, 0}},
          .out = {{OT_REF_DINPUT, 0}}},
         {.op = OT_OP_ROUTE_LOAD,
          .phase = OT_VJP_WEIGHT,
          .in = {{OT_REF_OUTPUT, 1}},
          .out = {{OT_REF_ACCUMULATOR, 1}}}},
};

const ot_op_info ot_route_grad_info = {
    .name = "route_grad",
    .num_inputs = 4,
    .num_outputs = 1,
    .optional_inputs = 1u << 3,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = route_grad_infer,
    .cost = route_grad_cost,
};

const ot_op_info ot_route_order_info = {
    .name = "sort_by_expert",
    .num_inputs = 1,
    .num_outputs = 2,
    .purity = OT_PURITY_SAVED,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = route_order_infer,
    .cost = route_order_cost,
};
