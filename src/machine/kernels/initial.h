// SPDX-License-Identifier: Apache-2.0
// Draws of initial weights by each back end.
#pragma once

#include "ops/initial_draw.h"

// The first element of any target, and the one after the last; none if the first is not smaller.
static inline void ot_initial_draw_range(const ot_initial_draw *draw, int64_t *first,
                                         int64_t *end) {
  *first = INT64_MAX;
  *end = 0;
  for (int i = 0; i < draw->num_targets; i++) {
    const ot_initial_target *const target = &draw->target[i];
    if (target->first < *first) *first = target->first;
    if (target->end > *end) *end = target->end;
  }
}

// Draws into host memory `arena` on `threads` threads.
void ot_initial_draw_cpu(const ot_initial_draw *draw, int threads, void *arena);

// Queues the draw into device memory `arena` on `stream` (a cudaStream_t), whose device is the
// calling thread's.
void ot_initial_draw_cuda(void *stream, const ot_initial_draw *draw, void *arena);
