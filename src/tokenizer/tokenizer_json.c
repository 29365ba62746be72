// SPDX-License-Identifier: Apache-2.0
// Reads a tokenizer.json (HF tokenizers): its parts by their own readers, and the added tokens.
// Unsupported settings that would change the ids are rejected by name, never ignored. Ignored on
// purpose: post_processor (nothing is prepended).
#include <string.h>

#include "files/json_file.h"
#include "tokenizer/tokenizer_parts.h"

// ---- added tokens ----

// `bound`: ids are below it.
static ot_status read_added_token(ot_tokenizer_reader *r, const json_t *token, int64_t bound,
                                  ot_added_token *out) {
  static const char *const keys[] = {"id",     "content",    "single_word", "lstrip",
                                     "rstrip", "normalized", "special",     NULL};
  OT_CHECK(json_is_object(token), OT_USAGE, "%s: added_tokens: not an object", r->name);
  OT_TRY(ot_json_check_keys(ot_arena_format(&r->arena, "%s: added_tokens", r->name), token, keys));
  const json_t *const content = json_object_get(token, "content");
  const json_t *const id = json_object_get(token, "id");
  OT_CHECK(json_is_string(content) && json_is_integer(id), OT_USAGE,
           "%s: added_tokens: an entry without content or id", r->name);
  OT_CHECK(json_integer_value(id) >= 0 && json_integer_value(id) < bound, OT_USAGE,
           "%s: added_tokens: id %lld is out of range; allowed: 0 to %lld (2 x entries + 65536)",
           r->name, (long long)json_integer_value(id), (long long)bound - 1);
  *out = (ot_added_token){.content = json_string_value(content),
                          .length = (int64_t)json_string_length(content),
                          .id = (int32_t)json_integer_value(id)};
  OT_TRY(ot_part_flag(r, "added_tokens", token, "special", &out->special));
  out->normalized = !out->special;
  OT_TRY(ot_part_flag(r, "added_tokens", token, "single_word", &out->single_word));
  OT_TRY(ot_part_flag(r, "added_tokens", token, "lstrip", &out->lstrip));
  OT_TRY(ot_part_flag(r, "added_tokens", token, "rstrip", &out->rstrip));
  return ot_part_flag(r, "added_tokens", token, "normalized", &out->normalized);
}

static ot_status read_added_tokens(ot_tokenizer_reader *r, const json_t *list,
                                   ot_tokenizer_description *d) {
  if (ot_part_is_unset(list)) return OT_OK;
  OT_CHECK(json_is_array(list), OT_USAGE, "%s: added_tokens is not a list", r->name);
  const int64_t count = (int64_t)json_array_size(list);
  ot_added_token *const added = ot_arena_array(&r->arena, count + 1, sizeof *added);
  const int64_t bound = ot_vocabulary_id_bound(d->vocab.count + count);
  for (int64_t i = 0; i < count; i++) {
    OT_TRY(read_added_token(r, json_array_get(list, (size_t)i), bound, &added[i]));
  }
  d->added = added;
  d->num_added = count;
  return OT_OK;
}

// ---- the file ----

static ot_status read_root(ot_tokenizer_reader *r, const json_t *root, ot_tokenizer *t) {
  static const char *const keys[] = {
      "version",       "truncation",     "padding", "added_tokens", "normalizer",
      "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
  OT_CHECK(json_is_object(root), OT_USAGE, "%s: not a tokenizer.json: no object", r->name);
  OT_TRY(ot_json_check_keys(r->name, root, keys));
  const char *const resizing[] = {"truncation", "padding"};
  for (int i = 0; i < 2; i++) {
    OT_CHECK(ot_part_is_unset(json_object_get(root, resizing[i])), OT_USAGE,
             "%s: %s changes the tokens of a document; set it to null", r->name, resizing[i]);
  }
  ot_tokenizer_description description = {.name = r->name};
  const bool *const byte_level = &t->pre_tokenizer.byte_level;
  OT_TRY(ot_normalizer_read(r, json_object_get(root, "normalizer"), &t->normalizer));
  OT_TRY(ot_pre_tokenizer_read(r, json_object_get(root, "pre_tokenizer"), &t->pre_tokenizer));
  OT_TRY(ot_token_decoder_read(r, json_object_get(root, "decoder"), *byte_level, &t->arena,
                               &t->decoder));
  OT_TRY(ot_token_model_read(r, json_object_get(root, "model"), *byte_level, &description.vocab,
                             &t->model));
  OT_TRY(read_added_tokens(r, json_object_get(root, "added_tokens"), &description));
  return ot_tokenizer_fill(t, &description);
}

ot_status ot_tokenizer_read_json(const char *json, int64_t length, const char *name,
                                 ot_tokenizer *tokenizer) {
  json_t *root;
  OT_TRY(ot_json_parse(name, json, length, &root));
  ot_heap heap = {0};
  ot_tokenizer_reader r = {.name = name, .arena = ot_heap_arena_create(&heap)};
  const ot_status status = read_root(&r, root, tokenizer);
  ot_heap_release(&heap);
  json_decref(root);
  return status;
}
