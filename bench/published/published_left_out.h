// SPDX-License-Identifier: Apache-2.0
// Predicts each source with constants fitted without it: the planner's accuracy on unseen runs.
#pragma once

#include "published_price.h"

// Predicts the rows of each source named in `constants`, {SOURCE: {PRESET: {key: value}}}, with its
// constants; omits rows of other sources. tools/fit_clusters.py --left-out writes such files.
ot_status ot_published_left_out(const char *clusters, const ot_node *constants,
                                const ot_published_rows *rows, ot_arena *arena,
                                ot_published_prices *out);
