// SPDX-License-Identifier: Apache-2.0
// The block source of arenas in the engine half: C library blocks in a list, freed together. An
// open struct, because it is a local variable of the code that builds something:
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

// An arena over `heap`, which keeps its blocks until ot_heap_release. Arenas of one thread may
// share a heap.
ot_arena ot_heap_arena_create(ot_heap *heap);

// Frees every block and leaves `heap` empty and reusable. All arena memory becomes invalid.
void ot_heap_release(ot_heap *heap);

// Returns memory that the C library keeps for later to the system, where it can: after work that
// needs much for a short time. Takes milliseconds.
void ot_heap_trim(void);
