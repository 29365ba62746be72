// SPDX-License-Identifier: Apache-2.0
// run: test_tokenizer. Ids of hard texts against HF `tokenizers`
// (tools/make_tokenizer_fixtures.py), GPT-2's published counts where its files are at hand, bytes
// of every kind there and back.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/text.h"
#include "device/heap.h"
#include "train/disk.h"
#include "train/encoder.h"
#include "train/json_file.h"
#include "train/tokenizer.h"

static const char fixtures[] = OT_SOURCE_DIR "/tests/fixtures/tokenizers";
static const char shared[] = OT_SOURCE_DIR "/../shared/data";

static ot_tokenizer *open_fixture(const char *name) {
  char path[512];
  ot_text_format(path, sizeof path, "%s/%s.json", fixtures, name);
  ot_tokenizer *tokenizer;
  const ot_status status = ot_tokenizer_create(path, &tokenizer);
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
  return tokenizer;
}

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

static void compare_with_reference(const char *name, const json_t *texts, const json_t *expected) {
  ot_tokenizer *tokenizer = open_fixture(name);
  ot_encoder *encoder;
  assert_int_equal(ot_encoder_create(tokenizer, &encoder), OT_OK);
  ot_token_list ids = {0};
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
  ot_tokenizer_destroy(&tokenizer);
}

static void gives_the_ids_of_hf_tokenizers_for_every_family(void **state) {
  (void)state;
  char path[512];
  ot_text_format(path, sizeof path, "%s/cases.json", fixtures);
  json_error_t error;
  json_t *const cases = json_load_file(path, JSON_ALLOW_NUL, &error);
  assert_non_null(cases);
  const char *name;
  json_t *expected;
  json_object_foreach(json_object_get(cases, "ids"), name, expected) {
    compare_with_reference(name, json_object_get(cases, "texts"), expected);
  }
  json_decref(cases);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gives_the_ids_of_hf_tokenizers_for_every_family),
  };
  (void)shared;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
