// SPDX-License-Identifier: Apache-2.0
// The block source of arenas outside the pure half: blocks from the C library, kept in a list and
// given back together. An open struct, because it lives on the stack of whoever builds something:
//   ot_heap heap = {0};
//   ot_arena arena = ot_heap_arena_create(&heap);
//   ... build products in arena ...
//   ot_heap_release(&heap);
#pragma once

#include <stdint.h>

#include "base/arena.h"

struct ot_heap_block;

typedef struct ot_heap {
  struct ot_heap_block *newest;  // head of the list of blocks; null when there are none
  int64_t bytes;                 // in all blocks, without their headers
  int64_t num_blocks;
} ot_heap;

// An arena over `heap`, which keeps its blocks until ot_heap_release. Several arenas may share one
// heap, from one thread.
ot_arena ot_heap_arena_create(ot_heap *heap);

// Frees every block and leaves `heap` empty, ready for use again. What its arenas gave is gone.
void ot_heap_release(ot_heap *heap);
