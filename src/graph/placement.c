// SPDX-License-Identifier: Apache-2.0
// The one table of conversions. Its transposes follow from it: the transpose of A -> B converts
// dual(B) -> dual(A), which must be in the table too (tests check that it always is).
#include "graph/placement.h"

#include <assert.h>

static const ot_placement_kind duals[] = {
    [OT_INVARIANT] = OT_INVARIANT, [OT_REPLICATED] = OT_PARTIAL, [OT_SHARDED] = OT_SHARDED,
    [OT_VARYING] = OT_VARYING,     [OT_PARTIAL] = OT_REPLICATED, [OT_FLAT] = OT_FLAT,
};
static_assert(sizeof duals / sizeof duals[0] == OT_PLACEMENT_KINDS, "one dual for each placement");

// conversions[from][to]; zero is OT_CONVERT_NONE, so every pair that cannot be converted is named.
static const ot_conversion conversions[OT_PLACEMENT_KINDS][OT_PLACEMENT_KINDS] = {
    [OT_INVARIANT] = {[OT_REPLICATED] = OT_CONVERT_RETYPE,
                      [OT_SHARDED] = OT_CONVERT_SLICE,
                      [OT_VARYING] = OT_CONVERT_IMPOSSIBLE,
                      [OT_PARTIAL] = OT_CONVERT_IMPOSSIBLE,
                      [OT_FLAT] = OT_CONVERT_IMPOSSIBLE},
    [OT_REPLICATED] = {[OT_INVARIANT] = OT_CONVERT_IMPOSSIBLE,
                       [OT_SHARDED] = OT_CONVERT_IMPOSSIBLE,
                       [OT_VARYING] = OT_CONVERT_IMPOSSIBLE,
                       [OT_PARTIAL] = OT_CONVERT_IMPOSSIBLE,
                       [OT_FLAT] = OT_CONVERT_IMPOSSIBLE},
    [OT_SHARDED] = {[OT_INVARIANT] = OT_CONVERT_ALL_GATHER,
                    [OT_REPLICATED] = OT_CONVERT_ALL_GATHER,
                    [OT_SHARDED] = OT_CONVERT_ALL_TO_ALL,
                    [OT_VARYING] = OT_CONVERT_IMPOSSIBLE,
                    [OT_PARTIAL] = OT_CONVERT_IMPOSSIBLE,
                    [OT_FLAT] = OT_CONVERT_IMPOSSIBLE},
    [OT_VARYING] = {[OT_INVARIANT] = OT_CONVERT_IMPOSSIBLE,
                    [OT_REPLICATED] = OT_CONVERT_IMPOSSIBLE,
                    [OT_SHARDED] = OT_CONVERT_IMPOSSIBLE,
                    [OT_PARTIAL] = OT_CONVERT_IMPOSSIBLE,
                    [OT_FLAT] = OT_CONVERT_IMPOSSIBLE},
    [OT_PARTIAL] = {[OT_INVARIANT] = OT_CONVERT_ALL_REDUCE,
                    [OT_REPLICATED] = OT_CONVERT_ALL_REDUCE,
                    [OT_SHARDED] = OT_CONVERT_REDUCE_SCATTER,
                    [OT_VARYING] = OT_CONVERT_IMPOSSIBLE,
                    [OT_FLAT] = OT_CONVERT_REDUCE_SCATTER},
    [OT_FLAT] = {[OT_INVARIANT] = OT_CONVERT_IMPOSSIBLE,
                 [OT_REPLICATED] = OT_CONVERT_ALL_GATHER,
                 [OT_SHARDED] = OT_CONVERT_IMPOSSIBLE,
                 [OT_VARYING] = OT_CONVERT_IMPOSSIBLE,
                 [OT_PARTIAL] = OT_CONVERT_IMPOSSIBLE},
};

static const char *const conversion_names[] = {
    [OT_CONVERT_NONE] = "none",
    [OT_CONVERT_RETYPE] = "retype",
    [OT_CONVERT_SLICE] = "slice",
    [OT_CONVERT_ALL_GATHER] = "all_gather",
    [OT_CONVERT_ALL_REDUCE] = "all_reduce",
    [OT_CONVERT_REDUCE_SCATTER] = "reduce_scatter",
    [OT_CONVERT_ALL_TO_ALL] = "all_to_all",
    [OT_CONVERT_IMPOSSIBLE] = "impossible",
};

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
      [OT_VARYING] = "V",   [OT_PARTIAL] = "P",    [OT_FLAT] = "F",
  };
  static_assert(sizeof names / sizeof names[0] == OT_PLACEMENT_KINDS, "one name each");
  return placement.kind == OT_SHARDED ? sharded[placement.dim] : names[placement.kind];
}

ot_conversion ot_placement_convert(ot_placement from, ot_placement to) {
  if (ot_placement_equal(from, to)) return OT_CONVERT_NONE;
  return conversions[from.kind][to.kind];
}

double ot_conversion_elements(ot_conversion conversion, double elements, int ranks) {
  const double once = elements * (ranks - 1) / ranks;
  switch (conversion) {
    case OT_CONVERT_ALL_GATHER:
    case OT_CONVERT_REDUCE_SCATTER:
      return once;
    case OT_CONVERT_ALL_REDUCE:
      return 2 * once;
    case OT_CONVERT_ALL_TO_ALL:
      return once / ranks;
    case OT_CONVERT_NONE:
    case OT_CONVERT_RETYPE:
    case OT_CONVERT_SLICE:
    case OT_CONVERT_IMPOSSIBLE:
      return 0;
  }
  OT_UNREACHABLE();
}

const char *ot_conversion_name(ot_conversion conversion) { return conversion_names[conversion]; }
