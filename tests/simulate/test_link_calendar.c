// SPDX-License-Identifier: Apache-2.0
// run: alone. Uses of a link against a count of free time slots: none overlap, none loses free
// time.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "host/heap.h"
#include "simulate/link_calendar.h"

enum { SLOTS = 600, USES = 60, TRIALS = 200 };

static void every_use_gets_the_free_time_from_when_it_is_ready(void **state) {
  (void)state;
  for (uint64_t trial = 0; trial < TRIALS; trial++) {
    ot_heap heap = {0};
    ot_arena arena = ot_heap_arena_create(&heap);
    ot_link_calendar calendar = {.arena = &arena};
    bool busy[SLOTS] = {false};
    for (uint64_t i = 0; i < USES; i++) {
      const int ready = (int)ot_rng_below(1, trial, 2 * i, 200);
      int left = 1 + (int)ot_rng_below(1, trial, 2 * i + 1, 5), slot = ready;
      const int length = left;
      for (; left > 0; slot++) {
        left -= !busy[slot];
        busy[slot] = true;
      }
      assert_true(ot_link_calendar_use(&calendar, ready, length) == slot);
    }
    for (int64_t i = 1; i < calendar.count; i++) {
      assert_true(calendar.times[i - 1].end_s <= calendar.times[i].start_s);
    }
    ot_heap_release(&heap);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_use_gets_the_free_time_from_when_it_is_ready),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
