// SPDX-License-Identifier: Apache-2.0
// The bucket of a block of a graph: how large it is, and who communicates for it: in the dense view
// the groups of tp, cp and dp; in the expert view (graph.h) those of ep and edp in their place.
#pragma once

#include "graph/graph.h"
#include "schedule/schedule.h"

// The group that does for `block` what `kind` (gather, shard, context_sum, replicate, tensor_sum,
// kv_sum, tensor) does for a block in the dense view; OT_GROUP_KINDS when none does.
ot_group_kind ot_view_kind(const ot_block *block, ot_group_kind kind);

// That group; one of size 0 where the schedule has none.
const ot_group *ot_view_group(const ot_schedule *schedule, const ot_block *block,
                              ot_group_kind kind);

// Its ranks, at least 1.
int ot_view_size(const ot_schedule *schedule, const ot_block *block, ot_group_kind kind);

// Elements of the bucket of `block`, equal on all ranks of tp (which may hold different parts of
// the vocabulary) and divisible into `pieces` of whole cache lines.
int64_t ot_bucket_elements(const ot_graph *graph, int block, int pieces);
