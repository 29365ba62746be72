// SPDX-License-Identifier: Apache-2.0
// run: alone. Documents against their text, and against jansson, which must parse them.
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json_writer.h"
#include "base/rng.h"
#include "support/arena_fixture.h"

static ot_json_writer write_sample(int indent) {
  ot_json_writer w = ot_json_begin(&arena, indent);
  ot_json_object(&w, NULL);
  ot_json_integer(&w, "step", INT64_MIN);
  ot_json_real(&w, "loss", 0.1);
  ot_json_real(&w, "grad_norm", NAN);
  ot_json_array(&w, "list");
  ot_json_boolean(&w, NULL, true);
  ot_json_boolean(&w, NULL, false);
  ot_json_null(&w, NULL);
  ot_json_object(&w, NULL);
  ot_json_end(&w);
  ot_json_end(&w);
  ot_json_array(&w, "none");
  ot_json_end(&w);
  ot_json_text(&w, "name", "a\"b");
  ot_json_text(&w, "hint", NULL);
  ot_json_raw(&w, "raw", "[1,2]");
  ot_json_end(&w);
  return w;
}

static void writes_one_line_without_indent(void **state) {
  (void)state;
  const ot_json_writer w = write_sample(0);
  assert_string_equal(w.text,
                      "{\"step\":-9223372036854775808,\"loss\":0.1,\"grad_norm\":null,\"list\":["
                      "true,false,null,{}],"
                      "\"none\":[],\"name\":\"a\\\"b\",\"hint\":null,\"raw\":[1,2]}");
  assert_int_equal(w.length, strlen(w.text));
}

static void indents_nested_levels(void **state) {
  (void)state;
  ot_json_writer w = ot_json_begin(&arena, 2);
  ot_json_object(&w, NULL);
  ot_json_array(&w, "a");
  ot_json_integer(&w, NULL, 1);
  ot_json_integer(&w, NULL, 2);
  ot_json_end(&w);
  ot_json_object(&w, "b");
  ot_json_end(&w);
  ot_json_end(&w);
  assert_string_equal(w.text, "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
}

static void jansson_reads_what_is_written(void **state) {
  (void)state;
  for (int indent = 0; indent <= 4; indent += 2) {
    const ot_json_writer w = write_sample(indent);
    json_error_t error;
    json_t *const root = json_loads(w.text, 0, &error);
    if (!root) fail_msg("%s in %s", error.text, w.text);
    assert_int_equal(json_integer_value(json_object_get(root, "step")), INT64_MIN);
    assert_true(json_real_value(json_object_get(root, "loss")) == 0.1);
    assert_string_equal(json_string_value(json_object_get(root, "name")), "a\"b");
    json_decref(root);
  }
}

// Random bytes: valid UTF-8 must round-trip; other bytes must at least give valid JSON.
static void text_of_any_bytes_is_valid_json(void **state) {
  (void)state;
  enum { BYTES = 64 };
  for (uint64_t i = 0; i < 20000; i++) {
    char text[BYTES];
    const int64_t length = (int64_t)ot_rng_below(1, 0, i, BYTES);
    for (int64_t j = 0; j < length; j++) {
      text[j] = (char)ot_rng_below(1, 1, i * BYTES + (uint64_t)j, i % 2 ? 128 : 256);
    }
    ot_json_writer w = ot_json_begin(&arena, 0);
    ot_json_text_bytes(&w, NULL, text, length);
    json_error_t error;
    json_t *const value =
        json_loadb(w.text, (size_t)w.length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (!value) fail_msg("%s in %s", error.text, w.text);
    if (i % 2) {
      assert_int_equal(json_string_length(value), length);
      assert_memory_equal(json_string_value(value), text, length);
    }
    json_decref(value);
  }
}

static void keeps_well_formed_text_and_replaces_the_rest(void **state) {
  (void)state;
  static const struct {
    const char *text, *json;
  } known[] = {
      {"\x01\n\t\r\b\f\\/", "\"\\u0001\\n\\t\\r\\b\\f\\\\/\""},
      {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\""},
      {"a\xff", "\"a\xef\xbf\xbd\""},
      {"\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\""},
      {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
      {"\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\""},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    ot_json_writer w = ot_json_begin(&arena, 0);
    ot_json_text(&w, NULL, known[i].text);
    assert_string_equal(w.text, known[i].json);
  }
}

static void long_documents_grow(void **state) {
  (void)state;
  enum { COUNT = 50000 };
  ot_json_writer w = ot_json_begin(&arena, 0);
  ot_json_array(&w, NULL);
  for (int i = 0; i < COUNT; i++) ot_json_integer(&w, NULL, i);
  ot_json_end(&w);
  json_t *const root = json_loads(w.text, 0, NULL);
  assert_int_equal(json_array_size(root), COUNT);
  assert_int_equal(json_integer_value(json_array_get(root, COUNT - 1)), COUNT - 1);
  json_decref(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(writes_one_line_without_indent),
      cmocka_unit_test(indents_nested_levels),
      cmocka_unit_test(jansson_reads_what_is_written),
      cmocka_unit_test(text_of_any_bytes_is_valid_json),
      cmocka_unit_test(keeps_well_formed_text_and_replaces_the_rest),
      cmocka_unit_test(long_documents_grow),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
