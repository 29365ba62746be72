// SPDX-License-Identifier: Apache-2.0
// Reads a tokenizer.json (HF tokenizers): its parts by their own readers, and the added tokens.
// Unsupported settings that would change the ids are rejected by name, never ignored. Ignored on
// purpose: post_processor (nothing is prepended).
#include "base/text.h"
#include "files/json_file.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/tokenizer_parts.h"

// ---- added tokens ----

static ot_status read_added_token(ot_tokenizer_reader *r, const json_t *token,
                                  ot_added_token *out) {
  static const char *const keys[] = {"id",     "content",    "single_word", "lstrip",
                                     "rstrip", "normalized", "special",     NULL};
  OT_CHECK(json_is_object(token), OT_USAGE, "%s: added_tokens: not an object", r->name);
  OT_TRY(ot_json_check_keys(ot_arena_format(&r->arena, "%s: added_tokens", r->name), token, keys));
  const json_t *const content = json_object_get(token, "content");
  const json_t *const id = json_object_get(token, "id");
  OT_CHECK(json_is_string(content) && json_is_integer(id), OT_USAGE,
           "%s: added_tokens: an entry without content or id", r->name);
  OT_CHECK(json_integer_value(id) >= 0 && json_integer_value(id) <= INT32_MAX, OT_USAGE,
           "%s: added_tokens: id %lld is out of range; allowed: 0 to %d", r->name,
           (long long)json_integer_value(id), INT32_MAX);
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

// The entries of the vocabulary with the texts of `trie`, at their nodes.
static void find_entries(const ot_vocabulary *vocab, ot_byte_trie *trie) {
  for (int64_t i = 0; i < vocab->count; i++) {
    const ot_vocabulary_entry *const entry = &vocab->entries[i];
    int64_t node = 0;
    for (int64_t k = 0; k < entry->length && node >= 0; k++) {
      node = ot_byte_trie_step(trie, node, (uint8_t)entry->text[k]);
    }
    if (node > 0) trie->values[node] = (int32_t)entry->id;
  }
}

// Assigns the ids of added tokens: that of the vocabulary's entry with the same text, else the
// next one from the number of entries on, in the order of the list (huggingface/tokenizers,
// AddedVocabulary::add_tokens). The ids of the file are only compared with them.
static void number_tokens(ot_tokenizer_description *d, ot_added_token *added, const int64_t *nodes,
                          ot_byte_trie *trie) {
  int64_t next = d->vocab.count;
  for (int64_t i = 0; i < d->num_added; i++) {
    int32_t *const known = &trie->values[nodes[i]];
    if (*known < 0) *known = (int32_t)next++;
    if (added[i].id != *known && d->renumbered.count++ == 0) {
      d->renumbered.text = added[i].content;
      d->renumbered.stated = added[i].id;
      d->renumbered.id = *known;
    }
    added[i].id = *known;
  }
}

// A text that is listed twice is one token, with the flags that come last.
static void keep_last(ot_tokenizer_description *d, ot_added_token *added, const int64_t *nodes,
                      ot_byte_trie *trie) {
  const int64_t count = d->num_added;
  for (int64_t i = 0; i < count; i++) trie->values[nodes[i]] = (int32_t)i;
  d->num_added = 0;
  for (int64_t i = 0; i < count; i++) {
    if (trie->values[nodes[i]] == i) added[d->num_added++] = added[i];
  }
}

static ot_status number_added(ot_tokenizer_reader *r, ot_added_token *added, ot_byte_trie *trie,
                              ot_tokenizer_description *d) {
  int64_t *const nodes = ot_arena_array(&r->arena, d->num_added + 1, sizeof *nodes);
  OT_TRY(ot_byte_trie_create(trie));
  for (int64_t i = 0; i < d->num_added; i++) {
    const ot_added_token *const token = &added[i];
    OT_TRY(ot_byte_trie_add(trie, (const uint8_t *)token->content, token->length, &nodes[i]));
  }
  find_entries(&d->vocab, trie);
  number_tokens(d, added, nodes, trie);
  keep_last(d, added, nodes, trie);
  return OT_OK;
}

// An empty token is none.
static ot_status read_added_tokens(ot_tokenizer_reader *r, const json_t *list,
                                   ot_tokenizer_description *d) {
  if (ot_part_is_unset(list)) return OT_OK;
  OT_CHECK(json_is_array(list), OT_USAGE, "%s: added_tokens is not a list", r->name);
  const int64_t count = (int64_t)json_array_size(list);
  ot_added_token *const added = ot_arena_array(&r->arena, count + 1, sizeof *added);
  for (int64_t i = 0; i < count; i++) {
    ot_added_token *const to = &added[d->num_added];
    OT_TRY(read_added_token(r, json_array_get(list, (size_t)i), to));
    d->num_added += to->length > 0;
  }
  ot_byte_trie trie = {0};
  const ot_status status = number_added(r, added, &trie, d);
  ot_byte_trie_release(&trie);
  d->added = added;
  return status;
}

static void note_renumbered(ot_tokenizer *t, const ot_tokenizer_description *d) {
  const ot_renumbered_tokens *const r = &d->renumbered;
  if (r->count == 0) return;
  ot_tokenizer_add_note(
      t, ot_arena_format(&t->arena,
                         "%s: \"%s\" is %d, not %d (%lld added token%s in all): as in Hugging Face "
                         "tokenizers, added tokens that the vocabulary lacks are numbered in the "
                         "order of the list, from the number of entries on",
                         d->name, r->text, r->id, r->stated, (long long)r->count,
                         ot_text_plural(r->count, "s")));
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
  note_renumbered(t, &description);
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
