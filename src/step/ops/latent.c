// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of the copies of latent attention, and of its decode form.
#include "ops/latent.h"

#include "ops/decode.h"
#include "ops/operands.h"

enum { ROTATE_FLOPS = 3, WIDEST_HEAD = 1024 };

static int64_t kv_width(const ot_op_attributes *a) {
  return a->num_heads * (a->head_dim - a->rotary_dim + a->value_dim);
}

static ot_status check_heads(const char *op, const ot_op_attributes *a) {
  OT_CHECK(a->num_heads >= 1 && a->head_dim <= WIDEST_HEAD && a->rotary_dim >= 2 &&
               a->rotary_dim % 2 == 0 && a->rotary_dim < a->head_dim && a->value_dim >= 1 &&
               a->value_dim <= a->head_dim,
           OT_BUG, "%s: num_heads=%lld, head_dim=%lld, rotary_dim=%lld, value_dim=%lld", op,
           (long long)a->num_heads, (long long)a->head_dim, (long long)a->rotary_dim,
           (long long)a->value_dim);
  return OT_OK;
}

static ot_status check_rotation(const char *op, const ot_op_attributes *a, int64_t rows,
                                const ot_tensor_type *positions, const ot_tensor_type *table) {
  OT_TRY(ot_operand_check(positions, (ot_expected){op, "positions", OT_I32, 1, {rows}}));
  return ot_operand_check(
      table, (ot_expected){op, "table", (int)a->compute, 3, {0, a->rotary_dim / 2, 2}});
}

static ot_status latent_split_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "latent_split";
  const int64_t P = attributes->rotary_dim;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  const ot_tensor_type *const x = &types->in[0];
  OT_CHECK(x->dim[1] > P, OT_BUG, "%s: %lld columns, must exceed rotary_dim=%lld", op,
           (long long)x->dim[1], (long long)P);
  types->out[0] = ot_type_matrix(x->dtype, x->dim[0], x->dim[1] - P);
  types->out[1] = ot_type_matrix(x->dtype, x->dim[0], P);
  return OT_OK;
}

static ot_status latent_join_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "latent_join";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "latent", OT_ANY_REAL, 2, {0, 0}}));
  const ot_tensor_type *const latent = &types->in[0];
  OT_TRY(ot_operand_check(
      &types->in[1],
      (ot_expected){
          op, "rotary", (int)latent->dtype, 2, {latent->dim[0], attributes->rotary_dim}}));
  types->out[0] =
      ot_type_matrix(latent->dtype, latent->dim[0], latent->dim[1] + attributes->rotary_dim);
  return OT_OK;
}

static ot_status latent_heads_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "latent_heads";
  const ot_op_attributes *const a = attributes;
  const int64_t width = a->num_heads * a->head_dim;
  OT_TRY(check_heads(op, a));
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "q", OT_ANY_REAL, 2, {0, width}}));
  const int64_t R = types->in[0].dim[0];
  OT_TRY(
      ot_operand_check(&types->in[1], (ot_expected){op, "kv", OT_ANY_REAL, 2, {R, kv_width(a)}}));
  OT_TRY(ot_operand_check(&types->in[2],
                          (ot_expected){op, "rotary", OT_ANY_REAL, 2, {R, a->rotary_dim}}));
  OT_TRY(check_rotation(op, a, R, &types->in[3], &types->in[4]));
  types->out[0] = ot_type_matrix(types->in[0].dtype, R, 3 * width);
  return OT_OK;
}

static ot_status latent_heads_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "latent_heads_grad";
  const ot_op_attributes *const a = attributes;
  const int64_t width = a->num_heads * a->head_dim;
  OT_TRY(check_heads(op, a));
  OT_TRY(
      ot_operand_check(&types->in[0], (ot_expected){op, "dqkv", OT_ANY_REAL, 2, {0, 3 * width}}));
  const int64_t R = types->in[0].dim[0];
  const ot_dtype dtype = types->in[0].dtype;
  OT_TRY(check_rotation(op, a, R, &types->in[1], &types->in[2]));
  types->out[0] = ot_type_matrix(dtype, R, width);
  types->out[1] = ot_type_matrix(dtype, R, kv_width(a));
  types->out[2] = ot_type_matrix(dtype, R, a->rotary_dim);
  return OT_OK;
}

static ot_status resize(const char *op, const ot_op_attributes *a, int64_t from, int64_t to,
                        ot_op_types *types) {
  OT_TRY(check_heads(op, a));
  OT_TRY(ot_operand_check(&types->in[0],
                          (ot_expected){op, "x", OT_ANY_REAL, 2, {0, a->num_heads * from}}));
  types->out[0] = ot_type_matrix(types->in[0].dtype, types->in[0].dim[0], a->num_heads * to);
  return OT_OK;
}

static ot_status value_trim_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  return resize("value_trim", attributes, attributes->head_dim, attributes->value_dim, types);
}

static ot_status value_pad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  return resize("value_pad", attributes, attributes->value_dim, attributes->head_dim, types);
}

// ---- decode against a cache ----

static ot_status append_latent_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "append_latent";
  const int64_t P = attributes->rotary_dim;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "latent", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t R = types->in[0].dim[0];
  const int64_t K = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "rotary", OT_ANY_REAL, 2, {R, P}}));
  OT_TRY(check_rotation(op, attributes, R, &types->in[2], &types->in[3]));
  OT_TRY(ot_pages_check(op, R, &types->in[4], &types->in[5]));
  return ot_cache_check(op, K + P, &types->out[0]);
}

// Only the new slots of the cache are accessed.
static ot_cost append_latent_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)types->in[0].dim[0] * (double)types->out[0].dim[2];
  (void)attributes;
  return (ot_cost){.other_flops = ROTATE_FLOPS * (double)ot_type_elements(&types->in[1]),
                   .bytes_read = elements * (double)ot_dtype_bytes(types->in[0].dtype),
                   .bytes_written = elements * (double)ot_dtype_bytes(types->out[0].dtype)};
}

static ot_status latent_decode_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "latent_decode";
  const ot_op_attributes *const a = attributes;
  OT_TRY(check_heads(op, a));
  OT_TRY(ot_operand_check(&types->in[0],
                          (ot_expected){op, "q", OT_ANY_REAL, 2, {0, a->num_heads * a->head_dim}}));
  const int64_t R = types->in[0].dim[0];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "w", OT_ANY_REAL, 2, {kv_width(a), 0}}));
  const int64_t K = types->in[1].dim[1];
  OT_TRY(ot_cache_check(op, K + a->rotary_dim, &types->in[2]));
  OT_TRY(check_rotation(op, a, R, &types->in[3], &types->in[4]));
  OT_TRY(ot_pages_check(op, R, &types->in[5], &types->in[6]));
  types->out[0] = ot_type_matrix(types->in[0].dtype, R, a->num_heads * a->value_dim);
  return OT_OK;
}

// Assumes sequences of the greatest length: the lengths are unknown here.
static ot_cost latent_decode_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double BH = (double)types->in[0].dim[0] * (double)attributes->num_heads;
  const double K = (double)types->in[1].dim[1];
  const double pairs = BH * (double)ot_paged_slots(&types->in[6]);
  ot_cost cost = ot_cost_of_traffic(&ot_latent_decode_info, attributes, types, 6 * pairs);
  cost.matrix_flops = 2 * pairs * (2 * K + (double)attributes->rotary_dim) +
                      2 * (double)types->in[0].dim[0] * (double)ot_type_elements(&types->in[1]);
  return cost;
}

// ---- cost of the copies ----

static ot_cost split_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return ot_cost_of_traffic(&ot_latent_split_info, attributes, types, 0);
}

static ot_cost join_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return ot_cost_of_traffic(&ot_latent_join_info, attributes, types, 0);
}

static double rotated(const ot_op_attributes *a, int64_t rows) {
  return ROTATE_FLOPS * (double)rows * (double)((a->num_heads + 1) * a->rotary_dim);
}

static ot_cost heads_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return ot_cost_of_traffic(&ot_latent_heads_info, attributes, types,
                            rotated(attributes, types->in[0].dim[0]));
}

static ot_cost heads_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return ot_cost_of_traffic(&ot_latent_heads_grad_info, attributes, types,
                            rotated(attributes, types->in[0].dim[0]));
}

static ot_cost trim_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return ot_cost_of_traffic(&ot_value_trim_info, attributes, types, 0);
}

static ot_cost pad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return ot_cost_of_traffic(&ot_value_pad_info, attributes, types, 0);
}

const ot_op_info ot_latent_split_info = {
    .name = "latent_split",
    .num_inputs = 1,
    .num_outputs = 2,
    .cost_kind = OT_COST_PASS,
    .cheap = true,
    .infer = latent_split_infer,
    .cost = split_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_LATENT_JOIN,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_DOUTPUT, 1}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_latent_join_info = {
    .name = "latent_join",
    .num_inputs = 2,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .infer = latent_join_infer,
    .cost = join_cost,
};

const ot_op_info ot_latent_heads_info = {
    .name = "latent_heads",
    .num_inputs = 5,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .cheap = true,
    .infer = latent_heads_infer,
    .cost = heads_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_LATENT_HEADS_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_INPUT, 3}, {OT_REF_INPUT, 4}},
             .out = {{OT_REF_DINPUT, 0}, {OT_REF_DINPUT, 1}, {OT_REF_DINPUT, 2}}}},
};

const ot_op_info ot_latent_heads_grad_info = {
    .name = "latent_heads_grad",
    .num_inputs = 3,
    .num_outputs = 3,
    .cost_kind = OT_COST_PASS,
    .infer = latent_heads_grad_infer,
    .cost = heads_grad_cost,
};

const ot_op_info ot_value_trim_info = {
    .name = "value_trim",
    .num_inputs = 1,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .cheap = true,
    .infer = value_trim_infer,
    .cost = trim_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_VALUE_PAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_value_pad_info = {
    .name = "value_pad",
    .num_inputs = 1,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .infer = value_pad_infer,
    .cost = pad_cost,
};

const ot_op_info ot_append_latent_info = {
    .name = "append_latent",
    .num_inputs = 6,
    .num_outputs = 1,
    .accumulated_outputs = 1u << 0,
    .purity = OT_PURITY_EFFECT,
    .cost_kind = OT_COST_PASS,
    .infer = append_latent_infer,
    .cost = append_latent_cost,
};

const ot_op_info ot_latent_decode_info = {
    .name = "latent_decode",
    .num_inputs = 7,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .infer = latent_decode_infer,
    .cost = latent_decode_cost,
};
