// SPDX-License-Identifier: Apache-2.0
// The bucket of a block: its size, and the groups that communicate for it. In the dense view these
// are the groups of tp, cp and dp; in the expert view (graph.h) those of ep and edp replace them.
#pragma once

#include "graph/graph.h"
#include "schedule/schedule.h"

// The group that replaces `kind` (gather, shard, context_sum, replicate, tensor_sum, kv_sum,
// tensor) of the dense view for `block`; OT_GROUP_KINDS if there is none.
ot_group_kind ot_view_kind(const ot_block *block, ot_group_kind kind);

// That group; size 0 if the schedule has none.
const ot_group *ot_view_group(const ot_schedule *schedule, const ot_block *block,
                              ot_group_kind kind);

// Number of its ranks, at least 1.
int ot_view_size(const ot_schedule *schedule, const ot_block *block, ot_group_kind kind);

// Elements of the bucket of `block`, equal on all tp ranks (whose shares of the vocabulary may
// differ) and divisible into `pieces` shards of whole cache lines.
int64_t ot_bucket_elements(const ot_graph *graph, int block, int pieces);
