// SPDX-License-Identifier: Apache-2.0
// Placements as types: how a tensor is distributed along one axis of the mesh, the conversions
// between placements, the collective of each, and its transpose. The gradient of a value has the
// dual placement. A parameter enters as I, so its gradient reduction is the transpose of the
// retypes between it and its uses; nothing else adds one.
#pragma once

#include <stdbool.h>

#include "base/status.h"

// The mesh axes that have placements. In one program the atoms of an axis (describe/mesh.h) always
// agree, so there is one placement per axis that shards a micro-batch or separates ranks with
// different micro-batches. A program in the dense view has tp, cp and dp; one in the expert view
// (graph.h) has ep and, as dp, edp. Tokens do not move between the views.
typedef enum ot_placed_axis {
  OT_PLACED_TP,
  OT_PLACED_CP,
  OT_PLACED_DP,  // shards and replicas alike; checked for every degree
  OT_PLACED_EP,
  OT_PLACED_AXES,
} ot_placed_axis;

typedef enum ot_placement_kind {
  OT_INVARIANT,   // I: same value on all ranks, and its gradient is the same on all
  OT_REPLICATED,  // R: same value, gradient partial
  OT_SHARDED,     // S(dim): sharded along `dim`; gradient likewise
  OT_VARYING,     // V: differs from rank to rank, shape unspecified; gradient likewise
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
