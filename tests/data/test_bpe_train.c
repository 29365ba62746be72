// SPDX-License-Identifier: Apache-2.0
// run: alone. BPE training: merges equal those of HF's BpeTrainer on the same documents
// (bpe_trainer.json, written by tools/make_tokenizer_fixtures.py), and the file does not depend on
// threads.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "data/bpe_train.h"
#include "files/json_file.h"
#include "host/heap.h"
#include "support/scratch.h"
#include "tokenizer/tokenizer.h"

static json_t *read_reference(void) {
  json_error_t error;
  json_t *const root = json_load_file(fixture_path("tokenizers/bpe_trainer.json"), 0, &error);
  assert_non_null(root);
  return root;
}

// Writes the documents of the reference as files 000.txt, 001.txt, ...
static void write_documents(const json_t *reference, const char *directory) {
  size_t i;
  json_t *document;
  json_array_foreach(json_object_get(reference, "documents"), i, document) {
    char name[16];
    ot_text_format(name, sizeof name, "%03d.txt", (int)i);
    scratch_write(scratch_path(directory, name), json_string_value(document),
                  (int64_t)json_string_length(document));
  }
}

static void train(const char *directory, const char *out, int64_t vocab_size, int threads) {
  const char *const paths[] = {directory};
  const ot_bpe_train_request request = {
      .paths = paths, .num_paths = 1, .vocab_size = vocab_size, .num_threads = threads, .out = out};
  if (ot_bpe_train_run(&request) != OT_OK) fail_msg("%s", ot_fail_message());
}

static json_t *model_of(const char *path, json_t **root) {
  json_error_t error;
  *root = json_load_file(path, 0, &error);
  assert_non_null(*root);
  return json_object_get(*root, "model");
}

static void learns_the_merges_of_hf_bpe_trainer(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES], made[SCRATCH_BYTES];
  scratch_create(directory);
  scratch_create(made);
  json_t *const reference = read_reference();
  write_documents(reference, directory);
  const char *const path = scratch_path(made, "tokenizer.json");
  const int64_t size = json_integer_value(json_object_get(reference, "vocab_size"));
  train(directory, path, size + 1, 2);
  json_t *root;
  const json_t *const merges = json_object_get(model_of(path, &root), "merges");
  const json_t *const expected = json_object_get(reference, "merges");
  assert_true(json_array_size(expected) > 300);
  for (size_t i = 0; i < json_array_size(expected); i++) {
    if (!json_equal(json_array_get(merges, i), json_array_get(expected, i)))
      fail_msg("merge %d differs", (int)i);
  }
  assert_int_equal(json_array_size(merges), json_array_size(expected));
  json_decref(root);
  json_decref(reference);
  scratch_destroy(directory);
  scratch_destroy(made);
}

static void the_file_does_not_depend_on_threads_and_is_a_tokenizer(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES], made[SCRATCH_BYTES];
  scratch_create(directory);
  scratch_create(made);
  json_t *const reference = read_reference();
  write_documents(reference, directory);
  train(directory, scratch_path(made, "one.json"), 500, 1);
  train(directory, scratch_path(made, "four.json"), 500, 4);
  assert_files_equal(scratch_path(made, "four.json"), scratch_path(made, "one.json"));
  ot_tokenizer *tokenizer;
  assert_int_equal(ot_tokenizer_create(scratch_path(made, "one.json"), &tokenizer), OT_OK);
  assert_int_equal(ot_tokenizer_vocab_size(tokenizer), 500);
  assert_int_equal(ot_tokenizer_eos(tokenizer), 499);
  assert_int_equal(ot_tokenizer_find(tokenizer, "<|endoftext|>"), 499);
  ot_tokenizer_destroy(&tokenizer);
  json_decref(reference);
  scratch_destroy(directory);
  scratch_destroy(made);
}

static void stops_when_no_pair_is_left(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_word_count *words;
  assert_int_equal(ot_word_count_create(&words), OT_OK);
  const ot_word word = {.bytes = (const uint8_t *)"aaaa", .length = 4, .count = 3};
  assert_int_equal(ot_word_count_add(words, word), OT_OK);
  ot_learned_bpe learned;
  assert_int_equal(ot_bpe_learn(words, 1000, &arena, &learned), OT_OK);
  // aa, then aaaa.
  assert_int_equal(learned.num_tokens, 258);
  assert_int_equal(learned.num_merges, 2);
  assert_int_equal(learned.tokens[257].length, 4);
  ot_word_count_destroy(&words);
  ot_heap_release(&heap);
}

static void takes_the_smaller_pair_on_ties(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_word_count *words;
  assert_int_equal(ot_word_count_create(&words), OT_OK);
  const char *const texts[] = {"xy", "ba", "ab"};
  for (int i = 0; i < 3; i++) {
    const ot_word word = {.bytes = (const uint8_t *)texts[i], .length = 2, .count = 5};
    assert_int_equal(ot_word_count_add(words, word), OT_OK);
  }
  ot_learned_bpe learned;
  assert_int_equal(ot_bpe_learn(words, 259, &arena, &learned), OT_OK);
  assert_memory_equal(learned.tokens[256].bytes, "ab", 2);
  assert_memory_equal(learned.tokens[257].bytes, "ba", 2);
  assert_memory_equal(learned.tokens[258].bytes, "xy", 2);
  ot_word_count_destroy(&words);
  ot_heap_release(&heap);
}

static void refuses_sizes_below_the_bytes(void **state) {
  (void)state;
  const ot_bpe_train_request request = {.vocab_size = 256, .out = "x.json"};
  assert_int_equal(ot_bpe_train_run(&request), OT_USAGE);
  assert_message_has("257");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(learns_the_merges_of_hf_bpe_trainer),
      cmocka_unit_test(the_file_does_not_depend_on_threads_and_is_a_tokenizer),
      cmocka_unit_test(stops_when_no_pair_is_left),
      cmocka_unit_test(takes_the_smaller_pair_on_ties),
      cmocka_unit_test(refuses_sizes_below_the_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
