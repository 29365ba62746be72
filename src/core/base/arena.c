// SPDX-License-Identifier: Apache-2.0
// Bump allocation in blocks from a caller-provided source.
#include "base/arena.h"

#include <string.h>

#include "base/status.h"
#include "base/text.h"

// More than LARGE_BYTES at once get a block of their own, so that the rest of the block in use is
// not lost.
enum { BLOCK_BYTES = 1 << 20, LARGE_BYTES = 1 << 17, ALIGNMENT = 16, FORMAT_BYTES = 4096 };

static int64_t round_up(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

ot_arena ot_arena_from(ot_block_source source, void *context) {
  return (ot_arena){.source = source, .context = context};
}

static void *allocate_block(ot_arena *arena, int64_t bytes) {
  void *const block = arena->source(arena->context, bytes);
  if (block == NULL) ot_panic_memory(bytes);
  return block;
}

void *ot_arena_take(ot_arena *arena, int64_t bytes) {
  OT_ASSERT(bytes >= 0 && bytes < INT64_MAX / 2);
  const int64_t needed = round_up(bytes > 0 ? bytes : 1);
  const bool full = arena->used + needed > arena->capacity;
  arena->total += needed;
  if (full && needed > LARGE_BYTES) return memset(allocate_block(arena, needed), 0, (size_t)needed);
  if (full) {
    arena->block = allocate_block(arena, BLOCK_BYTES);
    arena->used = 0;
    arena->capacity = BLOCK_BYTES;
  }
  void *const memory = arena->block + arena->used;
  arena->used += needed;
  return memset(memory, 0, (size_t)needed);
}

void *ot_arena_array(ot_arena *arena, int64_t count, int64_t size) {
  OT_ASSERT(count >= 0 && size > 0 && count <= INT64_MAX / 4 / size);
  return ot_arena_take(arena, count * size);
}

char *ot_arena_text(ot_arena *arena, const char *text, int64_t length) {
  char *const copy = ot_arena_take(arena, length + 1);
  return memcpy(copy, text, (size_t)length);
}

char *ot_arena_format_list(ot_arena *arena, const char *format, va_list arguments) {
  char text[FORMAT_BYTES];
  return ot_arena_text(arena, text, ot_text_format_list(text, sizeof text, format, arguments));
}

char *ot_arena_format(ot_arena *arena, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *const text = ot_arena_format_list(arena, format, arguments);
  va_end(arguments);
  return text;
}

void *ot_arena_grow(ot_arena *arena, void *array, int64_t count, int64_t *capacity, int64_t size) {
  if (count < *capacity) return array;
  const int64_t larger = *capacity > 0 ? *capacity * 2 : 8;
  void *const grown = ot_arena_array(arena, larger, size);
  if (count > 0) memcpy(grown, array, (size_t)(count * size));
  *capacity = larger;
  return grown;
}

void *ot_stable_list_add(ot_arena *arena, ot_stable_list *list) {
  if (list->count == list->made * OT_LIST_PIECE) {
    list->piece =
        ot_arena_grow(arena, list->piece, list->made, &list->capacity, sizeof *list->piece);
    list->piece[list->made++] = ot_arena_array(arena, OT_LIST_PIECE, list->size);
  }
  return ot_stable_list_at(list, list->count++);
}
