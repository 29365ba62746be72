// SPDX-License-Identifier: Apache-2.0
// Shapes and cost of the operators on a KV cache.
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

ot_status ot_cache_check(const char *op, int64_t width, const ot_tensor_type *cache) {
  return ot_operand_check(cache,
                          (ot_expected){op, "cache", OT_ANY_REAL, 3, {0, OT_PAGE_SLOTS, width}});
}

ot_status ot_pages_check(const char *op, int64_t rows, const ot_tensor_type *sequences,
                         const ot_tensor_type *pages) {
  OT_TRY(ot_operand_check(sequences, (ot_expected){op, "sequences", OT_I32, 1, {rows}}));
  return ot_operand_check(pages, (ot_expected){op, "pages", OT_I32, 2, {0, 0}});
}

static ot_status check_places(const char *op, int64_t rows, const ot_tensor_type *sequences) {
  const ot_tensor_type *const positions = sequences + 1, *const pages = sequences + 2;
  OT_TRY(ot_operand_check(positions, (ot_expected){op, "positions", OT_I32, 1, {rows}}));
  return ot_pages_check(op, rows, sequences, pages);
}

static int64_t cache_width(const ot_op_attributes *a) { return 2 * a->num_kv_heads * a->head_dim; }

static ot_status append_kv_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "append_kv";
  OT_TRY(check_qkv(op, attributes, &types->in[0]));
  OT_TRY(check_places(op, types->in[0].dim[0], &types->in[1]));
  return ot_cache_check(op, cache_width(attributes), &types->out[0]);
}

// Only the new rows of the cache are accessed.
static ot_cost append_kv_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)types->in[0].dim[0] * (double)types->out[0].dim[2];
  (void)attributes;
  return (ot_cost){.bytes_read = elements * (double)ot_dtype_bytes(types->in[0].dtype),
                   .bytes_written = elements * (double)ot_dtype_bytes(types->out[0].dtype)};
}

static ot_status attention_decode_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "attention_decode";
  OT_TRY(check_qkv(op, attributes, &types->in[0]));
  const int64_t R = types->in[0].dim[0];
  OT_TRY(ot_cache_check(op, cache_width(attributes), &types->in[1]));
  OT_TRY(check_places(op, R, &types->in[2]));
  OT_TRY(ot_operand_check_optional(
      &types->in[5], (ot_expected){op, "sinks", OT_ANY_REAL, 1, {attributes->num_heads}}));
  types->out[0] =
      ot_type_matrix(types->in[0].dtype, R, attributes->num_heads * attributes->head_dim);
  return OT_OK;
}

// Assumes that a sequence has the greatest length, or a whole window: the lengths are unknown here.
static ot_cost attention_decode_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const int64_t slots = ot_paged_slots(&types->in[4]);
  const int64_t window = attributes->window;
  const double visible = (double)(window > 0 && window < slots ? window : slots);
  const double pairs = (double)types->in[0].dim[0] * (double)attributes->num_heads * visible;
  const double flops = ot_attention_score_flops(attributes) * pairs;
  ot_cost cost = ot_cost_of_traffic(&ot_attention_decode_info, attributes, types, flops);
  cost.matrix_flops = 4 * pairs * (double)attributes->head_dim;
  return cost;
}

const ot_op_info ot_append_kv_info = {
    .name = "append_kv",
    .num_inputs = 4,
    .num_outputs = 1,
    .accumulated_outputs = 1u << 0,
    .purity = OT_PURITY_EFFECT,
    .cost_kind = OT_COST_PASS,
    .infer = append_kv_infer,
    .cost = append_kv_cost,
};

const ot_op_info ot_attention_decode_info = {
    .name = "attention_decode",
    .num_inputs = 6,
    .num_outputs = 1,
    .optional_inputs = 1u << 5,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = attention_decode_infer,
    .cost = attention_decode_cost,
};
