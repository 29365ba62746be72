// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and workspace of the operators on a KV cache.
#include "ops/decode.h"

#include "ops/attention.h"
#include "ops/operands.h"

static ot_status check_qkv(const char *op, const ot_op_attributes *a, const ot_tensor_type *qkv) {
  OT_CHECK(a->num_heads > 0 && a->num_kv_heads > 0 && a->num_heads % a->num_kv_heads == 0, OT_BUG,
           "%s: %lld kv heads do not divide %lld heads", op, (long long)a->num_kv_heads,
           (long long)a->num_heads);
  const int64_t width = (a->num_heads + 2 * a->num_kv_heads) * a->head_dim;
  return ot_operand_check(qkv, (ot_expected){op, "qkv", OT_ANY_REAL, 2, {0, width}});
}

static ot_status check_cache(const char *op, const ot_op_attributes *a, const ot_tensor_type *cache,
                             int64_t B) {
  const int64_t width = 2 * a->num_kv_heads * a->head_dim;
  return ot_operand_check(cache, (ot_expected){op, "cache", OT_ANY_REAL, 3, {B, 0, width}});
}

static ot_status append_kv_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "append_kv";
  OT_TRY(check_qkv(op, attributes, &types->in[0]));
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "length", OT_I32, 1, {0}}));
  const int64_t rows = types->in[0].dim[0];
  const int64_t B = types->in[1].dim[0];
  OT_CHECK(rows % B == 0, OT_BUG, "append_kv: %lld rows do not belong to %lld sequences",
           (long long)rows, (long long)B);
  return check_cache(op, attributes, &types->out[0], B);
}

// Only the new slots of the cache are accessed.
static ot_cost append_kv_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)types->in[0].dim[0] * (double)types->out[0].dim[2];
  (void)attributes;
  return (ot_cost){.bytes_read = elements * (double)ot_dtype_bytes(types->in[0].dtype) +
                                 (double)ot_type_bytes(&types->in[1]),
                   .bytes_written = elements * (double)ot_dtype_bytes(types->out[0].dtype)};
}

static ot_status attention_decode_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "attention_decode";
  OT_TRY(check_qkv(op, attributes, &types->in[0]));
  const int64_t B = types->in[0].dim[0];
  OT_TRY(check_cache(op, attributes, &types->in[1], B));
  OT_TRY(ot_operand_check(&types->in[2], (ot_expected){op, "length", OT_I32, 1, {B}}));
  OT_TRY(ot_operand_check_optional(
      &types->in[3], (ot_expected){op, "sinks", OT_ANY_REAL, 1, {attributes->num_heads}}));
  types->out[0] =
      ot_type_matrix(types->in[0].dtype, B, attributes->num_heads * attributes->head_dim);
  return OT_OK;
}

// Assumes a full cache or window: the lengths are unknown here.
static ot_cost attention_decode_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const int64_t slots = types->in[1].dim[1];
  const int64_t window = attributes->window;
  const double visible = (double)(window > 0 && window < slots ? window : slots);
  const double pairs = (double)types->in[0].dim[0] * (double)attributes->num_heads * visible;
  const double flops = ot_attention_score_flops(attributes) * pairs;
  ot_cost cost = ot_cost_of_traffic(&ot_attention_decode_info, attributes, types, flops);
  cost.matrix_flops = 4 * pairs * (double)attributes->head_dim;
  return cost;
}

// Scores of the heads that share a key head, per thread.
static int64_t attention_decode_workspace(const ot_op_attributes *attributes,
                                          const ot_op_types *types) {
  const int64_t heads = attributes->num_heads / attributes->num_kv_heads;
  return attributes->threads * heads * types->in[1].dim[1] * ot_dtype_bytes(attributes->compute);
}

// On a GPU: of each head and part of the slots the largest score, the sum and the sum of values.
static int64_t decode_parts_workspace(const ot_op_attributes *attributes,
                                      const ot_op_types *types) {
  const int64_t units = types->in[0].dim[0] * attributes->num_heads;
  const int64_t elements =
      units * ot_decode_parts(types->in[1].dim[1]) * (2 + attributes->head_dim);
  return elements * ot_dtype_bytes(attributes->compute);
}

const ot_op_info ot_append_kv_info = {
    .name = "append_kv",
    .num_inputs = 2,
    .num_outputs = 1,
    .accumulated_outputs = 1u << 0,
    .purity = OT_PURITY_EFFECT,
    .cost_kind = OT_COST_PASS,
    .infer = append_kv_infer,
    .cost = append_kv_cost,
};

const ot_op_info ot_attention_decode_info = {
    .name = "attention_decode",
    .num_inputs = 4,
    .num_outputs = 1,
    .optional_inputs = 1u << 3,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = attention_decode_infer,
    .cost = attention_decode_cost,
    .workspace =
        {[OT_BACKEND_CPU] = attention_decode_workspace, [OT_BACKEND_CUDA] = decode_parts_workspace},
};
