// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of the all-to-all-v of tokens.
#include "ops/expert_exchange.h"

#include "base/extremes.h"
#include "ops/operands.h"
#include "ops/route.h"

// An expert gets a token at most once.
int64_t ot_all_to_all_v_max_rows(const ot_op_attributes *a, int64_t tokens) {
  const int64_t chosen = tokens * ot_smaller_whole(ot_route_slots(a), a->held_experts);
  if (a->routing == OT_MOE_DROPLESS) return a->group_size * chosen;
  const int64_t kept = ot_route_sequences(a, tokens) * a->held_experts * a->capacity;
  return a->group_size * ot_smaller_whole(chosen, kept);
}

static ot_status check_ranks(const char *op, const ot_op_attributes *a) {
  const int64_t parts = a->group_size / ot_route_copies(a);
  OT_CHECK(a->group_size >= 2 && a->group_index >= 0 && a->group_index < a->group_size, OT_BUG,
           "%s: group_index %d is not in [0, %d)", op, a->group_index, a->group_size);
  OT_CHECK(parts * ot_route_copies(a) == a->group_size && parts * a->held_experts == a->num_experts,
           OT_BUG, "%s: %lld of %lld experts per rank, %lld copies of each, do not fit %d ranks",
           op, (long long)a->held_experts, (long long)a->num_experts, (long long)ot_route_copies(a),
           a->group_size);
  OT_CHECK(a->exchange_rows >= 1, OT_BUG, "%s: exchange_rows is %lld, must be positive", op,
           (long long)a->exchange_rows);
  return OT_OK;
}

// ---- plan ----

static ot_tensor_type runs(const ot_op_attributes *a, int64_t of_each) {
  return (ot_tensor_type){.dtype = OT_I32, .rank = 3, .dim = {a->group_size, of_each, 2}};
}

static ot_status plan_infer(const ot_op_attributes *a, ot_op_types *types) {
  const char *const op = "all_to_all_v_plan";
  OT_TRY(check_ranks(op, a));
  const int64_t counts = a->group_size * (a->num_experts + 1);
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "counts", OT_I32, 1, {counts}}));
  OT_TRY(ot_operand_check_optional(&types->in[1], (ot_expected){op, "round", OT_I32, 1, {1}}));
  types->out[0] = runs(a, 1);
  types->out[1] = runs(a, a->held_experts);
  types->out[2] = ot_type_vector(OT_I32, a->held_experts + 1);
  types->out[3] = (ot_tensor_type){0};
  if (!ot_type_present(&types->in[1])) types->out[3] = ot_type_vector(OT_I32, 1);
  return OT_OK;
}

static ot_cost plan_cost(const ot_op_attributes *a, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_exchange_plan_info, a, types, 4 * elements);
}

// ---- all-to-all-v ----

static ot_status check_runs(const char *op, const ot_op_attributes *a, const ot_tensor_type *home,
                            const ot_tensor_type *here) {
  const int64_t n = a->group_size;
  OT_TRY(check_ranks(op, a));
  OT_TRY(ot_operand_check(home, (ot_expected){op, "home", OT_I32, 3, {n, 1, 2}}));
  return ot_operand_check(here, (ot_expected){op, "here", OT_I32, 3, {n, a->held_experts, 2}});
}

static ot_status check_rows(const char *op, const ot_tensor_type *rows, int64_t number) {
  OT_CHECK(rows->rank >= 1 && rows->dim[0] == number, OT_BUG, "%s: %lld rows, expected %lld", op,
           (long long)(rows->rank > 0 ? rows->dim[0] : 0), (long long)number);
  return OT_OK;
}

static ot_status exchange_infer(const ot_op_attributes *a, ot_op_types *types) {
  const char *const op = "all_to_all_v";
  OT_TRY(check_runs(op, a, &types->in[1], &types->in[2]));
  OT_TRY(check_rows(op, &types->in[0], a->copy_rows * ot_route_copies(a)));
  types->out[0] = types->in[0];
  types->out[0].dim[0] = a->exchange_rows;
  return OT_OK;
}

static ot_status home_infer(const ot_op_attributes *a, ot_op_types *types) {
  const char *const op = "all_to_all_v_back";
  OT_TRY(check_runs(op, a, &types->in[2], &types->in[3]));
  OT_TRY(check_rows(op, &types->in[1], a->exchange_rows));
  types->out[0] = types->in[1];
  types->out[0].dim[0] = a->copy_rows * ot_route_copies(a);
  if (!ot_type_present(&types->in[0])) return OT_OK;
  return check_rows(op, &types->in[0], types->out[0].dim[0]);
}

// Received rows are written, and as many sent rows are read.
static ot_cost row_cost(const ot_op_attributes *a, const ot_tensor_type *rows) {
  const double bytes = (double)ot_type_bytes(rows) / (double)rows->dim[0];
  const double moved = bytes * ot_route_used(a, a->exchange_rows);
  return (ot_cost){.bytes_read = moved, .bytes_written = moved};
}

static ot_cost exchange_cost(const ot_op_attributes *a, const ot_op_types *types) {
  return row_cost(a, &types->in[0]);
}

static ot_cost home_cost(const ot_op_attributes *a, const ot_op_types *types) {
  return row_cost(a, &types->in[1]);
}

const ot_op_info ot_exchange_plan_info = {
    .name = "all_to_all_v_plan",
    .num_inputs = 2,
    .num_outputs = 4,
    .optional_inputs = 1u << 1,
    .optional_outputs = 1u << 3,
    .purity = OT_PURITY_SAVED,
    .cost_kind = OT_COST_EXPERT_PASS,
    .infer = plan_infer,
    .cost = plan_cost,
};

const ot_op_info ot_exchange_info = {
    .name = "all_to_all_v",
    .num_inputs = 3,
    .num_outputs = 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_COMMUNICATION,
    .infer = exchange_infer,
    .cost = exchange_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_ALL_TO_ALL_V_BACK,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_NONE, 0}, {OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 1}, {OT_REF_INPUT, 2}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_exchange_home_info = {
    .name = "all_to_all_v_back",
    .num_inputs = 4,
    .num_outputs = 1,
    .optional_inputs = 1u << 0,
    .accumulated_outputs = 1u << 0,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_COMMUNICATION,
    .in_place = 1u << 0,
    .infer = home_infer,
    .cost = home_cost,
    .num_vjp_steps = 2,
    .vjp = {{.op = OT_OP_ALL_TO_ALL_V,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 2}, {OT_REF_INPUT, 3}},
             .out = {{OT_REF_DINPUT, 1}}},
            {.pass = true,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 0}}}},
};
