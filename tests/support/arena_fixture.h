// SPDX-License-Identifier: Apache-2.0
// An arena for each test of a file: cmocka_unit_test_setup_teardown(TEST, begin, finish).
#pragma once

#include "host/heap.h"

static ot_heap heap;
static ot_arena arena;

static inline int begin(void **state) {
  (void)state;
  arena = ot_heap_arena_create(&heap);
  return 0;
}

static inline int finish(void **state) {
  (void)state;
  ot_heap_release(&heap);
  return 0;
}
