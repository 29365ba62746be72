// SPDX-License-Identifier: Apache-2.0
// run: any machine. Timed calls move data as steps do: written by its sender just before, in memory
// that caches have lost since its last use.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "measure/measure_parts.h"

static const ot_link_call gather = {OT_COMM_ALL_GATHER, OT_OP_ALL_GATHER, true};

static void sends_what_it_has_written(void **state) {
  (void)state;
  enum { BYTES = 1 << 20, RANKS = 2 };
  ot_link_memory memory;
  assert_int_equal(ot_link_memory_create(RANKS, &memory), OT_OK);
  const int64_t rounds = 3 * memory.bytes / (4 * BYTES);
  for (int64_t round = 0; round < rounds; round++) {
    const ot_comm_call call = ot_link_call_make(&gather, BYTES, RANKS, &memory);
    unsigned char *const sent = (unsigned char *)call.send;
    assert_int_equal(call.count, BYTES / RANKS / 4);
    for (int i = 0; i < BYTES; i += 1023) assert_int_equal(sent[i], OT_FLOAT_BYTE);
    assert_int_equal(((char *)call.receive)[BYTES - 1], 1);
    memset(sent, 0, BYTES);
  }
  ot_link_memory_destroy(&memory);
  assert_null(memory.block);
}

static void returns_to_memory_only_after_all_others(void **state) {
  (void)state;
  enum { BYTES = 1 << 20, LARGEST_CACHE = 64 << 20 };
  ot_link_memory memory;
  assert_int_equal(ot_link_memory_create(1, &memory), OT_OK);
  assert_true(memory.bytes >= LARGEST_CACHE);
  const int64_t parts = memory.bytes / (4 * BYTES);  // sent, received, and workspace
  for (int64_t i = 0; i < 2 * parts; i++) {
    const ot_comm_call call = ot_link_call_make(&gather, BYTES, 1, &memory);
    assert_ptr_equal(call.send, memory.block + i % parts * 4 * BYTES);
  }
  ot_link_memory_destroy(&memory);
}

static void holds_the_largest_call_on_any_number_of_ranks(void **state) {
  (void)state;
  const int64_t largest = ot_link_bytes[OT_LINK_SIZES - 1];
  ot_link_memory few, many;
  assert_int_equal(ot_link_memory_create(2, &few), OT_OK);
  assert_int_equal(ot_link_memory_create(64, &many), OT_OK);
  assert_true(few.bytes >= 2 * 4 * largest);
  assert_int_equal(many.bytes, 4 * largest);
  ot_link_memory_destroy(&few);
  ot_link_memory_destroy(&many);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sends_what_it_has_written),
      cmocka_unit_test(returns_to_memory_only_after_all_others),
      cmocka_unit_test(holds_the_largest_call_on_any_number_of_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
