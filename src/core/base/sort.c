// SPDX-License-Identifier: Apache-2.0
// Bottom-up merge sort: short runs by insertion, then passes between the array and a scratch copy.
// The left run wins ties, which makes it stable.
#include "base/sort.h"

#include <stdbool.h>
#include <string.h>

#include "base/extremes.h"

enum { RUN_LENGTH = 8 };

typedef struct sorter {
  ot_ordering ordering;
  int64_t size;
} sorter;

static int compare(const sorter *s, const char *a, const char *b) {
  return s->ordering.compare(a, b, s->ordering.context);
}

static char *element(const sorter *s, char *array, int64_t i) { return array + i * s->size; }

// Sorts elements [from, to); `spare` holds one element.
static void sort_run(const sorter *s, char *array, int64_t from, int64_t to, char *spare) {
  for (int64_t i = from + 1; i < to; i++) {
    const char *const moving = element(s, array, i);
    int64_t place = i;
    while (place > from && compare(s, moving, element(s, array, place - 1)) < 0) place--;
    if (place == i) continue;
    memcpy(spare, moving, (size_t)s->size);
    char *const gap = element(s, array, place);
    memmove(gap + s->size, gap, (size_t)((i - place) * s->size));
    memcpy(gap, spare, (size_t)s->size);
  }
}

// Merges [from, middle) and [middle, to) of `source` into the same range of `target`.
static void merge(const sorter *s, char *source, char *target, const int64_t bounds[3]) {
  int64_t left = bounds[0];
  int64_t right = bounds[1];
  for (int64_t i = bounds[0]; i < bounds[2]; i++) {
    bool take_left = left < bounds[1];
    if (take_left && right < bounds[2]) {
      take_left = compare(s, element(s, source, left), element(s, source, right)) <= 0;
    }
    const int64_t taken = take_left ? left++ : right++;
    memcpy(element(s, target, i), element(s, source, taken), (size_t)s->size);
  }
}

void ot_sort(void *array, int64_t count, int64_t size, ot_ordering ordering, ot_arena *arena) {
  if (count < 2) return;
  const sorter s = {ordering, size};
  char *source = array;
  char *target = ot_arena_array(arena, count, size);
  for (int64_t i = 0; i < count; i += RUN_LENGTH) {
    sort_run(&s, source, i, ot_smaller_whole(i + RUN_LENGTH, count), target);
  }
  for (int64_t width = RUN_LENGTH; width < count; width *= 2) {
    for (int64_t i = 0; i < count; i += 2 * width) {
      const int64_t middle = ot_smaller_whole(i + width, count);
      merge(&s, source, target,
            (const int64_t[]){i, middle, ot_smaller_whole(i + 2 * width, count)});
    }
    char *const merged = target;
    target = source;
    source = merged;
  }
  if (source != array) memcpy(array, source, (size_t)(count * size));
}

static int compare_reals(const void *a, const void *b, const void *context) {
  (void)context;
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void ot_sort_reals(double *values, int64_t count, ot_arena *arena) {
  ot_sort(values, count, sizeof *values, (ot_ordering){.compare = compare_reals}, arena);
}

double ot_median(double *values, int64_t count, ot_arena *arena) {
  ot_sort_reals(values, count, arena);
  const int64_t half = count / 2;
  return count % 2 != 0 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}
