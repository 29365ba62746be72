// SPDX-License-Identifier: Apache-2.0
// Viterbi from left to right over the tokens that start at each character, found in a trie. On
// equal sums the first path is kept, and sums are computed in the same order, as in HF tokenizers.
#include "tokenizer/unigram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/unicode.h"

static const double unknown_penalty = 10;

typedef struct unigram {
  ot_byte_trie trie;  // values are ids
  double *scores;     // [number of tokens]
  double unknown_score;
  int32_t unk;
  int32_t byte_ids[256];  // -1: none
} unigram;

// The best tokenization up to here: its last token and where that starts.
typedef struct ending {
  double score;
  int64_t start;  // -1: not reached
  int32_t id;
} ending;

// ---- encoding ----

static void offer(ending *to, double score, int64_t start, int32_t id) {
  if (to->start < 0 || score > to->score) *to = (ending){.score = score, .start = start, .id = id};
}

static void find_best(const unigram *u, ot_token_text piece, ending *best) {
  best[0] = (ending){0};
  for (int64_t i = 1; i <= piece.length; i++) best[i] = (ending){.start = -1};
  for (int64_t start = 0, width; start < piece.length; start += width) {
    const double score = best[start].score;
    width = ot_unicode_width(piece.bytes + start, piece.length - start);
    bool known = false;
    int64_t node = 0;
    for (int64_t i = start; i < piece.length; i++) {
      node = ot_byte_trie_step(&u->trie, node, piece.bytes[i]);
      if (node < 0) break;
      const int32_t id = u->trie.values[node];
      if (id < 0) continue;
      offer(&best[i + 1], u->scores[id] + score, start, id);
      known = known || i + 1 == start + width;
    }
    if (!known) offer(&best[start + width], u->unknown_score + score, start, u->unk);
  }
}

static int32_t find_token(const unigram *u, const uint8_t *text, int64_t length) {
  int64_t node = 0;
  for (int64_t i = 0; i < length && node >= 0; i++) {
    node = ot_byte_trie_step(&u->trie, node, text[i]);
  }
  return node > 0 ? u->trie.values[node] : -1;
}

// Writes the tokens of an unknown stretch before `ids`; returns their number.
static int64_t write_unknown(const unigram *u, const uint8_t *text, int64_t length, int32_t *ids) {
  ids[-1] = find_token(u, text, length);
  if (ids[-1] >= 0) return 1;
  bool all = true;
  for (int64_t i = 0; i < length; i++) all = all && u->byte_ids[text[i]] >= 0;
  for (int64_t i = 0; all && i < length; i++) ids[i - length] = u->byte_ids[text[i]];
  if (!all) ids[-1] = u->unk;
  return all ? length : 1;
}

static ot_status encode(const void *self, ot_token_text piece, ot_buffer *scratch, int32_t *ids,
                        int64_t *count) {
  const unigram *const u = self;
  scratch->length = 0;
  OT_TRY(ot_buffer_reserve(scratch, (piece.length + 1) * (int64_t)sizeof(ending)));
  ending *const best = (ending *)(void *)scratch->data;
  find_best(u, piece, best);
  int64_t first = piece.length;  // ids are written from the end
  for (int64_t stop = piece.length; stop > 0;) {
    int64_t start = best[stop].start;
    if (best[stop].id != u->unk) {
      ids[--first] = best[stop].id;
    } else {
      while (start > 0 && best[start].id == u->unk) start = best[start].start;
      first -= write_unknown(u, piece.bytes + start, stop - start, ids + first);
    }
    stop = start;
  }
  *count = piece.length - first;
  memmove(ids, ids + first, (size_t)*count * sizeof *ids);
  return OT_OK;
}

static int32_t find(const void *self, ot_token_text text) {
  return find_token(self, text.bytes, text.length);
}

static void destroy(void **self) {
  unigram *const u = *self;
  ot_byte_trie_release(&u->trie);
  free(u->scores);
  free(u);
  *self = NULL;
}

static const ot_token_model_kind unigram_kind = {
    .destroy = destroy, .find = find, .encode = encode};

// ---- reading ----

static ot_status read_entry(ot_tokenizer_reader *r, const json_t *pair, int64_t id,
                            ot_vocabulary_entry *entry, double *score) {
  const json_t *const text = json_array_get(pair, 0);
  const json_t *const number = json_array_get(pair, 1);
  OT_CHECK(json_array_size(pair) == 2 && json_is_string(text) && json_is_number(number), OT_USAGE,
           "%s: model: vocab[%lld] is not a pair of a text and a number", r->name, (long long)id);
  *entry = (ot_vocabulary_entry){
      .text = json_string_value(text), .length = (int64_t)json_string_length(text), .id = id};
  *score = json_number_value(number);
  return OT_OK;
}

static ot_status read_vocab(ot_tokenizer_reader *r, const json_t *list, unigram *u,
                            ot_vocabulary *out) {
  const int64_t count = (int64_t)json_array_size(list);
  OT_CHECK(json_is_array(list) && count > 0 && count < OT_VOCABULARY_MAX, OT_USAGE,
           "%s: model: vocab of a Unigram is not a list of 1 to %d pairs", r->name,
           OT_VOCABULARY_MAX - 1);
  ot_vocabulary_entry *const entries = ot_arena_array(&r->arena, count, sizeof *entries);
  u->scores = malloc((size_t)count * sizeof *u->scores);
  OT_CHECK(u->scores, OT_ENVIRONMENT, "out of memory (tokenizer %s)", r->name);
  OT_TRY(ot_byte_trie_create(&u->trie));
  double lowest = INFINITY;
  for (int64_t id = 0; id < count; id++) {
    int64_t node;
    ot_vocabulary_entry *const entry = &entries[id];
    OT_TRY(read_entry(r, json_array_get(list, (size_t)id), id, entry, &u->scores[id]));
    if (u->scores[id] < lowest) lowest = u->scores[id];
    OT_TRY(ot_byte_trie_add(&u->trie, (const uint8_t *)entry->text, entry->length, &node));
    u->trie.values[node] = node > 0 ? (int32_t)id : -1;
  }
  u->unknown_score = lowest - unknown_penalty;
  *out = (ot_vocabulary){.entries = entries, .count = count};
  return OT_OK;
}

static ot_status read_unigram(ot_tokenizer_reader *r, const json_t *json, ot_vocabulary *vocabulary,
                              unigram *u) {
  bool byte_fallback = false;
  OT_TRY(ot_part_flag(r, "model", json, "byte_fallback", &byte_fallback));
  OT_TRY(read_vocab(r, json_object_get(json, "vocab"), u, vocabulary));
  for (int byte = 0; byte < 256; byte++) {
    char text[OT_BYTE_FALLBACK_LENGTH + 1];
    ot_byte_alphabet_write_fallback((uint8_t)byte, text);
    const int32_t id = find_token(u, (const uint8_t *)text, OT_BYTE_FALLBACK_LENGTH);
    u->byte_ids[byte] = byte_fallback ? id : -1;
  }
  const json_t *const unk = json_object_get(json, "unk_id");
  OT_CHECK(json_is_integer(unk) && json_integer_value(unk) >= 0 &&
               json_integer_value(unk) < vocabulary->count,
           OT_USAGE,
           "%s: model: unk_id is not an id from 0 to %lld, so characters without a token could "
           "not be encoded",
           r->name, (long long)vocabulary->count - 1);
  u->unk = (int32_t)json_integer_value(unk);
  return OT_OK;
}

ot_status ot_unigram_read(ot_tokenizer_reader *reader, const json_t *json, void *into) {
  const ot_token_model_reading *const reading = into;
  if (reading->byte_level) {
    return ot_part_refuse(reader, "model", "Unigram together with ByteLevel");
  }
  unigram *const u = calloc(1, sizeof *u);
  OT_CHECK(u, OT_ENVIRONMENT, "out of memory (tokenizer %s)", reader->name);
  *reading->model = (ot_token_model){.kind = &unigram_kind, .self = u};
  return read_unigram(reader, json, reading->vocabulary, u);
}
