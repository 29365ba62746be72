// SPDX-License-Identifier: Apache-2.0
// A BPE from the model of a tokenizer.json: {"vocab": {TEXT: id}, "merges": ["a b" or ["a", "b"]]}.
#include <string.h>

#include "tokenizer/bpe.h"
#include "tokenizer/byte_alphabet.h"

static ot_status check_options(ot_tokenizer_reader *r, const json_t *model) {
  const json_t *const dropout = json_object_get(model, "dropout");
  OT_CHECK(
      ot_part_is_unset(dropout) || (json_is_number(dropout) && json_number_value(dropout) == 0),
      OT_USAGE, "%s: model.dropout makes tokenization random; set it to null", r->name);
  const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  for (int i = 0; i < 2; i++) {
    const json_t *const affix = json_object_get(model, affixes[i]);
    if (!ot_part_is_unset(affix) && json_string_length(affix) > 0) {
      return ot_part_refuse(r, "model", affixes[i]);
    }
  }
  return OT_OK;
}

static ot_status read_vocab(ot_tokenizer_reader *r, const json_t *vocab, ot_vocabulary *out) {
  OT_CHECK(json_is_object(vocab), OT_USAGE, "%s: model has no vocab", r->name);
  ot_vocabulary_entry *const entries =
      ot_arena_array(&r->arena, (int64_t)json_object_size(vocab) + 1, sizeof *entries);
  const char *key;
  json_t *value;
  int64_t n = 0;
  const int64_t bound = ot_vocabulary_id_bound((int64_t)json_object_size(vocab));
  json_object_foreach((json_t *)(uintptr_t)vocab, key, value) {
    OT_CHECK(json_is_integer(value) && json_integer_value(value) >= 0 &&
                 json_integer_value(value) < bound,
             OT_USAGE,
             "%s: vocab: id of \"%s\" is not a whole number from 0 to %lld (2 x entries + 65536)",
             r->name, key, (long long)bound - 1);
    entries[n++] = (ot_vocabulary_entry){
        .text = key, .length = (int64_t)strlen(key), .id = json_integer_value(value)};
  }
  *out = (ot_vocabulary){.entries = entries, .count = n};
  return OT_OK;
}

// ---- merges ----

static ot_status vocab_id(const ot_tokenizer_reader *r, const json_t *vocab, const char *text,
                          int64_t rank, int32_t *id) {
  const json_t *const found = json_object_get(vocab, text);
  OT_CHECK(found, OT_USAGE, "%s: merges[%lld]: \"%s\" is not in the vocabulary", r->name,
           (long long)rank, text);
  *id = (int32_t)json_integer_value(found);
  return OT_OK;
}

// The two halves of a merge, "a b" or ["a", "b"].
static ot_status split_merge(ot_tokenizer_reader *r, const json_t *merge, int64_t rank,
                             const char *half[2]) {
  if (json_is_array(merge)) {
    half[0] = json_string_value(json_array_get(merge, 0));
    half[1] = json_string_value(json_array_get(merge, 1));
    OT_CHECK(json_array_size(merge) == 2 && half[0] && half[1], OT_USAGE,
             "%s: merges[%lld] is not a pair", r->name, (long long)rank);
    return OT_OK;
  }
  const char *const text = json_string_value(merge);
  const char *const space = text ? strchr(text, ' ') : NULL;
  OT_CHECK(space && !strchr(space + 1, ' '), OT_USAGE,
           "%s: merges[%lld] is not two words with one space between", r->name, (long long)rank);
  half[0] = ot_arena_text(&r->arena, text, space - text);
  half[1] = space + 1;
  return OT_OK;
}

static ot_status read_merges(ot_tokenizer_reader *r, const json_t *model, ot_bpe_description *d) {
  const json_t *const list = json_object_get(model, "merges");
  const json_t *const vocab = json_object_get(model, "vocab");
  OT_CHECK(json_is_array(list), OT_USAGE, "%s: model has no merges", r->name);
  const int64_t count = (int64_t)json_array_size(list);
  ot_bpe_merge *const merges = ot_arena_array(&r->arena, count + 1, sizeof *merges);
  for (int64_t i = 0; i < count; i++) {
    const char *half[2] = {NULL, NULL};
    OT_TRY(split_merge(r, json_array_get(list, (size_t)i), i, half));
    OT_TRY(vocab_id(r, vocab, half[0], i, &merges[i].left));
    OT_TRY(vocab_id(r, vocab, half[1], i, &merges[i].right));
    OT_TRY(vocab_id(r, vocab, ot_arena_format(&r->arena, "%s%s", half[0], half[1]), i,
                    &merges[i].result));
  }
  d->merges = merges;
  d->num_merges = count;
  return OT_OK;
}

// ---- the alphabet ----

// The tokens by id: as byte strings in byte-level vocabularies, else as text.
static ot_status list_tokens(ot_tokenizer_reader *r, const ot_vocabulary *vocab, bool byte_level,
                             ot_bpe_description *d) {
  for (int64_t i = 0; i < vocab->count; i++) {
    if (vocab->entries[i].id >= d->vocab_size) d->vocab_size = vocab->entries[i].id + 1;
  }
  ot_token_text *const tokens = ot_arena_array(&r->arena, d->vocab_size + 1, sizeof *tokens);
  bool *const taken = ot_arena_array(&r->arena, d->vocab_size + 1, sizeof *taken);
  for (int64_t i = 0; i < vocab->count; i++) {
    const ot_vocabulary_entry *const entry = &vocab->entries[i];
    OT_CHECK(!taken[entry->id], OT_USAGE, "%s: vocab: id %lld appears twice (\"%s\")", r->name,
             (long long)entry->id, entry->text);
    taken[entry->id] = true;
    ot_token_text token = {.bytes = (const uint8_t *)entry->text, .length = entry->length};
    if (byte_level) {
      uint8_t *const bytes = ot_arena_take(&r->arena, entry->length + 1);
      token.length = ot_byte_alphabet_read(entry->text, entry->length, bytes);
      token.bytes = token.length > 0 ? bytes : NULL;
    }
    if (token.length > 0) tokens[entry->id] = token;
  }
  d->tokens = tokens;
  return OT_OK;
}

static ot_status read_characters(ot_tokenizer_reader *r, const json_t *model,
                                 ot_bpe_description *d) {
  const json_t *const vocab = json_object_get(model, "vocab");
  const json_t *const unk = json_object_get(model, "unk_token");
  bool byte_fallback = false;
  OT_TRY(ot_part_flag(r, "model", model, "byte_fallback", &byte_fallback));
  OT_TRY(ot_part_flag(r, "model", model, "fuse_unk", &d->fuse_unk));
  d->of_characters = true;
  const json_t *const unk_id = json_object_get(vocab, json_string_value(unk));
  OT_CHECK(ot_part_is_unset(unk) || unk_id, OT_USAGE,
           "%s: model: unk_token \"%s\" is not in the vocabulary", r->name,
           json_is_string(unk) ? json_string_value(unk) : "(no text)");
  d->unk = unk_id ? (int32_t)json_integer_value(unk_id) : -1;
  if (!byte_fallback) return OT_OK;
  int32_t *const ids = ot_arena_array(&r->arena, 256, sizeof *ids);
  for (int byte = 0; byte < 256; byte++) {
    char text[OT_BYTE_FALLBACK_LENGTH + 1];
    ot_byte_alphabet_write_fallback((uint8_t)byte, text);
    const json_t *const id = json_object_get(vocab, text);
    ids[byte] = id ? (int32_t)json_integer_value(id) : -1;
  }
  d->byte_ids = ids;
  return OT_OK;
}

// ByteLevel has a token for every byte: settings for unknown characters have no effect.
static ot_status read_bytes(ot_tokenizer_reader *r, const json_t *model) {
  bool byte_fallback = false;
  OT_TRY(ot_part_flag(r, "model", model, "byte_fallback", &byte_fallback));
  return byte_fallback ? ot_part_refuse(r, "model", "byte_fallback together with ByteLevel")
                       : OT_OK;
}

ot_status ot_bpe_read(ot_tokenizer_reader *reader, const json_t *json, void *into) {
  const ot_token_model_reading *const reading = into;
  ot_bpe_description description = {.unk = -1};
  OT_TRY(check_options(reader, json));
  OT_TRY(ot_part_flag(reader, "model", json, "ignore_merges", &description.ignore_merges));
  OT_TRY(read_vocab(reader, json_object_get(json, "vocab"), reading->vocabulary));
  OT_TRY(reading->byte_level ? read_bytes(reader, json)
                             : read_characters(reader, json, &description));
  OT_TRY(list_tokens(reader, reading->vocabulary, reading->byte_level, &description));
  OT_TRY(read_merges(reader, json, &description));
  ot_bpe *bpe;
  const ot_status status = ot_bpe_create(&description, &bpe);
  if (status != OT_OK) return ot_fail(status, "%s: %s", reader->name, ot_fail_message());
  *reading->model =
      (ot_token_model){.kind = &ot_bpe_kind, .self = bpe, .cut_pieces = description.of_characters};
  return OT_OK;
}
