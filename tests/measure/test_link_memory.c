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
  enum { BYTES = 1 << 16, RANKS = 2 };
  ot_link_memory memory;
  assert_int_equal(ot_link_memory_create(BYTES, RANKS, &memory), OT_OK);
  for (int round = 0; round < 3 * memory.parts; round++) {
    const ot_comm_call call = ot_link_call_make(&gather, BYTES, RANKS, &memory);
    unsigned char *const sent = (unsigned char *)call.send;
    assert_int_equal(call.count, BYTES / RANKS / 4);
    for (int i = 0; i < BYTES; i++) assert_int_equal(sent[i], OT_FLOAT_BYTE);
    assert_int_equal(((char *)call.receive)[BYTES - 1], 0);
    memset(sent, 0, BYTES);
  }
  ot_link_memory_destroy(&memory);
  assert_null(memory.block);
}

static void returns_to_memory_only_after_all_others(void **state) {
  (void)state;
  enum { BYTES = 1 << 20, MOST = 64, LARGEST_CACHE = 64 << 20 };
  const char *places[MOST];
  ot_link_memory memory;
  assert_int_equal(ot_link_memory_create(BYTES, 1, &memory), OT_OK);
  assert_in_range(memory.parts, 2, MOST);
  for (int i = 0; i < memory.parts; i++) {
    places[i] = ot_link_call_make(&gather, BYTES, 1, &memory).send;
    for (int k = 0; k < i; k++) {
      const ptrdiff_t apart = places[i] > places[k] ? places[i] - places[k] : places[k] - places[i];
      assert_true(apart >= 4 * BYTES);  // sent, received, and workspace
    }
  }
  assert_ptr_equal(ot_link_call_make(&gather, BYTES, 1, &memory).send, places[0]);
  assert_true((int64_t)memory.parts * memory.part_bytes >= LARGEST_CACHE);
  ot_link_memory_destroy(&memory);
}

static void shares_memory_among_the_ranks_of_a_host(void **state) {
  (void)state;
  enum { BYTES = 1 << 20 };
  ot_link_memory few, many;
  assert_int_equal(ot_link_memory_create(BYTES, 2, &few), OT_OK);
  assert_int_equal(ot_link_memory_create(BYTES, 64, &many), OT_OK);
  assert_int_equal(many.parts, 1);
  assert_true(few.parts > 8);
  ot_link_memory_destroy(&few);
  ot_link_memory_destroy(&many);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sends_what_it_has_written),
      cmocka_unit_test(returns_to_memory_only_after_all_others),
      cmocka_unit_test(shares_memory_among_the_ranks_of_a_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
