// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of the vocabulary-parallel head.
#include "ops/head_parts.h"

#include "ops/head.h"
#include "ops/linear.h"
#include "ops/operands.h"

// The FLOPs of head_loss per logit, divided among the ops.
enum { STATISTICS_FLOPS = 9, DLOGITS_FLOPS = 3, NATS_FLOPS = 30 };

int64_t ot_head_shards(const ot_op_attributes *attributes) {
  return attributes->group_size > 1 ? attributes->group_size : 1;
}

// ---- shapes ----

static ot_status check_chunk(const char *op, const ot_op_attributes *a, int64_t R) {
  OT_CHECK(a->chunk_rows > 0 && a->first_row >= 0 && a->first_row + a->chunk_rows <= R, OT_BUG,
           "%s: a chunk of %lld tokens from token %lld exceeds %lld", op, (long long)a->chunk_rows,
           (long long)a->first_row, (long long)R);
  return OT_OK;
}

static ot_status check_scalar(const char *op, const char *name, const ot_tensor_type *type) {
  return ot_operand_check(type, (ot_expected){op, name, OT_F64, 1, {1}});
}

// All-gathered statistics at input `index`, followed by targets.
static ot_status check_statistics(const char *op, const ot_op_attributes *a,
                                  const ot_op_types *types, int index, int per_token) {
  const int64_t rows = ot_head_shards(a) * a->chunk_rows;
  OT_TRY(ot_operand_check(&types->in[index + 1], (ot_expected){op, "targets", OT_I32, 1, {0}}));
  OT_TRY(check_chunk(op, a, types->in[index + 1].dim[0]));
  return ot_operand_check(&types->in[index],
                          (ot_expected){op, "all_statistics", OT_F64, 2, {rows, per_token}});
}

static ot_status head_statistics_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "head_statistics";
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t R = types->in[0].dim[0];
  const int64_t C = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "w", OT_ANY_REAL, 2, {0, C}}));
  OT_TRY(ot_operand_check(&types->in[2], (ot_expected){op, "targets", OT_I32, 1, {R}}));
  OT_TRY(check_chunk(op, attributes, R));
  OT_TRY(ot_head_check_weights(op, &types->in[3], &types->in[4], R));
  const int64_t rows = attributes->chunk_rows;
  const bool weighted = ot_type_present(&types->in[4]);
  types->out[0] = ot_type_matrix(attributes->compute, rows, types->in[1].dim[0]);
  types->out[1] = ot_type_matrix(OT_F64, rows, weighted ? OT_HEAD_WEIGHTED : OT_HEAD_STATISTICS);
  if (weighted) types->out[2] = ot_type_matrix(attributes->compute, rows, types->in[3].dim[1]);
  return OT_OK;
}

static ot_status head_dlogits_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "head_dlogits";
  const int64_t rows = attributes->chunk_rows;
  const int shards = (int)ot_head_shards(attributes);
  OT_CHECK(attributes->group_index >= 0 && attributes->group_index < shards, OT_BUG,
           "%s: group_index %d is not in [0, %d)", op, attributes->group_index, shards);
  const ot_tensor_type *const ids = &types->in[4], *const weights = &types->in[5];
  const bool weighted = ot_type_present(weights);
  OT_TRY(
      check_statistics(op, attributes, types, 1, weighted ? OT_HEAD_WEIGHTED : OT_HEAD_STATISTICS));
  OT_TRY(ot_head_check_weights(op, ids, weights, types->in[2].dim[0]));
  OT_TRY(ot_operand_check_optional(
      &types->in[6], (ot_expected){op, "pulls", (int)attributes->compute, 2, {rows, ids->dim[1]}}));
  OT_CHECK(ot_type_present(&types->in[6]) == weighted, OT_BUG, "%s: pulls without weights", op);
  OT_TRY(ot_operand_check_optional(&types->out[2], (ot_expected){op, "data_loss", OT_F64, 1, {1}}));
  OT_TRY(ot_operand_check(&types->in[0],
                          (ot_expected){op, "e", (int)attributes->compute, 2, {rows, 0}}));
  OT_TRY(check_scalar(op, "inverse_tokens", &types->in[3]));
  OT_TRY(check_scalar(op, "loss", &types->out[1]));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_status head_gradient_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "head_gradient";
  const int64_t rows = attributes->chunk_rows;
  OT_TRY(ot_operand_check(&types->in[2], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t R = types->in[2].dim[0];
  const int64_t C = types->in[2].dim[1];
  OT_TRY(check_chunk(op, attributes, R));
  OT_TRY(ot_operand_check(&types->in[3], (ot_expected){op, "w", OT_ANY_REAL, 2, {0, C}}));
  const int64_t V = types->in[3].dim[0];
  OT_TRY(ot_operand_check(&types->in[1],
                          (ot_expected){op, "dlogits", (int)attributes->compute, 2, {rows, V}}));
  OT_TRY(ot_operand_check_optional(
      &types->in[0], (ot_expected){op, "dx_before", (int)types->in[2].dtype, 2, {R, C}}));
  OT_CHECK(attributes->first_row == 0 || ot_type_present(&types->in[0]), OT_BUG,
           "%s: dx_before is absent, but %lld tokens precede the chunk", op,
           (long long)attributes->first_row);
  OT_TRY(
      ot_operand_check_optional(&types->out[1], (ot_expected){op, "dw", OT_ANY_REAL, 2, {V, C}}));
  types->out[0] = types->in[2];
  return OT_OK;
}

static ot_status head_count_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "head_count";
  OT_TRY(check_statistics(op, attributes, types, 0, OT_HEAD_STATISTICS));
  OT_TRY(check_scalar(op, "loss_sum", &types->out[0]));
  return check_scalar(op, "token_count", &types->out[1]);
}

int64_t ot_head_parts_logit_bytes(const ot_op_attributes *attributes, ot_dtype x) {
  return ot_dtype_bytes(attributes->compute) + (x == OT_BF16 ? ot_dtype_bytes(x) : 0);
}

// ---- cost ----

static double row_bytes(const ot_op_attributes *attributes, const ot_tensor_type *type) {
  return (double)attributes->chunk_rows * (double)type->dim[1] *
         (double)ot_dtype_bytes(type->dtype);
}

// The GEMM writes logits; the pass over tokens reads and writes them again.
static ot_cost head_statistics_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double logits = (double)ot_type_elements(&types->out[0]);
  const double e_bytes = (double)ot_type_bytes(&types->out[0]);
  const int cap_flops = attributes->soft_cap > 0 ? OT_SOFT_CAP_FLOPS : 0;
  const double flops = STATISTICS_FLOPS + cap_flops;
  return (ot_cost){
      .matrix_flops = 2 * logits * (double)types->in[0].dim[1],
      .other_flops = flops * logits,
      .bytes_read = row_bytes(attributes, &types->in[0]) + (double)ot_type_bytes(&types->in[1]) +
                    (double)attributes->chunk_rows * 4 + e_bytes,
      .bytes_written = 2 * e_bytes + (double)ot_type_bytes(&types->out[1]),
  };
}

static ot_cost head_dlogits_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double logits = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_head_dlogits_info, attributes, types, DLOGITS_FLOPS * logits);
}

static ot_cost head_gradient_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double logits = (double)ot_type_elements(&types->in[1]);
  const double dlogits_bytes = (double)ot_type_bytes(&types->in[1]);
  const double x_bytes = row_bytes(attributes, &types->in[2]);
  const double w_bytes = (double)ot_type_bytes(&types->in[3]);
  const double dw_bytes = (double)ot_type_bytes(&types->out[1]);
  ot_cost cost = {
      .matrix_flops = 2 * logits * (double)types->in[2].dim[1],
      .bytes_read = dlogits_bytes + w_bytes,
      .bytes_written = x_bytes,
  };
  if (dw_bytes == 0) return cost;
  cost.matrix_flops *= 2;
  cost.bytes_read += dlogits_bytes + x_bytes + (attributes->accumulate ? dw_bytes : 0);
  cost.bytes_written += dw_bytes;
  return cost;
}

static ot_cost head_count_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double flops = NATS_FLOPS * (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_head_count_info, attributes, types, flops);
}

// ---- catalog entries ----

const ot_op_info ot_head_statistics_info = {
    .name = "head_statistics",
    .num_inputs = 5,
    .num_outputs = 3,
    .optional_inputs = 1u << 3 | 1u << 4,
    .optional_outputs = 1u << 2,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_HEAD,
    .infer = head_statistics_infer,
    .cost = head_statistics_cost,
};

const ot_op_info ot_head_dlogits_info = {
    .name = "head_dlogits",
    .num_inputs = 7,
    .num_outputs = 3,
    .optional_inputs = 1u << 4 | 1u << 5 | 1u << 6,
    .optional_outputs = 1u << 2,
    .effect_outputs = 1u << 1 | 1u << 2,
    .purity = OT_PURITY_SAVED,
    .cost_kind = OT_COST_HEAD,
    .in_place = 1u << 0,
    .infer = head_dlogits_infer,
    .cost = head_dlogits_cost,
};

const ot_op_info ot_head_gradient_info = {
    .name = "head_gradient",
    .num_inputs = 4,
    .num_outputs = 2,
    .optional_inputs = 1u << 0,
    .optional_outputs = 1u << 1,
    .accumulated_outputs = 1u << 1,
    .purity = OT_PURITY_SAVED,
    .cost_kind = OT_COST_HEAD,
    .in_place = 1u << 0,
    .infer = head_gradient_infer,
    .cost = head_gradient_cost,
};

const ot_op_info ot_head_gradient_last_info = {
    .name = "head_gradient_last",
    .num_inputs = 4,
    .num_outputs = 2,
    .optional_inputs = 1u << 0,
    .optional_outputs = 1u << 1,
    .accumulated_outputs = 1u << 1,
    .purity = OT_PURITY_SAVED,
    .cost_kind = OT_COST_HEAD,
    .in_place = 1u << 0,
    .infer = head_gradient_infer,
    .cost = head_gradient_cost,
    .num_vjp_steps = 1,
    .vjp = {{.pass = true,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_OUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 2}}}},
};

const ot_op_info ot_head_count_info = {
    .name = "head_count",
    .num_inputs = 2,
    .num_outputs = 2,
    .effect_outputs = 1u << 0 | 1u << 1,
    .purity = OT_PURITY_EFFECT,
    .cost_kind = OT_COST_PASS,
    .infer = head_count_infer,
    .cost = head_count_cost,
};
