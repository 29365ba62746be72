// SPDX-License-Identifier: Apache-2.0
// Merge sort from the bottom up: short runs by insertion, then passes between the array and a
// scratch copy. The left run wins ties, which is what makes it stable.
#include "base/sort.h"

#include <stdbool.h>
#include <string.h>

enum { RUN_LENGTH = 8 };

typedef struct sorter {
  ot_comparison compare;
  const void *context;
  int64_t size;
} sorter;

static char *element(char *array, int64_t i, int64_t size) { return array + i * size; }

// Sorts elements [from, to); `spare` holds one element.
static void sort_run(const sorter *s, char *array, int64_t from, int64_t to, char *spare) {
  for (int64_t i = from + 1; i < to; i++) {
    int64_t place = i;
    const char *const moving = element(array, i, s->size);
    while (place > from && s->compare(moving, element(array, place - 1, s->size), s->context) < 0) {
      place--;
    }
    if (place == i) continue;
    memcpy(spare, moving, (size_t)s->size);
    memmove(element(array, place + 1, s->size), element(array, place, s->size),
            (size_t)((i - place) * s->size));
    memcpy(element(array, place, s->size), spare, (size_t)s->size);
  }
}

// Merges [from, middle) and [middle, to) of `source` into the same places of `target`.
static void merge(const sorter *s, char *source, char *target, int64_t from, int64_t middle,
                  int64_t to) {
  int64_t left = from;
  int64_t right = middle;
  for (int64_t i = from; i < to; i++) {
    const bool take_left =
        left < middle &&
        (right == to || s->compare(element(source, left, s->size), element(source, right, s->size),
                                   s->context) <= 0);
    const int64_t taken = take_left ? left++ : right++;
    memcpy(element(target, i, s->size), element(source, taken, s->size), (size_t)s->size);
  }
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

void ot_sort(void *array, int64_t count, int64_t size, ot_comparison compare, const void *context,
             ot_arena *arena) {
  if (count < 2) return;
  const sorter s = {compare, context, size};
  char *source = array;
  char *target = ot_arena_array(arena, count, size);
  for (int64_t i = 0; i < count; i += RUN_LENGTH) {
    sort_run(&s, source, i, smaller(i + RUN_LENGTH, count), target);
  }
  for (int64_t width = RUN_LENGTH; width < count; width *= 2) {
    for (int64_t i = 0; i < count; i += 2 * width) {
      merge(&s, source, target, i, smaller(i + width, count), smaller(i + 2 * width, count));
    }
    char *const merged = target;
    target = source;
    source = merged;
  }
  if (source != array) memcpy(array, source, (size_t)(count * size));
}
