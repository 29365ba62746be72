// SPDX-License-Identifier: Apache-2.0
// run: alone. Bodies of requests: keys that would change the text and are not supported are refused
// by name, except with values without effect; messages keep their whole content.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "serve/completion_request.h"
#include "support/arena_fixture.h"
#include "support/scratch.h"

static ot_completion_request request;

static ot_status read(const char *text, bool chat) {
  const ot_request_body body = {.text = text, .length = (int64_t)strlen(text), .chat = chat};
  return ot_completion_request_read(&body, &arena, &request);
}

static void keys_that_would_change_the_text_are_refused_by_name(void **state) {
  (void)state;
  static const struct {
    const char *key, *value;
  } wrong[] = {
      {"best_of", "4"},
      {"logit_bias", "{\"65\": 5}"},
      {"repetition_penalty", "1.1"},
      {"min_tokens", "3"},
      {"frequency_penalty", "0.5"},
      {"presence_penalty", "-1"},
      {"suffix", "\"b\""},
      {"tools", "[{\"type\": \"function\"}]"},
      {"tool_choice", "\"required\""},
      {"tool_choice", "{\"type\": \"function\"}"},
      {"response_format", "{\"type\": \"json_object\"}"},
      {"response_format", "5"},
      {"guided_json", "{\"type\": \"object\"}"},
      {"prompt_logprobs", "1"},
      {"return_token_ids", "true"},
      {"chat_template_kwargs", "{\"enable_thinking\": false}"},
      {"reasoning_effort", "\"high\""},
      {"stop_token_ids", "[-1]"},
      {"stop_token_ids", "5"},
      {"ignore_eos", "1"},
  };
  for (int i = 0; i < OT_COUNT(wrong); i++) {
    for (int chat = 0; chat < 2; chat++) {
      const char *const text = ot_arena_format(
          &arena, "{%s, \"%s\": %s}",
          chat ? "\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]" : "\"prompt\": \"a\"",
          wrong[i].key, wrong[i].value);
      if (read(text, chat == 1) != OT_USAGE) fail_msg("accepted: %s", text);
      assert_message_has(wrong[i].key);
    }
  }
}

static void values_without_effect_are_accepted(void **state) {
  (void)state;
  static const char text[] =
      "{\"prompt\": \"a\", \"max_tokens\": 2, \"n\": 2, \"best_of\": 2, \"logit_bias\": {}, "
      "\"repetition_penalty\": 1.0, \"min_tokens\": 0, \"frequency_penalty\": 0, \"suffix\": null, "
      "\"presence_penalty\": 0.0, \"tools\": [], \"tool_choice\": \"auto\", \"user\": \"me\", "
      "\"response_format\": {\"type\": \"text\"}, \"stop_token_ids\": null, \"unknown\": 1, "
      "\"add_generation_prompt\": true, \"ignore_eos\": false}";
  assert_int_equal(read(text, false), OT_OK);
  assert_int_equal(request.n, 2);
  assert_int_equal(request.num_stop_ids, 0);
  assert_int_equal(
      read("{\"prompt\": \"a\", \"stop_token_ids\": [7, 9], \"ignore_eos\": true}", false), OT_OK);
  assert_int_equal(request.num_stop_ids, 2);
  assert_int_equal(request.stop_ids[1], 9);
  assert_true(request.ignore_eos);
}

static void parts_of_messages_that_are_no_text_are_refused(void **state) {
  (void)state;
  static const char *const messages[] = {
      "{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [{}]}",
      "{\"role\": \"assistant\", \"content\": \"a\", \"function_call\": {\"name\": \"f\"}}",
      "{\"role\": \"user\", \"content\": \"a\\u0000b\"}",
      "{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}",
      "{\"role\": \"user\", \"content\": null}",
  };
  for (int i = 0; i < OT_COUNT(messages); i++) {
    const char *const text = ot_arena_format(&arena, "{\"messages\": [%s]}", messages[i]);
    if (read(text, true) != OT_USAGE) fail_msg("accepted: %s", text);
  }
  assert_int_equal(read("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", "
                        "\"tool_calls\": [], \"function_call\": null}]}",
                        true),
                   OT_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(keys_that_would_change_the_text_are_refused_by_name, begin,
                                      finish),
      cmocka_unit_test_setup_teardown(values_without_effect_are_accepted, begin, finish),
      cmocka_unit_test_setup_teardown(parts_of_messages_that_are_no_text_are_refused, begin,
                                      finish),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
