// SPDX-License-Identifier: Apache-2.0
// Membership of rows in groups.
#include "published_groups.h"

#include <string.h>

const char *ot_published_group_name(ot_published_group group) {
  static const char *const names[OT_PUBLISHED_GROUPS] = {"all", "core", "moe", "cp", "memory"};
  return names[group];
}

bool ot_published_in_group(const ot_published_row *row, ot_published_group group) {
  if (group == OT_PUBLISHED_MEMORY) return ot_published_has_memory(row);
  if (!ot_published_has_step(row)) return false;
  switch (group) {
    case OT_PUBLISHED_CORE:
      return row->core == 1;
    case OT_PUBLISHED_MOE:
      return row->model.has_experts;
    case OT_PUBLISHED_CP:
      return row->cp > 1;
    default:
      return true;
  }
}

int64_t ot_published_errors(const ot_published_prices *prices, ot_published_group group,
                            const char *source, ot_published_error *out) {
  int64_t count = 0;
  for (int64_t i = 0; i < prices->num_rows; i++) {
    const ot_published_price *const price = &prices->price[i];
    const ot_published_row *const row = price->row;
    if (!ot_published_in_group(row, group)) continue;
    if (source && strcmp(source, row->source) != 0) continue;
    const bool memory = group == OT_PUBLISHED_MEMORY;
    out[count] = memory ? ot_published_error_of(row->source, price->memory_gb, row->memory_gb)
                        : ot_published_error_of(row->source, price->step_s, row->step_time_s);
    out[count++].variance = memory ? price->doubt.memory_variance : price->doubt.step_variance;
  }
  return count;
}

ot_published_figures ot_published_group_figures(const ot_published_prices *prices,
                                                ot_published_group group, const char *source,
                                                ot_arena *arena) {
  ot_published_error *const errors = ot_arena_array(arena, prices->num_rows + 1, sizeof *errors);
  const int64_t count = ot_published_errors(prices, group, source, errors);
  return ot_published_figures_of(errors, count, arena);
}
