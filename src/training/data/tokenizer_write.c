// SPDX-License-Identifier: Apache-2.0
// Writes tokenizers as tokenizer.json: the frame common to all byte-level ones, `bytes` (a
// vocabulary of the 256 bytes and an end-of-document id that no text can produce), and learned
// ones.
#include <string.h>

#include "base/text.h"
#include "data/bpe_train.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer_parts.h"

static const char byte_level_end[] =
    "},\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
    "\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,"
    "\"unk_token\":null,\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\","
    "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{";

static ot_status append_number(ot_buffer *out, int64_t value) {
  char text[24];
  const int64_t length = ot_text_format(text, sizeof text, "%lld", (long long)value);
  return ot_buffer_append(out, text, length);
}

ot_status ot_tokenizer_write_head(int64_t end_of_text, bool use_regex, ot_buffer *json) {
  OT_TRY(ot_buffer_append_text(
      json, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":["));
  if (end_of_text >= 0) {
    OT_TRY(ot_buffer_append_text(json, "{\"id\":"));
    OT_TRY(append_number(json, end_of_text));
    OT_TRY(ot_buffer_append_text(json,
                                 ",\"content\":\"<|endoftext|>\",\"single_word\":false,"
                                 "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
                                 "\"special\":true}"));
  }
  OT_TRY(ot_buffer_append_text(json,
                               "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                               "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":"));
  OT_TRY(ot_buffer_append_text(json, use_regex ? "true" : "false"));
  return ot_buffer_append_text(json, byte_level_end);
}

ot_status ot_tokenizer_write_key(const char *text, int64_t length, ot_buffer *json) {
  OT_TRY(ot_buffer_append(json, "\"", 1));
  for (int64_t i = 0; i < length; i++) {
    const bool escaped = text[i] == '"' || text[i] == '\\';
    if (escaped) OT_TRY(ot_buffer_append(json, "\\", 1));
    OT_TRY(ot_buffer_append(json, text + i, 1));
  }
  return ot_buffer_append(json, "\"", 1);
}

static ot_status append_token(ot_token_text token, ot_buffer *scratch, ot_buffer *json) {
  scratch->length = 0;
  OT_TRY(ot_buffer_reserve(scratch, 2 * token.length));
  const int64_t n = ot_byte_alphabet_write(token.bytes, token.length, (char *)scratch->data);
  return ot_tokenizer_write_key((const char *)scratch->data, n, json);
}

static ot_status append_vocab(const ot_learned_bpe *learned, ot_buffer *scratch, ot_buffer *json) {
  for (int64_t id = 0; id < learned->num_tokens; id++) {
    OT_TRY(append_token(learned->tokens[id], scratch, json));
    OT_TRY(ot_buffer_append(json, ":", 1));
    OT_TRY(append_number(json, id));
    OT_TRY(ot_buffer_append(json, ",", 1));
  }
  OT_TRY(ot_buffer_append_text(json, "\"<|endoftext|>\":"));
  return append_number(json, learned->num_tokens);
}

static ot_status append_merges(const ot_learned_bpe *learned, ot_buffer *scratch, ot_buffer *json) {
  for (int64_t i = 0; i < learned->num_merges; i++) {
    OT_TRY(ot_buffer_append_text(json, i > 0 ? ",[" : "["));
    OT_TRY(append_token(learned->tokens[learned->merges[i].left], scratch, json));
    OT_TRY(ot_buffer_append(json, ",", 1));
    OT_TRY(append_token(learned->tokens[learned->merges[i].right], scratch, json));
    OT_TRY(ot_buffer_append(json, "]", 1));
  }
  return OT_OK;
}

ot_status ot_tokenizer_write_learned(const ot_learned_bpe *learned, ot_buffer *json) {
  ot_buffer scratch = {0};
  OT_TRY(ot_tokenizer_write_head(learned->num_tokens, true, json));
  ot_status status = append_vocab(learned, &scratch, json);
  if (status == OT_OK) status = ot_buffer_append_text(json, "},\"merges\":[");
  if (status == OT_OK) status = append_merges(learned, &scratch, json);
  ot_buffer_release(&scratch);
  OT_TRY(status);
  return ot_buffer_append_text(json, "]}}\n");
}

ot_status ot_tokenizer_write_bytes(ot_buffer *json) {
  OT_TRY(ot_tokenizer_write_head(-1, false, json));
  for (int byte = 0; byte < 256; byte++) {
    const uint8_t one = (uint8_t)byte;
    char key[2];
    OT_TRY(ot_tokenizer_write_key(key, ot_byte_alphabet_write(&one, 1, key), json));
    OT_TRY(ot_buffer_append(json, ":", 1));
    OT_TRY(append_number(json, byte));
    OT_TRY(ot_buffer_append(json, ",", 1));
  }
  return ot_buffer_append_text(json, "\"<|endoftext|>\":256},\"merges\":[]}}\n");
}
