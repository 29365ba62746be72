// SPDX-License-Identifier: Apache-2.0
// Pool of equal buffers: assigns a buffer to each use such that uses that overlap in time never
// share one, with the fewest buffers (interval colouring: greedy by start is optimal).
#pragma once

#include <stdint.h>

#include "base/arena.h"

// One use of a buffer, from item `first` to item `last` of an order, both inclusive.
typedef struct ot_pool_use {
  int first, last;
  int place;     // result: index of the buffer
  int previous;  // result: the previous use of this buffer, or -1
} ot_pool_use;

// Fills `place` and `previous` of `uses` [count], which are sorted by `first`. Returns the number
// of buffers, at least `least` if there are as many uses. Assigns the buffer that has been free
// longest, so that sends from it have the most time to finish.
int ot_pool_assign(ot_pool_use *uses, int count, int least, ot_arena *arena);
