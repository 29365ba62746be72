// SPDX-License-Identifier: Apache-2.0
// The handle: finds the files, reads them as tokenizer.json text, answers queries about ids.
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "files/disk.h"
#include "host/heap.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer_parts.h"

static const char *const eos_spellings[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                            "<|eos|>"};

static ot_status fill(ot_tokenizer *t, const char *json, int64_t length, const char *name) {
  t->eos = t->bos = t->pad = -1;
  t->arena = ot_heap_arena_create(&t->heap);
  t->json = malloc((size_t)length + 1);
  OT_CHECK(t->json, OT_ENVIRONMENT, "out of memory (tokenizer %s)", name);
  if (length > 0) memcpy(t->json, json, (size_t)length);
  t->json[length] = '\0';
  t->json_length = length;
  OT_TRY(ot_tokenizer_read_json(json, length, name, t));
  for (size_t i = 0; i < sizeof eos_spellings / sizeof *eos_spellings && t->eos < 0; i++) {
    t->eos = ot_tokenizer_find(t, eos_spellings[i]);
  }
  return OT_OK;
}

ot_status ot_tokenizer_create_from_json(const char *json, int64_t length, const char *name,
                                        ot_tokenizer **out) {
  *out = NULL;
  ot_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
  OT_CHECK(tokenizer, OT_ENVIRONMENT, "out of memory (tokenizer %s)", name);
  const ot_status status = fill(tokenizer, json, length, name);
  if (status != OT_OK) ot_tokenizer_destroy(&tokenizer);
  *out = tokenizer;
  return status;
}

void ot_tokenizer_destroy(ot_tokenizer **tokenizer) {
  ot_tokenizer *const t = *tokenizer;
  if (!t) return;
  ot_token_model_destroy(&t->model);
  ot_added_tokens_destroy(&t->raw);
  ot_added_tokens_destroy(&t->of_normal);
  ot_normalizer_destroy(&t->normalizer);
  ot_pre_tokenizer_release(&t->pre_tokenizer);
  free(t->spelled);
  free(t->tokens);
  ot_buffer_release(&t->bytes);
  free(t->json);
  ot_heap_release(&t->heap);
  free(t);
  *tokenizer = NULL;
}

// ---- files ----

static ot_status append_file(const char *path, ot_arena *arena, ot_buffer *out) {
  char *text;
  int64_t length;
  OT_TRY(ot_disk_read(arena, path, OT_TOKENIZER_BYTES_MAX, &text, &length));
  return ot_buffer_append(out, text, length);
}

// Appends the tokenizer.json at `path`, or the equivalent text.
static ot_status load_text(const char *path, ot_arena *arena, ot_buffer *json) {
  if (strcmp(path, "bytes") == 0) return ot_tokenizer_write_bytes(json);
  if (ot_disk_is_directory(path)) {
    const char *const whole = ot_disk_join(arena, path, "tokenizer.json");
    const char *const vocab = ot_disk_join(arena, path, "vocab.json");
    const char *const merges = ot_disk_join(arena, path, "merges.txt");
    if (ot_disk_is_file(whole)) return append_file(whole, arena, json);
    OT_CHECK(ot_disk_is_file(vocab) && ot_disk_is_file(merges), OT_ENVIRONMENT,
             "%s has neither tokenizer.json nor vocab.json with merges.txt", path);
    return ot_tokenizer_convert_gpt2(vocab, merges, json);
  }
  if (ot_text_ends_with(path, "vocab.json")) {
    const int stem = (int)(strlen(path) - strlen("vocab.json"));
    const char *const merges = ot_arena_format(arena, "%.*smerges.txt", stem, path);
    OT_CHECK(ot_disk_is_file(merges), OT_ENVIRONMENT, "%s: no %s next to it", path, merges);
    return ot_tokenizer_convert_gpt2(path, merges, json);
  }
  return append_file(path, arena, json);
}

static ot_status create(const char *path, ot_arena *arena, ot_buffer *json, ot_tokenizer **out) {
  OT_TRY(load_text(path, arena, json));
  OT_TRY(ot_tokenizer_create_from_json((const char *)json->data, json->length, path, out));
  if (strcmp(path, "bytes") == 0) return OT_OK;
  const ot_status status = ot_special_tokens_read(*out, path);
  if (status != OT_OK) ot_tokenizer_destroy(out);
  return status;
}

ot_status ot_tokenizer_create(const char *path, ot_tokenizer **out) {
  *out = NULL;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_buffer json = {0};
  const ot_status status = create(path, &arena, &json, out);
  ot_buffer_release(&json);
  ot_heap_release(&heap);
  return status;
}

// ---- queries ----

int64_t ot_tokenizer_vocab_size(const ot_tokenizer *tokenizer) { return tokenizer->vocab_size; }

int32_t ot_tokenizer_eos(const ot_tokenizer *tokenizer) { return tokenizer->eos; }

// The token that a text vocabulary writes as `text`, or a byte-level one in the byte alphabet.
static int32_t find_spelled(const ot_tokenizer *t, const char *text, int64_t length) {
  uint8_t bytes[256];
  ot_token_text token = {.bytes = (const uint8_t *)text, .length = length};
  if (t->pre_tokenizer.byte_level) {
    if (length > (int64_t)sizeof bytes) return -1;
    token = (ot_token_text){.bytes = bytes, .length = ot_byte_alphabet_read(text, length, bytes)};
  }
  return token.length > 0 ? t->model.kind->find(t->model.self, token) : -1;
}

int32_t ot_tokenizer_find(const ot_tokenizer *tokenizer, const char *text) {
  const int64_t length = (int64_t)strlen(text);
  // A linear search: added tokens are few and queries rare.
  for (int64_t i = 0; i < tokenizer->num_added; i++) {
    if (strcmp(tokenizer->added[i].content, text) == 0) return tokenizer->added[i].id;
  }
  const int32_t spelled = find_spelled(tokenizer, text, length);
  for (int64_t id = tokenizer->vocab_size - 1; spelled < 0 && id >= 0; id--) {
    const ot_token_text token = tokenizer->tokens[id];
    if (token.bytes && token.length == length && memcmp(token.bytes, text, (size_t)length) == 0) {
      return (int32_t)id;
    }
  }
  return spelled;
}

const uint8_t *ot_tokenizer_bytes(const ot_tokenizer *tokenizer, int64_t id, int64_t *length) {
  *length = 0;
  if (id < 0 || id >= tokenizer->vocab_size) return NULL;
  *length = tokenizer->tokens[id].length;
  return tokenizer->tokens[id].bytes;
}

static ot_status check_id(const ot_tokenizer *t, const int32_t *ids, int64_t i) {
  const bool known = ids[i] >= 0 && ids[i] < t->vocab_size && t->tokens[ids[i]].bytes;
  OT_CHECK(known, OT_USAGE, "token %lld has id %d, which the tokenizer lacks; it has 0 to %lld",
           (long long)i, ids[i], (long long)t->vocab_size - 1);
  return OT_OK;
}

static ot_status append_from(const ot_tokenizer *t, const int32_t *ids, int64_t from, int64_t count,
                             ot_buffer *out) {
  for (int64_t i = from; i < count; i++) {
    OT_TRY(check_id(t, ids, i));
    const ot_token_text token = t->tokens[ids[i]];
    OT_TRY(ot_buffer_append(out, token.bytes, token.length));
  }
  return OT_OK;
}

ot_status ot_tokenizer_decode(const ot_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                              ot_buffer *out) {
  if (count == 0 || tokenizer->decoder.byte_level)
    return append_from(tokenizer, ids, 0, count, out);
  OT_TRY(check_id(tokenizer, ids, 0));
  ot_spelled_token first = tokenizer->spelled[ids[0]];
  first.first = true;
  OT_TRY(ot_token_decoder_append(&tokenizer->decoder, first, out));
  return append_from(tokenizer, ids, 1, count, out);
}

ot_status ot_tokenizer_decode_more(const ot_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                   ot_buffer *out) {
  return append_from(tokenizer, ids, 0, count, out);
}

const char *ot_tokenizer_json(const ot_tokenizer *tokenizer, int64_t *length) {
  *length = tokenizer->json_length;
  return tokenizer->json;
}

void ot_tokenizer_hash(const ot_tokenizer *tokenizer, char hash[OT_CONTENT_HASH_BYTES]) {
  ot_content_hash_memory(tokenizer->json, tokenizer->json_length, hash);
}
