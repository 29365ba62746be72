// SPDX-License-Identifier: Apache-2.0
// run: alone. Special tokens and chat template of a directory: what ends documents, what begins a
// text, what ends one, from the files next to the tokenizer; what is saved says the same again.
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/hf_texts.h"
#include "support/arena_fixture.h"
#include "support/scratch.h"
#include "support/tiny_model.h"
#include "tokenizer/special_tokens.h"

enum { BOS = 256, END, TURN, ROWS };

static char directory[SCRATCH_BYTES];

// Bytes, and three added tokens that no list of known spellings has.
static void write_tokenizer(void) {
  static const char *const added[] = {"<|bos|>", "<|end|>", "<|turn|>"};
  ot_tokenizer *bytes = NULL;
  assert_int_equal(ot_tokenizer_create("bytes", &bytes), OT_OK);
  int64_t length;
  const char *const text = ot_tokenizer_json(bytes, &length);
  json_t *const root = json_loadb(text, (size_t)length, 0, NULL);
  json_object_del(json_object_get(json_object_get(root, "model"), "vocab"), "<|endoftext|>");
  json_t *const list = json_array();
  for (int i = 0; i < OT_COUNT(added); i++) {
    json_array_append_new(
        list, json_pack("{s:i,s:s,s:b}", "id", BOS + i, "content", added[i], "special", 1));
  }
  json_object_set_new(root, "added_tokens", list);
  assert_int_equal(json_dump_file(root, scratch_path(directory, "tokenizer.json"), 0), 0);
  json_decref(root);
  ot_tokenizer_destroy(&bytes);
}

static void write_text(const char *name, const char *text) {
  scratch_write(scratch_path(directory, name), text, (int64_t)strlen(text));
}

static int open_directory(void **state) {
  begin(state);
  scratch_create(directory);
  write_tokenizer();
  return 0;
}

static int close_directory(void **state) {
  scratch_destroy(directory);
  return finish(state);
}

static ot_tokenizer *open_tokenizer(void) {
  ot_tokenizer *tokenizer;
  if (ot_tokenizer_create(directory, &tokenizer) != OT_OK) fail_msg("%s", ot_fail_message());
  return tokenizer;
}

static ot_model model_of(int num_eos, int64_t first, int64_t second) {
  ot_model model = tiny_llama();
  model.vocab_size = ROWS;
  model.num_eos = num_eos;
  model.eos_id[0] = first;
  model.eos_id[1] = second;
  model.bos_id = model.pad_id = -1;
  return model;
}

static void assert_ends(const ot_special_tokens *special, int count, const int32_t *ends) {
  assert_int_equal(special->num_ends, count);
  for (int i = 0; i < count; i++) assert_int_equal(special->ends[i], ends[i]);
}

static void a_text_ends_with_the_union_of_all_files_and_the_tokenizer_s_own_end_is_first(
    void **state) {
  (void)state;
  write_text("tokenizer_config.json", "{\"eos_token\": {\"content\": \"<|turn|>\"}}");
  write_text("config.json", "{\"eos_token_id\": [257, 300], \"model_type\": \"any\"}");
  write_text("generation_config.json", "{\"eos_token_id\": 10}");
  ot_tokenizer *tokenizer = open_tokenizer();
  const ot_model model = model_of(2, END, 'a');  // 'a' is a byte: a configuration for another one
  const ot_special_tokens special = ot_special_tokens_of(tokenizer, &model);
  assert_int_equal(special.eos, TURN);
  assert_int_equal(ot_tokenizer_eos(tokenizer), TURN);
  // 300 has no row; 10 is stated by the directory itself.
  assert_ends(&special, 3, (const int32_t[]){TURN, END, 10});
  ot_tokenizer_destroy(&tokenizer);
}

static void a_text_begins_with_bos_only_if_the_tokenizer_s_files_name_one(void **state) {
  (void)state;
  static const struct {
    const char *config, *map;
    int32_t bos, prefix;
  } cases[] = {
      {"{\"bos_token\": \"<|bos|>\", \"eos_token\": \"<|end|>\"}", NULL, BOS, BOS},
      {"{\"bos_token\": null, \"eos_token\": \"<|end|>\"}", "{\"bos_token\": \"<|bos|>\"}", BOS,
       BOS},
      {"{\"bos_token\": null, \"eos_token\": \"<|end|>\"}", NULL, -1, END},
      {"{\"eos_token\": \"<|end|>\"}", "{\"bos_token\": {\"content\": \"<|bos|>\"}}", BOS, BOS},
      {"{\"bos_token\": \"<none>\", \"eos_token\": \"<|end|>\"}", NULL, -1, END},
      {"{}", NULL, -1, -1},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    ot_model model = model_of(0, 0, 0);
    model.bos_id = BOS;
    write_text("tokenizer_config.json", cases[i].config);
    write_text("special_tokens_map.json", cases[i].map ? cases[i].map : "{}");
    ot_tokenizer *tokenizer = open_tokenizer();
    const ot_special_tokens special = ot_special_tokens_of(tokenizer, &model);
    if (special.bos != cases[i].bos || special.prefix != cases[i].prefix) {
      fail_msg("%s: bos %d, prefix %d", cases[i].config, special.bos, special.prefix);
    }
    const char *const note = ot_tokenizer_note(tokenizer, ROWS, &arena);
    assert_true((note != NULL) == (strstr(cases[i].config, "<none>") != NULL));
    ot_tokenizer_destroy(&tokenizer);
  }
}

static void the_template_is_that_of_the_file_before_that_of_the_configuration(void **state) {
  (void)state;
  ot_tokenizer *tokenizer = open_tokenizer();
  assert_null(ot_tokenizer_chat_template(tokenizer));
  ot_tokenizer_destroy(&tokenizer);
  write_text("tokenizer_config.json",
             "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}, "
             "{\"name\": \"default\", \"template\": \"d\"}]}");
  tokenizer = open_tokenizer();
  assert_string_equal(ot_tokenizer_chat_template(tokenizer), "d");
  ot_tokenizer_destroy(&tokenizer);
  write_text("chat_template.jinja", "{{ j }}");
  tokenizer = open_tokenizer();
  assert_string_equal(ot_tokenizer_chat_template(tokenizer), "{{ j }}");
  ot_tokenizer_destroy(&tokenizer);
}

// A template is published by servers and saved.
static void a_file_that_is_no_template_is_ignored_and_a_link_in_a_checkpoint_refused(void **state) {
  (void)state;
  ot_tokenizer *tokenizer = NULL;
  write_text("chat_template.jinja", "secret");
  tokenizer = open_tokenizer();
  assert_null(ot_tokenizer_chat_template(tokenizer));
  assert_null(ot_tokenizer_files(tokenizer)[OT_TOKENIZER_TEMPLATE].text);
  assert_non_null(strstr(ot_tokenizer_note(tokenizer, ROWS, &arena), "it is no template"));
  ot_tokenizer_destroy(&tokenizer);
  write_text("elsewhere", "{{ secret }}");
  const char *const path = scratch_path(directory, "chat_template.jinja");
  assert_int_equal(remove(path), 0);
  assert_int_equal(symlink(scratch_path(directory, "elsewhere"), path), 0);
  tokenizer = open_tokenizer();
  ot_tokenizer_destroy(&tokenizer);
  write_text("manifest.json", "{}");
  assert_int_equal(ot_tokenizer_create(directory, &tokenizer), OT_ENVIRONMENT);
  assert_message_has("not a regular file but a link");
}

static void wrong_ids_of_ends_are_refused_with_the_file(void **state) {
  (void)state;
  static const char *const wrong[] = {"{\"eos_token_id\": \"x\"}", "{\"eos_token_id\": [1, -2]}",
                                      "{\"eos_token_id\": [1, 2, 3, 4, 5, 6, 7, 8, 9]}", "{"};
  write_text("config.json", "// of other software");
  for (int i = 0; i < OT_COUNT(wrong); i++) {
    ot_tokenizer *tokenizer = NULL;
    write_text("generation_config.json", wrong[i]);
    assert_int_not_equal(ot_tokenizer_create(directory, &tokenizer), OT_OK);
    assert_null(tokenizer);
    assert_message_has("generation_config.json");
  }
}

// ---- what is saved ----

static void save(const ot_model *model, const ot_tokenizer *tokenizer) {
  ot_hf_texts texts;
  assert_int_equal(ot_hf_texts_build(&arena, model, OT_F32, tokenizer, &texts), OT_OK);
  for (int i = 0; i < texts.count; i++) {
    const ot_checkpoint_text *const t = &texts.text[i];
    scratch_write(scratch_path(directory, t->name), t->text, t->bytes);
  }
}

static json_t *saved(const char *name) {
  json_t *const root = json_load_file(scratch_path(directory, name), 0, NULL);
  assert_non_null(root);
  return root;
}

static void what_is_saved_has_the_special_tokens_and_the_template_that_it_came_from(void **state) {
  (void)state;
  static const char config[] =
      "{\"bos_token\": \"<|bos|>\", \"eos_token\": \"<|turn|>\", \"x\": 1}";
  write_text("tokenizer_config.json", config);
  write_text("chat_template.jinja", "{{ messages }}");
  write_text("config.json", "{\"eos_token_id\": [257, 258]}");
  ot_tokenizer *tokenizer = open_tokenizer();
  const ot_model model = model_of(2, END, TURN);
  const ot_special_tokens before = ot_special_tokens_of(tokenizer, &model);
  scratch_destroy(directory);
  scratch_create(directory);
  save(&model, tokenizer);
  ot_tokenizer_destroy(&tokenizer);

  tokenizer = open_tokenizer();
  const ot_special_tokens after = ot_special_tokens_of(tokenizer, &model);
  assert_memory_equal(&after, &before, sizeof after);
  assert_ends(&after, 2, (const int32_t[]){TURN, END});
  assert_string_equal(ot_tokenizer_chat_template(tokenizer), "{{ messages }}");
  assert_string_equal(ot_tokenizer_files(tokenizer)[OT_TOKENIZER_CONFIG].text, config);
  ot_tokenizer_destroy(&tokenizer);

  json_t *root = saved("config.json");  // the list of the model, in its order
  assert_int_equal(json_integer_value(json_array_get(json_object_get(root, "eos_token_id"), 0)),
                   END);
  assert_int_equal(json_integer_value(json_object_get(root, "bos_token_id")), BOS);
  json_decref(root);
  root = saved("generation_config.json");
  assert_int_equal(json_integer_value(json_array_get(json_object_get(root, "eos_token_id"), 0)),
                   TURN);
  json_decref(root);
}

static void an_end_that_the_model_lacks_is_saved_before_those_it_lists(void **state) {
  (void)state;
  write_text("tokenizer_config.json", "{\"eos_token\": \"<|turn|>\"}");
  ot_tokenizer *tokenizer = open_tokenizer();
  const ot_model model = model_of(1, END, 0);
  save(&model, tokenizer);
  json_t *const root = saved("config.json");
  const json_t *const ends = json_object_get(root, "eos_token_id");
  assert_int_equal(json_array_size(ends), 2);
  assert_int_equal(json_integer_value(json_array_get(ends, 0)), TURN);
  assert_int_equal(json_integer_value(json_array_get(ends, 1)), END);
  json_decref(root);
  ot_tokenizer_destroy(&tokenizer);
}

// ---- rows ----

static void a_text_is_refused_only_if_it_has_a_token_without_a_row(void **state) {
  (void)state;
  ot_tokenizer *tokenizer = open_tokenizer();
  ot_encoder *encoder;
  ot_token_list ids = {0};
  ot_model model = model_of(1, TURN, 0);
  model.vocab_size = TURN;
  assert_int_equal(ot_encoder_create(tokenizer, &encoder), OT_OK);
  ot_encoder_limit(encoder, TURN);
  assert_int_equal(ot_encoder_encode(encoder, "a<|end|>", 8, &ids), OT_OK);
  assert_int_equal(ot_encoder_encode(encoder, "a<|turn|>", 9, &ids), OT_USAGE);
  assert_message_has("the token \"<|turn|>\" (id 258)");
  const ot_special_tokens special = ot_special_tokens_of(tokenizer, &model);
  assert_int_equal(special.num_ends, 0);
  assert_non_null(strstr(ot_tokenizer_note(tokenizer, TURN, &arena), "259 entries"));
  assert_null(ot_tokenizer_note(tokenizer, ROWS, &arena));
  ot_token_list_release(&ids);
  ot_encoder_destroy(&encoder);
  ot_tokenizer_destroy(&tokenizer);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_directory, close_directory)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_text_ends_with_the_union_of_all_files_and_the_tokenizer_s_own_end_is_first),
      TEST(a_text_begins_with_bos_only_if_the_tokenizer_s_files_name_one),
      TEST(the_template_is_that_of_the_file_before_that_of_the_configuration),
      TEST(a_file_that_is_no_template_is_ignored_and_a_link_in_a_checkpoint_refused),
      TEST(wrong_ids_of_ends_are_refused_with_the_file),
      TEST(what_is_saved_has_the_special_tokens_and_the_template_that_it_came_from),
      TEST(an_end_that_the_model_lacks_is_saved_before_those_it_lists),
      TEST(a_text_is_refused_only_if_it_has_a_token_without_a_row),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
