// SPDX-License-Identifier: Apache-2.0
// Shapes and cost of the optimizer updates.
#include "ops/optimizer.h"

#include <assert.h>

#include "ops/operands.h"

enum { ADAMW_FLOPS = 16, MUON_FLOPS = 12 };

static ot_status sum_squares_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const ot_expected expected = {"sum_squares", "g", OT_ANY_REAL, types->in[0].rank, {0}};
  OT_TRY(ot_operand_check(&types->in[0], expected));
  types->out[0] = ot_type_vector(OT_F64, 1);
  return OT_OK;
}

static ot_cost sum_squares_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_sum_squares_info, attributes, types, 2 * elements);
}

static ot_status clip_factor_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){"clip_factor", "s", OT_F64, 1, {0}}));
  types->out[0] = ot_type_vector(OT_F64, 1);
  types->out[1] = ot_type_vector(OT_F64, 1);
  return OT_OK;
}

static ot_cost clip_factor_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_clip_factor_info, attributes, types, elements);
}

// Moments, master and, without a master, the parameter are read before they are written; `traffic`
// already counts this for all but stats.
static ot_cost update_cost(const ot_op_types *types, int master, ot_cost traffic) {
  if (ot_type_present(&types->out[master])) {
    traffic.bytes_read -= (double)ot_type_bytes(&types->out[0]);
  }
  return traffic;
}

static ot_status adamw_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const ot_expected expected = {"adamw", "g", OT_ANY_REAL, types->in[0].rank, {0}};
  OT_TRY(ot_operand_check(&types->in[0], expected));
  return ot_operand_check(&types->in[1],
                          (ot_expected){"adamw", "scalars", OT_F64, 1, {OT_STEP_SCALARS}});
}

static ot_cost adamw_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  const ot_cost traffic =
      ot_cost_of_traffic(&ot_adamw_info, attributes, types, ADAMW_FLOPS * elements);
  return update_cost(types, 3, traffic);
}

static ot_status muon_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  OT_TRY(ot_operand_check(&types->in[0], (ot_expected){"muon", "g", OT_ANY_REAL, 2, {0, 0}}));
  return ot_operand_check(&types->in[1],
                          (ot_expected){"muon", "scalars", OT_F64, 1, {OT_STEP_SCALARS}});
}

// An iteration is a Gram matrix, its square and the product with X: 4 s^2 l + 2 s^3 for s <= l; X
// is read three times and written once, the square matrices are read four times and written twice.
static ot_cost muon_cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double rows = (double)types->in[0].dim[0];
  const double columns = (double)types->in[0].dim[1];
  const double s = rows < columns ? rows : columns;
  const double l = rows < columns ? columns : rows;
  const double bytes = (double)ot_dtype_bytes(attributes->compute);
  ot_cost cost = ot_cost_of_traffic(&ot_muon_info, attributes, types, MUON_FLOPS * rows * columns);
  cost.matrix_flops = OT_MUON_ITERATIONS * (4 * s * s * l + 2 * s * s * s);
  cost.bytes_read += bytes * OT_MUON_ITERATIONS * (3 * s * l + 4 * s * s);
  cost.bytes_written += bytes * OT_MUON_ITERATIONS * (s * l + 2 * s * s);
  return update_cost(types, 2, cost);
}

const ot_op_info ot_sum_squares_info = {
    .name = "sum_squares",
    .num_inputs = 1,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .accumulated_outputs = 1u << 0,
    .infer = sum_squares_infer,
    .cost = sum_squares_cost,
};

const ot_op_info ot_clip_factor_info = {
    .name = "clip_factor",
    .num_inputs = 1,
    .num_outputs = 2,
    .cost_kind = OT_COST_PASS,
    .infer = clip_factor_infer,
    .cost = clip_factor_cost,
};

const ot_op_info ot_adamw_info = {
    .name = "adamw",
    .num_inputs = 2,
    .num_outputs = 5,
    .optional_outputs = 1u << 3 | 1u << 4,
    .effect_outputs = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3,
    .purity = OT_PURITY_EFFECT,
    .cost_kind = OT_COST_PASS,
    .infer = adamw_infer,
    .cost = adamw_cost,
};

const ot_op_info ot_muon_info = {
    .name = "muon",
    .num_inputs = 2,
    .num_outputs = 4,
    .optional_outputs = 1u << 2 | 1u << 3,
    .effect_outputs = 1u << 0 | 1u << 1 | 1u << 2,
    .purity = OT_PURITY_EFFECT,
    .cost_kind = OT_COST_PASS,
    .infer = muon_infer,
    .cost = muon_cost,
};

static const ot_op_kind kinds[] = {
    [OT_OPTIMIZER_ADAMW] = OT_OP_ADAMW, [OT_OPTIMIZER_MUON] = OT_OP_MUON};
static_assert(OT_COUNT(kinds) == OT_OPTIMIZERS, "one op for each optimizer");

ot_op_kind ot_optimizer_op(ot_optimizer_name optimizer) { return kinds[optimizer]; }
