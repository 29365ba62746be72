// SPDX-License-Identifier: Apache-2.0
// The ranks of each ot_group_kind on a mesh.
#pragma once

#include "base/choices.h"
#include "describe/mesh.h"

// The ranks of the group of `kind` that contains `rank`, ascending, into `out`; returns their
// number, 1 when the rank would be alone or the group is unused. `num_kv_heads` decides
// OT_GROUP_KV_SUM.
//   out  [mesh->ranks]
int ot_group_ranks(const ot_mesh *mesh, ot_group_kind kind, int64_t num_kv_heads, int rank,
                   int *out);

// Index of `rank` in `ranks` [size].
int ot_group_index(const int *ranks, int size, int rank);

// The axis that time in a group of `kind` is attributed to; OT_AXIS_COUNT for the world.
ot_axis ot_group_axis(ot_group_kind kind);
