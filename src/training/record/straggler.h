// SPDX-License-Identifier: Apache-2.0
// Ranks that compute more slowly than their peers, by the CPU time of their steps: unlike wall time
// it does not count waits for each other. Pure.
#pragma once

#include <stdbool.h>

enum {
  OT_STRAGGLER_WINDOW = 16,  // steps of which the median counts
  OT_STRAGGLER_RECENT = 4,   // last windows, of which a rank is found in
  OT_STRAGGLER_LEAST = 3,    // this many before it is named
  OT_STRAGGLER_PEERS = 3,    // fewest ranks with the same work: the median of two tells nothing
};

// A rank's own steps.
typedef struct ot_straggler_window {
  double step_s[OT_STRAGGLER_WINDOW];
  int count;
} ot_straggler_window;

// Adds the CPU time of a step.
void ot_straggler_add(ot_straggler_window *window, double step_s);
bool ot_straggler_is_full(const ot_straggler_window *window);
// The median of the full window, which it empties.
double ot_straggler_take(ot_straggler_window *window);

// The slowest rank that takes 1.1 times the median of its peers or more; -1: none. `median_s`
// [size] are the ranks' windows, `work` [size] is equal for ranks with the same work. *slowdown:
// its time over that median. Steps below 2 ms are not judged. Changes nothing; `scratch` [size].
int ot_straggler_find(const double *median_s, const int *work, int size, double *scratch,
                      double *slowdown);

// The results of the last windows. Other work on a host slows down one rank after the other; a slow
// host slows down the same rank all the time.
typedef struct ot_straggler_history {
  int rank[OT_STRAGGLER_RECENT];  // ring; -1: none
  int count;                      // windows so far
} ot_straggler_history;

// Adds the rank that ot_straggler_find found in a window, or -1. True: it is a straggler.
bool ot_straggler_confirm(ot_straggler_history *history, int found);
