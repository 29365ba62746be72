// SPDX-License-Identifier: Apache-2.0
// The one table of conversions. Transposes follow from it: the transpose of A -> B converts dual(B)
// -> dual(A), which must be in the table too (tests check it).
#include "graph/placement.h"

#include <assert.h>

static const ot_placement_kind duals[] = {
    [OT_INVARIANT] = OT_INVARIANT, [OT_REPLICATED] = OT_PARTIAL, [OT_SHARDED] = OT_SHARDED,
    [OT_VARYING] = OT_VARYING,     [OT_PARTIAL] = OT_REPLICATED,
};
static_assert(sizeof duals / sizeof duals[0] == OT_PLACEMENT_KINDS, "one dual for each placement");

ot_placement ot_placement_dual(ot_placement placement) {
  return (ot_placement){.kind = duals[placement.kind], .dim = placement.dim};
}

bool ot_placement_equal(ot_placement a, ot_placement b) {
  return a.kind == b.kind && a.dim == b.dim;
}

const char *ot_placed_axis_name(ot_placed_axis axis) {
  static const char *const names[] = {
      [OT_PLACED_TP] = "tp", [OT_PLACED_CP] = "cp", [OT_PLACED_DP] = "dp", [OT_PLACED_EP] = "ep"};
  static_assert(sizeof names / sizeof names[0] == OT_PLACED_AXES, "one name each");
  return names[axis];
}

const char *ot_placement_name(ot_placement placement) {
  static const char *const sharded[] = {"S0", "S1", "S2", "S3"};
  static const char *const names[] = {
      [OT_INVARIANT] = "I", [OT_REPLICATED] = "R", [OT_SHARDED] = "S",
      [OT_VARYING] = "V",   [OT_PARTIAL] = "P",
  };
  static_assert(sizeof names / sizeof names[0] == OT_PLACEMENT_KINDS, "one name each");
  return placement.kind == OT_SHARDED ? sharded[placement.dim] : names[placement.kind];
}
