// SPDX-License-Identifier: Apache-2.0
// Offsets from lifetimes: places buffers such that those with overlapping lifetimes do not overlap
// in address, with a small peak (dynamic storage allocation; greedy best fit by size, Pisarchyk &
// Lee 2020, arXiv 2001.03288, with gap filling).
#pragma once

#include <stdint.h>

#include "base/arena.h"

enum { OT_ALIGNMENT = 64 };  // bytes; every buffer starts at a multiple

typedef struct ot_live_range {
  int64_t bytes;    // 0 is allowed and gets offset 0
  int first, last;  // inclusive times of first write and last read
  int64_t offset;   // result, a multiple of OT_ALIGNMENT
} ot_live_range;

// Fills `offset` of each interval and returns the peak in bytes. Leaves `guard_bytes` (0 outside
// tests) free after each buffer for canaries. Deterministic; cost O(n^2).
int64_t ot_layout_best_fit(ot_live_range *intervals, int count, int64_t guard_bytes,
                           ot_arena *arena);

static inline int64_t ot_align(int64_t bytes) {
  return (bytes + OT_ALIGNMENT - 1) / OT_ALIGNMENT * OT_ALIGNMENT;
}
