// SPDX-License-Identifier: Apache-2.0
// Two open-addressing tables (pairs to merges, texts to ids) with at least twice as many slots as
// entries, and the two merge loops. Merges of characters cannot cross two characters that no merge
// joins: a pre-token may be split there.
#include "tokenizer/bpe.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/unicode.h"

enum { SHORT_PIECE = 96 };
static const uint32_t no_rank = UINT32_MAX;

typedef struct merge_slot {
  uint64_t pair;  // left << 32 | right
  uint32_t rank;  // no_rank marks an empty slot
  int32_t result;
} merge_slot;

struct ot_bpe {
  int64_t vocab_size;
  int64_t num_merges;
  int64_t *starts;       // [vocab_size + 1] into `bytes`
  bool *exists;          // [vocab_size]
  uint8_t *bytes;        // of all tokens, concatenated
  int32_t *token_slots;  // [token_mask + 1] ids, -1 empty
  uint64_t token_mask;
  merge_slot *merge_slots;  // [merge_mask + 1]
  uint64_t merge_mask;
  bool ignore_merges, of_characters, fuse_unk;
  int32_t byte_ids[256];   // of bytes, or of byte fallback; -1: none
  int32_t ascii_ids[128];  // of characters, -1: none
  int32_t unk;
  uint64_t *joined;      // [joined_mask / 64 + 1] bits: pairs of characters that a merge joins,
  uint64_t joined_mask;  // and hash collisions; null: no splitting
};

static uint64_t slots_for(int64_t entries) {
  uint64_t slots = 16;
  while (slots < 2 * (uint64_t)entries) slots *= 2;
  return slots;
}

static uint64_t pair_of(int32_t left, int32_t right) {
  return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static uint64_t hash_pair(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;
  return pair ^ pair >> 32;
}

static const merge_slot *find_merge(const ot_bpe *bpe, int32_t left, int32_t right) {
  const uint64_t pair = pair_of(left, right);
  uint64_t i = hash_pair(pair) & bpe->merge_mask;
  while (bpe->merge_slots[i].rank != no_rank && bpe->merge_slots[i].pair != pair) {
    i = (i + 1) & bpe->merge_mask;
  }
  return &bpe->merge_slots[i];
}

static ot_token_text token_of(const ot_bpe *bpe, int64_t id) {
  if (!bpe->exists[id]) return (ot_token_text){0};
  const int64_t start = bpe->starts[id];
  return (ot_token_text){.bytes = bpe->bytes + start, .length = bpe->starts[id + 1] - start};
}

static uint64_t token_slot(const ot_bpe *bpe, const uint8_t *bytes, int64_t length) {
  uint64_t i = XXH3_64bits(bytes, (size_t)length) & bpe->token_mask;
  for (; bpe->token_slots[i] >= 0; i = (i + 1) & bpe->token_mask) {
    const ot_token_text token = token_of(bpe, bpe->token_slots[i]);
    if (token.length == length && memcmp(token.bytes, bytes, (size_t)length) == 0) break;
  }
  return i;
}

static int32_t find_token(const ot_bpe *bpe, const uint8_t *bytes, int64_t length) {
  return bpe->token_slots[token_slot(bpe, bytes, length)];
}

static ot_status allocate(ot_bpe *bpe, const ot_bpe_description *description) {
  int64_t total = 0;
  for (int64_t id = 0; id < description->vocab_size; id++) total += description->tokens[id].length;
  bpe->vocab_size = description->vocab_size;
  bpe->num_merges = description->num_merges;
  bpe->ignore_merges = description->ignore_merges;
  bpe->of_characters = description->of_characters;
  bpe->fuse_unk = description->fuse_unk;
  bpe->unk = description->unk;
  bpe->token_mask = slots_for(description->vocab_size) - 1;
  bpe->merge_mask = slots_for(description->num_merges) - 1;
  bpe->starts = calloc((size_t)bpe->vocab_size + 1, sizeof *bpe->starts);
  bpe->exists = calloc((size_t)bpe->vocab_size + 1, sizeof *bpe->exists);
  bpe->bytes = malloc((size_t)total + 1);
  bpe->token_slots = malloc((bpe->token_mask + 1) * sizeof *bpe->token_slots);
  bpe->merge_slots = malloc((bpe->merge_mask + 1) * sizeof *bpe->merge_slots);
  OT_CHECK(bpe->starts && bpe->exists && bpe->bytes && bpe->token_slots && bpe->merge_slots,
           OT_ENVIRONMENT, "out of memory (tokenizer of %lld entries)",
           (long long)description->vocab_size);
  memset(bpe->token_slots, -1, (bpe->token_mask + 1) * sizeof *bpe->token_slots);
  for (uint64_t i = 0; i <= bpe->merge_mask; i++) bpe->merge_slots[i].rank = no_rank;
  return OT_OK;
}

static void fill_tokens(ot_bpe *bpe, const ot_bpe_description *description) {
  int64_t at = 0;
  for (int64_t id = 0; id < bpe->vocab_size; id++) {
    const ot_token_text token = description->tokens[id];
    bpe->starts[id] = at;
    bpe->exists[id] = token.bytes != NULL;
    if (token.bytes) memcpy(bpe->bytes + at, token.bytes, (size_t)token.length);
    at += token.length;
  }
  bpe->starts[bpe->vocab_size] = at;
  for (int64_t id = 0; id < bpe->vocab_size; id++) {
    const ot_token_text token = token_of(bpe, id);
    if (!token.bytes) continue;
    const uint64_t i = token_slot(bpe, token.bytes, token.length);
    if (bpe->token_slots[i] < 0) bpe->token_slots[i] = (int32_t)id;
  }
}

static void fill_merges(ot_bpe *bpe, const ot_bpe_description *description) {
  for (int64_t rank = 0; rank < description->num_merges; rank++) {
    const ot_bpe_merge merge = description->merges[rank];
    const merge_slot *const found = find_merge(bpe, merge.left, merge.right);
    bpe->merge_slots[found - bpe->merge_slots] = (merge_slot){
        .pair = pair_of(merge.left, merge.right), .rank = (uint32_t)rank, .result = merge.result};
  }
}

static ot_status fill_bytes(ot_bpe *bpe) {
  for (int byte = 0; byte < 256; byte++) {
    const uint8_t one = (uint8_t)byte;
    bpe->byte_ids[byte] = find_token(bpe, &one, 1);
    OT_CHECK(bpe->byte_ids[byte] >= 0, OT_USAGE,
             "the vocabulary has no token for byte 0x%02x, so it could not be encoded", byte);
  }
  return OT_OK;
}

static ot_status fill_characters(ot_bpe *bpe, const ot_bpe_description *description) {
  for (int c = 0; c < 128; c++) {
    const uint8_t one = (uint8_t)c;
    bpe->ascii_ids[c] = find_token(bpe, &one, 1);
  }
  for (int byte = 0; byte < 256; byte++) {
    bpe->byte_ids[byte] = description->byte_ids ? description->byte_ids[byte] : -1;
    OT_CHECK(bpe->unk >= 0 || bpe->byte_ids[byte] >= 0, OT_USAGE,
             "neither an unk_token nor a token for byte 0x%02x, so characters without a token "
             "could not be encoded",
             byte);
  }
  return OT_OK;
}

// ---- where pre-tokens can be split ----

static uint64_t hash_characters(uint32_t left, uint32_t right) {
  return hash_pair((uint64_t)left << 32 | right);
}

// Whether the text of `id` consists of the characters that it spells.
static bool spells_itself(const ot_bpe *bpe, int32_t id) {
  const ot_token_text token = token_of(bpe, id);
  return id != bpe->unk && token.length > 0 &&
         ot_byte_alphabet_read_fallback((const char *)token.bytes, token.length) < 0;
}

// Records the characters on both sides of each merge. A merge of tokens that do not spell their
// text could join any characters: then, and with ignore_merges, pre-tokens are not split.
static ot_status fill_joined(ot_bpe *bpe, const ot_bpe_description *description) {
  const uint64_t bits = 8 * slots_for(description->num_merges);
  uint64_t *const joined = calloc(bits / 64, sizeof *joined);
  OT_CHECK(joined, OT_ENVIRONMENT, "out of memory (tokenizer)");
  bpe->joined = joined;
  bpe->joined_mask = bits - 1;
  for (int64_t i = 0; i < description->num_merges; i++) {
    const ot_bpe_merge merge = description->merges[i];
    const ot_token_text left = token_of(bpe, merge.left), right = token_of(bpe, merge.right);
    if (!spells_itself(bpe, merge.left) || !spells_itself(bpe, merge.right)) {
      free(bpe->joined);
      bpe->joined = NULL;
      return OT_OK;
    }
    int width;
    const uint32_t last = ot_unicode_last(left.bytes, left.length, &width);
    const uint32_t first = ot_unicode_first(right.bytes, right.length, &width);
    const uint64_t bit = hash_characters(last, first) & bpe->joined_mask;
    joined[bit / 64] |= 1ull << bit % 64;
  }
  return OT_OK;
}

static ot_status fill(ot_bpe *bpe, const ot_bpe_description *description) {
  OT_TRY(allocate(bpe, description));
  fill_tokens(bpe, description);
  fill_merges(bpe, description);
  if (!bpe->of_characters) return fill_bytes(bpe);
  OT_TRY(fill_characters(bpe, description));
  return bpe->ignore_merges ? OT_OK : fill_joined(bpe, description);
}

ot_status ot_bpe_create(const ot_bpe_description *description, ot_bpe **out) {
  *out = NULL;
  OT_CHECK(description->vocab_size < INT32_MAX && description->num_merges < INT32_MAX, OT_USAGE,
           "a vocabulary of %lld entries is too large", (long long)description->vocab_size);
  *out = calloc(1, sizeof **out);
  OT_CHECK(*out, OT_ENVIRONMENT, "out of memory (tokenizer)");
  const ot_status status = fill(*out, description);
  if (status != OT_OK) ot_bpe_destroy(out);
  return status;
}

void ot_bpe_destroy(ot_bpe **bpe) {
  if (!*bpe) return;
  free((*bpe)->starts);
  free((*bpe)->exists);
  free((*bpe)->bytes);
  free((*bpe)->token_slots);
  free((*bpe)->merge_slots);
  free((*bpe)->joined);
  free(*bpe);
  *bpe = NULL;
}

// ---- initial symbols ----

static int32_t find_character(const ot_bpe *bpe, const uint8_t *text, int64_t width) {
  return width == 1 && text[0] < 0x80 ? bpe->ascii_ids[text[0]] : find_token(bpe, text, width);
}

// Uses byte tokens only if all bytes of the character have one.
static bool write_bytes(const ot_bpe *bpe, const uint8_t *text, int64_t width, int32_t *ids) {
  for (int64_t i = 0; i < width; i++) {
    ids[i] = bpe->byte_ids[text[i]];
    if (ids[i] < 0) return false;
  }
  return true;
}

// An unknown character is held back until the next known one, as in HF tokenizers: the byte tokens
// of characters in between precede it.
static int64_t write_characters(const ot_bpe *bpe, ot_token_text piece, int32_t *ids) {
  int64_t n = 0;
  bool waiting = false;
  for (int64_t i = 0, width; i < piece.length; i += width) {
    const uint8_t *const text = piece.bytes + i;
    width = ot_unicode_width(text, piece.length - i);
    const int32_t id = find_character(bpe, text, width);
    if (id >= 0) {
      if (waiting) ids[n++] = bpe->unk;
      ids[n++] = id;
      waiting = false;
    } else if (write_bytes(bpe, text, width, ids + n)) {
      n += width;
    } else {
      if (waiting && !bpe->fuse_unk) ids[n++] = bpe->unk;
      waiting = true;
    }
  }
  if (waiting) ids[n++] = bpe->unk;
  return n;
}

static int64_t write_symbols(const ot_bpe *bpe, ot_token_text piece, int32_t *ids) {
  if (bpe->of_characters) return write_characters(bpe, piece, ids);
  for (int64_t i = 0; i < piece.length; i++) ids[i] = bpe->byte_ids[piece.bytes[i]];
  return piece.length;
}

// ---- short pre-tokens: scan for the lowest rank ----

static int64_t merge_short(const ot_bpe *bpe, int32_t *ids, int64_t n) {
  const merge_slot *merges[SHORT_PIECE];  // of ids[i] with ids[i + 1]
  for (int64_t i = 0; i + 1 < n; i++) merges[i] = find_merge(bpe, ids[i], ids[i + 1]);
  while (n > 1) {
    int64_t best = 0;
    for (int64_t i = 1; i + 1 < n; i++) {
      if (merges[i]->rank < merges[best]->rank) best = i;
    }
    if (merges[best]->rank == no_rank) break;
    ids[best] = merges[best]->result;
    n--;
    memmove(ids + best + 1, ids + best + 2, (size_t)(n - best - 1) * sizeof *ids);
    if (best + 1 < n) {
      memmove(merges + best + 1, merges + best + 2, (size_t)(n - best - 2) * sizeof *merges);
      merges[best] = find_merge(bpe, ids[best], ids[best + 1]);
    }
    if (best > 0) merges[best - 1] = find_merge(bpe, ids[best - 1], ids[best]);
  }
  return n;
}

// ---- long pre-tokens: a linked list and a heap of candidates (rank << 32 | position) ----

typedef struct symbol {
  int32_t id;          // -1: merged into its left neighbour
  int32_t next, last;  // positions; -1 at the ends
  uint32_t rank;       // of the merge with `next`
} symbol;

typedef struct candidates {
  uint64_t *heap;  // [2 * length], smallest first
  int64_t count;
} candidates;

static void push_candidate(candidates *c, uint64_t value) {
  int64_t i = c->count++;
  for (; i > 0 && c->heap[(i - 1) / 2] > value; i = (i - 1) / 2) c->heap[i] = c->heap[(i - 1) / 2];
  c->heap[i] = value;
}

static uint64_t pop_candidate(candidates *c) {
  const uint64_t top = c->heap[0];
  const uint64_t value = c->heap[--c->count];
  int64_t i = 0;
  for (;;) {
    int64_t child = 2 * i + 1;
    if (child >= c->count) break;
    if (child + 1 < c->count && c->heap[child + 1] < c->heap[child]) child++;
    if (c->heap[child] >= value) break;
    c->heap[i] = c->heap[child];
    i = child;
  }
  c->heap[i] = value;
  return top;
}

// Looks up the merge of position `i` with its right neighbour and adds it as a candidate.
static void consider(const ot_bpe *bpe, symbol *symbols, candidates *c, int32_t i) {
  const int32_t next = symbols[i].next;
  symbols[i].rank = next < 0 ? no_rank : find_merge(bpe, symbols[i].id, symbols[next].id)->rank;
  if (symbols[i].rank != no_rank) push_candidate(c, (uint64_t)symbols[i].rank << 32 | (uint32_t)i);
}

static void merge_with_next(const ot_bpe *bpe, symbol *symbols, candidates *c, int32_t i) {
  const int32_t next = symbols[i].next;
  symbols[i].id = find_merge(bpe, symbols[i].id, symbols[next].id)->result;
  symbols[i].next = symbols[next].next;
  symbols[next].id = -1;
  if (symbols[i].next >= 0) symbols[symbols[i].next].last = i;
  consider(bpe, symbols, c, i);
  if (symbols[i].last >= 0) consider(bpe, symbols, c, symbols[i].last);
}

static ot_status merge_long(const ot_bpe *bpe, ot_buffer *scratch, int32_t *ids, int64_t *count) {
  const int32_t n = (int32_t)*count;
  // Each merge adds at most two candidates and removes a symbol.
  const int64_t heap_bytes = 3 * (int64_t)n * (int64_t)sizeof(uint64_t);
  scratch->length = 0;
  OT_TRY(ot_buffer_reserve(scratch, heap_bytes + n * (int64_t)sizeof(symbol)));
  candidates c = {.heap = (uint64_t *)(void *)scratch->data};
  symbol *const symbols = (symbol *)(void *)(scratch->data + heap_bytes);
  for (int32_t i = 0; i < n; i++) {
    symbols[i] = (symbol){.id = ids[i], .next = i + 1, .last = i - 1};
  }
  symbols[n - 1].next = -1;
  for (int32_t i = 0; i < n; i++) consider(bpe, symbols, &c, i);
  while (c.count > 0) {
    const uint64_t top = pop_candidate(&c);
    const int32_t i = (int32_t)(uint32_t)top;
    // A symbol that has changed since then has a newer candidate with its new rank.
    if (symbols[i].id < 0 || symbols[i].rank != top >> 32) continue;
    merge_with_next(bpe, symbols, &c, i);
  }
  *count = 0;
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids[(*count)++] = symbols[i].id;
  return OT_OK;
}

// ---- the model ----

static ot_status encode(const void *self, ot_token_text piece, ot_buffer *scratch, int32_t *ids,
                        int64_t *count) {
  const ot_bpe *const bpe = self;
  if (bpe->ignore_merges) {
    ids[0] = find_token(bpe, piece.bytes, piece.length);
    *count = 1;
    if (ids[0] >= 0) return OT_OK;
  }
  *count = write_symbols(bpe, piece, ids);
  if (bpe->num_merges == 0) return OT_OK;
  if (*count <= SHORT_PIECE) {
    *count = merge_short(bpe, ids, *count);
    return OT_OK;
  }
  OT_CHECK(*count < INT32_MAX, OT_ENVIRONMENT,
           "a piece of %lld bytes without a place to split is too long to tokenize",
           (long long)piece.length);
  return merge_long(bpe, scratch, ids, count);
}

static int32_t find(const void *self, ot_token_text text) {
  return text.length > 0 ? find_token(self, text.bytes, text.length) : -1;
}

// Only before a character that has a token, so that unknown ones stay together.
static int64_t next_cut(const void *self, ot_token_text piece, int64_t from) {
  const ot_bpe *const bpe = self;
  if (!bpe->of_characters) {
    return bpe->num_merges == 0 && !bpe->ignore_merges ? from : piece.length;
  }
  if (!bpe->joined || from >= piece.length) return piece.length;
  while (from < piece.length && (piece.bytes[from] & 0xC0) == 0x80) from++;
  int width;
  uint32_t last = ot_unicode_last(piece.bytes, from, &width);
  for (; from < piece.length; from += width) {
    const uint32_t next = ot_unicode_first(piece.bytes + from, piece.length - from, &width);
    const uint64_t bit = hash_characters(last, next) & bpe->joined_mask;
    const bool apart = (bpe->joined[bit / 64] >> bit % 64 & 1) == 0;
    if (apart && find_character(bpe, piece.bytes + from, width) >= 0) return from;
    last = next;
  }
  return piece.length;
}

static void destroy(void **self) {
  ot_bpe *bpe = *self;
  ot_bpe_destroy(&bpe);
  *self = NULL;
}

const ot_token_model_kind ot_bpe_kind = {
    .destroy = destroy, .find = find, .encode = encode, .next_cut = next_cut};
