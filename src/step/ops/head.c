// SPDX-License-Identifier: Apache-2.0
// Shapes, cost and VJP of the head.
#include "ops/head.h"

#include "base/backend_rules.h"
#include "base/math.h"
#include "ops/operands.h"

enum {
  LOGITS_ELEMENTS = 20 << 20,  // of a chunk, when it is chosen here; docs/blas.md has rates
  ENOUGH_ROWS = 8192,
  LEAST_CHUNK_ROWS = 64,
  MOST_CHUNKS = 16,  // with more tokens, other activations are larger than the logits
};

static ot_status check_x_w(const char *op, ot_op_types *types) {
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t C = types->in[0].dim[1];
  return ot_operand_check(&types->in[1], (ot_expected){op, "w", OT_ANY_REAL, 2, {0, C}});
}

static ot_status check_targets(const char *op, ot_op_types *types) {
  const int64_t R = types->in[0].dim[0];
  return ot_operand_check(&types->in[2], (ot_expected){op, "targets", OT_I32, 1, {R}});
}

static ot_status check_scalar(const char *op, const char *name, const ot_tensor_type *type) {
  return ot_operand_check(type, (ot_expected){op, name, OT_F64, 1, {1}});
}

ot_status ot_head_check_weights(const char *op, const ot_tensor_type *ids,
                                const ot_tensor_type *weights, int64_t rows) {
  const int64_t K = ot_type_present(ids) ? ids->dim[1] : 0;
  OT_TRY(ot_operand_check_optional(ids, (ot_expected){op, "ids", OT_I32, 2, {rows, 0}}));
  OT_TRY(ot_operand_check_optional(weights, (ot_expected){op, "weights", OT_F32, 2, {rows, K}}));
  OT_CHECK(ot_type_present(ids) == ot_type_present(weights) && K <= OT_HEAD_IDS_MAX, OT_BUG,
           "%s: %lld weighted targets per token; allowed: ids and weights, 1 to %d", op,
           (long long)K, OT_HEAD_IDS_MAX);
  return OT_OK;
}

static ot_status head_loss_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const char *const op = "head_loss";
  OT_TRY(check_x_w(op, types));
  OT_TRY(check_targets(op, types));
  OT_TRY(check_scalar(op, "inverse_tokens", &types->in[3]));
  OT_TRY(ot_head_check_weights(op, &types->in[4], &types->in[5], types->in[0].dim[0]));
  OT_TRY(ot_operand_check_optional(&types->out[3], (ot_expected){op, "data_loss", OT_F64, 1, {1}}));
  const int64_t C = types->in[0].dim[1];
  const int64_t V = types->in[1].dim[0];
  OT_TRY(
      ot_operand_check_optional(&types->out[1], (ot_expected){op, "dw", OT_ANY_REAL, 2, {V, C}}));
  OT_TRY(check_scalar(op, "loss", &types->out[2]));
  types->out[0] = types->in[0];
  return OT_OK;
}

static ot_status head_evaluate_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const char *const op = "head_evaluate";
  OT_TRY(check_x_w(op, types));
  OT_TRY(check_targets(op, types));
  OT_TRY(check_scalar(op, "loss_sum", &types->out[0]));
  return check_scalar(op, "token_count", &types->out[1]);
}

static ot_status head_score_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const char *const op = "head_score";
  OT_TRY(check_x_w(op, types));
  OT_TRY(check_targets(op, types));
  const int64_t R = types->in[0].dim[0];
  OT_TRY(ot_operand_check_optional(&types->out[2], (ot_expected){op, "best", OT_F64, 1, {R}}));
  OT_TRY(ot_operand_check_optional(&types->out[3], (ot_expected){op, "sum", OT_F64, 1, {R}}));
  types->out[0] = ot_type_vector(OT_F64, R);
  types->out[1] = ot_type_vector(OT_I32, R);
  return OT_OK;
}

static ot_status head_logits_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  OT_TRY(check_x_w("head_logits", types));
  types->out[0] = ot_type_matrix(attributes->compute, types->in[0].dim[0], types->in[1].dim[0]);
  return OT_OK;
}

ot_row_score ot_head_join_scores(const ot_shard_score *shards, int count) {
  double largest = shards[0].largest, target = shards[0].target, sum = 0;
  int32_t greedy = shards[0].greedy;
  for (int i = 1; i < count; i++) {
    const bool larger = shards[i].largest > largest;
    if (larger) largest = shards[i].largest;
    if (larger && greedy >= 0) greedy = shards[i].greedy;
    if (shards[i].greedy < 0) greedy = -1;
    if (shards[i].target > target) target = shards[i].target;
  }
  for (int i = 0; i < count; i++) sum += shards[i].sum * ot_exp(shards[i].largest - largest);
  const double log_of_sum = ot_log(sum);
  return (ot_row_score){
      .logprob = -(log_of_sum + (largest - target)), .best = -log_of_sum, .greedy = greedy};
}

static int64_t whole_chunks(int64_t rows) {
  return (rows + LEAST_CHUNK_ROWS - 1) / LEAST_CHUNK_ROWS * LEAST_CHUNK_ROWS;
}

// `most` logits at once, or as many chunks as there may be.
static int64_t chosen_chunk(int64_t rows, int64_t V, int64_t most) {
  const int64_t fit = most / V / LEAST_CHUNK_ROWS * LEAST_CHUNK_ROWS;
  const int64_t least = whole_chunks((rows + MOST_CHUNKS - 1) / MOST_CHUNKS);
  return fit > least ? fit : least;
}

// Each chunk reads and writes dw: for an element in fp32 8 bytes, and 6 FLOPs of products for each
// row. So rows decide what that costs, and more than ENOUGH_ROWS gain little. Chunks are equal, but
// for roundings, so that their products have the same shapes.
static int64_t chosen_equal_chunk(int64_t rows, int64_t V, int64_t most) {
  const int64_t fit = chosen_chunk(rows, V, most);
  const int64_t least = chosen_chunk(rows, V, 0);
  const int64_t enough = least > ENOUGH_ROWS ? least : ENOUGH_ROWS;
  const int64_t bound = fit < enough ? fit : enough;
  const int64_t chunks = (rows + bound - 1) / bound;
  return whole_chunks((rows + chunks - 1) / chunks);
}

int64_t ot_head_chunk_rows(const ot_op_attributes *attributes, int64_t rows, int64_t vocabulary,
                           int64_t logit_bytes) {
  const int64_t most = ot_backend_rules_of(attributes->backend)->logits_bytes;
  int64_t wanted = attributes->chunk_rows;
  if (wanted == 0 && most > 0) {
    wanted = chosen_equal_chunk(rows, vocabulary, most / logit_bytes);
  } else if (wanted == 0) {
    wanted = chosen_chunk(rows, vocabulary, LOGITS_ELEMENTS);
  }
  return wanted < rows ? wanted : rows;
}

ot_head_logits ot_head_logits_of(ot_op_kind kind, const ot_op_attributes *attributes,
                                 const ot_op_types *types) {
  const int64_t R = types->in[0].dim[0], V = types->in[1].dim[0];
  const ot_dtype x = types->in[0].dtype, compute = attributes->compute;
  const bool narrows = ot_backend_rules_of(attributes->backend)->narrow_logits;
  const bool loss = kind == OT_OP_HEAD_LOSS;
  const bool narrow = narrows && loss && x == OT_BF16 && compute == OT_F32;
  const ot_dtype dtype = narrow ? x : compute;
  if (kind == OT_OP_HEAD_LOGITS) return (ot_head_logits){R, dtype};
  // Without dw, half of the memory is enough.
  const int64_t logit_bytes = ot_dtype_bytes(dtype) * (loss ? 1 : 2);
  return (ot_head_logits){ot_head_chunk_rows(attributes, R, V, logit_bytes), dtype};
}

// Logits are written and read; w is read, and dw accumulated, per chunk.
static ot_cost cost_of(const ot_op_info *info, ot_op_kind kind, const ot_op_attributes *attributes,
                       const ot_op_types *types) {
  const double R = (double)types->in[0].dim[0];
  const double V = (double)types->in[1].dim[0];
  const double C = (double)types->in[1].dim[1];
  const ot_head_logits shape = ot_head_logits_of(kind, attributes, types);
  const double size = (double)ot_dtype_bytes(shape.dtype);
  const double again = (double)((types->in[0].dim[0] - 1) / shape.chunk);  // chunks after the first
  const double w_bytes = (double)ot_type_bytes(&types->in[1]);
  const bool whole = kind == OT_OP_HEAD_LOGITS;
  const int flops = (whole ? 0 : 12) + (attributes->soft_cap > 0 ? OT_SOFT_CAP_FLOPS : 0);
  ot_cost cost = ot_cost_of_traffic(info, attributes, types, flops * R * V);
  cost.matrix_flops = 2 * R * V * C;
  if (whole) return cost;
  cost.bytes_read += R * V * size + again * w_bytes;
  cost.bytes_written += R * V * size;
  if (kind != OT_OP_HEAD_LOSS) return cost;
  const double dw_bytes = (double)ot_type_bytes(&types->out[1]);
  cost.matrix_flops *= dw_bytes > 0 ? 3 : 2;
  cost.bytes_read += 2 * R * V * size + (1 + again) * w_bytes + again * dw_bytes;
  cost.bytes_written += R * V * size + again * dw_bytes;
  return cost;
}

static ot_cost head_loss_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return cost_of(&ot_head_loss_info, OT_OP_HEAD_LOSS, attributes, types);
}

static ot_cost head_evaluate_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return cost_of(&ot_head_evaluate_info, OT_OP_HEAD_EVALUATE, attributes, types);
}

static ot_cost head_score_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return cost_of(&ot_head_score_info, OT_OP_HEAD_SCORE, attributes, types);
}

static ot_cost head_logits_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  return cost_of(&ot_head_logits_info, OT_OP_HEAD_LOGITS, attributes, types);
}

const ot_op_info ot_head_loss_info = {
    .name = "head_loss",
    .num_inputs = 6,
    .num_outputs = 4,
    .optional_inputs = 1u << 4 | 1u << 5,
    .optional_outputs = 1u << 1 | 1u << 3,
    .accumulated_outputs = 1u << 1,
    .effect_outputs = 1u << 2 | 1u << 3,
    .purity = OT_PURITY_SAVED,
    .cost_kind = OT_COST_HEAD,
    .infer = head_loss_infer,
    .cost = head_loss_cost,
    .num_vjp_steps = 1,
    .vjp = {{.pass = true,
             .phase = OT_VJP_INPUT,
             .in = {{OT_REF_OUTPUT, 0}},
             .out = {{OT_REF_DINPUT, 0}}}},
};

const ot_op_info ot_head_evaluate_info = {
    .name = "head_evaluate",
    .num_inputs = 3,
    .num_outputs = 2,
    .effect_outputs = 1u << 0 | 1u << 1,
    .purity = OT_PURITY_EFFECT,
    .cost_kind = OT_COST_PASS,
    .infer = head_evaluate_infer,
    .cost = head_evaluate_cost,
};

const ot_op_info ot_head_score_info = {
    .name = "head_score",
    .num_inputs = 3,
    .num_outputs = 4,
    .optional_outputs = 1u << 2 | 1u << 3,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = head_score_infer,
    .cost = head_score_cost,
};

const ot_op_info ot_head_logits_info = {
    .name = "head_logits",
    .num_inputs = 2,
    .num_outputs = 1,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = head_logits_infer,
    .cost = head_logits_cost,
};
