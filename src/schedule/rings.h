// SPDX-License-Identifier: Apache-2.0
// Buffers of equal size that are used in turn: which of them each use gets, so that no two uses
// that overlap in time share one, and as few as can be are needed (interval colouring: greedy by
// start is optimal).
#pragma once

#include <stdint.h>

#include "base/arena.h"

// One use of a buffer, from item `first` to item `last` of an order, both inclusive.
typedef struct ot_ring_use {
  int first, last;
  int place;     // result: which buffer, from 0
  int previous;  // result: the use that had this buffer before, or -1
} ot_ring_use;

// Fills `place` and `previous` of `uses` [count], which come by `first`; returns the number of
// buffers, at least `least` when there are so many uses. Of the free buffers the one that was free
// longest is taken, so that what still leaves it has the most time.
int ot_ring_assign(ot_ring_use *uses, int count, int least, ot_arena *arena);
