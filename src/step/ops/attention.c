// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of attention over whole sequences and over blocks of a ring.
#include "ops/attention.h"

#include "ops/operands.h"
#include "ops/zigzag.h"

enum { GRAD_PRODUCTS = 5 };  // scores recomputed, dp, dq, dk, dv

static ot_status check_attributes(const char *op, const ot_op_attributes *a, int64_t rows) {
  OT_CHECK(a->num_heads > 0 && a->num_kv_heads > 0 && a->num_heads % a->num_kv_heads == 0, OT_BUG,
           "%s: %lld kv heads do not divide %lld heads", op, (long long)a->num_kv_heads,
           (long long)a->num_heads);
  OT_CHECK(a->head_dim > 0, OT_BUG, "%s: head_dim is %lld, must be positive", op,
           (long long)a->head_dim);
  OT_CHECK(a->sequence_length > 0 && rows % a->sequence_length == 0, OT_BUG,
           "%s: %lld rows are not whole sequences of %lld", op, (long long)rows,
           (long long)a->sequence_length);
  const int64_t ranks = a->context_size > 1 ? a->context_size : 1;
  const int64_t heads = a->first_head + a->num_heads;
  const bool counted = heads <= 1 << 8 && a->sequence_length * ranks <= 1 << 24;
  OT_CHECK(a->dropout == 0 || counted, OT_BUG,
           "%s: %lld heads and sequence_length %lld, at most 256 and 16777216 with dropout", op,
           (long long)heads, (long long)(a->sequence_length * ranks));
  return OT_OK;
}

static ot_status check_qkv(const char *op, const ot_op_attributes *a, const ot_tensor_type *qkv) {
  const int64_t width = (a->num_heads + 2 * a->num_kv_heads) * a->head_dim;
  OT_TRY(ot_operand_check(qkv, (ot_expected){op, "qkv", OT_ANY_REAL, 2, {0, width}}));
  return check_attributes(op, a, qkv->dim[0]);
}

// doc_start and sample_ids of R tokens.
static ot_status check_batch(const char *op, const ot_op_attributes *a, const ot_tensor_type *in,
                             int64_t R) {
  OT_TRY(ot_operand_check_optional(&in[0], (ot_expected){op, "doc_start", OT_I32, 1, {R}}));
  const int64_t B = R / a->sequence_length;
  const ot_expected ids = {op, "sample_ids", OT_I64, 1, {B}};
  return a->dropout > 0 ? ot_operand_check(&in[1], ids) : ot_operand_check_optional(&in[1], ids);
}

static ot_status check_sinks(const char *op, const ot_op_attributes *a,
                             const ot_tensor_type *sinks) {
  OT_TRY(ot_operand_check_optional(sinks, (ot_expected){op, "sinks", OT_ANY_REAL, 1, {0}}));
  OT_CHECK(sinks->rank == 0 || sinks->dim[0] >= a->first_sink + a->num_heads, OT_BUG,
           "%s: %lld sinks do not cover heads %lld to %lld", op, (long long)sinks->dim[0],
           (long long)a->first_sink, (long long)(a->first_sink + a->num_heads));
  return OT_OK;
}

static ot_status attention_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "attention";
  OT_TRY(check_qkv(op, attributes, &types->in[0]));
  const int64_t R = types->in[0].dim[0];
  OT_TRY(check_batch(op, attributes, &types->in[1], R));
  OT_TRY(check_sinks(op, attributes, &types->in[3]));
  OT_TRY(ot_operand_check_optional(&types->out[2], (ot_expected){op, "max_logit", OT_F64, 1, {1}}));
  types->out[0] =
      ot_type_matrix(types->in[0].dtype, R, attributes->num_heads * attributes->head_dim);
  types->out[1] = ot_type_matrix(attributes->compute, R, attributes->num_heads);
  return OT_OK;
}

// do; o and lse are inputs `saved` and `saved` + 1.
static ot_status check_outputs(const char *op, const ot_op_attributes *a, const ot_op_types *types,
                               int saved) {
  const int64_t R = types->in[1].dim[0];
  const int64_t H = a->num_heads;
  const int64_t width = H * a->head_dim;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "do", OT_ANY_REAL, 2, {R, width}}));
  OT_TRY(ot_operand_check(&types->in[saved], (ot_expected){op, "o", OT_ANY_REAL, 2, {R, width}}));
  return ot_operand_check(&types->in[saved + 1],
                          (ot_expected){op, "lse", (int)a->compute, 2, {R, H}});
}

static ot_status attention_grad_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "attention_grad";
  OT_TRY(check_qkv(op, attributes, &types->in[1]));
  OT_TRY(check_batch(op, attributes, &types->in[2], types->in[1].dim[0]));
  OT_TRY(check_outputs(op, attributes, types, 4));
  types->out[0] = types->in[1];
  return OT_OK;
}

static ot_status sinks_grad_infer(const ot_op_attributes *a, ot_op_types *types) {
  const char *const op = "attention_sinks_grad";
  const int64_t H = a->num_heads;
  const int64_t width = H * a->head_dim;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "do", OT_ANY_REAL, 2, {0, width}}));
  const int64_t R = types->in[0].dim[0];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "o", OT_ANY_REAL, 2, {R, width}}));
  OT_TRY(ot_operand_check(&types->in[2], (ot_expected){op, "lse", (int)a->compute, 2, {R, H}}));
  OT_TRY(check_sinks(op, a, &types->in[3]));
  return ot_operand_check(&types->out[0],
                          (ot_expected){op, "dsinks", OT_ANY_REAL, 1, {types->in[3].dim[0]}});
}

static ot_cost sinks_grad_cost(const ot_op_attributes *a, const ot_op_types *types) {
  const double flops = 2 * (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_attention_sinks_grad_info, a, types, flops);
}

// The sequence blocks, and kv in addition to qkv.
static ot_status check_block(const char *op, const ot_op_attributes *a, const ot_tensor_type *qkv,
                             const ot_tensor_type *kv) {
  const int c = a->context_size > 1 ? a->context_size : 1;
  OT_TRY(check_qkv(op, a, qkv));
  OT_CHECK(c == 1 || a->sequence_length % 2 == 0, OT_BUG,
           "%s: %lld tokens of a sequence on each of %d ranks, must be even", op,
           (long long)a->sequence_length, c);
  OT_CHECK(a->context_index >= 0 && a->context_index < c && a->key_index >= 0 && a->key_index < c,
           OT_BUG, "%s: queries of block %d and keys of block %d, not all in [0, %d)", op,
           a->context_index, a->key_index, c);
  const int64_t width = 2 * a->num_kv_heads * a->head_dim;
  return ot_operand_check(kv, (ot_expected){op, "kv", (int)qkv->dtype, 2, {qkv->dim[0], width}});
}

static ot_status attention_block_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "attention_block";
  const ot_tensor_type *const in = types->in;
  const int compute = (int)attributes->compute;
  OT_TRY(check_block(op, attributes, &in[0], &in[1]));
  const int64_t R = in[0].dim[0];
  const int64_t H = attributes->num_heads;
  const int64_t width = H * attributes->head_dim;
  OT_TRY(check_batch(op, attributes, &in[2], R));
  OT_CHECK(ot_type_present(&in[4]) == ot_type_present(&in[5]), OT_BUG,
           "attention_block: one of o_before and lse_before is absent, must be both or neither");
  OT_TRY(ot_operand_check_optional(&in[4], (ot_expected){op, "o_before", compute, 2, {R, width}}));
  OT_TRY(ot_operand_check_optional(&in[5], (ot_expected){op, "lse_before", compute, 2, {R, H}}));
  OT_TRY(check_sinks(op, attributes, &in[6]));
  OT_CHECK(in[6].rank == 0 || in[5].rank == 0, OT_BUG,
           "attention_block: sinks belong to the first block, not to one with lse_before");
  OT_TRY(ot_operand_check_optional(&types->out[2], (ot_expected){op, "max_logit", OT_F64, 1, {1}}));
  types->out[0] = ot_type_matrix(attributes->compute, R, width);
  types->out[1] = ot_type_matrix(attributes->compute, R, H);
  return OT_OK;
}

static ot_status attention_block_grad_infer(const ot_op_attributes *attributes,
                                            ot_op_types *types) {
  const char *const op = "attention_block_grad";
  const ot_tensor_type *const in = types->in;
  const int compute = (int)attributes->compute;
  OT_TRY(check_block(op, attributes, &in[1], &in[2]));
  const int64_t R = in[1].dim[0];
  const int64_t q = attributes->num_heads * attributes->head_dim;
  const int64_t kv = 2 * attributes->num_kv_heads * attributes->head_dim;
  OT_TRY(check_batch(op, attributes, &in[3], R));
  OT_TRY(check_outputs(op, attributes, types, 5));
  OT_TRY(ot_operand_check_optional(&in[7], (ot_expected){op, "dq_before", compute, 2, {R, q}}));
  OT_TRY(ot_operand_check_optional(&in[8], (ot_expected){op, "dkv_before", compute, 2, {R, kv}}));
  types->out[0] = ot_type_matrix(attributes->compute, R, q);
  types->out[1] = ot_type_matrix(attributes->compute, R, kv);
  return OT_OK;
}

// Visible pairs between two runs of `rows` tokens, the queries `apart` positions after the keys:
// pairs with distance below `distance` whose query precedes the key by less than `rows`.
static int64_t pairs_nearer(int64_t rows, int64_t apart, int64_t distance) {
  // Distance apart + e has rows - |e| pairs; the sum for e from 1 - rows up to `last`.
  const int64_t last = distance - apart - 1 < rows - 1 ? distance - apart - 1 : rows - 1;
  if (last <= -rows) return 0;
  if (last < 0) return (last + rows) * (last + rows + 1) / 2;
  return rows * (rows + 1) / 2 + rows * last - last * (last + 1) / 2;
}

// Pairs (query, key) of one sequence that are visible to a head, without document masks.
static int64_t visible_pairs(const ot_op_attributes *a, const ot_positions *queries,
                             const ot_positions *keys) {
  const int64_t rows = queries->half;
  const int runs = queries->half < queries->rows ? 2 : 1;
  int64_t pairs = 0;
  for (int i = 0; i < runs; i++) {
    for (int j = 0; j < runs; j++) {
      const int64_t apart = queries->start[i] - keys->start[j];
      const int64_t all = apart + rows;
      const int64_t end = a->window > 0 && a->window < all ? a->window : all;
      pairs += pairs_nearer(rows, apart, end) - pairs_nearer(rows, apart, 0);
    }
  }
  return pairs;
}

// The GEMMs of an op over the visible pairs of these tokens.
typedef struct work {
  const ot_op_info *info;
  ot_positions queries, keys;
  int products;
} work;

// Tokens [begin, end) of queries or keys.
typedef struct row_range {
  int64_t begin, end;
} row_range;

// Adds the keys visible to queries [first, end), whose positions are consecutive.
static void add_keys(const work *w, int64_t window, row_range queries, row_range *keys) {
  if (queries.begin >= queries.end) return;
  const int64_t place = ot_token_position(&w->queries, queries.begin);
  const int64_t begin = window > 0 ? ot_tokens_before(&w->keys, place - window + 1) : 0;
  const int64_t end = ot_tokens_before(&w->keys, place + queries.end - queries.begin);
  if (begin >= end) return;
  if (begin < keys->begin) keys->begin = begin;
  if (end > keys->end) keys->end = end;
}

// Pairs in the computed tiles of a head: for each query tile, all key tiles from the first to the
// last visible key.
static int64_t held_pairs(const work *w, int64_t window) {
  const int64_t rows = w->queries.rows, half = w->queries.half;
  int64_t pairs = 0;
  for (int64_t first = 0; first < rows; first += OT_ATTENTION_QUERIES) {
    const int64_t end = first + ot_rows_clamped(rows - first, OT_ATTENTION_QUERIES);
    const int64_t middle = first + ot_rows_clamped(half - first, end - first);
    row_range keys = {.begin = w->keys.rows, .end = 0};
    add_keys(w, window, (row_range){first, middle}, &keys);
    add_keys(w, window, (row_range){middle, end}, &keys);
    if (keys.begin >= keys.end) continue;
    const int64_t tiles = (keys.end + OT_ATTENTION_KEYS - 1) / OT_ATTENTION_KEYS;
    pairs += (end - first) * (ot_rows_clamped(tiles * OT_ATTENTION_KEYS, w->keys.rows) -
                              keys.begin / OT_ATTENTION_KEYS * OT_ATTENTION_KEYS);
  }
  return pairs;
}

int ot_attention_score_flops(const ot_op_attributes *attributes) {
  return attributes->soft_cap > 0 ? 6 + OT_SOFT_CAP_FLOPS : 6;
}

static ot_cost cost_of(const work *w, const ot_op_attributes *a, const ot_op_types *types) {
  const double B = (double)(types->out[0].dim[0] / a->sequence_length);
  const double BH = B * (double)a->num_heads;
  const int64_t visible = visible_pairs(a, &w->queries, &w->keys);
  const int64_t hidden = held_pairs(w, a->window) - visible;
  const double pairs = BH * (double)visible;
  ot_cost cost = ot_cost_of_traffic(w->info, a, types, ot_attention_score_flops(a) * pairs);
  cost.matrix_flops = 2 * w->products * pairs * (double)a->head_dim;
  if (w->products == GRAD_PRODUCTS) cost.repeated_flops = cost.matrix_flops / GRAD_PRODUCTS;
  if (a->value_dim > 0) {
    // Every second GEMM uses values, which are padded to the width of keys.
    const double filled = (double)(a->head_dim - a->value_dim);
    cost.padded_flops = 2 * (double)(w->products / 2) * pairs * filled;
    cost.matrix_flops -= cost.padded_flops;
  }
  cost.padded_flops += 2 * w->products * BH * (double)hidden * (double)a->head_dim;
  return cost;
}

static ot_cost whole_cost(const ot_op_info *info, const ot_op_attributes *a,
                          const ot_op_types *types, int products) {
  const ot_positions places = ot_positions_whole(a->sequence_length);
  return cost_of(&(work){info, places, places, products}, a, types);
}

// A block reads only the q part of qkv (input `qkv`).
static ot_cost block_cost(const work *w, const ot_op_attributes *a, const ot_op_types *types,
                          int qkv) {
  work placed = *w;
  placed.queries = ot_positions_of(a->sequence_length, a->context_size, a->context_index);
  placed.keys = ot_positions_of(a->sequence_length, a->context_size, a->key_index);
  ot_cost cost = cost_of(&placed, a, types);
  cost.bytes_read -= (double)ot_type_bytes(&types->in[qkv + 1]);
  return cost;
}

static ot_cost attention_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return whole_cost(&ot_attention_info, attributes, types, 2);
}

static ot_cost attention_grad_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return whole_cost(&ot_attention_grad_info, attributes, types, GRAD_PRODUCTS);
}

static ot_cost attention_block_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const work w = {.info = &ot_attention_block_info, .products = 2};
  return block_cost(&w, attributes, types, 0);
}

static ot_cost attention_block_grad_cost(const ot_op_attributes *attributes,
                                         const ot_op_types *types) {
  const work w = {.info = &ot_attention_block_grad_info, .products = GRAD_PRODUCTS};
  return block_cost(&w, attributes, types, 1);
}

bool ot_attention_is_block(ot_op_kind kind) {
  return kind == OT_OP_ATTENTION_BLOCK || kind == OT_OP_ATTENTION_BLOCK_GRAD;
}

const ot_op_info ot_attention_info = {
    .name = "attention",
    .num_inputs = 4,
    .num_outputs = 3,
    .optional_inputs = 1u << 1 | 1u << 2 | 1u << 3,
    .optional_outputs = 1u << 2,
    .effect_outputs = 1u << 2,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_ATTENTION,
    .infer = attention_infer,
    .cost = attention_cost,
    .num_vjp_steps = 2,
    .vjp = {{.op = OT_OP_ATTENTION_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0},
                    {OT_REF_INPUT, 0},
                    {OT_REF_INPUT, 1},
                    {OT_REF_INPUT, 2},
                    {OT_REF_OUTPUT, 0},
                    {OT_REF_OUTPUT, 1}},
             .out = {{OT_REF_DINPUT, 0}}},
            {.op = OT_OP_ATTENTION_SINKS_GRAD,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_DOUTPUT, 0}, {OT_REF_OUTPUT, 0}, {OT_REF_OUTPUT, 1}, {OT_REF_INPUT, 3}},
             .out = {{OT_REF_ACCUMULATOR, 3}}}},
};

const ot_op_info ot_attention_grad_info = {
    .name = "attention_grad",
    .num_inputs = 6,
    .num_outputs = 1,
    .optional_inputs = 1u << 2 | 1u << 3,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_ATTENTION,
    .infer = attention_grad_infer,
    .cost = attention_grad_cost,
};

const ot_op_info ot_attention_sinks_grad_info = {
    .name = "attention_sinks_grad",
    .num_inputs = 4,
    .num_outputs = 1,
    .accumulated_outputs = 1u << 0,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = sinks_grad_infer,
    .cost = sinks_grad_cost,
};

const ot_op_info ot_attention_block_info = {
    .name = "attention_block",
    .num_inputs = 7,
    .num_outputs = 3,
    .optional_inputs = 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6,
    .optional_outputs = 1u << 2,
    .effect_outputs = 1u << 2,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_ATTENTION,
    .infer = attention_block_infer,
    .cost = attention_block_cost,
};

const ot_op_info ot_attention_block_grad_info = {
    .name = "attention_block_grad",
    .num_inputs = 9,
    .num_outputs = 2,
    .optional_inputs = 1u << 3 | 1u << 4 | 1u << 7 | 1u << 8,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_ATTENTION,
    .infer = attention_block_grad_infer,
    .cost = attention_block_grad_cost,
};
