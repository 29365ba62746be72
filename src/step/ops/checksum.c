// SPDX-License-Identifier: Apache-2.0
#include "ops/checksum.h"

#include "ops/operands.h"

static ot_status infer(const ot_op_attributes *attributes, ot_op_types *types) {
  (void)attributes;
  const ot_expected expected = {"checksum", "x", OT_ANY_REAL, types->in[0].rank, {0}};
  OT_TRY(ot_operand_check(&types->in[0], expected));
  types->out[0] = ot_type_vector(OT_I64, 1);
  return OT_OK;
}

static ot_cost cost(const ot_op_attributes *attributes, const ot_op_types *types) {
  const double elements = (double)ot_type_elements(&types->in[0]);
  return ot_cost_of_traffic(&ot_checksum_info, attributes, types, 8 * elements);
}

const ot_op_info ot_checksum_info = {
    .name = "checksum",
    .num_inputs = 1,
    .num_outputs = 1,
    .cost_kind = OT_COST_PASS,
    .accumulated_outputs = 1u << 0,
    .infer = infer,
    .cost = cost,
};
