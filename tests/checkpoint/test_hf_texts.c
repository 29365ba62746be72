// SPDX-License-Identifier: Apache-2.0
// run: alone. The small files of an export: valid JSON, the model's ids, special tokens only if the
// tokenizer has them, and a config.json that reads back as the same model.
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/hf_texts.h"
#include "describe/model_keys.h"
#include "files/tree_file.h"
#include "host/heap.h"
#include "support/scratch.h"

typedef struct fixture {
  ot_heap heap;
  ot_arena arena;
  ot_model model;
  ot_hf_texts texts;
} fixture;

static int set_up(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  f->arena = ot_heap_arena_create(&f->heap);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *const f = *state;
  ot_heap_release(&f->heap);
  free(f);
  return 0;
}

static void load_model(fixture *f, const char *name) {
  char path[SCRATCH_BYTES];
  snprintf(path, sizeof path, "parity/%s/config.json", name);
  ot_node *tree = NULL;
  assert_int_equal(ot_tree_load(fixture_path(path), &f->arena, &tree), OT_OK);
  assert_int_equal(ot_model_read(tree, &f->arena, &f->model), OT_OK);
}

static const ot_checkpoint_text *text_of(const fixture *f, const char *name) {
  for (int i = 0; i < f->texts.count; i++)
    if (strcmp(f->texts.text[i].name, name) == 0) return &f->texts.text[i];
  return NULL;
}

static json_t *json_of(const fixture *f, const char *name) {
  const ot_checkpoint_text *const text = text_of(f, name);
  assert_non_null(text);
  json_t *const root = json_loadb(text->text, (size_t)text->bytes, JSON_REJECT_DUPLICATES, NULL);
  assert_non_null(root);
  return root;
}

static void writes_a_config_that_reads_back_as_the_same_model(void **state) {
  fixture *const f = *state;
  static const char *const names[] = {"gpt2",  "llama",     "llama3.1", "qwen2-sliding", "qwen3",
                                      "olmo2", "mistral",   "gemma2",   "gemma3",        "smollm3",
                                      "phi3",  "qwen2-moe", "olmo3",    "gpt-oss"};
  for (int i = 0; i < OT_COUNT(names); i++) {
    load_model(f, names[i]);
    assert_int_equal(ot_hf_texts_build(&f->arena, &f->model, OT_BF16, NULL, &f->texts), OT_OK);
    assert_int_equal(f->texts.count, 2);
    const ot_checkpoint_text *const config = text_of(f, "config.json");
    assert_int_equal(config->text[config->bytes - 1], '\n');
    const ot_tree_origin origin = {.name = "config.json"};
    ot_node *tree = NULL;
    assert_int_equal(ot_tree_parse_json(&origin, config->text, config->bytes, &f->arena, &tree),
                     OT_OK);
    ot_model again;
    if (ot_model_read(tree, &f->arena, &again) != OT_OK) fail_msg("%s", ot_fail_message());
    assert_true(ot_model_hash(&again) == ot_model_hash(&f->model));
    assert_int_equal(again.dtype, OT_BF16);
  }
}

static void writes_ids_of_the_model(void **state) {
  fixture *const f = *state;
  load_model(f, "llama");
  f->model.bos_id = 1;
  f->model.num_eos = 2;
  f->model.eos_id[0] = 2;
  f->model.eos_id[1] = 3;
  assert_int_equal(ot_hf_texts_build(&f->arena, &f->model, OT_F32, NULL, &f->texts), OT_OK);
  assert_string_equal(text_of(f, "generation_config.json")->text,
                      "{\n  \"bos_token_id\": 1,\n  \"eos_token_id\": [\n    2,\n    3\n  ]\n}\n");
  assert_null(text_of(f, "tokenizer.json"));
  assert_null(text_of(f, "tokenizer_config.json"));
}

// The 256 bytes and one added token, 256.
static ot_tokenizer *make_tokenizer(int added_id) {
  ot_tokenizer *bytes = NULL, *tokenizer = NULL;
  assert_int_equal(ot_tokenizer_create("bytes", &bytes), OT_OK);
  int64_t length;
  const char *const text = ot_tokenizer_json(bytes, &length);
  json_t *const root = json_loadb(text, (size_t)length, 0, NULL);
  assert_non_null(root);
  json_object_del(json_object_get(json_object_get(root, "model"), "vocab"), "<|endoftext|>");
  json_object_set_new(
      root, "added_tokens",
      json_pack("[{s:i,s:s,s:b,s:b,s:b,s:b,s:b}]", "id", added_id, "content", "<|end|>",
                "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
  char *const changed = json_dumps(root, JSON_COMPACT);
  if (ot_tokenizer_create_from_json(changed, (int64_t)strlen(changed), "t.json", &tokenizer) !=
      OT_OK)
    fail_msg("%s", ot_fail_message());
  free(changed);
  json_decref(root);
  ot_tokenizer_destroy(&bytes);
  return tokenizer;
}

static void names_special_tokens_that_the_tokenizer_has(void **state) {
  fixture *const f = *state;
  load_model(f, "llama");
  f->model.bos_id = 34;  // an ordinary token of this tokenizer
  f->model.num_eos = 2;
  f->model.eos_id[0] = 35;
  f->model.eos_id[1] = 256;
  f->model.vocab_size = 300;
  ot_tokenizer *tokenizer = make_tokenizer(256);
  assert_int_equal(ot_hf_texts_build(&f->arena, &f->model, OT_F32, tokenizer, &f->texts), OT_OK);
  assert_int_equal(f->texts.count, 4);
  int64_t length;
  const char *const json = ot_tokenizer_json(tokenizer, &length);
  assert_int_equal(text_of(f, "tokenizer.json")->bytes, length);
  assert_memory_equal(text_of(f, "tokenizer.json")->text, json, (size_t)length);
  json_t *const root = json_of(f, "tokenizer_config.json");
  assert_string_equal(json_string_value(json_object_get(root, "eos_token")), "<|end|>");
  assert_null(json_object_get(root, "bos_token"));
  assert_string_equal(text_of(f, "generation_config.json")->text,
                      "{\n  \"eos_token_id\": 256\n}\n");
  assert_int_equal(json_integer_value(json_object_get(root, "model_max_length")),
                   f->model.max_positions);
  json_decref(root);
  ot_tokenizer_destroy(&tokenizer);
}

// The bytes tokenizer adds no token; its documents end with 256.
static void ends_documents_as_the_tokenizer_does(void **state) {
  fixture *const f = *state;
  load_model(f, "llama");
  f->model.vocab_size = 300;
  f->model.bos_id = 1;
  f->model.num_eos = 1;
  f->model.eos_id[0] = 2;
  ot_tokenizer *tokenizer = NULL;
  assert_int_equal(ot_tokenizer_create("bytes", &tokenizer), OT_OK);
  assert_int_equal(ot_hf_texts_build(&f->arena, &f->model, OT_F32, tokenizer, &f->texts), OT_OK);
  json_t *const root = json_of(f, "config.json");
  assert_true(json_is_null(json_object_get(root, "bos_token_id")));
  assert_int_equal(json_integer_value(json_object_get(root, "eos_token_id")), 256);
  json_decref(root);
  assert_string_equal(text_of(f, "generation_config.json")->text,
                      "{\n  \"eos_token_id\": 256\n}\n");
  ot_tokenizer_destroy(&tokenizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(writes_a_config_that_reads_back_as_the_same_model, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(writes_ids_of_the_model, set_up, tear_down),
      cmocka_unit_test_setup_teardown(names_special_tokens_that_the_tokenizer_has, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(ends_documents_as_the_tokenizer_does, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
