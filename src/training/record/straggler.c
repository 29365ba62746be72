// SPDX-License-Identifier: Apache-2.0
#include "record/straggler.h"

#include <stdlib.h>

static const double threshold = 1.1;
static const double shortest_s = 2e-3;

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare);
  return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

void ot_straggler_add(ot_straggler_window *window, double step_s) {
  if (window->count < OT_STRAGGLER_WINDOW) window->step_s[window->count++] = step_s;
}

bool ot_straggler_is_full(const ot_straggler_window *window) {
  return window->count == OT_STRAGGLER_WINDOW;
}

double ot_straggler_take(ot_straggler_window *window) {
  const double median = median_of(window->step_s, window->count);
  window->count = 0;
  return median;
}

// Time of `rank` over the median of its peers; 0: not judged.
static double slowdown_of(const double *median_s, const int *work, int size, int rank,
                          double *scratch) {
  int peers = 0;
  for (int i = 0; i < size; i++) {
    if (work[i] == work[rank]) scratch[peers++] = median_s[i];
  }
  if (peers < OT_STRAGGLER_PEERS) return 0;
  const double median = median_of(scratch, peers);
  return median >= shortest_s ? median_s[rank] / median : 0;
}

int ot_straggler_find(const double *median_s, const int *work, int size, double *scratch,
                      double *slowdown) {
  int slowest = -1;
  *slowdown = threshold;
  for (int rank = 0; rank < size; rank++) {
    const double slow = slowdown_of(median_s, work, size, rank, scratch);
    if (slow < *slowdown) continue;
    *slowdown = slow;
    slowest = rank;
  }
  return slowest;
}

bool ot_straggler_confirm(ot_straggler_history *history, int found) {
  int times = 0;
  history->rank[history->count++ % OT_STRAGGLER_RECENT] = found;
  for (int i = 0; i < history->count && i < OT_STRAGGLER_RECENT; i++) {
    times += history->rank[i] == found;
  }
  return found >= 0 && times >= OT_STRAGGLER_LEAST;
}
