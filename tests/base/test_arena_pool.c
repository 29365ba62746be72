// SPDX-License-Identifier: Apache-2.0
// run: any machine. A pool reuses memory and allocates at most twice what is requested.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena_pool.h"
#include "host/heap.h"

enum { MEGABYTE = 1 << 20 };

static void arenas_one_after_the_other_have_the_same_memory(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena parent = ot_heap_arena_create(&heap);
  ot_arena_pool pool = {.parent = &parent};
  ot_arena first = ot_arena_pool_begin(&pool);
  char *const a = ot_arena_take(&first, 100);
  a[0] = 'x';
  ot_arena second = ot_arena_pool_begin(&pool);
  char *const b = ot_arena_take(&second, 100);
  assert_ptr_equal(a, b);
  assert_int_equal(b[0], 0);
  ot_heap_release(&heap);
}

// 40 MB in small allocations cost at most twice that, in every cycle.
static void pool_overhead_is_at_most_two(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena parent = ot_heap_arena_create(&heap);
  ot_arena_pool pool = {.parent = &parent};
  for (int round = 0; round < 3; round++) {
    ot_arena arena = ot_arena_pool_begin(&pool);
    for (int i = 0; i < 80; i++) ot_arena_take(&arena, MEGABYTE / 2);
  }
  assert_true(parent.total >= 40 * (int64_t)MEGABYTE);
  assert_true(parent.total <= 80 * (int64_t)MEGABYTE);
  ot_heap_release(&heap);
}

// Memory that a pool is given serves before it asks its parent for more.
static void memory_that_was_given_is_used(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena parent = ot_heap_arena_create(&heap);
  ot_arena_pool pool = {.parent = &parent};
  char *const given = ot_arena_take(&parent, 4 * MEGABYTE);
  const int64_t before = parent.total;
  ot_arena_pool_give(&pool, given, 4 * MEGABYTE);
  ot_arena arena = ot_arena_pool_begin(&pool);
  char *const a = ot_arena_take(&arena, 3 * MEGABYTE);
  assert_true(a >= given && a + 3 * MEGABYTE <= given + 4 * MEGABYTE);
  assert_int_equal(parent.total, before);
  ot_heap_release(&heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(arenas_one_after_the_other_have_the_same_memory),
      cmocka_unit_test(pool_overhead_is_at_most_two),
      cmocka_unit_test(memory_that_was_given_is_used),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
