// SPDX-License-Identifier: Apache-2.0
// run: alone. The arena over the heap that programs use, and over a source that runs out of memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/status.h"
#include "host/heap.h"

static void memory_is_zeroed_aligned_and_disjoint(void **state) {
  (void)state;
  enum { COUNT = 3000 };
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  unsigned char *taken[COUNT];
  for (int i = 0; i < COUNT; i++) {
    const int64_t bytes = i % 1501;
    taken[i] = ot_arena_take(&arena, bytes);
    assert_int_equal((uintptr_t)taken[i] % 16, 0);
    for (int64_t j = 0; j < bytes; j++) assert_int_equal(taken[i][j], 0);
    memset(taken[i], i & 0xff, (size_t)bytes);
  }
  for (int i = 0; i < COUNT; i++) {
    for (int64_t j = 0; j < i % 1501; j++) assert_int_equal(taken[i][j], i & 0xff);
  }
  assert_true(heap.num_blocks > 1);
  assert_true(heap.bytes >= arena.total);
  ot_heap_release(&heap);
  assert_int_equal(heap.num_blocks, 0);
  assert_null(heap.newest);
}

static void large_requests_get_their_own_block(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const int64_t bytes = (int64_t)5 << 20;
  unsigned char *const memory = ot_arena_take(&arena, bytes);
  assert_int_equal((uintptr_t)arena.block % 64, 0);
  memory[bytes - 1] = 1;
  ot_heap_release(&heap);
}

static void grown_arrays_keep_their_elements(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  int *values = NULL;
  int64_t capacity = 0;
  for (int i = 0; i < 5000; i++) {
    values = ot_arena_grow(&arena, values, i, &capacity, sizeof values[0]);
    values[i] = i;
  }
  for (int i = 0; i < 5000; i++) assert_int_equal(values[i], i);
  assert_in_range(capacity, 5000, 10000);
  ot_heap_release(&heap);
}

static void lists_keep_their_elements_in_place(void **state) {
  (void)state;
  enum { COUNT = 3 * OT_LIST_PIECE + 1 };
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_stable_list list = {.size = sizeof(int64_t)};
  int64_t *const first = ot_stable_list_add(&arena, &list);
  for (int64_t i = 1; i < COUNT; i++) {
    int64_t *const added = ot_stable_list_add(&arena, &list);
    assert_int_equal(*added, 0);
    *added = i;
  }
  assert_int_equal(list.count, COUNT);
  assert_ptr_equal(ot_stable_list_at(&list, 0), first);
  for (int64_t i = 0; i < COUNT; i++) {
    assert_int_equal(*(int64_t *)ot_stable_list_at(&list, i), i);
  }
  list.count--;
  assert_int_equal(*(int64_t *)ot_stable_list_add(&arena, &list), COUNT - 1);
  assert_true(heap.bytes < 2 << 20);
  ot_heap_release(&heap);
}

static void texts_are_copied_and_formatted(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  char source[] = "model.layers";
  const char *const copy = ot_arena_text(&arena, source, 5);
  source[0] = 'x';
  assert_string_equal(copy, "model");
  assert_string_equal(ot_arena_format(&arena, "layers.%d.%s", 17, "mlp"), "layers.17.mlp");
  ot_heap_release(&heap);
}

static void *dirty_source(void *context, int64_t bytes) {
  return memset(context, 0xaa, (size_t)bytes);
}

static void memory_of_a_dirty_source_is_zeroed(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena store = ot_heap_arena_create(&heap);
  ot_arena arena = ot_arena_from(dirty_source, ot_arena_take(&store, (int64_t)2 << 20));
  const unsigned char *const memory = ot_arena_take(&arena, 1000);
  for (int j = 0; j < 1000; j++) assert_int_equal(memory[j], 0);
  ot_heap_release(&heap);
}

static jmp_buf after_panic;

static void leave(const char *file, int line, const char *text) {
  (void)file;
  (void)line;
  (void)text;
  longjmp(after_panic, 1);
}

static void *empty_source(void *context, int64_t bytes) {
  (void)context;
  (void)bytes;
  return NULL;
}

static void take_from_empty_source(void) {
  ot_arena arena = ot_arena_from(empty_source, NULL);
  ot_arena_take(&arena, 1);
}

static void overflow_a_product(void) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_arena_array(&arena, INT64_MAX / 8, 16);
}

static void take_a_negative_size(void) {
  ot_arena arena = ot_arena_from(empty_source, NULL);
  ot_arena_take(&arena, -1);
}

static void misuse_panics(void **state) {
  (void)state;
  void (*const misuses[])(void) = {take_from_empty_source, overflow_a_product,
                                   take_a_negative_size};
  ot_panic_hook_set(leave);
  for (volatile size_t i = 0; i < sizeof misuses / sizeof misuses[0]; i++) {
    volatile int panicked = 1;
    if (setjmp(after_panic) == 0) {
      misuses[i]();
      panicked = 0;
    }
    assert_int_equal(panicked, 1);
  }
  ot_panic_hook_set(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_zeroed_aligned_and_disjoint),
      cmocka_unit_test(memory_of_a_dirty_source_is_zeroed),
      cmocka_unit_test(large_requests_get_their_own_block),
      cmocka_unit_test(grown_arrays_keep_their_elements),
      cmocka_unit_test(lists_keep_their_elements_in_place),
      cmocka_unit_test(texts_are_copied_and_formatted),
      cmocka_unit_test(misuse_panics),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
