// SPDX-License-Identifier: Apache-2.0
// n-grams by a rolling polynomial hash of 64 bits: those of the held-out tokens are sorted, those
// of the training tokens looked up.
#include "ledger/contamination.h"

#include <string.h>

#include "base/sort.h"
#include "data/token_shard.h"
#include "host/heap.h"

static const uint64_t factor = 0x9e3779b97f4a7c15u;
enum { PIECE = 1 << 16, SMALL_VOCABULARY = 4096 };

typedef struct window {
  int length;
  int64_t seen;
  uint64_t hash, power;  // power: factor^length
  int32_t *ring;         // [length]
} window;

static window window_of(int length, ot_arena *arena) {
  window w = {.length = length, .power = 1, .ring = ot_arena_array(arena, length, sizeof *w.ring)};
  for (int i = 0; i < length; i++) w.power *= factor;
  return w;
}

// Whether `hash` is that of the last `length` tokens.
static bool push(window *w, int32_t token) {
  int32_t *const place = &w->ring[w->seen % w->length];
  w->hash = w->hash * factor + (uint64_t)token + 1;
  if (w->seen >= w->length) w->hash -= w->power * ((uint64_t)*place + 1);
  *place = token;
  return ++w->seen >= w->length;
}

// Calls `take` with the hash of each n-gram of the first `limit` tokens of `path`; 0: of all.
typedef struct scan {
  const ot_run *run;
  const char *path;
  int64_t limit;
  window window;
  void (*take)(void *context, uint64_t hash);
  void *context;
} scan;

static ot_status scan_open(scan *s, const ot_token_shard *shard, int32_t *ids) {
  int64_t tokens = ot_token_shard_describe(shard)->tokens;
  if (s->limit > 0 && s->limit < tokens) tokens = s->limit;
  for (int64_t first = 0; first < tokens; first += PIECE) {
    const int64_t count = tokens - first < PIECE ? tokens - first : PIECE;
    OT_TRY(ot_token_shard_read(shard, first, count, ids));
    for (int64_t i = 0; i < count; i++)
      if (push(&s->window, ids[i])) s->take(s->context, s->window.hash);
  }
  return OT_OK;
}

static ot_status scan_shard(scan *s, ot_arena *arena) {
  const ot_token_shard_request request = {
      .path = s->path, .format = s->run->data.format, .eod = -1};
  ot_token_shard *shard = NULL;
  OT_TRY(ot_token_shard_create(&request, &shard));
  const ot_status status = scan_open(s, shard, ot_arena_array(arena, PIECE, sizeof(int32_t)));
  ot_token_shard_destroy(&shard);
  return status;
}

typedef struct held_out {
  ot_arena *arena;
  int64_t count, capacity;
  uint64_t *hash;  // [count], sorted
  bool *found;     // [count]
} held_out;

static void keep(void *context, uint64_t hash) {
  held_out *const h = context;
  h->hash = ot_arena_grow(h->arena, h->hash, h->count, &h->capacity, sizeof *h->hash);
  h->hash[h->count++] = hash;
}

static void count_hash(void *context, uint64_t hash) {
  held_out *const h = context;
  int64_t low = 0, high = h->count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (h->hash[middle] < hash)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < h->count && h->hash[low] == hash; low++) h->found[low] = true;
}

static int compare(const void *a, const void *b, const void *context) {
  (void)context;
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static ot_status search(const ot_run *run, ot_arena *arena, ot_ledger_contamination *out) {
  held_out held = {.arena = arena};
  scan s = {.run = run,
            .path = run->data.validation[0].path,
            .limit = run->data.validation_tokens,
            .take = keep,
            .context = &held};
  out->length = run->model.vocab_size < SMALL_VOCABULARY ? 50 : 13;
  s.window = window_of(out->length, arena);
  OT_TRY(scan_shard(&s, arena));
  ot_sort(held.hash, held.count, sizeof *held.hash, (ot_ordering){compare, NULL}, arena);
  held.found = ot_arena_array(arena, held.count + 1, sizeof *held.found);
  s.limit = 0;
  s.take = count_hash;
  for (int64_t i = 0; i < run->data.num_train; i++) {
    s.path = run->data.train[i].path;
    s.window = window_of(out->length, arena);
    OT_TRY(scan_shard(&s, arena));
  }
  int64_t found = 0;
  for (int64_t i = 0; i < held.count; i++) found += held.found[i];
  out->ngrams = held.count;
  out->share = held.count > 0 ? (double)found / (double)held.count : 0;
  return OT_OK;
}

ot_status ot_ledger_find_contamination(const ot_ledger *ledger, const ot_ledger_job *job,
                                       ot_ledger_contamination *out) {
  const ot_config_request request = {.path = ledger->policy.base,
                                     .sets = job->sets,
                                     .num_sets = job->num_sets,
                                     .presets = ledger->presets};
  ot_config config;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_status status = ot_config_load(&request, &arena, &config);
  if (status == OT_OK) status = search(&config.run, &arena, out);
  ot_heap_release(&heap);
  return status;
}
