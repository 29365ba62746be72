// SPDX-License-Identifier: Apache-2.0
// run: alone. Ids of hard-to-split texts against HF `tokenizers` (cases.json, made by
// tools/make_tokenizer_fixtures.py); GPT-2's known counts if its files are available; round trip of
// every byte string; windows against whole texts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/text.h"
#include "files/disk.h"
#include "files/json_file.h"
#include "files/output_file.h"
#include "host/heap.h"
#include "support/scratch.h"
#include "tokenizer/encoder.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"

static ot_tokenizer *open_path(const char *path) {
  ot_tokenizer *tokenizer;
  if (ot_tokenizer_create(path, &tokenizer) != OT_OK) fail_msg("%s", ot_fail_message());
  return tokenizer;
}

static ot_tokenizer *open_fixture(const char *name) {
  char path[128];
  ot_text_format(path, sizeof path, "tokenizers/%s.json", name);
  return open_path(fixture_path(path));
}

static ot_encoder *encoder_of(const ot_tokenizer *tokenizer) {
  ot_encoder *encoder;
  assert_int_equal(ot_encoder_create(tokenizer, &encoder), OT_OK);
  return encoder;
}

static json_t *read_cases(void) {
  json_error_t error;
  json_t *const cases =
      json_load_file(fixture_path("tokenizers/cases.json"), JSON_ALLOW_NUL, &error);
  assert_non_null(cases);
  return cases;
}

// ---- against HF tokenizers ----

static void assert_ids(const char *name, const char *text, const json_t *expected,
                       const ot_token_list *ids) {
  const int64_t count = (int64_t)json_array_size(expected);
  for (int64_t i = 0; i < count && i < ids->count; i++) {
    const int64_t id = json_integer_value(json_array_get(expected, (size_t)i));
    if (id != ids->ids[i]) {
      fail_msg("%s: \"%s\": token %lld is %d, not %lld", name, text, (long long)i, ids->ids[i],
               (long long)id);
    }
  }
  if (count != ids->count) {
    fail_msg("%s: \"%s\": %lld tokens, not %lld", name, text, (long long)ids->count,
             (long long)count);
  }
}

static void compare_with_reference(const char *name, const ot_tokenizer *tokenizer,
                                   const json_t *cases) {
  const json_t *const texts = json_object_get(cases, "texts");
  const json_t *const expected = json_object_get(json_object_get(cases, "ids"), name);
  ot_encoder *encoder = encoder_of(tokenizer);
  ot_token_list ids = {0};
  assert_true(json_array_size(texts) > 80);
  assert_int_equal(json_array_size(texts), json_array_size(expected));
  for (size_t i = 0; i < json_array_size(texts); i++) {
    const json_t *const text = json_array_get(texts, i);
    ids.count = 0;
    assert_int_equal(ot_encoder_encode(encoder, json_string_value(text),
                                       (int64_t)json_string_length(text), &ids),
                     OT_OK);
    assert_ids(name, json_string_value(text), json_array_get(expected, i), &ids);
  }
  ot_token_list_release(&ids);
  ot_encoder_destroy(&encoder);
}

static void gives_the_ids_of_hf_tokenizers_for_every_family(void **state) {
  (void)state;
  json_t *const cases = read_cases();
  const char *name;
  json_t *expected;
  json_object_foreach(json_object_get(cases, "ids"), name, expected) {
    ot_tokenizer *tokenizer = open_fixture(name);
    compare_with_reference(name, tokenizer, cases);
    ot_tokenizer_destroy(&tokenizer);
  }
  json_decref(cases);
}

// ---- ids of added tokens ----

static ot_tokenizer *with_added(const json_t *added) {
  ot_tokenizer *tokenizer;
  json_t *const root = json_load_file(fixture_path("tokenizers/gpt2.json"), 0, NULL);
  assert_non_null(root);
  json_object_set(root, "added_tokens", (json_t *)added);
  char *const text = json_dumps(root, 0);
  if (ot_tokenizer_create_from_json(text, (int64_t)strlen(text), "t.json", &tokenizer) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  free(text);
  json_decref(root);
  return tokenizer;
}

static void numbers_added_tokens_as_hf_tokenizers_does_whatever_the_file_states(void **state) {
  (void)state;
  json_t *const root = json_load_file(fixture_path("tokenizers/added_ids.json"), 0, NULL);
  const json_t *const cases = json_object_get(root, "cases");
  assert_int_equal(json_array_size(cases), 48);
  for (size_t c = 0; c < json_array_size(cases); c++) {
    const json_t *const one = json_array_get(cases, c);
    const json_t *const texts = json_object_get(one, "texts");
    ot_tokenizer *tokenizer = with_added(json_object_get(one, "added"));
    ot_encoder *encoder = encoder_of(tokenizer);
    ot_token_list ids = {0};
    for (size_t i = 0; i < json_array_size(texts); i++) {
      const char *const text = json_string_value(json_array_get(texts, i));
      ids.count = 0;
      assert_int_equal(ot_encoder_encode(encoder, text, (int64_t)strlen(text), &ids), OT_OK);
      assert_ids("added_ids", text, json_array_get(json_object_get(one, "ids"), i), &ids);
    }
    ot_token_list_release(&ids);
    ot_encoder_destroy(&encoder);
    ot_tokenizer_destroy(&tokenizer);
  }
  json_decref(root);
}

static void notes_an_added_token_whose_id_is_not_that_of_the_file(void **state) {
  (void)state;
  json_t *const added = json_loads("[{\"id\": 9000, \"content\": \"<x>\"}]", 0, NULL);
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_tokenizer *tokenizer = with_added(added);
  const int64_t entries = ot_tokenizer_vocab_size(tokenizer);
  assert_int_equal(ot_tokenizer_find(tokenizer, "<x>"), entries - 1);
  char expected[64];
  ot_text_format(expected, sizeof expected, "\"<x>\" is %lld, not 9000", (long long)entries - 1);
  assert_non_null(strstr(ot_tokenizer_note(tokenizer, entries, &arena), expected));
  ot_tokenizer_destroy(&tokenizer);
  json_integer_set(json_object_get(json_array_get(added, 0), "id"), entries - 1);
  tokenizer = with_added(added);
  assert_null(ot_tokenizer_note(tokenizer, entries, &arena));
  ot_tokenizer_destroy(&tokenizer);
  ot_heap_release(&heap);
  json_decref(added);
}

static ot_status note_piece(void *context, const uint8_t *piece, int64_t length) {
  (void)piece;
  const int32_t narrow = (int32_t)length;
  return ot_token_list_append(context, &narrow, 1);
}

// HF's text has U+FFFD for an invalid byte; ours has the byte.
static void assert_text(const char *name, const json_t *expected, const ot_buffer *text) {
  const char *const wanted = json_string_value(expected);
  const int64_t length = (int64_t)json_string_length(expected);
  const bool same =
      length == text->length && (length == 0 || memcmp(wanted, text->data, (size_t)length) == 0);
  if (!same) {
    fail_msg("%s: \"%.*s\", not \"%s\"", name, (int)text->length, (const char *)text->data, wanted);
  }
}

static void gives_the_texts_of_hf_tokenizers(void **state) {
  (void)state;
  json_t *const cases = read_cases();
  const json_t *const decoded = json_object_get(cases, "decoded");
  const char *name;
  json_t *expected;
  assert_true(json_object_size(decoded) >= 10);
  json_object_foreach((json_t *)(uintptr_t)decoded, name, expected) {
    ot_tokenizer *tokenizer = open_fixture(name);
    const json_t *const of_texts = json_object_get(json_object_get(cases, "ids"), name);
    for (size_t i = 0; i < json_array_size(expected); i++) {
      const json_t *const numbers = json_array_get(of_texts, i);
      ot_token_list ids = {0};
      ot_buffer text = {0};
      for (size_t k = 0; k < json_array_size(numbers); k++) {
        const int32_t id = (int32_t)json_integer_value(json_array_get(numbers, k));
        ot_token_list_append(&ids, &id, 1);
      }
      assert_int_equal(ot_tokenizer_decode(tokenizer, ids.ids, ids.count, &text), OT_OK);
      assert_text(name, json_array_get(expected, i), &text);
      ot_token_list_release(&ids);
      ot_buffer_release(&text);
    }
    ot_tokenizer_destroy(&tokenizer);
  }
  json_decref(cases);
}

// Small vocabularies hide most split points, so the pre-tokens are compared as well.
static void splits_text_as_hf_tokenizers_do(void **state) {
  (void)state;
  json_t *const cases = read_cases();
  const json_t *const texts = json_object_get(cases, "texts");
  const char *name;
  json_t *expected;
  json_object_foreach(json_object_get(cases, "pieces"), name, expected) {
    ot_tokenizer *tokenizer = open_fixture(name);
    ot_encoder *encoder = encoder_of(tokenizer);
    for (size_t i = 0; i < json_array_size(texts); i++) {
      const json_t *const text = json_array_get(texts, i);
      const int64_t length = (int64_t)json_string_length(text);
      if (json_array_size(json_array_get(expected, i)) == 0) continue;
      const ot_text_window whole = {.text = (const uint8_t *)json_string_value(text),
                                    .length = length,
                                    .stop = length,
                                    .final = true};
      ot_token_list lengths = {0};
      bool reached;
      assert_int_equal(ot_encoder_split_window(encoder, &whole, note_piece, &lengths, &reached),
                       OT_OK);
      assert_ids(name, json_string_value(text), json_array_get(expected, i), &lengths);
      ot_token_list_release(&lengths);
    }
    ot_encoder_destroy(&encoder);
    ot_tokenizer_destroy(&tokenizer);
  }
  json_decref(cases);
}

// Writes the fixture gpt2.json as the two files of the original GPT-2 release.
static void write_gpt2_pair(const char *directory) {
  json_error_t error;
  json_t *const root = json_load_file(fixture_path("tokenizers/gpt2.json"), 0, &error);
  const json_t *const model = json_object_get(root, "model");
  json_object_set(json_object_get(model, "vocab"), "<|endoftext|>",
                  json_object_get(json_array_get(json_object_get(root, "added_tokens"), 0), "id"));
  assert_int_equal(json_dump_file(json_object_get(model, "vocab"),
                                  scratch_path(directory, "vocab.json"), JSON_COMPACT),
                   0);
  ot_buffer merges = {0};
  ot_buffer_append_text(&merges, "#version: 0.2\n");
  size_t i;
  json_t *merge;
  json_array_foreach(json_object_get(model, "merges"), i, merge) {
    ot_buffer_append_text(&merges, json_string_value(json_array_get(merge, 0)));
    ot_buffer_append_text(&merges, " ");
    ot_buffer_append_text(&merges, json_string_value(json_array_get(merge, 1)));
    ot_buffer_append_text(&merges, "\n");
  }
  scratch_write(scratch_path(directory, "merges.txt"), merges.data, merges.length);
  ot_buffer_release(&merges);
  json_decref(root);
}

static void reads_vocab_json_with_merges_txt_as_the_same_tokenizer(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  write_gpt2_pair(directory);
  json_t *const cases = read_cases();
  const char *const paths[] = {directory, scratch_path(directory, "vocab.json")};
  for (int i = 0; i < 2; i++) {
    ot_tokenizer *tokenizer = open_path(paths[i]);
    compare_with_reference("gpt2", tokenizer, cases);
    ot_tokenizer_destroy(&tokenizer);
  }
  json_decref(cases);
  scratch_destroy(directory);
}

static int64_t count_tokens(ot_encoder *encoder, const char *text, int64_t length) {
  ot_token_list ids = {0};
  assert_int_equal(ot_encoder_encode(encoder, text, length, &ids), OT_OK);
  const int64_t count = ids.count;
  ot_token_list_release(&ids);
  return count;
}

static void counts_the_gpt2_tokens_of_tinyshakespeare(void **state) {
  (void)state;
  static const char text_path[] = OT_SOURCE_DIR "/../shared/data/tinyshakespeare.txt";
  if (!ot_disk_is_file(text_path)) skip();
  ot_tokenizer *tokenizer = open_path(OT_SOURCE_DIR "/../shared/data/gpt2-vocab.json");
  ot_encoder *encoder = encoder_of(tokenizer);
  int64_t bytes;
  char *const text = scratch_read(text_path, &bytes);
  // The text is ASCII: characters are bytes. The counts are those of nanoGPT's README.
  const int64_t first = bytes * 9 / 10;
  assert_int_equal(count_tokens(encoder, text, first), 301966);
  assert_int_equal(count_tokens(encoder, text + first, bytes - first), 36059);
  free(text);
  ot_encoder_destroy(&encoder);
  ot_tokenizer_destroy(&tokenizer);
}

// ---- round trips ----

static void assert_round_trip(const ot_tokenizer *tokenizer, ot_encoder *encoder, const char *text,
                              int64_t length) {
  ot_token_list ids = {0};
  ot_buffer back = {0};
  assert_int_equal(ot_encoder_encode(encoder, text, length, &ids), OT_OK);
  assert_int_equal(ot_tokenizer_decode(tokenizer, ids.ids, ids.count, &back), OT_OK);
  assert_int_equal(back.length, length);
  if (length > 0) assert_memory_equal(back.data, text, (size_t)length);
  ot_token_list_release(&ids);
  ot_buffer_release(&back);
}

// Byte `i` of text number `n`: parts of UTF-8 characters, ASCII, spaces and special tokens mixed.
static int64_t make_bytes(uint64_t n, char *text, int64_t capacity) {
  static const char *const parts[] = {"<|endoftext|>",
                                      "\xc3",
                                      "\xa9",
                                      "\xf0\x9f\x98\x80",
                                      "\xf0\x9f",
                                      "\xed\xa0\x80",
                                      "\xe2\x80\x99s",
                                      " ",
                                      "\n",
                                      "word",
                                      "\xff",
                                      "\xc0\x80",
                                      "\xcc\x81",
                                      "'ll",
                                      "12345"};
  const int64_t num_parts = (int64_t)(1 + ot_rng_below(7, n, 0, 40));
  int64_t length = 0;
  for (int64_t i = 1; i <= num_parts; i++) {
    const uint64_t pick = ot_rng_below(7, n, (uint64_t)i, 2 * OT_COUNT(parts));
    const char byte = (char)ot_rng_below(8, n, (uint64_t)i, 256);
    const char *const part = pick < OT_COUNT(parts) ? parts[pick] : &byte;
    const int64_t size = pick < OT_COUNT(parts) ? (int64_t)strlen(part) : 1;
    if (length + size > capacity) break;
    memcpy(text + length, part, (size_t)size);
    length += size;
  }
  return length;
}

static void every_byte_string_round_trips(void **state) {
  (void)state;
  // Excludes those whose rules change text (NFC, added spaces, stripping tokens).
  const char *const names[] = {"gpt2", "llama3", "deepseek", "starcoder", "words", "gemma"};
  for (int i = 0; i < OT_COUNT(names); i++) {
    ot_tokenizer *tokenizer = open_fixture(names[i]);
    ot_encoder *encoder = encoder_of(tokenizer);
    char text[512];
    for (uint64_t n = 0; n < 4000; n++) {
      assert_round_trip(tokenizer, encoder, text, make_bytes(n, text, sizeof text));
    }
    char all[256];
    for (int byte = 0; byte < 256; byte++) all[byte] = (char)byte;
    assert_round_trip(tokenizer, encoder, all, 256);
    ot_encoder_destroy(&encoder);
    ot_tokenizer_destroy(&tokenizer);
  }
}

static void gives_bytes_as_their_own_ids(void **state) {
  (void)state;
  ot_tokenizer *tokenizer = open_path("bytes");
  ot_encoder *encoder = encoder_of(tokenizer);
  assert_int_equal(ot_tokenizer_vocab_size(tokenizer), 257);
  assert_int_equal(ot_tokenizer_eos(tokenizer), 256);
  ot_token_list ids = {0};
  const char text[] = "\xff\x00<|endoftext|>\xc3\xa9";
  assert_int_equal(ot_encoder_encode(encoder, text, sizeof text - 1, &ids), OT_OK);
  assert_int_equal(ids.count, sizeof text - 1);
  for (int64_t i = 0; i < ids.count; i++) assert_int_equal(ids.ids[i], (uint8_t)text[i]);
  ot_token_list_release(&ids);
  ot_encoder_destroy(&encoder);
  ot_tokenizer_destroy(&tokenizer);
}

static void reads_back_its_own_text(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  ot_tokenizer *first = open_path("bytes");
  const char *const path = scratch_path(directory, "tokenizer.json");
  int64_t length;
  const char *const json = ot_tokenizer_json(first, &length);
  assert_int_equal(ot_output_file_replace(path, json, length), OT_OK);
  ot_tokenizer *second = open_path(path);
  char hashes[2][OT_CONTENT_HASH_BYTES];
  ot_tokenizer_hash(first, hashes[0]);
  ot_tokenizer_hash(second, hashes[1]);
  assert_string_equal(hashes[0], hashes[1]);
  assert_int_equal(ot_tokenizer_eos(second), 256);
  ot_tokenizer_destroy(&first);
  ot_tokenizer_destroy(&second);
  scratch_destroy(directory);
}

// A continuation keeps the leading space that a text loses at its start.
static void the_first_token_of_a_text_loses_the_space_put_before_it(void **state) {
  (void)state;
  const char *const names[] = {"llama2", "mistral", "t5"};
  for (int i = 0; i < OT_COUNT(names); i++) {
    ot_tokenizer *tokenizer = open_fixture(names[i]);
    ot_encoder *encoder = encoder_of(tokenizer);
    ot_token_list ids = {0};
    ot_buffer whole = {0}, parts = {0};
    assert_int_equal(ot_encoder_encode(encoder, "the miller", 10, &ids), OT_OK);
    assert_int_equal(ot_tokenizer_decode(tokenizer, ids.ids, ids.count, &whole), OT_OK);
    assert_int_equal(whole.length, 10);
    assert_memory_equal(whole.data, "the miller", 10);
    assert_int_equal(ot_tokenizer_decode_more(tokenizer, ids.ids, ids.count, &parts), OT_OK);
    assert_int_equal(parts.length, 11);
    assert_memory_equal(parts.data, " the miller", 11);
    ot_buffer_release(&whole);
    ot_buffer_release(&parts);
    ot_token_list_release(&ids);
    ot_encoder_destroy(&encoder);
    ot_tokenizer_destroy(&tokenizer);
  }
}

static void bytes_that_are_no_text_are_byte_tokens_or_unknown(void **state) {
  (void)state;
  static const struct {
    const char *name, *first, *second;
  } cases[] = {{"llama2", "<0xFF>", "<0xC3>"},
               {"unigram_bytes", "<0xFF>", "<0xC3>"},
               {"unknown_fused", "<unk>", "<unk>"},
               {"t5", "<unk>", "<unk>"}};
  for (int i = 0; i < OT_COUNT(cases); i++) {
    ot_tokenizer *tokenizer = open_fixture(cases[i].name);
    ot_encoder *encoder = encoder_of(tokenizer);
    ot_token_list ids = {0};
    assert_int_equal(ot_encoder_encode(encoder, "\xff\xc3", 2, &ids), OT_OK);
    assert_int_equal(ids.count, 2);
    assert_int_equal(ids.ids[0], ot_tokenizer_find(tokenizer, cases[i].first));
    assert_int_equal(ids.ids[1], ot_tokenizer_find(tokenizer, cases[i].second));
    assert_int_equal(ot_tokenizer_find(tokenizer, "</s>"), 2);
    assert_int_equal(ot_tokenizer_eos(tokenizer), 2);
    ot_token_list_release(&ids);
    ot_encoder_destroy(&encoder);
    ot_tokenizer_destroy(&tokenizer);
  }
}

// ---- windows ----

// Encodes text by windows, each starting where the previous one ended, despite repeated failures.
static int64_t encode_by_windows(ot_encoder *encoder, const char *text, int64_t length,
                                 uint64_t seed, ot_token_list *ids) {
  int64_t joined = 0;
  for (int64_t at = 0; at < length;) {
    const int64_t left = length - at;
    const int64_t size = 1 + (int64_t)ot_rng_below(seed, 1, (uint64_t)at, (uint64_t)left);
    const int64_t stop = 1 + (int64_t)ot_rng_below(seed, 2, (uint64_t)at, (uint64_t)size);
    const bool final = size == left;
    const ot_text_window window = {.text = (const uint8_t *)text + at,
                                   .length = size,
                                   .stop = final ? size : stop,
                                   .final = final};
    ot_token_list part = {0};
    bool reached;
    assert_int_equal(ot_encoder_encode_window(encoder, &window, &part, &reached), OT_OK);
    // A window that was not reached is retried with all remaining text.
    if (!reached) {
      part.count = 0;
      assert_int_equal(ot_encoder_encode(encoder, text + at, left, &part), OT_OK);
    }
    ot_token_list_append(ids, part.ids, part.count);
    ot_token_list_release(&part);
    joined += reached && !final;
    at += reached ? window.stop : left;
  }
  return joined;
}

static void windows_give_the_ids_of_the_whole_text(void **state) {
  (void)state;
  const char *const names[] = {"gpt2",  "llama3", "qwen",         "deepseek", "starcoder",
                               "words", "o200k",  "spaces_added", "gemma",    "joined"};
  json_t *const cases = read_cases();
  const json_t *const texts = json_object_get(cases, "texts");
  for (int i = 0; i < OT_COUNT(names); i++) {
    ot_tokenizer *tokenizer = open_fixture(names[i]);
    assert_true(ot_tokenizer_is_splittable(tokenizer));
    ot_encoder *encoder = encoder_of(tokenizer);
    int64_t joined = 0;
    for (uint64_t n = 0; n < 3000; n++) {
      char text[2048];
      int64_t length = make_bytes(n, text, 512);
      const json_t *const one = json_array_get(texts, n % json_array_size(texts));
      memcpy(text + length, json_string_value(one), json_string_length(one));
      length += (int64_t)json_string_length(one);
      ot_token_list whole = {0}, parts = {0};
      assert_int_equal(ot_encoder_encode(encoder, text, length, &whole), OT_OK);
      joined += encode_by_windows(encoder, text, length, n, &parts);
      assert_int_equal(parts.count, whole.count);
      assert_memory_equal(parts.ids, whole.ids, (size_t)whole.count * sizeof *whole.ids);
      ot_token_list_release(&whole);
      ot_token_list_release(&parts);
    }
    assert_true(joined > 500);
    ot_encoder_destroy(&encoder);
    ot_tokenizer_destroy(&tokenizer);
  }
  json_decref(cases);
}

static void left_context_rules_forbid_windows(void **state) {
  (void)state;
  const char *const names[] = {"gpt2_added", "qwen_added", "words_added", "prefix_space",
                               "llama2",     "mistral",    "t5",          "xlmr"};
  for (int i = 0; i < OT_COUNT(names); i++) {
    ot_tokenizer *tokenizer = open_fixture(names[i]);
    assert_false(ot_tokenizer_is_splittable(tokenizer));
    ot_tokenizer_destroy(&tokenizer);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gives_the_ids_of_hf_tokenizers_for_every_family),
      cmocka_unit_test(numbers_added_tokens_as_hf_tokenizers_does_whatever_the_file_states),
      cmocka_unit_test(notes_an_added_token_whose_id_is_not_that_of_the_file),
      cmocka_unit_test(gives_the_texts_of_hf_tokenizers),
      cmocka_unit_test(splits_text_as_hf_tokenizers_do),
      cmocka_unit_test(reads_vocab_json_with_merges_txt_as_the_same_tokenizer),
      cmocka_unit_test(counts_the_gpt2_tokens_of_tinyshakespeare),
      cmocka_unit_test(every_byte_string_round_trips),
      cmocka_unit_test(gives_bytes_as_their_own_ids),
      cmocka_unit_test(reads_back_its_own_text),
      cmocka_unit_test(the_first_token_of_a_text_loses_the_space_put_before_it),
      cmocka_unit_test(bytes_that_are_no_text_are_byte_tokens_or_unknown),
      cmocka_unit_test(windows_give_the_ids_of_the_whole_text),
      cmocka_unit_test(left_context_rules_forbid_windows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
