// SPDX-License-Identifier: Apache-2.0
// Table of groups per view; bucket sizes.
#include "schedule/block_view.h"

#include "base/math.h"

// ---- groups ----

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
    default:  // edp includes the cp ranks, and experts have no heads
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

// ---- sizes ----

enum { LINE_ELEMENTS = 32 };  // at least one cache line in every dtype

static int64_t padded(int64_t elements, int64_t unit) {
  return (elements + unit - 1) / unit * unit;
}

// Elements by which this rank's share of the parameter is smaller than the largest share over tp.
// Parameters are padded, so missing rows may not reduce the size.
static int64_t missing_elements(const ot_parameter *parameter, int tp) {
  if (tp <= 1 || parameter->num_parts != 1) return 0;
  const ot_parameter_part *const part = &parameter->parts[0];
  if (part->rows == part->hf_rows) return 0;
  const int64_t most = (part->hf_rows + tp - 1) / tp;
  return padded(most * parameter->cols, LINE_ELEMENTS) -
         padded(part->rows * parameter->cols, LINE_ELEMENTS);
}

int64_t ot_bucket_elements(const ot_graph *graph, int block, int pieces) {
  const ot_block *const b = &graph->blocks[block];
  const int64_t unit = (int64_t)LINE_ELEMENTS * pieces;
  int64_t elements = b->weight_elements;
  for (int i = 0; i < b->num_parameters; i++) {
    const ot_parameter *const parameter = &graph->parameters[b->first_parameter + i];
    if (parameter->tied_to < 0) elements += missing_elements(parameter, graph->request.split.tp);
  }
  return padded(elements, unit);
}
