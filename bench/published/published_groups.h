// SPDX-License-Identifier: Apache-2.0
// Groups of rows, for which figures are computed.
#pragma once

#include "published_figures.h"
#include "published_price.h"

typedef enum ot_published_group {
  OT_PUBLISHED_ALL,   // usable for step time; of these:
  OT_PUBLISHED_CORE,  // fully described
  OT_PUBLISHED_MOE,
  OT_PUBLISHED_CP,
  OT_PUBLISHED_MEMORY,  // rows with a measured peak of memory, usable or not
  OT_PUBLISHED_GROUPS,
} ot_published_group;

// As in the JSON: "all", "core", ...
const char *ot_published_group_name(ot_published_group group);

bool ot_published_in_group(const ot_published_row *row, ot_published_group group);

// Writes the errors of a group, or of one of its sources if `source` is not null, into `out`
// [num_rows]; returns their number.
int64_t ot_published_errors(const ot_published_prices *prices, ot_published_group group,
                            const char *source, ot_published_error *out);

// Their figures.
ot_published_figures ot_published_group_figures(const ot_published_prices *prices,
                                                ot_published_group group, const char *source,
                                                ot_arena *arena);
