// SPDX-License-Identifier: Apache-2.0
// Shapes of the loop-carried values.
#include "ops/repeat.h"

#include "ops/operands.h"

static bool same_type(const ot_tensor_type *a, const ot_tensor_type *b) {
  bool same = a->dtype == b->dtype && a->rank == b->rank;
  for (int i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
  return same;
}

static ot_status repeat_infer(const ot_op_attributes *attributes, ot_op_types *types) {
  const ot_tensor_type count = ot_type_vector(OT_I32, 1);
  OT_CHECK(attributes->repeated >= 1, OT_BUG, "repeat: a body of %d ops, must be at least 1",
           attributes->repeated);
  OT_CHECK(same_type(&types->in[OT_REPEAT_COUNT], &count), OT_BUG,
           "repeat: rounds must be one i32");
  for (int i = 0; i < OT_REPEAT_CARRIED; i++) {
    if (!ot_type_present(&types->in[i])) continue;
    OT_CHECK(!ot_type_present(&types->out[i]) || same_type(&types->in[i], &types->out[i]), OT_BUG,
             "repeat: output %d and its carried input have different types", i);
    types->out[i] = types->in[i];
  }
  types->out[OT_REPEAT_INDEX] = count;
  return OT_OK;
}

const ot_op_info ot_repeat_info = {
    .name = "repeat",
    .num_inputs = 3,
    .num_outputs = 3,
    .optional_inputs = 1u << 0 | 1u << 1,
    .optional_outputs = 1u << 0 | 1u << 1,
    .purity = OT_PURITY_SAVED,
    .cost_kind = OT_COST_PASS,
    .in_place = 1u << 0 | 1u << 1,
    .infer = repeat_infer,
};
