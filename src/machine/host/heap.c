// SPDX-License-Identifier: Apache-2.0
// A singly linked list of aligned blocks; the link sits in a header of one alignment unit.
#include "host/heap.h"

#include <stddef.h>
#include <stdlib.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { ALIGNMENT = 64 };

typedef struct ot_heap_block {
  struct ot_heap_block *older;
} ot_heap_block;

static void *allocate_block(void *context, int64_t bytes) {
  ot_heap *const heap = context;
  const int64_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  ot_heap_block *const block = aligned_alloc(ALIGNMENT, (size_t)(ALIGNMENT + rounded));
  if (!block) return NULL;
  block->older = heap->newest;
  heap->newest = block;
  heap->bytes += rounded;
  heap->num_blocks++;
  return (char *)block + ALIGNMENT;
}

ot_arena ot_heap_arena_create(ot_heap *heap) { return ot_arena_from(allocate_block, heap); }

void ot_heap_release(ot_heap *heap) {
  while (heap->newest) {
    ot_heap_block *const block = heap->newest;
    heap->newest = block->older;
    free(block);
  }
  *heap = (ot_heap){0};
}

#ifdef __GLIBC__
void ot_heap_trim(void) { malloc_trim(0); }
#else
void ot_heap_trim(void) {}
#endif
