// SPDX-License-Identifier: Apache-2.0
// Placements as types: where the elements of a tensor are along one axis of the mesh. The gradient
// of a value has the dual placement. A parameter enters as I, so its gradient reduction is the
// transpose of the retypes between it and its uses, and nothing else adds one.
#pragma once

#include <stdbool.h>

#include "base/status.h"

// What a placement is kept for: each axis that splits a micro-batch or tells ranks with different
// micro-batches apart. A program in the dense view knows tp, cp and dp; one in the expert view
// (graph.h) knows ep and, as dp, edp. Rows that go from one to the other stay where they are.
typedef enum ot_placed_axis {
  OT_PLACED_TP,
  OT_PLACED_CP,
  OT_PLACED_DP,  // shards and replicas alike; of any degree, so it is always checked
  OT_PLACED_EP,
  OT_PLACED_AXES,
} ot_placed_axis;

typedef enum ot_placement_kind {
  OT_INVARIANT,   // I: same value on all ranks, and its gradient is the same on all
  OT_REPLICATED,  // R: same value, gradient partial
  OT_SHARDED,     // S(dim): cut along `dim`; gradient likewise
  OT_VARYING,     // V: differs from rank to rank with no shape to tell; gradient likewise
  OT_PARTIAL,     // P: the value is the sum over ranks; gradient replicated
  OT_PLACEMENT_KINDS,
} ot_placement_kind;

typedef struct ot_placement {
  ot_placement_kind kind;
  int dim;  // of OT_SHARDED, else 0
} ot_placement;

// The placement of a gradient: I-I, R-P, P-R, S-S, V-V.
ot_placement ot_placement_dual(ot_placement placement);

bool ot_placement_equal(ot_placement a, ot_placement b);

// "tp", "cp", "dp", "ep".
const char *ot_placed_axis_name(ot_placed_axis axis);

// "I", "R", "S0", "V", "P".
const char *ot_placement_name(ot_placement placement);
