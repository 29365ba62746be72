// SPDX-License-Identifier: Apache-2.0
// The ranks of each ot_group_kind on a mesh: one place that says who communicates with whom.
#pragma once

#include "base/choices.h"
#include "describe/mesh.h"

// The ranks of the group of `kind` that `rank` is in, ascending, into `out`; returns how many, 1
// when the group would hold the rank alone or is of no use to it. `num_kv_heads` decides
// OT_GROUP_KV_SUM.
//   out  [mesh->ranks]
int ot_group_ranks(const ot_mesh *mesh, ot_group_kind kind, int64_t num_kv_heads, int rank,
                   int *out);

// Position of `rank` among `ranks` [size].
int ot_group_index(const int *ranks, int size, int rank);

// The axis that time spent in a group of `kind` is counted under; OT_AXIS_COUNT for the world.
ot_axis ot_group_axis(ot_group_kind kind);
