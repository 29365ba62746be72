// SPDX-License-Identifier: Apache-2.0
// run: alone. Hostile texts in each syntax. What shells and parsers make of whole files:
// tests/cli/test_hostile_names.sh.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/quote.h"
#include "base/status.h"
#include "support/arena_fixture.h"

typedef void quote(ot_text_builder *out, const char *text);

static void check(quote *q, const char *text, const char *expected) {
  ot_text_builder out = {.arena = &arena};
  q(&out, text);
  assert_string_equal(ot_text_builder_text(&out), expected);
}

static void a_shell_reads_one_word(void **state) {
  (void)state;
  check(ot_quote_shell, "runs/a-1.yaml", "runs/a-1.yaml");
  check(ot_quote_shell, "optimizer.lr=3e-4", "optimizer.lr=3e-4");
  check(ot_quote_shell, "", "''");
  check(ot_quote_shell, "a b", "'a b'");
  check(ot_quote_shell, "~", "'~'");
  check(ot_quote_shell, "it's", "'it'\\''s'");
  check(ot_quote_shell, "$(touch x)`y`\n#\\", "'$(touch x)`y`\n#\\'");
  check(ot_quote_shell, "a\xff\xc2\x85", "'a\xff\xc2\x85'");
}

static void a_comment_stays_on_its_line(void **state) {
  (void)state;
  check(ot_quote_comment_line, "h100 $(x) 'y'", "# h100 $(x) 'y'\n");
  check(ot_quote_comment, "a\nb\rc\x1b[2Jd\x7f\te", "a?b?c?[2Jd??e");
  // The line ends of Unicode, a mark of direction, and what is no UTF-8.
  check(ot_quote_comment,
        "\xc2\x85.\xe2\x80\xa8.\xe2\x80\xa9.\xe2\x80\xae.\xe2\x81\xa6.\xd8\x9c.\xff",
        "?.?.?.?.?.?.?");
  check(ot_quote_comment, "\xc3\xa4\xe2\x82\xac\xe2\x80\x93", "\xc3\xa4\xe2\x82\xac\xe2\x80\x93");
}

static void yaml_reads_the_same_text(void **state) {
  (void)state;
  check(ot_quote_yaml, "llama3-8b", "llama3-8b");
  check(ot_quote_yaml, "", "\"\"");
  // Truth values of version 1.1, numbers, what begins a collection or a comment.
  const char *const words[] = {"No", "on", "y", "TRUE", "null", "8", "1e3", "-a", "~"};
  for (int i = 0; i < OT_COUNT(words); i++) {
    ot_text_builder out = {.arena = &arena};
    ot_quote_yaml(&out, words[i]);
    assert_int_equal(ot_text_builder_text(&out)[0], '"');
  }
  check(ot_quote_yaml, "a: b", "\"a: b\"");
  check(ot_quote_yaml, "a #b", "\"a #b\"");
  check(ot_quote_yaml, "a, b]", "\"a, b]\"");
}

static void a_string_has_no_control_characters(void **state) {
  (void)state;
  check(ot_quote_string, "a\"\\\n", "\"a\\\"\\\\\\n\"");
  check(ot_quote_string, "\x7f\xc2\x85\xc2\xa0\xe2\x80\xa8\xe2\x80\xa9\xe2\x82\xac",
        "\"\\u007f\\u0085\xc2\xa0\\u2028\\u2029\xe2\x82\xac\"");
  check(ot_quote_string, "a\xff", "\"a\xef\xbf\xbd\"");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_shell_reads_one_word),
      cmocka_unit_test(a_comment_stays_on_its_line),
      cmocka_unit_test(yaml_reads_the_same_text),
      cmocka_unit_test(a_string_has_no_control_characters),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
