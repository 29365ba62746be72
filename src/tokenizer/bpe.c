// SPDX-License-Identifier: Apache-2.0
// Two open-addressing tables (pairs to merges, bytes to ids) of at least twice as many slots as
// entries, and the two merge loops.
#include "tokenizer/bpe.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

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
  uint8_t *bytes;        // of all tokens, one after the other
  int32_t *token_slots;  // [token_mask + 1] ids, -1 empty
  uint64_t token_mask;
  merge_slot *merge_slots;  // [merge_mask + 1]
  uint64_t merge_mask;
  int32_t byte_ids[256];
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

static uint64_t token_slot(const ot_bpe *bpe, const uint8_t *bytes, int64_t length) {
  uint64_t i = XXH3_64bits(bytes, (size_t)length) & bpe->token_mask;
  for (; bpe->token_slots[i] >= 0; i = (i + 1) & bpe->token_mask) {
    const ot_bpe_token token = ot_bpe_token_of(bpe, bpe->token_slots[i]);
    if (token.length == length && memcmp(token.bytes, bytes, (size_t)length) == 0) break;
  }
  return i;
}

int32_t ot_bpe_find(const ot_bpe *bpe, const uint8_t *bytes, int64_t length) {
  return bpe->token_slots[token_slot(bpe, bytes, length)];
}

ot_bpe_token ot_bpe_token_of(const ot_bpe *bpe, int64_t id) {
  if (id < 0 || id >= bpe->vocab_size || !bpe->exists[id]) return (ot_bpe_token){0};
  const int64_t start = bpe->starts[id];
  return (ot_bpe_token){.bytes = bpe->bytes + start, .length = bpe->starts[id + 1] - start};
}

int64_t ot_bpe_num_merges(const ot_bpe *bpe) { return bpe->num_merges; }

static ot_status allocate(ot_bpe *bpe, const ot_bpe_description *description) {
  int64_t total = 0;
  for (int64_t id = 0; id < description->vocab_size; id++) total += description->tokens[id].length;
  bpe->vocab_size = description->vocab_size;
  bpe->num_merges = description->num_merges;
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
    const ot_bpe_token token = description->tokens[id];
    bpe->starts[id] = at;
    bpe->exists[id] = token.bytes != NULL;
    if (token.bytes) memcpy(bpe->bytes + at, token.bytes, (size_t)token.length);
    at += token.length;
  }
  bpe->starts[bpe->vocab_size] = at;
  for (int64_t id = 0; id < bpe->vocab_size; id++) {
    const ot_bpe_token token = ot_bpe_token_of(bpe, id);
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
    bpe->byte_ids[byte] = ot_bpe_find(bpe, &one, 1);
    OT_CHECK(bpe->byte_ids[byte] >= 0, OT_USAGE,
             "the vocabulary has no token for byte 0x%02x, so text with it would be lost", byte);
  }
  return OT_OK;
}

ot_status ot_bpe_create(const ot_bpe_description *description, ot_bpe **out) {
  *out = NULL;
  OT_CHECK(description->vocab_size < INT32_MAX && description->num_merges < INT32_MAX, OT_USAGE,
           "a vocabulary of %lld entries is too large", (long long)description->vocab_size);
  ot_bpe *bpe = calloc(1, sizeof *bpe);
  OT_CHECK(bpe, OT_ENVIRONMENT, "out of memory (tokenizer)");
  ot_status status = allocate(bpe, description);
  if (status == OT_OK) {
    fill_tokens(bpe, description);
    fill_merges(bpe, description);
    status = fill_bytes(bpe);
  }
  if (status != OT_OK) ot_bpe_destroy(&bpe);
  *out = bpe;
  return status;
}

void ot_bpe_destroy(ot_bpe **bpe) {
  if (!*bpe) return;
  free((*bpe)->starts);
  free((*bpe)->exists);
  free((*bpe)->bytes);
  free((*bpe)->token_slots);
  free((*bpe)->merge_slots);
  free(*bpe);
  *bpe = NULL;
}

// ---- short pieces: scan for the lowest rank ----

static int64_t encode_short(const ot_bpe *bpe, const uint8_t *piece, int64_t length, int32_t *ids) {
  const merge_slot *merges[SHORT_PIECE];  // of ids[i] with ids[i + 1]
  int64_t n = length;
  for (int64_t i = 0; i < n; i++) ids[i] = bpe->byte_ids[piece[i]];
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

// ---- long pieces: a linked list and a heap of candidates (rank << 32 | position) ----

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

// Looks up the merge of position `i` with its right neighbour and makes it a candidate.
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

static ot_status encode_long(const ot_bpe *bpe, ot_bpe_token piece, ot_buffer *scratch,
                             int32_t *ids, int64_t *count) {
  const int32_t n = (int32_t)piece.length;
  // Each merge adds at most two candidates and removes a symbol.
  const int64_t heap_bytes = 3 * (int64_t)n * (int64_t)sizeof(uint64_t);
  scratch->length = 0;
  OT_TRY(ot_buffer_reserve(scratch, heap_bytes + n * (int64_t)sizeof(symbol)));
  candidates c = {.heap = (uint64_t *)(void *)scratch->data};
  symbol *const symbols = (symbol *)(void *)(scratch->data + heap_bytes);
  for (int32_t i = 0; i < n; i++) {
    symbols[i] = (symbol){.id = bpe->byte_ids[piece.bytes[i]], .next = i + 1, .last = i - 1};
  }
  symbols[n - 1].next = -1;
  for (int32_t i = 0; i < n; i++) consider(bpe, symbols, &c, i);
  while (c.count > 0) {
    const uint64_t top = pop_candidate(&c);
    const int32_t i = (int32_t)(uint32_t)top;
    // A symbol that has changed since was considered again with its new rank.
    if (symbols[i].id < 0 || symbols[i].rank != top >> 32) continue;
    merge_with_next(bpe, symbols, &c, i);
  }
  *count = 0;
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids[(*count)++] = symbols[i].id;
  return OT_OK;
}

ot_status ot_bpe_encode(const ot_bpe *bpe, ot_bpe_token piece, ot_buffer *scratch, int32_t *ids,
                        int64_t *count) {
  if (bpe->num_merges == 0) {
    for (int64_t i = 0; i < piece.length; i++) ids[i] = bpe->byte_ids[piece.bytes[i]];
    *count = piece.length;
    return OT_OK;
  }
  if (piece.length <= SHORT_PIECE) {
    *count = encode_short(bpe, piece.bytes, piece.length, ids);
    return OT_OK;
  }
  OT_CHECK(piece.length < INT32_MAX, OT_ENVIRONMENT,
           "a piece of %lld bytes without a place to split is too long to tokenize",
           (long long)piece.length);
  return encode_long(bpe, piece, scratch, ids, count);
}
