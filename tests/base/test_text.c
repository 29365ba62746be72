// SPDX-License-Identifier: Apache-2.0
// run: alone. Formatting against glibc's snprintf; the rest against small tables and, for
// distances, a plain recursive definition.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/text.h"

// Formats the arguments with both functions.
#define CHECK_FORMAT(...)                                                   \
  do {                                                                      \
    char ours[4000];                                                        \
    char theirs[4000];                                                      \
    const int64_t length = ot_text_format(ours, sizeof ours, __VA_ARGS__);  \
    assert_int_equal(length, snprintf(theirs, sizeof theirs, __VA_ARGS__)); \
    assert_string_equal(ours, theirs);                                      \
  } while (0)

static void formats_integers_as_glibc(void **state) {
  (void)state;
  CHECK_FORMAT("%d %d %d", 0, INT32_MIN, INT32_MAX);
  CHECK_FORMAT("%ld %lld", INT64_MIN, (long long)INT64_MAX);
  CHECK_FORMAT("%u %lu %llu %zu", UINT32_MAX, (unsigned long)UINT64_MAX,
               (unsigned long long)UINT64_MAX, SIZE_MAX);
  CHECK_FORMAT("%x %lx %llx", 0xbeefu, 0xfeedbeefcafeUL, 0x1ULL);
  CHECK_FORMAT("[%8d] [%-8d] [%08d] [%08x] [%+d] [%+d]", -42, -42, -42, 0xabu, 7, -7);
  CHECK_FORMAT("[%*d] [%-*d] [%*d]", 6, 1, 6, 2, -6, 3);
  CHECK_FORMAT("%d%%", 50);
}

static void formats_text_and_characters_as_glibc(void **state) {
  (void)state;
  CHECK_FORMAT("[%s] [%8s] [%-8s] [%.3s] [%.*s] [%8.2s]", "abc", "abc", "abc", "abcdef", 2, "xyz",
               "hello");
  CHECK_FORMAT("%s", "");
  CHECK_FORMAT("[%c] [%3c] [%-3c]", 'x', 'y', 'z');
  CHECK_FORMAT("[%5s]", "-a");
}

static void formats_reals_as_glibc(void **state) {
  (void)state;
  const double values[] = {0, -0.0, 1, -1.5, 0.1, 12345.678, 1e-7, 1e300, 5e-324, 99999.95};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    const double x = values[i];
    CHECK_FORMAT("%g %.3g %.17g [%12.4g] [%-12.4g] [%012.4g] %+.2g", x, x, x, x, x, x, x);
    CHECK_FORMAT("%f %.0f %.3f [%14.2f] [%-14.2f] [%014.2f]", x, x, x, x, x, x);
  }
  CHECK_FORMAT("%g [%6g] [%06g] %.1f", (double)INFINITY, -(double)INFINITY, (double)INFINITY,
               (double)INFINITY);
}

static void truncates_long_lines(void **state) {
  (void)state;
  char text[6] = "?????";
  assert_int_equal(ot_text_format(text, sizeof text, "%s", "abcdefgh"), 5);
  assert_string_equal(text, "abcde");
  assert_int_equal(ot_text_format(text, sizeof text, "%9d", 7), 5);
  assert_string_equal(text, "     ");
  assert_int_equal(ot_text_format(text, 1, "x"), 0);
  assert_string_equal(text, "");
  text[0] = '!';
  assert_int_equal(ot_text_format(text, 0, "x"), 0);
  assert_int_equal(text[0], '!');
}

static void format_unchecked(char *out, int64_t capacity, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  ot_text_format_list(out, capacity, format, arguments);
  va_end(arguments);
}

static void shows_what_it_cannot_format(void **state) {
  (void)state;
  char text[16];
  const char *volatile const no_text = NULL;
  ot_text_format(text, sizeof text, "%s", no_text);
  assert_string_equal(text, "(null)");
  format_unchecked(text, sizeof text, "a%q");
  assert_string_equal(text, "a%q");
  format_unchecked(text, sizeof text, "b%");
  assert_string_equal(text, "b%");
}

static int sign(int x) { return (x > 0) - (x < 0); }

static void compares_and_searches_as_string_h(void **state) {
  (void)state;
  static const char *const texts[] = {"", "a", "ab", "abc", "b", "ba", "\xc3\xa9", "aab", "abab"};
  enum { COUNT = sizeof texts / sizeof texts[0] };
  for (int i = 0; i < COUNT; i++) {
    assert_int_equal(ot_text_length(texts[i]), strlen(texts[i]));
    for (int j = 0; j < COUNT; j++) {
      const char *const a = texts[i];
      const char *const b = texts[j];
      assert_int_equal(sign(ot_text_compare(a, b)), sign(strcmp(a, b)));
      assert_int_equal(ot_text_equal(a, b), i == j);
      assert_ptr_equal(ot_text_find(a, b), strstr(a, b));
      assert_int_equal(ot_text_starts_with(a, b), strncmp(a, b, strlen(b)) == 0);
      const size_t na = strlen(a);
      const size_t nb = strlen(b);
      assert_int_equal(ot_text_ends_with(a, b), na >= nb && strcmp(a + na - nb, b) == 0);
    }
  }
}

static bool matches_plainly(const char *text, const char *pattern) {
  if (*pattern == '\0') return *text == '\0';
  if (*pattern == '*') {
    return matches_plainly(text, pattern + 1) || (*text && matches_plainly(text + 1, pattern));
  }
  return *text && (*pattern == '?' || *pattern == *text) && matches_plainly(text + 1, pattern + 1);
}

static void random_letters(char *text, uint64_t length_below, const char *letters, uint64_t draw) {
  const uint64_t length = ot_rng_below(1, 2, draw, length_below);
  for (uint64_t i = 0; i < length; i++) {
    text[i] = letters[ot_rng_below(1, 3, draw * 100 + i, strlen(letters))];
  }
  text[length] = '\0';
}

static void matches_patterns_as_their_definition(void **state) {
  (void)state;
  assert_true(ot_text_matches("model.layers.17.mlp.up_proj.weight", "model.layers.*.mlp.*"));
  assert_false(ot_text_matches("model.layers.17.mlp.up_proj.weight", "*.bias"));
  for (uint64_t i = 0; i < 50000; i++) {
    char text[12];
    char pattern[8];
    random_letters(text, 12, "ab", 2 * i);
    random_letters(pattern, 8, "ab?**", 2 * i + 1);
    if (ot_text_matches(text, pattern) != matches_plainly(text, pattern)) {
      fail_msg("'%s' against '%s'", text, pattern);
    }
  }
}

static int minimum(int a, int b) { return a < b ? a : b; }

// Optimal string alignment, directly from its recurrence.
static int plain_distance(const char *a, int na, const char *b, int nb) {
  if (na == 0 || nb == 0) return na + nb;
  int best = plain_distance(a, na - 1, b, nb - 1) + (a[na - 1] != b[nb - 1]);
  best = minimum(best, plain_distance(a, na - 1, b, nb) + 1);
  best = minimum(best, plain_distance(a, na, b, nb - 1) + 1);
  if (na > 1 && nb > 1 && a[na - 1] == b[nb - 2] && a[na - 2] == b[nb - 1]) {
    best = minimum(best, plain_distance(a, na - 2, b, nb - 2) + 1);
  }
  return best;
}

static void distance_follows_its_recurrence(void **state) {
  (void)state;
  assert_int_equal(ot_text_distance("hidden_size", "hiden_size"), 1);
  assert_int_equal(ot_text_distance("learning_rate", "laerning_rate"), 1);
  assert_int_equal(ot_text_distance("kitten", "sitting"), 3);
  assert_int_equal(ot_text_distance("", "abc"), 3);
  for (uint64_t i = 0; i < 300; i++) {
    char a[7];
    char b[7];
    random_letters(a, 7, "abc", 3 * i);
    random_letters(b, 7, "abc", 3 * i + 1);
    assert_int_equal(ot_text_distance(a, b), plain_distance(a, (int)strlen(a), b, (int)strlen(b)));
  }
}

static void distance_is_capped_at_64_characters(void **state) {
  (void)state;
  char longer[200];
  memset(longer, 'a', sizeof longer - 1);
  longer[sizeof longer - 1] = '\0';
  assert_int_equal(ot_text_distance(longer, ""), 64);
  assert_int_equal(ot_text_distance(longer, longer + 50), 0);
}

// Answers published with the FNV-1a reference code.
static void hash_gives_the_published_answers(void **state) {
  (void)state;
  assert_true(ot_hash_text(OT_HASH_START, "") == 0xcbf29ce484222325ULL);
  assert_true(ot_hash_text(OT_HASH_START, "a") == 0xaf63dc4c8601ec8cULL);
  assert_true(ot_hash_text(OT_HASH_START, "foobar") == 0x85944171f73967e8ULL);
  const uint64_t chained = ot_hash_bytes(ot_hash_text(OT_HASH_START, "foo"), "bar", 3);
  assert_true(chained == ot_hash_text(OT_HASH_START, "foobar"));
}

static void the_nearest_word_is_found(void **state) {
  (void)state;
  const char *nearest = NULL;
  int best = 3;
  ot_text_nearest("h10O", "a100", &nearest, &best);
  assert_string_equal(nearest, "a100");
  ot_text_nearest("h10O", "h100", &nearest, &best);
  ot_text_nearest("h10O", "h200", &nearest, &best);
  assert_string_equal(nearest, "h100");
  assert_int_equal(best, 1);
}

static void singular_has_no_plural_s(void **state) {
  (void)state;
  assert_string_equal(ot_text_plural(1, "s"), "");
  assert_string_equal(ot_text_plural(0, "s"), "s");
  assert_string_equal(ot_text_plural(2, "es"), "es");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(formats_integers_as_glibc),
      cmocka_unit_test(formats_text_and_characters_as_glibc),
      cmocka_unit_test(formats_reals_as_glibc),
      cmocka_unit_test(truncates_long_lines),
      cmocka_unit_test(shows_what_it_cannot_format),
      cmocka_unit_test(compares_and_searches_as_string_h),
      cmocka_unit_test(matches_patterns_as_their_definition),
      cmocka_unit_test(distance_follows_its_recurrence),
      cmocka_unit_test(distance_is_capped_at_64_characters),
      cmocka_unit_test(hash_gives_the_published_answers),
      cmocka_unit_test(the_nearest_word_is_found),
      cmocka_unit_test(singular_has_no_plural_s),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
