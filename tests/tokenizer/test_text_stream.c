// SPDX-License-Identifier: Apache-2.0
// run: any machine. What of a growing text may be shown: whole characters only, and nothing that a
// stop string may still swallow.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tokenizer/text_stream.h"

static ot_tokenizer *tokenizer;

static int open_tokenizer(void **state) {
  (void)state;
  return ot_tokenizer_create("bytes", &tokenizer) == OT_OK ? 0 : -1;
}

static int close_tokenizer(void **state) {
  (void)state;
  ot_tokenizer_destroy(&tokenizer);
  return 0;
}

// Appends the bytes of `text` one by one; `shown` has the number that may be shown after each.
static void expect_shown(const ot_stop_text *stops, int num_stops, const char *text,
                         const int *shown, const char *whole) {
  ot_text_stream s = {.tokenizer = tokenizer, .stops = stops, .num_stops = num_stops};
  for (int i = 0; text[i] && !s.stopped; i++) {
    assert_int_equal(ot_text_stream_append(&s, (unsigned char)text[i]), OT_OK);
    assert_int_equal(s.passed, shown[i]);
  }
  ot_text_stream_finish(&s);
  assert_int_equal(s.passed, strlen(whole));
  assert_memory_equal(s.text.data, whole, strlen(whole));
  ot_text_stream_release(&s);
}

static void characters_are_shown_whole(void **state) {
  (void)state;
  // a, e with an accent (2 bytes), a heart (3), a face (4), b
  expect_shown(NULL, 0,
               "a\xc3\xa9\xe2\x99\xa5\xf0\x9f\x98\x80"
               "b",
               (const int[]){1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11},
               "a\xc3\xa9\xe2\x99\xa5\xf0\x9f\x98\x80"
               "b");
  // What is no character is not held back forever.
  expect_shown(NULL, 0,
               "\xff"
               "a\xc3"
               "b",
               (const int[]){0, 2, 2, 4},
               "\xff"
               "a\xc3"
               "b");
}

static void the_beginning_of_a_stop_string_is_held_back(void **state) {
  (void)state;
  const ot_stop_text stops[] = {{"\n\n", 2}, {"END", 3}};
  expect_shown(stops, 2, "a\nbE\n", (const int[]){1, 1, 3, 3, 4}, "a\nbE\n");
  expect_shown(stops, 2, "aENEND tail", (const int[]){1, 1, 1, 3, 3, 3}, "aEN");
  expect_shown(stops, 2, "x\n\ny", (const int[]){1, 1, 1}, "x");
  const ot_stop_text inside = {"\xa9", 1};
  expect_shown(&inside, 1, "a\xc3\xa9", (const int[]){1, 1, 2}, "a\xc3");
}

static void a_token_without_text_adds_nothing(void **state) {
  (void)state;
  ot_text_stream s = {.tokenizer = tokenizer};
  assert_int_equal(ot_text_stream_append(&s, 'a'), OT_OK);
  assert_int_equal(ot_text_stream_append(&s, 100000), OT_OK);
  assert_int_equal(s.text.length, 1);
  ot_text_stream_release(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(characters_are_shown_whole),
      cmocka_unit_test(the_beginning_of_a_stop_string_is_held_back),
      cmocka_unit_test(a_token_without_text_adds_nothing),
  };
  return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
