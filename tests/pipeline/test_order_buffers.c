// SPDX-License-Identifier: Apache-2.0
// run: any machine. Buffers of messages on their way: two are enough where messages go one way, and
// where they are not, one more lets the stages through.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "pipeline/order_buffers.h"
#include "support/pipelines.h"

static int needed(ot_pipeline kind, int p, int m, int least) {
  const pipeline_shape shape = {.kind = kind, .p = p, .v = pipeline_chunks(kind), .m = m};
  pipeline_case c;
  pipeline_case_create(&shape, &c);
  const int buffers = ot_order_send_buffers(&c.order, least, &c.arena);
  pipeline_case_destroy(&c);
  return buffers;
}

static void orders_of_one_chunk_need_two(void **state) {
  (void)state;
  static const ot_pipeline kinds[] = {OT_PIPELINE_GPIPE, OT_PIPELINE_1F1B, OT_PIPELINE_ZB_H1,
                                      OT_PIPELINE_ZB_H2};
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    for (int p = 1; p <= 16; p *= 2) assert_int_equal(needed(kinds[i], p, 24, 2), 2);
  }
}

static void folded_orders_need_more_but_few(void **state) {
  (void)state;
  assert_true(needed(OT_PIPELINE_ZB_V, 4, 8, 2) > 2);
  for (int p = 2; p <= 16; p *= 2) assert_in_range(needed(OT_PIPELINE_ZB_V, p, 40, 2), 2, 2 * p);
}

// More buffers than messages are as good as endless ones.
static void no_more_are_asked_for_than_there_are_messages(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_PIPELINES; kind++) {
    const int m = kind == OT_PIPELINE_INTERLEAVED ? 8 : 7;
    assert_in_range(needed((ot_pipeline)kind, 4, m, 1), 1, 2 * m);
    assert_int_equal(needed((ot_pipeline)kind, 4, m, 100), 100);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(orders_of_one_chunk_need_two),
      cmocka_unit_test(folded_orders_need_more_but_few),
      cmocka_unit_test(no_more_are_asked_for_than_there_are_messages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
