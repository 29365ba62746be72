// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of the layout copies of context-parallel attention.
#include "ops/context.h"

#include "ops/operands.h"

static ot_status check_heads(const char *op, const ot_op_attributes *a) {
  OT_CHECK(a->num_heads > 0 && a->num_kv_heads >= 0 && a->head_dim > 0, OT_BUG,
           "%s: num_heads=%lld, num_kv_heads=%lld, head_dim=%lld", op, (long long)a->num_heads,
           (long long)a->num_kv_heads, (long long)a->head_dim);
  return OT_OK;
}

static ot_status check_shares(const char *op, const ot_op_attributes *a) {
  OT_TRY(check_heads(op, a));
  const int c = a->context_size;
  OT_CHECK(c >= 1, OT_BUG, "%s: context_size is %d, must be positive", op, c);
  OT_CHECK(a->num_heads % c == 0 && a->num_kv_heads % c == 0, OT_BUG,
           "%s: %lld heads and %lld kv heads cannot be shared by %d ranks (try a divisor of both)",
           op, (long long)a->num_heads, (long long)a->num_kv_heads, c);
  return OT_OK;
}

static int64_t width_of(const ot_op_attributes *a) {
  return (a->num_heads + 2 * a->num_kv_heads) * a->head_dim;
}

static ot_status kv_slice_infer(const ot_op_attributes *a, ot_op_types *types) {
  const char *const op = "kv_slice";
  OT_TRY(check_heads(op, a));
  OT_TRY(
      ot_operand_check(&types->in[0], (ot_expected){op, "qkv", OT_ANY_REAL, 2, {0, width_of(a)}}));
  types->out[0] =
      ot_type_matrix(types->in[0].dtype, types->in[0].dim[0], 2 * a->num_kv_heads * a->head_dim);
  return OT_OK;
}

static ot_status qkv_join_infer(const ot_op_attributes *a, ot_op_types *types) {
  const char *const op = "qkv_join";
  OT_TRY(check_heads(op, a));
  const int compute = (int)a->compute;
  const int64_t q = a->num_heads * a->head_dim;
  const int64_t kv = 2 * a->num_kv_heads * a->head_dim;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "dq", compute, 2, {0, q}}));
  const int64_t R = types->in[0].dim[0];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "dkv", compute, 2, {R, kv}}));
  const bool given = ot_type_present(&types->out[0]);
  types->out[0] = ot_type_matrix(given ? types->out[0].dtype : a->compute, R, q + kv);
  return OT_OK;
}

static ot_status heads_scatter_infer(const ot_op_attributes *a, ot_op_types *types) {
  const char *const op = "heads_scatter";
  OT_TRY(check_shares(op, a));
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, width_of(a)}}));
  types->out[0] = ot_type_matrix(types->in[0].dtype, types->in[0].dim[0] * a->context_size,
                                 width_of(a) / a->context_size);
  return OT_OK;
}

static ot_status check_blocks(const char *op, const ot_op_attributes *a,
                              const ot_tensor_type *type) {
  const int64_t rows = type->dim[0];
  OT_CHECK(a->context_size >= 1 && rows % a->context_size == 0, OT_BUG,
           "%s: %lld rows are not divisible by %d ranks", op, (long long)rows, a->context_size);
  return OT_OK;
}

static ot_status heads_gather_infer(const ot_op_attributes *a, ot_op_types *types) {
  const char *const op = "heads_gather";
  OT_TRY(check_shares(op, a));
  const int64_t share = width_of(a) / a->context_size;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "y", OT_ANY_REAL, 2, {0, share}}));
  OT_TRY(check_blocks(op, a, &types->in[0]));
  types->out[0] =
      ot_type_matrix(types->in[0].dtype, types->in[0].dim[0] / a->context_size, width_of(a));
  return OT_OK;
}

static ot_status check_sequences(const char *op, const ot_op_attributes *a, ot_op_types *types) {
  const ot_tensor_type *const in = &types->in[0];
  OT_CHECK(in->rank == 1 || in->rank == 2, OT_BUG,
           "%s: the input has %d dimensions, must be 1 or 2", op, in->rank);
  OT_TRY(check_blocks(op, a, in));
  const int64_t t = a->sequence_length;
  const int64_t rows = in->dim[0] / a->context_size;
  OT_CHECK(t > 0 && rows % t == 0, OT_BUG, "%s: %lld rows of a rank are not whole blocks of %lld",
           op, (long long)rows, (long long)t);
  types->out[0] = *in;
  return OT_OK;
}

static ot_status sequence_join_infer(const ot_op_attributes *a, ot_op_types *types) {
  return check_sequences("sequence_join", a, types);
}

static ot_status sequence_split_infer(const ot_op_attributes *a, ot_op_types *types) {
  return check_sequences("sequence_split", a, types);
}

// Every element written is read once.
static ot_cost copy_cost(const ot_op_attributes *a, const ot_op_types *types) {
  const double bytes = (double)ot_type_bytes(&types->out[0]);
  (void)a;
  return (ot_cost){.bytes_read = bytes, .bytes_written = bytes};
}

static ot_cost qkv_join_cost(const ot_op_attributes *a, const ot_op_types *types) {
  return ot_cost_of_traffic(&ot_qkv_join_info, a, types, 0);
}

const ot_op_info ot_kv_slice_info = {
    .name = "kv_slice",
    .num_inputs = 1,
    .num_outputs = 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .cheap = true,
    .infer = kv_slice_infer,
    .cost = copy_cost,
};

const ot_op_info ot_qkv_join_info = {
    .name = "qkv_join",
    .num_inputs = 2,
    .num_outputs = 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = qkv_join_infer,
    .cost = qkv_join_cost,
};

const ot_op_info ot_heads_scatter_info = {
    .name = "heads_scatter",
    .num_inputs = 1,
    .num_outputs = 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = heads_scatter_infer,
    .cost = copy_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_HEADS_GATHER,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_heads_gather_info = {
    .name = "heads_gather",
    .num_inputs = 1,
    .num_outputs = 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = heads_gather_infer,
    .cost = copy_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_HEADS_SCATTER,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_sequence_join_info = {
    .name = "sequence_join",
    .num_inputs = 1,
    .num_outputs = 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = sequence_join_infer,
    .cost = copy_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_SEQUENCE_SPLIT,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_sequence_split_info = {
    .name = "sequence_split",
    .num_inputs = 1,
    .num_outputs = 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = sequence_split_infer,
    .cost = copy_cost,
    .num_vjp_steps = 1,
    .vjp = {{.op = OT_OP_SEQUENCE_JOIN,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 0}}}},
};
