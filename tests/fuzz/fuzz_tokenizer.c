// SPDX-License-Identifier: Apache-2.0
// tokenizer.json; or, with a zero byte between them, vocab.json and merges.txt of GPT-2. An
// accepted tokenizer encodes a text, which gives ids that it can decode.
#include <string.h>

#include "fuzz/fuzz.h"
#include "tokenizer/tokenizer.h"

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

static ot_status create(const uint8_t *data, size_t size, ot_tokenizer **out) {
  const uint8_t *const zero = size > 0 ? memchr(data, '\0', size) : NULL;
  if (!zero) return ot_tokenizer_create_from_json((const char *)data, (int64_t)size, "input", out);
  const char *const vocab = fuzz_file("vocab.json", data, (size_t)(zero - data));
  fuzz_file("merges.txt", zero + 1, size - (size_t)(zero + 1 - data));
  return ot_tokenizer_create(vocab, out);
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  (void)arena;
  ot_tokenizer *tokenizer = NULL;
  OT_TRY(create(data, size, &tokenizer));
  ot_status status = encode(tokenizer, sample, sizeof sample - 1);
  const size_t own = size < OWN_TEXT_BYTES ? size : OWN_TEXT_BYTES;
  if (status == OT_OK) status = encode(tokenizer, (const char *)data, own);
  ot_tokenizer_destroy(&tokenizer);
  return status;
}
