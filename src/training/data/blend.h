// SPDX-License-Identifier: Apache-2.0
// Interleaves sources by weight as a pure function of the draw index. If a period of at most 65,536
// draws, or of 2^20 for up to 16 sources, makes all weights whole, sources that are due are ordered
// by earliest deadline in it (Steiner and Yeomans 1993), which keeps every source within one draw
// of its share at all times. Other weights, such as those of a thousand small sources, are shared
// out along a tree of pairs, each by rounding: every source stays within 1.7 draws of its share at
// all times (at each node the count is off by half a draw at most, plus the node's part of what its
// parent is off by).
#pragma once

#include <stdint.h>

#include "base/status.h"

enum { OT_BLEND_PERIOD_MAX = 1 << 16, OT_BLEND_SOURCES_MAX = 4096 };

typedef struct ot_blend ot_blend;

// `weights` [count], each finite and > 0; their sum need not be 1.
ot_status ot_blend_create(const double *weights, int64_t count, ot_blend **out);
void ot_blend_destroy(ot_blend **blend);

typedef struct ot_blend_draw {
  int64_t source;  // source of the draw
  int64_t before;  // earlier draws from this source
} ot_blend_draw;

// Draw `i` >= 0. O(1); without a period O(log(1 / weight)).
ot_blend_draw ot_blend_at(const ot_blend *blend, int64_t i);

// Adds to sum[place[k]] the draws from source k among the first `n`, for every source. O(period +
// sources).
typedef struct ot_blend_sums {
  const int64_t *place;  // [sources]
  int64_t *sum;
} ot_blend_sums;
void ot_blend_count(const ot_blend *blend, int64_t n, const ot_blend_sums *sums);

// Draws after which the order repeats; 0: it does not.
int64_t ot_blend_period(const ot_blend *blend);
