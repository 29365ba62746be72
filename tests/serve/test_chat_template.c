// SPDX-License-Identifier: Apache-2.0
// run: alone. Built-in chat templates: which one a model gets and what is said about it, where a
// chat begins, and that no message is left out.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "files/json_file.h"
#include "serve/chat_template.h"
#include "support/directory_fixture.h"

// A tokenizer of bytes that adds the tokens `added` [2], with the template `text`, or null.
static ot_tokenizer *make_tokenizer(const char *const added[2], const char *config,
                                    const char *text) {
  ot_tokenizer *bytes = NULL, *made = NULL;
  int64_t length;
  assert_int_equal(ot_tokenizer_create("bytes", &bytes), OT_OK);
  json_t *const root = json_loads(ot_tokenizer_json(bytes, &length), 0, NULL);
  json_t *const list = json_array();
  for (int i = 0; i < 2; i++) {
    json_array_append_new(
        list, json_pack("{s:i,s:s,s:b}", "id", 257 + i, "content", added[i], "special", 1));
  }
  json_object_set_new(root, "added_tokens", list);
  json_dump_file(root, scratch_path(directory, "tokenizer.json"), 0);
  const char *const name = scratch_path(directory, "tokenizer_config.json");
  scratch_write(name, config, (int64_t)strlen(config));
  const char *const path = scratch_path(directory, "chat_template.jinja");
  if (text) scratch_write(path, text, (int64_t)strlen(text));
  if (!text) remove(path);
  if (ot_tokenizer_create(directory, &made) != OT_OK) fail_msg("%s", ot_fail_message());
  json_decref(root);
  ot_tokenizer_destroy(&bytes);
  return made;
}

static const char *const chatml_marks[2] = {"<|im_start|>", "<|im_end|>"};
static const char *const other_marks[2] = {"<|x|>", "<|y|>"};
static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ "
    "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
    "}}{% endif %}";

static const char *note_of(const char *const marks[2], const char *text, const char *template) {
  ot_tokenizer *tokenizer = make_tokenizer(marks, "{}", text);
  const char *note = NULL;
  const ot_chat_template *const chat = ot_chat_template_choose(tokenizer, &arena, &note);
  assert_ptr_equal(chat, template ? ot_chat_template_find(template) : NULL);
  ot_tokenizer_destroy(&tokenizer);
  return note;
}

static void a_known_text_is_its_template_however_its_line_breaks_are_written(void **state) {
  (void)state;
  char escaped[sizeof chatml + 20], breaks[sizeof chatml + 20];
  int n = 0, m = 0;
  for (const char *c = chatml; *c; c++) {
    n += snprintf(escaped + n, sizeof escaped - (size_t)n, *c == '\n' ? "\\n" : "%c", *c);
    m += snprintf(breaks + m, sizeof breaks - (size_t)m, *c == '\n' ? "\r\n" : "%c", *c);
  }
  snprintf(breaks + m, sizeof breaks - (size_t)m, "\n");
  assert_null(note_of(chatml_marks, chatml, "chatml"));
  assert_null(note_of(chatml_marks, escaped, "chatml"));
  assert_null(note_of(chatml_marks, breaks, "chatml"));
  assert_null(note_of(other_marks, chatml, "chatml"));  // the text counts, not the tokens
  assert_null(note_of(chatml_marks, NULL, "chatml"));
  assert_null(note_of(other_marks, NULL, NULL));
}

static void another_text_is_said_with_what_it_may_write(void **state) {
  (void)state;
  const char *note =
      note_of(chatml_marks,
              "{{ 'You are helpful' }}{{ strftime_now('%d') }}{% if tools %}{% endif %}", "chatml");
  assert_non_null(strstr(note, "the built-in chatml"));
  assert_non_null(strstr(note, "a default system message, the date, descriptions of tools)"));
  note = note_of(chatml_marks, "{{ messages }}", "chatml");
  assert_non_null(strstr(note, "may write more;"));
  note = note_of(other_marks, "{{ messages }}", NULL);
  assert_non_null(strstr(note, "so chats are refused; --chat-template"));
}

// ---- rendering ----

static const char *render(const char *name, const char *const messages[][2], int count) {
  ot_chat_message list[8];
  ot_buffer text = {0};
  for (int i = 0; i < count; i++) list[i] = (ot_chat_message){messages[i][0], messages[i][1]};
  const ot_chat_template *const chat = ot_chat_template_find(name);
  const ot_status status = ot_chat_template_render(chat, "<s>", list, count, &text);
  const char *const made =
      status == OT_OK ? ot_arena_text(&arena, (const char *)text.data, text.length) : NULL;
  ot_buffer_release(&text);
  return made;
}

// Written by apply_chat_template of transformers with the templates of Qwen2.5, Llama 3 and
// Gemma 3.
static void templates_are_those_of_the_families(void **state) {
  (void)state;
  static const char *const messages[][2] = {
      {"system", "Be brief."}, {"user", " Hi "}, {"assistant", "Hello."}, {"user", "Bye"}};
  assert_string_equal(
      render("chatml", messages, 4),
      "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
      "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
      "<|im_start|>assistant\n");
  assert_string_equal(render("llama3", messages, 4),
                      "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
                      "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                      "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
                      "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
                      "<|start_header_id|>assistant<|end_header_id|>\n\n");
  assert_string_equal(render("gemma", messages, 4),
                      "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n"
                      "<start_of_turn>model\nHello.<end_of_turn>\n"
                      "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n");
  assert_null(ot_chat_template_find("other"));
}

static void all_system_messages_of_gemma_begin_the_next_one_of_the_user(void **state) {
  (void)state;
  static const char *const messages[][2] = {{"system", "one "},    {"system", "two"},
                                            {"user", " hi\u00a0"}, {"assistant", "yes"},
                                            {"system", "three"},   {"user", "why"}};
  assert_string_equal(render("gemma", messages, 3),
                      "<s><start_of_turn>user\none \n\ntwo\n\nhi<end_of_turn>\n"
                      "<start_of_turn>model\n");
  assert_string_equal(
      render("gemma", messages, 6),
      "<s><start_of_turn>user\none \n\ntwo\n\nhi<end_of_turn>\n<start_of_turn>model\nyes"
      "<end_of_turn>\n<start_of_turn>user\nthree\n\nwhy<end_of_turn>\n<start_of_turn>model\n");
}

static void a_message_without_a_place_is_refused(void **state) {
  (void)state;
  static const char *const last[][2] = {{"user", "a"}, {"system", "b"}};
  static const char *const before[][2] = {{"system", "b"}, {"assistant", "a"}};
  static const char *const tool[][2] = {{"user", "a"}, {"tool", "b"}};
  assert_null(render("gemma", last, 2));
  assert_message_has("before one of a user");
  assert_null(render("gemma", before, 2));
  assert_null(render("gemma", tool, 2));
  assert_message_has("role tool");
  static const char *const names[] = {"chatml", "llama3"};
  for (int i = 0; i < OT_COUNT(names); i++) {
    assert_non_null(strstr(render(names[i], last, 2), "b"));
    assert_non_null(strstr(render(names[i], before, 2), "b"));
    assert_non_null(strstr(render(names[i], tool, 2), "b"));
  }
}

static void a_chat_begins_with_the_token_of_the_tokenizer(void **state) {
  (void)state;
  static const struct {
    const char *config, *start;
  } cases[] = {{"{\"bos_token\": \"<|x|>\"}", "<|x|>"}, {"{\"bos_token\": null}", ""}};
  const ot_chat_template *const llama3 = ot_chat_template_find("llama3");
  const ot_model model = {.vocab_size = 300, .bos_id = -1, .pad_id = -1};
  for (int i = 0; i < OT_COUNT(cases); i++) {
    ot_tokenizer *tokenizer = make_tokenizer(other_marks, cases[i].config, NULL);
    const ot_special_tokens special = ot_special_tokens_of(tokenizer, &model);
    assert_string_equal(ot_chat_template_start(llama3, tokenizer, &special, &arena),
                        cases[i].start);
    assert_string_equal(
        ot_chat_template_start(ot_chat_template_find("chatml"), tokenizer, &special, &arena), "");
    ot_tokenizer_destroy(&tokenizer);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_directory, close_directory)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_known_text_is_its_template_however_its_line_breaks_are_written),
      TEST(another_text_is_said_with_what_it_may_write),
      TEST(templates_are_those_of_the_families),
      TEST(all_system_messages_of_gemma_begin_the_next_one_of_the_user),
      TEST(a_message_without_a_place_is_refused),
      TEST(a_chat_begins_with_the_token_of_the_tokenizer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
