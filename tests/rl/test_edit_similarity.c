// SPDX-License-Identifier: Apache-2.0
// run: any machine. Edit similarity of 200 pairs is CPython's, to the last bit; bytes that are no
// UTF-8; long texts.
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rl/edit_similarity.h"
#include "support/arena_fixture.h"
#include "support/scratch.h"

static ot_bytes span_of(const json_t *text) {
  return (ot_bytes){json_string_value(text), (int64_t)json_string_length(text)};
}

static void pairs_have_cpythons_ratio(void **state) {
  (void)state;
  FILE *const file = fopen(fixture_path("rl/similarity.jsonl"), "r");
  assert_non_null(file);
  char *line = NULL;
  size_t capacity = 0;
  int pairs = 0;
  for (; getline(&line, &capacity, file) > 0; pairs++) {
    json_t *const pair = json_loads(line, 0, NULL);
    const ot_bytes a = span_of(json_object_get(pair, "a")), b = span_of(json_object_get(pair, "b"));
    ot_similarity found;
    assert_int_equal(ot_similarity_build(a, b, &arena, &found), OT_OK);
    assert_int_equal(found.matches, json_integer_value(json_object_get(pair, "matches")));
    assert_true(found.ratio == json_number_value(json_object_get(pair, "ratio")));
    json_decref(pair);
  }
  assert_int_equal(pairs, 200);
  free(line);
  fclose(file);
}

// As in Python with errors='surrogateescape', a stray byte is one code point.
static void stray_bytes_count_one_by_one(void **state) {
  (void)state;
  const ot_bytes a = {"\xc3\xa9\xff\xe6\xbc", 5}, b = {"\xc3\xa9\xff", 3};
  ot_similarity found;
  assert_int_equal(ot_similarity_build(a, b, &arena, &found), OT_OK);
  assert_int_equal(found.matches, 2);
  assert_true(found.ratio == 2.0 * 2 / 6);
}

static void long_texts_are_refused(void **state) {
  (void)state;
  const int64_t n = OT_SIMILARITY_POINTS;
  char *const text = ot_arena_take(&arena, n + 1);
  for (int64_t i = 0; i <= n; i++) text[i] = (char)('a' + i * i % 23);
  ot_similarity found;
  assert_int_equal(
      ot_similarity_build((ot_bytes){text, 2000}, (ot_bytes){text, 2000}, &arena, &found), OT_OK);
  assert_true(found.ratio == 1);
  assert_int_equal(ot_similarity_build((ot_bytes){text, n + 1}, (ot_bytes){"a", 1}, &arena, &found),
                   OT_USAGE);
  assert_message_has("32769 characters");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(pairs_have_cpythons_ratio, begin, finish),
      cmocka_unit_test_setup_teardown(stray_bytes_count_one_by_one, begin, finish),
      cmocka_unit_test_setup_teardown(long_texts_are_refused, begin, finish),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
