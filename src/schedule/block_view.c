// SPDX-License-Identifier: Apache-2.0
// One table.
#include "schedule/block_view.h"

static ot_group_kind of_experts(ot_group_kind kind) {
  switch (kind) {
    case OT_GROUP_TENSOR:
      return OT_GROUP_EXPERT;
    case OT_GROUP_GATHER:
      return OT_GROUP_EXPERT_GATHER;
    case OT_GROUP_SHARD:
      return OT_GROUP_EXPERT_SHARD;
    case OT_GROUP_REPLICATE:
      return OT_GROUP_EXPERT_REPLICATE;
    case OT_GROUP_TENSOR_SUM:
      return OT_GROUP_EXPERT_SUM;
    default:  // edp has the ranks of cp among its own, and experts have no heads
      return OT_GROUP_KINDS;
  }
}

ot_group_kind ot_view_kind(const ot_block *block, ot_group_kind kind) {
  return block->experts ? of_experts(kind) : kind;
}

const ot_group *ot_view_group(const ot_schedule *schedule, const ot_block *block,
                              ot_group_kind kind) {
  static const ot_group none = {0};
  const ot_group_kind own = ot_view_kind(block, kind);
  return own == OT_GROUP_KINDS ? &none : &schedule->group[own];
}

int ot_view_size(const ot_schedule *schedule, const ot_block *block, ot_group_kind kind) {
  const int size = ot_view_group(schedule, block, kind)->size;
  return size > 1 ? size : 1;
}
