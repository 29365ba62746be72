// SPDX-License-Identifier: Apache-2.0
// run: alone. Content of a failure: message, hint and chain of callers, separate for each thread.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/status.h"

static ot_status check_degree(int degree) {
  OT_CHECK(degree > 0, OT_USAGE, "tp=%d is not positive", degree);
  return OT_OK;
}

static ot_status build_mesh(int degree) {
  OT_TRY(check_degree(degree));
  return OT_OK;
}

static ot_status build_plan(int degree) {
  OT_TRY(build_mesh(degree));
  return OT_OK;
}

static void passes_on_success(void **state) {
  (void)state;
  assert_int_equal(build_plan(2), OT_OK);
}

static void keeps_message_and_chain_of_callers(void **state) {
  (void)state;
  assert_int_equal(build_plan(-3), OT_USAGE);
  assert_string_equal(ot_fail_message(), "tp=-3 is not positive");
  assert_string_equal(ot_fail_hint_text(), "");
  assert_string_equal(ot_fail_chain(), "build_mesh < build_plan");
}

static void a_new_failure_replaces_message_hint_and_chain(void **state) {
  (void)state;
  assert_int_equal(build_plan(0), OT_USAGE);
  assert_int_equal(ot_fail_hint(OT_USAGE, "try %d", 1), OT_USAGE);
  assert_string_equal(ot_fail_hint_text(), "try 1");
  assert_string_equal(ot_fail_message(), "tp=0 is not positive");
  assert_int_equal(ot_fail(OT_NUMERIC, "loss is %g", 1e30), OT_NUMERIC);
  assert_string_equal(ot_fail_message(), "loss is 1e+30");
  assert_string_equal(ot_fail_hint_text(), "");
  assert_string_equal(ot_fail_chain(), "");
}

static void a_message_may_quote_the_previous_one(void **state) {
  (void)state;
  ot_fail(OT_USAGE, "unknown key");
  ot_fail(OT_USAGE, "run.yaml: %s", ot_fail_message());
  assert_string_equal(ot_fail_message(), "run.yaml: unknown key");
}

static void long_messages_and_chains_are_truncated(void **state) {
  (void)state;
  char text[5000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  ot_fail(OT_USAGE, "%s", text);
  assert_in_range(strlen(ot_fail_message()), 200, 4998);
  // The place at the end of a message is kept, and the ends of the long text.
  text[0] = text[sizeof text - 2] = 'y';
  ot_fail(OT_USAGE, "\"%s\" is no number (%s:%d)", text, "run.yaml", 7);
  assert_non_null(strstr(ot_fail_message(), "\"yx"));
  assert_non_null(strstr(ot_fail_message(), "xy\" is no number (run.yaml:7)"));
  for (int i = 0; i < 1000; i++) ot_fail_trace("caller");
  assert_in_range(strlen(ot_fail_chain()), 100, 4998);
}

static void control_characters_of_names_are_not_shown(void **state) {
  (void)state;
  ot_fail(OT_USAGE, "key \"%s\"\n\tcaf\xc3\xa9", "\x1b[31m\x7f\xc2\x9b\r");
  assert_string_equal(ot_fail_message(), "key \"?[31m????\"\n\tcaf\xc3\xa9");
  ot_fail_hint(OT_USAGE, "try %s", "\x1b]0;title\a");
  assert_string_equal(ot_fail_hint_text(), "try ?]0;title?");
  // No UTF-8: a lone byte, a surrogate, an end that is missing; and characters of 3 and 4 bytes.
  ot_fail(OT_USAGE, "%s", "\xec- \xed\xa0\x80 \xe2\x82\xac\xf0\x9f\x98\x80 \xe2\x82");
  assert_string_equal(ot_fail_message(), "?- ??? \xe2\x82\xac\xf0\x9f\x98\x80 ??");
}

static void *fail_on_another_thread(void *seen) {
  strcpy(seen, ot_fail_message());
  ot_fail(OT_RANKS, "theirs");
  return NULL;
}

static void failures_are_thread_local(void **state) {
  (void)state;
  char seen[64] = "?";
  ot_fail(OT_USAGE, "ours");
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, fail_on_another_thread, seen), 0);
  pthread_join(thread, NULL);
  assert_string_equal(seen, "");
  assert_string_equal(ot_fail_message(), "ours");
}

static jmp_buf after_panic;
static char panic_text[128];

static void record_panic(const char *file, int line, const char *text) {
  (void)file;
  (void)line;
  strncpy(panic_text, text, sizeof panic_text - 1);
  longjmp(after_panic, 1);
}

static void a_failed_assertion_calls_the_hook(void **state) {
  (void)state;
  ot_panic_hook_set(record_panic);
  if (setjmp(after_panic) == 0) OT_ASSERT(1 + 1 == 3);
  assert_string_equal(panic_text, "1 + 1 == 3");
  if (setjmp(after_panic) == 0) OT_UNREACHABLE();
  assert_string_equal(panic_text, "unreachable");
  ot_panic_hook_set(NULL);
}

static void *no_block(void *context, int64_t bytes) {
  (void)context;
  (void)bytes;
  return NULL;
}

static void memory_that_runs_out_is_a_failure_of_the_environment(void **state) {
  (void)state;
  ot_arena arena = ot_arena_from(no_block, NULL);
  ot_panic_hook_set(record_panic);
  if (setjmp(after_panic) == 0) (void)ot_arena_take(&arena, 3 << 20);
  assert_string_equal(panic_text, "out of memory: 3145728 more bytes are needed");
  assert_string_equal(ot_fail_message(), panic_text);
  ot_panic_hook_set(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(passes_on_success),
      cmocka_unit_test(keeps_message_and_chain_of_callers),
      cmocka_unit_test(a_new_failure_replaces_message_hint_and_chain),
      cmocka_unit_test(a_message_may_quote_the_previous_one),
      cmocka_unit_test(long_messages_and_chains_are_truncated),
      cmocka_unit_test(control_characters_of_names_are_not_shown),
      cmocka_unit_test(failures_are_thread_local),
      cmocka_unit_test(a_failed_assertion_calls_the_hook),
      cmocka_unit_test(memory_that_runs_out_is_a_failure_of_the_environment),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
