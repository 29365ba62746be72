// SPDX-License-Identifier: Apache-2.0
// The modes and the cache of a runtime for an engine of a given shape.
#include "base/backend_rules.h"
#include "runtime/inference.h"

// The modes of distinct widths; the widest only if bits depend on the width.
static unsigned widths_of(ot_mode widest, int64_t most, const ot_rank_request *rank) {
  const ot_mesh *const mesh = rank->schedule.mesh;
  const int tp = mesh ? mesh->degree[OT_AXIS_TP] : 1;
  const bool one = ot_backend_rules_of(rank->graph.backend)->bits_of_widths;
  const int count = one ? 1 : OT_MODE_WIDTHS;
  unsigned modes = 0;
  int64_t before = 0;
  for (int i = 0; i < count; i++) {
    const int64_t width = ot_mode_width((ot_mode)(widest + i), most, tp);
    if (width != before) modes |= 1u << (widest + i);
    before = width;
  }
  return modes;
}

void ot_inference_complete(const ot_inference_shape *shape, ot_rank_request *rank) {
  const int64_t pages = (shape->positions + OT_PAGE_SLOTS - 1) / OT_PAGE_SLOTS;
  rank->modes = widths_of(OT_MODE_PREFILL, shape->chunk, rank) |
                widths_of(OT_MODE_DECODE, shape->slots, rank);
  rank->graph.micro_batch_size = 1;
  rank->graph.sequence_length = shape->chunk;
  rank->graph.cache = (ot_cache_shape){
      .sequences = shape->slots,
      .positions = pages * OT_PAGE_SLOTS,
      .pages = shape->pages > 0 ? shape->pages : pages * shape->slots,
  };
}
