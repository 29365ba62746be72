// SPDX-License-Identifier: Apache-2.0
// tokenizer.json; or, with a zero byte between them, vocab.json and merges.txt of GPT-2; or, after
// a
// "#", what stands next to a tokenizer: tokenizer_config.json, generation_config.json and
// chat_template.jinja. An accepted tokenizer encodes a text, which gives ids that it can decode.
#include <string.h>

#include "fuzz/fuzz.h"
#include "serve/chat_template.h"
#include "tokenizer/special_tokens.h"

enum { OWN_TEXT_BYTES = 256 };

static const char sample[] =
    "Hello  world's 1234567 tests\n\n\t a\xcc\x81 \xc3\xa9\xf0\x9f\x98\x80 \xff\xfe "
    "\xe2\x96\x81<s>";

static ot_status encode(const ot_tokenizer *tokenizer, const char *text, size_t length) {
  ot_encoder *encoder = NULL;
  ot_token_list ids = {0};
  ot_buffer bytes = {0};
  ot_status status = ot_encoder_create(tokenizer, &encoder);
  if (status == OT_OK) status = ot_encoder_encode(encoder, text, (int64_t)length, &ids);
  for (int64_t i = 0; status == OT_OK && i < ids.count; i++)
    fuzz_require(ids.ids[i] >= 0 && ids.ids[i] < ot_tokenizer_vocab_size(tokenizer),
                 "ids are in the vocabulary");
  if (status == OT_OK)
    fuzz_require(ot_tokenizer_decode(tokenizer, ids.ids, ids.count, &bytes) == OT_OK,
                 "ids of a text can be decoded");
  ot_buffer_release(&bytes);
  ot_token_list_release(&ids);
  ot_encoder_destroy(&encoder);
  return status;
}

// Writes the bytes up to a zero byte or the end as the file `name`; returns where the next begin.
static const uint8_t *write_part(const char *name, const uint8_t *from, const uint8_t *end) {
  const uint8_t *const zero = from < end ? memchr(from, '\0', (size_t)(end - from)) : NULL;
  const uint8_t *const stop = zero ? zero : end;
  fuzz_file(name, from, (size_t)(stop - from));
  return zero ? zero + 1 : end;
}

static ot_status create_beside(const uint8_t *data, const uint8_t *end, ot_tokenizer **out) {
  static const char *const names[] = {"tokenizer_config.json", "generation_config.json",
                                      "chat_template.jinja"};
  ot_tokenizer *bytes = NULL;
  int64_t length;
  OT_TRY(ot_tokenizer_create("bytes", &bytes));
  const char *const text = ot_tokenizer_json(bytes, &length);
  fuzz_file("tokenizer.json", text, (size_t)length);
  ot_tokenizer_destroy(&bytes);
  for (int i = 0; i < OT_COUNT(names); i++) data = write_part(names[i], data, end);
  const ot_status status = ot_tokenizer_create(fuzz_directory(), out);
  for (int i = 0; i < OT_COUNT(names); i++) fuzz_remove(names[i]);
  return status;
}

// Special tokens are ids of the model, and a template is chosen or not.
static void check_special(const ot_tokenizer *tokenizer, ot_arena *arena) {
  const ot_model model = {.vocab_size = 100, .bos_id = -1, .pad_id = -1};
  const ot_special_tokens s = ot_special_tokens_of(tokenizer, &model);
  const char *note;
  fuzz_require(s.eos < 100 && s.bos < 100 && s.pad < 100 && s.prefix < 100, "tokens have rows");
  for (int i = 0; i < s.num_ends; i++) {
    fuzz_require(s.ends[i] >= 0 && s.ends[i] < 100, "ends are ids of the model");
  }
  (void)ot_chat_template_choose(tokenizer, arena, &note);
}

static ot_status create(const uint8_t *data, size_t size, ot_tokenizer **out) {
  if (size > 0 && data[0] == '#') return create_beside(data + 1, data + size, out);
  const uint8_t *const zero = size > 0 ? memchr(data, '\0', size) : NULL;
  if (!zero) return ot_tokenizer_create_from_json((const char *)data, (int64_t)size, "input", out);
  const char *const vocab = fuzz_file("vocab.json", data, (size_t)(zero - data));
  fuzz_file("merges.txt", zero + 1, size - (size_t)(zero + 1 - data));
  return ot_tokenizer_create(vocab, out);
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  ot_tokenizer *tokenizer = NULL;
  OT_TRY(create(data, size, &tokenizer));
  check_special(tokenizer, arena);
  ot_status status = encode(tokenizer, sample, sizeof sample - 1);
  const size_t own = size < OWN_TEXT_BYTES ? size : OWN_TEXT_BYTES;
  if (status == OT_OK) status = encode(tokenizer, (const char *)data, own);
  ot_tokenizer_destroy(&tokenizer);
  return status;
}
