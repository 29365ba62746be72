// SPDX-License-Identifier: Apache-2.0
// Best fit by decreasing size.
#include "schedule/layout.h"

#include <stdbool.h>

typedef struct placed {
  int64_t begin, end;
} placed;

static bool overlap_in_time(const ot_interval *a, const ot_interval *b) {
  return a->first <= b->last && b->first <= a->last;
}

static bool goes_before(const ot_interval *intervals, int a, int b) {
  const ot_interval *const x = &intervals[a];
  const ot_interval *const y = &intervals[b];
  if (x->bytes != y->bytes) return x->bytes > y->bytes;
  const int length_x = x->last - x->first;
  const int length_y = y->last - y->first;
  if (length_x != length_y) return length_x > length_y;
  return a < b;
}

static void sort_by_size(const ot_interval *intervals, int *order, int count) {
  for (int i = 1; i < count; i++) {
    const int moved = order[i];
    int k = i;
    for (; k > 0 && goes_before(intervals, moved, order[k - 1]); k--) order[k] = order[k - 1];
    order[k] = moved;
  }
}

// Inserts into `taken` [count], sorted by begin.
static void insert_placed(placed *taken, int count, placed range) {
  int k = count;
  for (; k > 0 && taken[k - 1].begin > range.begin; k--) taken[k] = taken[k - 1];
  taken[k] = range;
}

// The start of the smallest gap between the ranges that holds `bytes`, else the end of the last.
static int64_t best_gap(const placed *taken, int count, int64_t bytes) {
  int64_t top = 0, best = -1, best_size = INT64_MAX;
  for (int i = 0; i < count; i++) {
    const int64_t gap = taken[i].begin - top;
    if (gap >= bytes && gap < best_size) {
      best = top;
      best_size = gap;
    }
    if (taken[i].end > top) top = taken[i].end;
  }
  return best >= 0 ? best : top;
}

int64_t ot_layout_best_fit(ot_interval *intervals, int count, int64_t guard_bytes,
                           ot_arena *arena) {
  int *const order = ot_arena_array(arena, count + 1, sizeof(int));
  placed *const taken = ot_arena_array(arena, count + 1, sizeof(placed));
  int64_t peak = 0;
  for (int i = 0; i < count; i++) order[i] = i;
  sort_by_size(intervals, order, count);
  for (int i = 0; i < count; i++) {
    ot_interval *const interval = &intervals[order[i]];
    interval->offset = 0;
    if (interval->bytes == 0) continue;
    const int64_t bytes = ot_align(interval->bytes) + ot_align(guard_bytes);
    int num_taken = 0;
    for (int k = 0; k < i; k++) {
      const ot_interval *const other = &intervals[order[k]];
      if (other->bytes == 0 || !overlap_in_time(interval, other)) continue;
      const int64_t end = other->offset + ot_align(other->bytes) + ot_align(guard_bytes);
      insert_placed(taken, num_taken++, (placed){other->offset, end});
    }
    interval->offset = best_gap(taken, num_taken, bytes);
    if (interval->offset + bytes > peak) peak = interval->offset + bytes;
  }
  return peak;
}

int64_t ot_layout_lower_bound(const ot_interval *intervals, int count) {
  int64_t bound = 0;
  for (int i = 0; i < count; i++) {
    int64_t live = 0;
    for (int k = 0; k < count; k++) {
      const bool alive =
          intervals[k].first <= intervals[i].first && intervals[i].first <= intervals[k].last;
      live += alive ? ot_align(intervals[k].bytes) : 0;
    }
    if (live > bound) bound = live;
  }
  return bound;
}
