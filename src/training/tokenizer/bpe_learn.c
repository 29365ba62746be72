// SPDX-License-Identifier: Apache-2.0
// Words are arrays of token ids in one buffer, shortened in place by merges.
#include "tokenizer/bpe_learn.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pair_table.h"

typedef struct run {
  int64_t start;  // into symbols
  int64_t length;
  int64_t count;
} run;

typedef struct learner {
  ot_arena *arena;
  ot_learned_bpe *out;
  ot_pair_table *pairs;
  int32_t *symbols;
  run *runs;  // [num_runs]
  int64_t num_runs;
  int64_t tokens_capacity;
  int64_t merges_capacity;
  int32_t *token_slots;  // [token_mask + 1] ids by bytes, -1 empty
  uint64_t token_mask;
} learner;

static int64_t slot_of_token(const learner *l, ot_token_text token) {
  uint64_t i = XXH3_64bits(token.bytes, (size_t)token.length) & l->token_mask;
  for (; l->token_slots[i] >= 0; i = (i + 1) & l->token_mask) {
    const ot_token_text other = l->out->tokens[l->token_slots[i]];
    if (other.length == token.length &&
        memcmp(other.bytes, token.bytes, (size_t)token.length) == 0) {
      break;
    }
  }
  return (int64_t)i;
}

// The id of `token`: a new one, or the existing one if another pair spells the same bytes.
static int32_t add_token(learner *l, ot_token_text token) {
  const int64_t slot = slot_of_token(l, token);
  if (l->token_slots[slot] >= 0) return l->token_slots[slot];
  ot_learned_bpe *const out = l->out;
  out->tokens = ot_arena_grow(l->arena, out->tokens, out->num_tokens, &l->tokens_capacity,
                              sizeof *out->tokens);
  l->token_slots[slot] = (int32_t)out->num_tokens;
  out->tokens[out->num_tokens] = token;
  return (int32_t)out->num_tokens++;
}

static void add_bytes(learner *l, int32_t byte_ids[256]) {
  for (uint32_t code = 0; code < 512; code++) {
    for (int byte = 0; byte < 256; byte++) {
      if (ot_byte_alphabet_code((uint8_t)byte) != code) continue;
      const char text = (char)byte;
      const ot_token_text token = {.bytes = (uint8_t *)ot_arena_text(l->arena, &text, 1),
                                   .length = 1};
      byte_ids[byte] = add_token(l, token);
    }
  }
}

static ot_status add_words(learner *l, const ot_word_count *words) {
  int32_t byte_ids[256];
  add_bytes(l, byte_ids);
  int64_t at = 0;
  for (int64_t i = 0; i < l->num_runs; i++) {
    const ot_word word = ot_word_count_at(words, i);
    l->runs[i] = (run){.start = at, .length = word.length, .count = word.count};
    for (int64_t k = 0; k < word.length; k++) l->symbols[at + k] = byte_ids[word.bytes[k]];
    for (int64_t k = 0; k + 1 < word.length; k++) {
      const uint64_t pair = ot_pair_of(l->symbols[at + k], l->symbols[at + k + 1]);
      OT_TRY(ot_pair_table_change(l->pairs, pair, word.count, (int32_t)i));
    }
    at += word.length;
  }
  return ot_pair_table_settle(l->pairs);
}

// Updates the counts of the pairs around one merge: `left` is the token before it, `right` the one
// after it, each -1 at the end of the word.
static ot_status change_neighbours(learner *l, const ot_bpe_merge *merge, int32_t left,
                                   int32_t right, int32_t word) {
  const int64_t count = l->runs[word].count;
  if (left >= 0) {
    OT_TRY(ot_pair_table_change(l->pairs, ot_pair_of(left, merge->left), -count, word));
    OT_TRY(ot_pair_table_change(l->pairs, ot_pair_of(left, merge->result), count, word));
  }
  if (right < 0) return OT_OK;
  OT_TRY(ot_pair_table_change(l->pairs, ot_pair_of(merge->right, right), -count, word));
  return ot_pair_table_change(l->pairs, ot_pair_of(merge->result, right), count, word);
}

static ot_status merge_in_word(learner *l, const ot_bpe_merge *merge, int32_t word) {
  run *const r = &l->runs[word];
  int32_t *const s = l->symbols + r->start;
  int64_t n = 0;
  for (int64_t i = 0; i < r->length; i++) {
    const bool found = i + 1 < r->length && s[i] == merge->left && s[i + 1] == merge->right;
    if (!found) {
      s[n++] = s[i];
      continue;
    }
    const int32_t left = n > 0 ? s[n - 1] : -1;
    const int32_t right = i + 2 < r->length ? s[i + 2] : -1;
    s[n++] = merge->result;
    i++;
    OT_TRY(change_neighbours(l, merge, left, right, word));
  }
  r->length = n;
  return OT_OK;
}

static int32_t add_merged_token(learner *l, uint64_t pair) {
  const ot_token_text left = l->out->tokens[ot_pair_left(pair)];
  const ot_token_text right = l->out->tokens[ot_pair_right(pair)];
  uint8_t *const bytes = ot_arena_take(l->arena, left.length + right.length);
  memcpy(bytes, left.bytes, (size_t)left.length);
  memcpy(bytes + left.length, right.bytes, (size_t)right.length);
  return add_token(l, (ot_token_text){.bytes = bytes, .length = left.length + right.length});
}

static ot_status learn_merges(learner *l, int64_t num_tokens) {
  ot_learned_bpe *const out = l->out;
  while (out->num_tokens < num_tokens) {
    uint64_t pair = 0;
    const int32_t *words = NULL;
    int64_t num_words;
    OT_TRY(ot_pair_table_take(l->pairs, &pair, &words, &num_words));
    if (num_words == 0) break;
    const ot_bpe_merge merge = {.left = ot_pair_left(pair),
                                .right = ot_pair_right(pair),
                                .result = add_merged_token(l, pair)};
    out->merges = ot_arena_grow(l->arena, out->merges, out->num_merges, &l->merges_capacity,
                                sizeof *out->merges);
    out->merges[out->num_merges++] = merge;
    for (int64_t i = 0; i < num_words; i++) OT_TRY(merge_in_word(l, &merge, words[i]));
    OT_TRY(ot_pair_table_settle(l->pairs));
  }
  return OT_OK;
}

static ot_status learn(learner *l, const ot_word_count *words, int64_t num_tokens) {
  int64_t total = 0;
  for (int64_t i = 0; i < l->num_runs; i++) total += ot_word_count_at(words, i).length;
  uint64_t slots = 1024;
  while (slots < 2 * (uint64_t)num_tokens) slots *= 2;
  l->token_mask = slots - 1;
  l->token_slots = malloc(slots * sizeof *l->token_slots);
  l->symbols = malloc((size_t)(total + 1) * sizeof *l->symbols);
  l->runs = malloc((size_t)(l->num_runs + 1) * sizeof *l->runs);
  OT_CHECK(l->token_slots && l->symbols && l->runs, OT_ENVIRONMENT,
           "out of memory (BPE training on %lld bytes of words)", (long long)total);
  memset(l->token_slots, -1, slots * sizeof *l->token_slots);
  OT_TRY(ot_pair_table_create(&l->pairs));
  OT_TRY(add_words(l, words));
  return learn_merges(l, num_tokens);
}

ot_status ot_bpe_learn(const ot_word_count *words, int64_t num_tokens, ot_arena *arena,
                       ot_learned_bpe *out) {
  *out = (ot_learned_bpe){0};
  learner l = {.arena = arena, .out = out, .num_runs = ot_word_count_size(words)};
  const ot_status status = learn(&l, words, num_tokens);
  ot_pair_table_destroy(&l.pairs);
  free(l.token_slots);
  free(l.symbols);
  free(l.runs);
  return status;
}
