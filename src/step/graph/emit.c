// SPDX-License-Identifier: Apache-2.0
// Types from the catalog, placements from the rules.
#include "graph/emit.h"

#include "graph/place.h"
#include "ops/catalog.h"
#include "ops/collective.h"

// Gradient accumulators and effects come from outside; outputs of reductions are created here.
static bool is_given(const ot_op *op, int output) {
  const ot_op_info *const info = ot_op_info_of(op->kind);
  const bool outside = (info->accumulated_outputs | info->effect_outputs) >> output & 1u;
  return op->out[output] >= 0 || (outside && !ot_op_communicates(op->kind));
}

ot_status ot_program_emit(ot_program *program, ot_arena *arena, ot_part part,
                          const ot_op_description *description, ot_op *made) {
  const ot_op_description *const d = description;
  ot_op op = {
      .kind = d->kind, .part = part, .attributes = *d->attributes, .modules = program->modules};
  for (int i = 0; i < OT_MAX_INPUTS; i++) op.in[i] = i < d->num_in ? d->in[i] : -1;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) op.out[i] = d->out ? d->out[i] : -1;
  ot_op_types types;
  ot_program_types(program, &op, &types);
  OT_TRY(ot_op_infer(op.kind, &op.attributes, &types));
  ot_placement placements[OT_MAX_OUTPUTS][OT_PLACED_AXES];
  OT_TRY(ot_place_outputs(program, &op, placements));
  for (int i = 0; i < ot_op_info_of(op.kind)->num_outputs; i++) {
    if (is_given(&op, i) || !ot_type_present(&types.out[i])) continue;
    ot_value value = {
        .name = i == 0 ? d->name : ot_arena_format(arena, "%s.%d", d->name, i),
        .kind = part == OT_PART_FORWARD ? OT_VALUE_ACTIVATION : OT_VALUE_GRADIENT,
        .type = types.out[i],
        .index = -1,
    };
    for (int axis = 0; axis < OT_PLACED_AXES; axis++) {
      value.placement[axis] = placements[i][axis];
    }
    op.out[i] = ot_program_add_value(program, arena, &value);
  }
  ot_program_add_op(program, arena, &op);
  *made = op;
  return OT_OK;
}
