// SPDX-License-Identifier: Apache-2.0
// Bump allocation for descriptions and products: all allocations of a build are in one arena and
// are freed with it. The arena takes its blocks from a source, so the pure half never calls malloc;
// host/heap.h has the source that the program uses.
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

// Returns `bytes` of memory aligned to 64, zeroed or not, or null when memory is exhausted.
typedef void *(*ot_block_source)(void *context, int64_t bytes);

typedef struct ot_arena {
  ot_block_source source;  // provides blocks, which it frees all together
  void *context;           // first argument of `source`
  unsigned char *block;    // the block in use
  int64_t used;            // bytes allocated from `block`
  int64_t capacity;        // bytes of `block`
  int64_t total;           // bytes allocated over the arena's lifetime
} ot_arena;

// An arena that allocates from `source`, which must outlive it.
ot_arena ot_arena_from(ot_block_source source, void *context);

// `bytes` of zeroed memory aligned to 16, valid as long as the source's blocks. Never null: an
// exhausted source is a panic, because arena contents are small.
void *ot_arena_take(ot_arena *arena, int64_t bytes);

// Zeroed memory for `count` elements of `size` bytes; overflow of the product is a panic.
void *ot_arena_array(ot_arena *arena, int64_t count, int64_t size);

// A copy of the `length` bytes at `text`, with a terminating zero.
char *ot_arena_text(ot_arena *arena, const char *text, int64_t length);

// Formats into the arena; conversions as ot_text_format.
char *ot_arena_format(ot_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
char *ot_arena_format_list(ot_arena *arena, const char *format, va_list arguments);

// A list that grows without moving its elements: in pieces of OT_LIST_PIECE, of which none is lost.
enum { OT_LIST_PIECE = 1 << 11 };

typedef struct ot_stable_list {
  int64_t size;  // bytes of an element
  int64_t count, made, capacity;
  unsigned char **piece;  // [made], of `capacity`
} ot_stable_list;

static inline void *ot_stable_list_at(const ot_stable_list *list, int64_t index) {
  return list->piece[index / OT_LIST_PIECE] + index % OT_LIST_PIECE * list->size;
}

// Adds an element, whose bytes are those of the last one removed there, or zero; `count` is
// updated.
void *ot_stable_list_add(ot_arena *arena, ot_stable_list *list);

// Returns `array` [capacity] of `size`-byte elements, grown so that one more than `count` fits. The
// old array stays valid; `capacity` is updated. Amortised cost of doubling.
void *ot_arena_grow(ot_arena *arena, void *array, int64_t count, int64_t *capacity, int64_t size);
