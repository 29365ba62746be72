// SPDX-License-Identifier: Apache-2.0
// Each source priced with constants that were fitted without it: what the planner is worth on runs
// that nobody fitted it to.
#pragma once

#include "published_price.h"

// Prices the rows of each source that `constants`, {SOURCE: {PRESET: {key: value}}}, names with its
// constants; rows of other sources are left away. tools/fit_clusters.py --left-out writes such
// files.
ot_status ot_published_left_out(const char *clusters, const ot_node *constants,
                                const ot_published_rows *rows, ot_arena *arena,
                                ot_published_prices *out);
