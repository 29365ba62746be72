// SPDX-License-Identifier: Apache-2.0
// Greedy colouring of intervals.
#include "schedule/buffer_pool.h"

#include "base/status.h"

// The buffer that has been free longest, or -1. owner[i] is the use that has buffer i.
static int longest_free(const ot_pool_use *uses, const int *owner, int buffers, int first) {
  int best = -1;
  for (int i = 0; i < buffers; i++) {
    if (uses[owner[i]].last >= first) continue;
    if (best < 0 || uses[owner[i]].last < uses[owner[best]].last) best = i;
  }
  return best;
}

int ot_pool_assign(ot_pool_use *uses, int count, int least, ot_arena *arena) {
  int *const owner = ot_arena_array(arena, count + 1, sizeof(int));
  int buffers = 0;
  for (int i = 0; i < count; i++) {
    OT_ASSERT(i == 0 || uses[i - 1].first <= uses[i].first);
    const int free = buffers < least ? -1 : longest_free(uses, owner, buffers, uses[i].first);
    uses[i].place = free < 0 ? buffers++ : free;
    uses[i].previous = free < 0 ? -1 : owner[free];
    owner[uses[i].place] = i;
  }
  return buffers;
}
