// SPDX-License-Identifier: Apache-2.0
// Predicts each source as if it had never been seen, with constants fitted without its rows and
// without reading its name or that of its software: the planner's accuracy on unseen runs.
#pragma once

#include "published_price.h"

// Predicts the rows of each source named in `constants`, {SOURCE: {PRESET: {key: value}}}, with its
// constants; omits rows of other sources. tools/fit_clusters.py --left-out writes such files.
typedef struct ot_published_left_out_request {
  const char *clusters;  // directory of the presets
  const ot_node *constants;
  const ot_published_rows *rows;
  bool named;  // the source's name is read: it keeps the engine file of its software
} ot_published_left_out_request;

ot_status ot_published_left_out(const ot_published_left_out_request *request, ot_arena *arena,
                                ot_published_prices *out);
