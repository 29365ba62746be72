// SPDX-License-Identifier: Apache-2.0
// Interleaves sources by weight as a pure function of the draw index. Weights become integer shares
// of a period (exact if a period of at most 65,536 draws makes them integers, else rounded to
// that); within the period, sources that are due are ordered by earliest deadline (Steiner and
// Yeomans 1993), which keeps every source within one draw of its share at all times.
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

// Draw `i` >= 0. O(1).
ot_blend_draw ot_blend_at(const ot_blend *blend, int64_t i);

// Draws among the first `n` from `source`. O(period).
int64_t ot_blend_count(const ot_blend *blend, int64_t n, int64_t source);

// Draws from `source` in a period, and the period.
int64_t ot_blend_share(const ot_blend *blend, int64_t source);
int64_t ot_blend_period(const ot_blend *blend);
