// SPDX-License-Identifier: Apache-2.0
// Best fit by decreasing size.
#include "schedule/layout.h"

#include <stdbool.h>

#include "base/sort.h"

// A placed buffer.
typedef struct placed {
  int64_t begin, end;
  int first, last;  // times
} placed;

// Larger buffers first, then longer lifetimes.
static int compare(const void *a, const void *b, const void *context) {
  const ot_live_range *const intervals = context;
  const int i = *(const int *)a, k = *(const int *)b;
  const ot_live_range *const x = &intervals[i], *const y = &intervals[k];
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  const int length_x = x->last - x->first, length_y = y->last - y->first;
  if (length_x != length_y) return length_x > length_y ? -1 : 1;
  return i - k;
}

// Inserts into `taken` [count], sorted by begin.
static void insert(placed *taken, int count, placed range) {
  int k = count;
  for (; k > 0 && taken[k - 1].begin > range.begin; k--) taken[k] = taken[k - 1];
  taken[k] = range;
}

// The start of the smallest gap of at least `bytes` between buffers that are live together with
// `interval`, else the end of the last of them.
static int64_t best_gap(const placed *taken, int count, const ot_live_range *interval,
                        int64_t bytes) {
  int64_t top = 0, best = -1, best_size = INT64_MAX;
  for (int i = 0; i < count; i++) {
    if (taken[i].first > interval->last || taken[i].last < interval->first) continue;
    const int64_t gap = taken[i].begin - top;
    if (gap >= bytes && gap < best_size) {
      best = top;
      best_size = gap;
    }
    if (taken[i].end > top) top = taken[i].end;
  }
  return best >= 0 ? best : top;
}

int64_t ot_layout_best_fit(ot_live_range *intervals, int count, int64_t guard_bytes,
                           ot_arena *arena) {
  int *const order = ot_arena_array(arena, count + 1, sizeof(int));
  placed *const taken = ot_arena_array(arena, count + 1, sizeof(placed));
  int64_t peak = 0;
  int wanted = 0;
  for (int i = 0; i < count; i++) {
    intervals[i].offset = 0;
    if (intervals[i].bytes > 0) order[wanted++] = i;
  }
  ot_sort(order, wanted, sizeof(int), (ot_ordering){compare, intervals}, arena);
  for (int i = 0; i < wanted; i++) {
    ot_live_range *const interval = &intervals[order[i]];
    const int64_t bytes = ot_align(interval->bytes) + ot_align(guard_bytes);
    const int64_t begin = best_gap(taken, i, interval, bytes), end = begin + bytes;
    interval->offset = begin;
    insert(taken, i, (placed){begin, end, interval->first, interval->last});
    if (end > peak) peak = end;
  }
  return peak;
}
