// SPDX-License-Identifier: Apache-2.0
// Errors after some rows of each source were measured: they calibrate (advise/calibrate.h), the
// others are predicted again with the corrected rates.
#pragma once

#include "published_groups.h"

// Errors of all draws.
typedef struct ot_published_calibrated {
  int64_t count;
  ot_published_error *error;     // [count]
  const ot_published_row **row;  // [count]
} ot_published_calibrated;

// Draws `rows` calibrating rows of every source that has more, DRAWS times with fixed seeds, and
// predicts its other rows.
ot_status ot_published_calibrate(const ot_published_prices *prices, int rows, ot_arena *arena,
                                 ot_published_calibrated *out);

// Figures of a group over all draws; `rows` is the mean number in a draw.
ot_published_figures ot_published_calibrated_figures(const ot_published_calibrated *calibrated,
                                                     ot_published_group group, ot_arena *arena);
