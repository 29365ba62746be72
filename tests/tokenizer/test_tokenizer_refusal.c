// SPDX-License-Identifier: Apache-2.0
// run: alone. A tokenizer.json with an unsupported feature that would change ids, or with a
// contradiction, is rejected by name; so are patterns with another meaning in PCRE2.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "files/json_file.h"
#include "support/scratch.h"
#include "tokenizer/split_pattern.h"
#include "tokenizer/tokenizer.h"

typedef struct change {
  const char *path[3];  // keys down to the changed one, null after the last
  const char *value;    // JSON
  const char *message;  // part of the message
} change;

static json_t *load_base(const char *path) {
  json_error_t error;
  json_t *const root = json_load_file(fixture_path(path), 0, &error);
  assert_non_null(root);
  return root;
}

static ot_status try_root(const json_t *root) {
  char *const text = json_dumps(root, 0);
  ot_tokenizer *tokenizer;
  const ot_status status =
      ot_tokenizer_create_from_json(text, (int64_t)strlen(text), "t.json", &tokenizer);
  ot_tokenizer_destroy(&tokenizer);
  free(text);
  return status;
}

static void assert_refused(const char *path, const change *c) {
  json_t *const root = load_base(path);
  json_t *object = root;
  int depth = 0;
  for (; depth < 2 && c->path[depth + 1]; depth++) object = json_object_get(object, c->path[depth]);
  json_t *const value = json_loads(c->value, JSON_DECODE_ANY, NULL);
  assert_non_null(value);
  assert_int_equal(json_object_set_new(object, c->path[depth], value), 0);
  if (try_root(root) == OT_OK) fail_msg("%s = %s was accepted", c->path[depth], c->value);
  assert_message_has("t.json");
  assert_message_has(c->message);
  json_decref(root);
}

static void refuses_what_would_change_the_ids_by_name(void **state) {
  (void)state;
  static const change changes[] = {
      {{"truncation"}, "{\"max_length\":512}", "truncation"},
      {{"padding"}, "{\"strategy\":\"BatchLongest\"}", "padding"},
      {{"surprise"}, "1", "\"surprise\""},
      {{"normalizer"}, "{\"type\":\"NFKC\"}", "NFKC"},
      {{"normalizer"},
       "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}]}",
       "Lowercase"},
      {{"pre_tokenizer"}, "null", "no ByteLevel"},
      {{"pre_tokenizer"}, "{\"type\":\"Metaspace\"}", "Metaspace"},
      {{"pre_tokenizer"}, "{\"type\":\"ByteLevel\",\"colour\":1}", "\"colour\""},
      {{"pre_tokenizer"},
       "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithNext\"}",
       "MergedWithNext"},
      {{"pre_tokenizer"},
       "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}",
       "does not compile"},
      {{"pre_tokenizer"},
       "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}",
       "Digits after ByteLevel"},
      {{"decoder"}, "{\"type\":\"WordPiece\"}", "WordPiece"},
      {{"added_tokens"}, "[{\"id\":-1,\"content\":\"<x>\"}]", "out of range"},
      {{"added_tokens"}, "[{\"content\":\"<x>\"}]", "without content or id"},
      {{"added_tokens"}, "[{\"id\":900,\"content\":\"<x>\",\"lstrip\":7}]", "lstrip"},
      {{"model", "type"}, "\"Unigram\"", "Unigram"},
      {{"model", "dropout"}, "0.1", "dropout"},
      {{"model", "byte_fallback"}, "true", "byte_fallback"},
      {{"model", "end_of_word_suffix"}, "\"</w>\"", "end_of_word_suffix"},
      {{"model", "continuing_subword_prefix"}, "\"##\"", "continuing_subword_prefix"},
      {{"model", "vocab"}, "{\"a\":0}", "not in the vocabulary"},
      {{"model", "vocab", "a"}, "17", "id 17 appears twice"},
      {{"model", "vocab", "a"}, "-3", "\"a\""},
      {{"model", "vocab", "a"}, "99999999999", "\"a\""},
      {{"model", "merges"}, "[\"a\"]", "merges[0]"},
      {{"model", "merges"}, "[[\"a\",\"q\"]]", "merges[0]: \"aq\""},
      {{"model", "merges"}, "[[\"a\",\"b\",\"c\"]]", "merges[0]"},
      {{"model", "merges"}, "7", "no merges"},
  };
  for (int i = 0; i < OT_COUNT(changes); i++) assert_refused("tokenizers/gpt2.json", &changes[i]);
}

static void rejects_ambiguous_sentencepiece_settings(void **state) {
  (void)state;
  static const change of_characters[] = {
      {{"normalizer"}, "{\"type\":\"Prepend\"}", "prepend is missing; allowed: a text"},
      {{"normalizer"}, "{\"type\":\"Prepend\",\"prepend\":\"x\",\"a\":1}", "\"a\""},
      {{"normalizer"}, "{\"type\":\"Sequence\"}", "normalizers is missing"},
      {{"normalizer"}, "{\"type\":7}", "type is 7"},
      {{"normalizer"},
       "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}",
       "TEXT not empty"},
      {{"normalizer"},
       "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}",
       "does not compile"},
      {{"normalizer"}, "{\"type\":\"Strip\",\"strip_left\":1}", "strip_left is 1; allowed: true"},
      {{"pre_tokenizer"}, "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", "one character"},
      {{"pre_tokenizer"},
       "{\"type\":\"Metaspace\",\"replacement\":\"a\",\"prepend_scheme\":\"last\"}",
       "prepend_scheme is \"last\"; allowed: always, first, never"},
      {{"pre_tokenizer"},
       "{\"type\":\"Metaspace\",\"replacement\":\"a\",\"prepend_scheme\":\"first\","
       "\"add_prefix_space\":false}",
       "add_prefix_space is false"},
      {{"pre_tokenizer"}, "{\"type\":\"ByteLevel\"}", "only ByteLevel and Fuse"},
      {{"decoder"}, "null", "decoder is null"},
      {{"decoder"}, "{\"type\":\"ByteLevel\"}", "pre_tokenizer has no ByteLevel"},
      {{"decoder"}, "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}", "Fuse"},
      {{"decoder"},
       "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},"
       "{\"type\":\"Strip\",\"content\":\" \",\"start\":2,\"stop\":0}]}",
       "start is 2, stop 0; allowed: start 0 or 1"},
      {{"decoder"},
       "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},"
       "{\"type\":\"Metaspace\",\"replacement\":\"a\"}]}",
       "Metaspace after ByteLevel, ByteFallback, Fuse or Strip"},
      {{"decoder"},
       "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"}",
       "Regex is not supported"},
      {{"model", "unk_token"}, "\"[UNK]\"", "unk_token \"[UNK]\" is not in the vocabulary"},
      {{"model", "fuse_unk"}, "\"no\"", "fuse_unk is \"no\"; allowed: true, false"},
  };
  for (int i = 0; i < OT_COUNT(of_characters); i++) {
    assert_refused("tokenizers/llama2.json", &of_characters[i]);
  }
  static const change none_unknown = {{"model", "unk_token"}, "null", "neither an unk_token"};
  assert_refused("tokenizers/unknown_fused.json", &none_unknown);
  static const change of_unigram[] = {
      {{"model", "vocab"}, "[]", "vocab of a Unigram"},
      {{"model", "vocab"}, "[[\"a\",0],[\"b\"]]", "vocab[1] is not a pair"},
      {{"model", "vocab"}, "[[\"a\",\"b\"]]", "vocab[0] is not a pair"},
      {{"model", "unk_id"}, "null", "unk_id is not an id from 0"},
      {{"model", "unk_id"}, "100000", "unk_id is not an id from 0"},
      {{"model", "merges"}, "[]", "\"merges\""},
      {{"pre_tokenizer"}, "{\"type\":\"ByteLevel\"}", "ByteLevel"},
      {{"normalizer"}, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"?\"}", "base64"},
      {{"normalizer"}, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}", "trie"},
      {{"normalizer"},
       "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAAAABhYg==\"}",
       "is not terminated"},
      {{"normalizer"},
       "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAAAAD/AA==\"}",
       "not UTF-8"},
  };
  for (int i = 0; i < OT_COUNT(of_unigram); i++) {
    assert_refused("tokenizers/t5.json", &of_unigram[i]);
  }
}

static void refuses_a_vocabulary_without_all_bytes(void **state) {
  (void)state;
  json_t *const root = load_base("tokenizers/gpt2.json");
  json_object_del(json_object_get(json_object_get(root, "model"), "vocab"), "!");
  assert_int_equal(try_root(root), OT_USAGE);
  assert_message_has("no token for byte 0x21");
  json_decref(root);
}

static void refuses_json_that_is_none(void **state) {
  (void)state;
  static const char *const texts[] = {"", "{", "[]", "{\"model\":1}", "{\"a\":1,\"a\":2}", "nul"};
  for (int i = 0; i < OT_COUNT(texts); i++) {
    ot_tokenizer *tokenizer;
    assert_int_not_equal(
        ot_tokenizer_create_from_json(texts[i], (int64_t)strlen(texts[i]), "t.json", &tokenizer),
        OT_OK);
    assert_null(tokenizer);
    assert_message_has("t.json");
  }
  ot_tokenizer *tokenizer;
  assert_int_not_equal(ot_tokenizer_create_from_json(NULL, 0, "t.json", &tokenizer), OT_OK);
  assert_message_has("t.json:1:0: not valid JSON:");  // as an empty file is read
}

static void names_the_file_that_is_missing(void **state) {
  (void)state;
  ot_tokenizer *tokenizer;
  assert_int_equal(ot_tokenizer_create("/nowhere/tokenizer.json", &tokenizer), OT_ENVIRONMENT);
  assert_message_has("/nowhere/tokenizer.json");
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  assert_int_equal(ot_tokenizer_create(directory, &tokenizer), OT_ENVIRONMENT);
  assert_message_has("neither tokenizer.json nor vocab.json");
  scratch_destroy(directory);
}

static void refuses_patterns_that_pcre2_would_read_otherwise(void **state) {
  (void)state;
  static const char *const patterns[][2] = {
      {"\\h+", "an escape"},
      {"\\bx", "an escape"},
      {"[[:alpha:]]+", "class within"},
      {"[a&&b]", "intersection"},
      {"[a[bc]]", "class within"},
      {"(?m:x)", "group or flag"},
      {"\\p{N}{1,3}+", "{n,m}+"},
      {"(*UCP)x", "verb"},
      {"[^\\W]x", "\\W in a class"},
      {"\\pLx", "without braces"},
      {"x*", "empty text"},
      {"\\p{Nonsense}", "does not compile"},
      {"[]x]", "empty class"},
      {"(?<name>x)", "named group"},
  };
  for (int i = 0; i < OT_COUNT(patterns); i++) {
    ot_split_pattern *pattern;
    const char *const regex = patterns[i][0];
    const ot_status status =
        ot_split_pattern_create(regex, (int64_t)strlen(regex), false, &pattern);
    if (status != OT_USAGE) fail_msg("%s was accepted", regex);
    assert_message_has(patterns[i][1]);
  }
}

static void mutate(const char *path) {
  int64_t bytes;
  char *const base = scratch_read(fixture_path(path), &bytes);
  char *const text = malloc((size_t)bytes);
  int accepted = 0;
  for (uint64_t n = 0; n < 3000; n++) {
    memcpy(text, base, (size_t)bytes);
    const uint64_t changes = 1 + ot_rng_below(3, n, 0, 3);
    for (uint64_t k = 1; k <= changes; k++) {
      const uint64_t at = ot_rng_below(3, n, 2 * k, (uint64_t)bytes);
      static const char bytes_of_json[] = "{}[]\",:0129-eE.\\utnf \xff\x80\xc3";
      text[at] = bytes_of_json[ot_rng_below(3, n, 2 * k + 1, sizeof bytes_of_json)];
    }
    const int64_t length = n % 5 ? bytes : (int64_t)ot_rng_below(4, n, 0, (uint64_t)bytes);
    ot_tokenizer *tokenizer;
    char *const exact = malloc((size_t)length + 1);
    memcpy(exact, text, (size_t)length);
    if (ot_tokenizer_create_from_json(exact, length, "t.json", &tokenizer) == OT_OK) {
      ot_encoder *encoder;
      ot_token_list ids = {0};
      assert_int_equal(ot_encoder_create(tokenizer, &encoder), OT_OK);
      assert_int_equal(ot_encoder_encode(encoder, base, 300, &ids), OT_OK);
      ot_token_list_release(&ids);
      ot_encoder_destroy(&encoder);
      accepted++;
    } else {
      assert_message_has("t.json");
    }
    ot_tokenizer_destroy(&tokenizer);
    free(exact);
  }
  // Changes within token strings are harmless; most others are not.
  assert_in_range(accepted, 10, 2900);
  free(text);
  free(base);
}

static void a_mutated_tokenizer_is_refused_or_works(void **state) {
  (void)state;
  mutate("tokenizers/qwen_added.json");
  mutate("tokenizers/mistral_added.json");
  mutate("tokenizers/t5.json");
}

// In a vocabulary with a gap the next number may belong to an entry.
static void refuses_an_added_token_whose_number_is_that_of_an_entry(void **state) {
  (void)state;
  json_t *const root = load_base("tokenizers/gpt2.json");
  json_t *const vocab = json_object_get(json_object_get(root, "model"), "vocab");
  const json_int_t count = (json_int_t)json_object_size(vocab);
  const char *key;
  json_t *id;
  json_object_foreach(vocab, key, id) {
    if (json_integer_value(id) == count - 1) json_integer_set(id, count);
  }
  json_t *const added = json_object_get(root, "added_tokens");
  json_array_clear(added);
  assert_int_equal(try_root(root), OT_OK);
  json_array_append_new(added, json_pack("{s:i,s:s}", "id", 5000, "content", "<x>"));
  assert_int_equal(try_root(root), OT_USAGE);
  assert_message_has("\"<x>\" would be");
  json_decref(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(refuses_what_would_change_the_ids_by_name),
      cmocka_unit_test(rejects_ambiguous_sentencepiece_settings),
      cmocka_unit_test(refuses_a_vocabulary_without_all_bytes),
      cmocka_unit_test(refuses_an_added_token_whose_number_is_that_of_an_entry),
      cmocka_unit_test(refuses_json_that_is_none),
      cmocka_unit_test(names_the_file_that_is_missing),
      cmocka_unit_test(refuses_patterns_that_pcre2_would_read_otherwise),
      cmocka_unit_test(a_mutated_tokenizer_is_refused_or_works),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
