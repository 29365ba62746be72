// SPDX-License-Identifier: Apache-2.0
// From what a reader gathered to the tables that encoding and decoding use: bytes of every id, the
// BPE over the tokens that are byte strings, and the two sets of added tokens.
#include <stdlib.h>
#include <string.h>

#include "host/heap.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/unicode.h"

static ot_status allocate(ot_tokenizer *t, const ot_tokenizer_description *d) {
  int64_t total = 0, largest = -1;
  for (int64_t i = 0; i < d->num_vocab; i++) {
    total += d->vocab[i].length;
    if (d->vocab[i].id > largest) largest = d->vocab[i].id;
  }
  for (int64_t i = 0; i < d->num_added; i++) {
    total += d->added[i].length;
    if (d->added[i].id > largest) largest = d->added[i].id;
  }
  t->vocab_size = largest + 1;
  t->tokens = calloc((size_t)t->vocab_size + 1, sizeof *t->tokens);
  t->bytes = malloc((size_t)total + 1);
  OT_CHECK(t->tokens && t->bytes, OT_ENVIRONMENT, "out of memory (tokenizer %s)", d->name);
  return OT_OK;
}

// Decodes the vocabulary; `mergeable` [vocab_size] gets the tokens that are byte strings, the rest
// (added tokens with characters outside the alphabet) stand for their own text.
static ot_status fill_vocab(ot_tokenizer *t, const ot_tokenizer_description *d,
                            ot_bpe_token *mergeable, int64_t *used) {
  for (int64_t i = 0; i < d->num_vocab; i++) {
    const ot_tokenizer_entry *const entry = &d->vocab[i];
    OT_CHECK(!t->tokens[entry->id].bytes, OT_USAGE, "%s: vocab: id %lld is there twice (\"%s\")",
             d->name, (long long)entry->id, entry->text);
    uint8_t *const bytes = t->bytes + *used;
    int64_t length = ot_byte_alphabet_read(entry->text, entry->length, bytes);
    const bool is_bytes = length > 0;
    if (!is_bytes) {
      length = entry->length;
      memcpy(bytes, entry->text, (size_t)length);
    }
    t->tokens[entry->id] = (ot_bpe_token){.bytes = bytes, .length = length};
    if (is_bytes) mergeable[entry->id] = t->tokens[entry->id];
    *used += length;
  }
  return OT_OK;
}

static ot_status check_added(const ot_tokenizer_description *d, const ot_added_token *added,
                             const ot_tokenizer_entry *entry) {
  if (!entry) return OT_OK;
  const bool same = entry->length == added->length &&
                    memcmp(entry->text, added->content, (size_t)added->length) == 0;
  OT_CHECK(same, OT_USAGE,
           "%s: added_tokens: \"%s\" has id %d, which the vocabulary gives to \"%s\"", d->name,
           added->content, added->id, entry->text);
  return OT_OK;
}

static ot_status fill_added(ot_tokenizer *t, const ot_tokenizer_description *d,
                            const ot_tokenizer_entry **by_id, int64_t *used) {
  for (int64_t i = 0; i < d->num_vocab; i++) by_id[d->vocab[i].id] = &d->vocab[i];
  for (int64_t i = 0; i < d->num_added; i++) {
    const ot_added_token *const added = &d->added[i];
    OT_TRY(check_added(d, added, by_id[added->id]));
    uint8_t *const bytes = t->bytes + *used;
    memcpy(bytes, added->content, (size_t)added->length);
    t->tokens[added->id] = (ot_bpe_token){.bytes = bytes, .length = added->length};
    *used += added->length;
  }
  return OT_OK;
}

static ot_status normalize_content(ot_added_token *token, ot_arena *arena) {
  ot_buffer normal = {0};
  const ot_status status =
      ot_unicode_append_nfc((const uint8_t *)token->content, token->length, &normal);
  if (status == OT_OK && normal.length > 0) {
    token->content = ot_arena_text(arena, (const char *)normal.data, normal.length);
    token->length = normal.length;
  }
  ot_buffer_release(&normal);
  return status;
}

static ot_status fill_matchers(ot_tokenizer *t, const ot_tokenizer_description *d,
                               ot_arena *arena) {
  ot_added_token *const chosen = ot_arena_array(arena, d->num_added + 1, sizeof *chosen);
  for (int normalized = 0; normalized < 2; normalized++) {
    int64_t count = 0;
    for (int64_t i = 0; i < d->num_added; i++) {
      if (d->added[i].normalized != (normalized == 1) || d->added[i].length == 0) continue;
      chosen[count] = d->added[i];
      if (normalized && t->normalize) OT_TRY(normalize_content(&chosen[count], arena));
      count++;
    }
    if (count == 0) continue;
    OT_TRY(ot_added_tokens_create(chosen, count, normalized ? &t->of_normal : &t->raw));
  }
  return OT_OK;
}

static ot_status fill(ot_tokenizer *t, const ot_tokenizer_description *d, ot_arena *arena) {
  OT_TRY(allocate(t, d));
  ot_bpe_token *const mergeable = ot_arena_array(arena, t->vocab_size + 1, sizeof *mergeable);
  const ot_tokenizer_entry **const by_id = ot_arena_array(arena, t->vocab_size + 1, sizeof *by_id);
  int64_t used = 0;
  OT_TRY(fill_vocab(t, d, mergeable, &used));
  const ot_bpe_description bpe = {.tokens = mergeable,
                                  .vocab_size = t->vocab_size,
                                  .merges = d->merges,
                                  .num_merges = d->num_merges};
  const ot_status status = ot_bpe_create(&bpe, &t->bpe);
  if (status != OT_OK) return ot_fail(status, "%s: %s", d->name, ot_fail_message());
  OT_TRY(fill_added(t, d, by_id, &used));
  return fill_matchers(t, d, arena);
}

ot_status ot_tokenizer_fill(ot_tokenizer *tokenizer, const ot_tokenizer_description *description) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = fill(tokenizer, description, &arena);
  ot_heap_release(&heap);
  return status;
}
