// SPDX-License-Identifier: Apache-2.0
// Shapes and cost of draws, and the limit of their ids.
#include "ops/head_draw.h"

#include "base/rng.h"
#include "ops/head.h"
#include "ops/operands.h"

double ot_draw_place(uint64_t key, int64_t j, int64_t draws) {
  return ((double)j + ot_rng_uniform(key, OT_DRAW_PLACES, (uint64_t)j)) / (double)draws;
}

// The index of the most frequent of drawn [num] that is not `kept`.
static int64_t most_frequent(const ot_drawn *drawn, int64_t num, const bool *kept) {
  int64_t best = -1;
  for (int64_t i = 0; i < num; i++) {
    if (!kept[i] && (best < 0 || drawn[i].count > drawn[best].count)) best = i;
  }
  return best;
}

int64_t ot_draws_limit(ot_drawn *drawn, int64_t num, int64_t most, uint64_t key) {
  bool kept[OT_DRAWS_MAX] = {false};
  if (num <= most) return num;
  OT_ASSERT(most >= 1 && num <= OT_DRAWS_MAX);
  int64_t rest = 0;
  for (int64_t i = 0; i < most - 1; i++) kept[most_frequent(drawn, num, kept)] = true;
  for (int64_t i = 0; i < num; i++) rest += kept[i] ? 0 : drawn[i].count;
  int64_t left = (int64_t)ot_rng_below(key, OT_DRAW_LIMITS, 0, (uint64_t)rest), count = 0;
  for (int64_t i = 0; i < num; i++) {
    if (!kept[i]) {
      const bool chosen = left >= 0 && left < drawn[i].count;
      left -= drawn[i].count;
      if (!chosen) continue;
      drawn[i].count = (int32_t)rest;
    }
    drawn[count++] = drawn[i];
  }
  return count;
}

static ot_status head_draw_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const char *const op = "head_draw";
  const int64_t K = attributes->draw_ids, N = attributes->draws;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){op, "x", OT_ANY_REAL, 2, {0, 0}}));
  const int64_t R = types->in[0].dim[0], C = types->in[0].dim[1];
  OT_TRY(ot_operand_check(&types->in[1], (ot_expected){op, "w", OT_ANY_REAL, 2, {0, C}}));
  OT_TRY(ot_operand_check(&types->in[2], (ot_expected){op, "targets", OT_I32, 1, {R}}));
  OT_TRY(ot_operand_check(&types->in[3], (ot_expected){op, "keys", OT_I64, 1, {R}}));
  const int64_t V = types->in[1].dim[0];
  OT_CHECK(N >= 0 && N <= OT_DRAWS_MAX && K >= 1 && K <= OT_HEAD_IDS_MAX && (N > 0 || K <= V),
           OT_BUG, "%s: %lld draws to %lld ids of %lld", op, (long long)N, (long long)K,
           (long long)V);
  types->out[0] = ot_type_matrix(OT_I32, R, K);
  types->out[1] = ot_type_matrix(OT_F32, R, K);
  types->out[2] = ot_type_vector(OT_F64, R);
  types->out[3] = ot_type_vector(OT_F64, R);
  return OT_OK;
}

// The product, and passes for the maximum, the exponentials and the draws.
static ot_cost head_draw_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  enum { FLOPS = 16 };
  const double R = (double)types->in[0].dim[0], C = (double)types->in[0].dim[1];
  const double V = (double)types->in[1].dim[0];
  const double logits = R * V * (double)ot_dtype_bytes(attributes->compute);
  ot_cost cost = ot_cost_of_traffic(&ot_head_draw_info, attributes, types, FLOPS * R * V);
  cost.matrix_flops = 2 * R * V * C;
  cost.bytes_read += 2 * logits;
  cost.bytes_written += 2 * logits;
  return cost;
}

const ot_op_info ot_head_draw_info = {
    .name = "head_draw",
    .num_inputs = 4,
    .num_outputs = 4,
    .purity = OT_PURITY_PURE,
    .cost_kind = OT_COST_PASS,
    .infer = head_draw_infer,
    .cost = head_draw_cost,
};
