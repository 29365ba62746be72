// SPDX-License-Identifier: Apache-2.0
// run: alone. Sorts random arrays with many equal keys: ordered, stable, no element lost.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/sort.h"
#include "host/heap.h"

typedef struct item {
  int32_t key;
  int32_t place;
  char padding[3];
} item;

static int compare_keys(const void *a, const void *b, const void *context) {
  const int sign = *(const int *)context;
  const int32_t x = ((const item *)a)->key;
  const int32_t y = ((const item *)b)->key;
  return sign * ((x > y) - (x < y));
}

static void check_sorted(const item *items, int count, int sign, const uint8_t *expected_keys) {
  int seen[16] = {0};
  for (int i = 0; i < count; i++) {
    seen[items[i].key]++;
    assert_int_equal(items[i].key, expected_keys[items[i].place]);
    if (i == 0) continue;
    assert_true(sign * (items[i].key - items[i - 1].key) >= 0);
    if (items[i].key == items[i - 1].key) assert_true(items[i].place > items[i - 1].place);
  }
  int total = 0;
  for (int key = 0; key < 16; key++) total += seen[key];
  assert_int_equal(total, count);
}

static void sorts_stably_in_both_directions(void **state) {
  (void)state;
  enum { COUNT_MAX = 600 };
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  for (int count = 0; count < COUNT_MAX; count += count < 70 ? 1 : 53) {
    for (int sign = -1; sign <= 1; sign += 2) {
      item items[COUNT_MAX];
      uint8_t keys[COUNT_MAX];
      for (int i = 0; i < count; i++) {
        keys[i] = (uint8_t)ot_rng_below(1, (uint64_t)count, (uint64_t)i, 16);
        items[i] = (item){.key = keys[i], .place = i};
      }
      ot_sort(items, count, sizeof items[0], (ot_ordering){compare_keys, &sign}, &arena);
      check_sorted(items, count, sign, keys);
    }
  }
  ot_heap_release(&heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sorts_stably_in_both_directions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
