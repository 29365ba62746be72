// SPDX-License-Identifier: Apache-2.0
// From the description of a tokenizer to the tables for encoding and decoding: spelling and bytes
// of every id, and the two sets of added tokens.
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_parts.h"

static ot_status allocate(ot_tokenizer *t, const ot_tokenizer_description *d) {
  int64_t largest = -1;
  for (int64_t i = 0; i < d->vocab.count; i++) {
    if (d->vocab.entries[i].id > largest) largest = d->vocab.entries[i].id;
  }
  for (int64_t i = 0; i < d->num_added; i++) {
    if (d->added[i].id > largest) largest = d->added[i].id;
  }
  t->vocab_size = largest + 1;
  t->spelled = calloc((size_t)t->vocab_size + 1, sizeof *t->spelled);
  t->tokens = calloc((size_t)t->vocab_size + 1, sizeof *t->tokens);
  OT_CHECK(t->spelled && t->tokens, OT_ENVIRONMENT, "out of memory (tokenizer %s)", d->name);
  return OT_OK;
}

static void spell(ot_tokenizer *t, int64_t id, const char *text, int64_t length) {
  t->spelled[id] =
      (ot_spelled_token){.text = ot_arena_text(&t->arena, text, length), .length = length};
}

static void spell_vocab(ot_tokenizer *t, const ot_vocabulary *vocab) {
  for (int64_t i = 0; i < vocab->count; i++) {
    const ot_vocabulary_entry *const entry = &vocab->entries[i];
    spell(t, entry->id, entry->text, entry->length);
  }
}

// Checks that the vocabulary and an added token with the same id have the same text.
static ot_status check_added(const ot_tokenizer *t, const ot_tokenizer_description *d) {
  for (int64_t i = 0; i < d->num_added; i++) {
    const ot_added_token *const added = &d->added[i];
    const ot_spelled_token entry = t->spelled[added->id];
    if (!entry.text) continue;
    const bool same = entry.length == added->length &&
                      memcmp(entry.text, added->content, (size_t)added->length) == 0;
    OT_CHECK(same, OT_USAGE,
             "%s: added_tokens: \"%s\" would be %d, since added tokens are numbered from the "
             "number of entries on, but that is \"%s\" in the vocabulary",
             d->name, added->content, added->id, entry.text);
  }
  return OT_OK;
}

// ---- added tokens ----

// The content of an added token that is searched in normalized text: itself normalized, unless
// nothing remains.
static ot_status normalize_content(const ot_tokenizer *t, ot_split_matcher *matcher,
                                   ot_added_token *token, ot_arena *arena) {
  ot_buffer work[2] = {{0}, {0}};
  ot_normal_text text = {.text = (const uint8_t *)token->content, .length = token->length};
  const ot_status status = ot_normalizer_apply(t->normalizer, matcher, &text, work);
  if (status == OT_OK && text.length > 0) {
    token->content = ot_arena_text(arena, (const char *)text.text, text.length);
    token->length = text.length;
  }
  ot_buffer_release(&work[0]);
  ot_buffer_release(&work[1]);
  return status;
}

static ot_status normalize_added(const ot_tokenizer *t, ot_added_token *added, int64_t count,
                                 ot_arena *arena) {
  ot_split_matcher *matcher;
  OT_TRY(ot_split_matcher_create(&matcher));
  ot_status status = OT_OK;
  for (int64_t i = 0; i < count && status == OT_OK; i++) {
    if (added[i].normalized) status = normalize_content(t, matcher, &added[i], arena);
  }
  ot_split_matcher_destroy(&matcher);
  return status;
}

static ot_status fill_matchers(ot_tokenizer *t, const ot_added_token *added, ot_arena *arena) {
  ot_added_token *const chosen = ot_arena_array(arena, t->num_added + 1, sizeof *chosen);
  for (int normalized = 0; normalized < 2; normalized++) {
    int64_t count = 0;
    for (int64_t i = 0; i < t->num_added; i++) {
      if (added[i].normalized == (normalized == 1) && added[i].length > 0) {
        chosen[count++] = added[i];
      }
    }
    if (count == 0) continue;
    OT_TRY(ot_added_tokens_create(chosen, count, normalized ? &t->of_normal : &t->raw));
  }
  return OT_OK;
}

// Keeps the added tokens as written; `normal` [num_added] receives them as searched.
static ot_status fill_added(ot_tokenizer *t, const ot_tokenizer_description *d,
                            ot_added_token *normal, ot_arena *arena) {
  ot_added_token *const kept = ot_arena_array(&t->arena, d->num_added + 1, sizeof *kept);
  for (int64_t i = 0; i < d->num_added; i++) {
    kept[i] = normal[i] = d->added[i];
    kept[i].content = ot_arena_text(&t->arena, d->added[i].content, d->added[i].length);
  }
  t->added = kept;
  t->num_added = d->num_added;
  OT_TRY(normalize_added(t, normal, d->num_added, arena));
  return fill_matchers(t, normal, arena);
}

// ---- bytes of tokens ----

// Tokens of text are decoded from their normal spelling; added tokens of a byte-level vocabulary
// are literal.
static ot_status fill_bytes(ot_tokenizer *t, const ot_added_token *normal, ot_arena *arena) {
  const bool byte_level = t->pre_tokenizer.byte_level;
  const ot_token_decoder as_it_is = {0};
  bool *const literal = ot_arena_array(arena, t->vocab_size + 1, sizeof *literal);
  for (int64_t i = 0; i < t->num_added; i++) {
    const ot_added_token *const added = byte_level ? &t->added[i] : &normal[i];
    literal[added->id] = byte_level;
    spell(t, added->id, added->content, added->length);
  }
  for (int64_t id = 0; id < t->vocab_size; id++) {
    const int64_t start = t->bytes.length;
    if (!t->spelled[id].text) continue;
    OT_TRY(
        ot_token_decoder_append(literal[id] ? &as_it_is : &t->decoder, t->spelled[id], &t->bytes));
    t->tokens[id].length = t->bytes.length - start;
  }
  // From here on the buffer does not move.
  OT_TRY(ot_buffer_reserve(&t->bytes, 1));
  for (int64_t id = 0, start = 0; id < t->vocab_size; id++) {
    if (t->spelled[id].text) t->tokens[id].bytes = t->bytes.data + start;
    start += t->tokens[id].length;
  }
  return OT_OK;
}

static ot_status fill(ot_tokenizer *t, const ot_tokenizer_description *d, ot_arena *arena) {
  OT_TRY(allocate(t, d));
  spell_vocab(t, &d->vocab);
  OT_TRY(check_added(t, d));
  ot_added_token *const normal = ot_arena_array(arena, d->num_added + 1, sizeof *normal);
  OT_TRY(fill_added(t, d, normal, arena));
  return fill_bytes(t, normal, arena);
}

ot_status ot_tokenizer_fill(ot_tokenizer *tokenizer, const ot_tokenizer_description *description) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = fill(tokenizer, description, &arena);
  ot_heap_release(&heap);
  return status;
}
