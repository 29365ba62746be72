// SPDX-License-Identifier: Apache-2.0
// A hash table of published pages, and a list of pages without users, oldest first.
#include "runtime/page_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

struct ot_page_cache {
  int64_t count, unused;
  ot_page *pages;   // [count]
  int32_t *chains;  // [count] first page of each hash, or -1
  int32_t oldest, newest;
  uint64_t serials;  // given so far
};

ot_page *ot_page_cache_page(ot_page_cache *cache, int32_t page) { return &cache->pages[page]; }

int64_t ot_page_cache_unused(const ot_page_cache *cache) { return cache->unused; }

// ---- the list of pages without users ----

static void append_newest(ot_page_cache *cache, int32_t page) {
  ot_page *const p = &cache->pages[page];
  p->older = cache->newest;
  p->newer = -1;
  if (cache->newest >= 0) cache->pages[cache->newest].newer = page;
  if (cache->oldest < 0) cache->oldest = page;
  cache->newest = page;
  cache->unused++;
}

// Pages of no further use are taken next.
static void append_oldest(ot_page_cache *cache, int32_t page) {
  ot_page *const p = &cache->pages[page];
  p->older = -1;
  p->newer = cache->oldest;
  if (cache->oldest >= 0) cache->pages[cache->oldest].older = page;
  if (cache->newest < 0) cache->newest = page;
  cache->oldest = page;
  cache->unused++;
}

static void remove_unused(ot_page_cache *cache, int32_t page) {
  const ot_page *const p = &cache->pages[page];
  if (p->older >= 0) cache->pages[p->older].newer = p->newer;
  if (p->newer >= 0) cache->pages[p->newer].older = p->older;
  if (cache->oldest == page) cache->oldest = p->newer;
  if (cache->newest == page) cache->newest = p->older;
  cache->unused--;
}

// ---- known pages ----

static int32_t *chain_of(const ot_page_cache *cache, uint64_t parent, const int32_t *tokens) {
  uint64_t hash = ot_hash_bytes(OT_HASH_START, &parent, sizeof parent);
  hash = ot_hash_bytes(hash, tokens, OT_PAGE_SLOTS * sizeof *tokens);
  return &cache->chains[hash % (uint64_t)cache->count];
}

static int32_t find(const ot_page_cache *cache, uint64_t parent, const int32_t *tokens) {
  for (int32_t page = *chain_of(cache, parent, tokens); page >= 0;) {
    const ot_page *const p = &cache->pages[page];
    if (p->parent == parent && memcmp(p->tokens, tokens, sizeof p->tokens) == 0) return page;
    page = p->next;
  }
  return -1;
}

static uint64_t serial_of(const ot_page_cache *cache, int32_t page) {
  return page < 0 ? 0 : cache->pages[page].serial;
}

int32_t ot_page_cache_find(const ot_page_cache *cache, int32_t parent, const int32_t *tokens) {
  return find(cache, serial_of(cache, parent), tokens);
}

static void forget(ot_page_cache *cache, int32_t page) {
  ot_page *const p = &cache->pages[page];
  if (!p->published) return;
  int32_t *at = chain_of(cache, p->parent, p->tokens);
  while (*at != page) at = &cache->pages[*at].next;
  *at = p->next;
  p->published = false;
}

void ot_page_cache_forget(ot_page_cache *cache) {
  for (int32_t page = 0; page < cache->count; page++) forget(cache, page);
}

void ot_page_cache_clear_scores(ot_page_cache *cache, int32_t page) {
  for (int i = 0; i < OT_PAGE_SLOTS; i++) {
    cache->pages[page].scores[i].logprob = NAN;
    cache->pages[page].num_top[i] = 0;
  }
}

void ot_page_cache_hold(ot_page_cache *cache, int32_t page) {
  if (cache->pages[page].users++ == 0) remove_unused(cache, page);
}

int32_t ot_page_cache_take(ot_page_cache *cache) {
  const int32_t page = cache->oldest;
  if (page < 0) return -1;
  remove_unused(cache, page);
  forget(cache, page);
  ot_page *const p = &cache->pages[page];
  p->serial = ++cache->serials;
  p->users = 1;
  ot_page_cache_clear_scores(cache, page);
  return page;
}

int32_t ot_page_cache_publish(ot_page_cache *cache, int32_t page, int32_t parent) {
  ot_page *const p = &cache->pages[page];
  const uint64_t before = serial_of(cache, parent);
  const int32_t known = find(cache, before, p->tokens);
  if (known >= 0) {
    ot_page *const to = &cache->pages[known];
    for (int i = 0; i < OT_PAGE_SLOTS; i++) {
      if (isnan(to->scores[i].logprob)) to->scores[i] = p->scores[i];
      if (to->num_top[i] >= p->num_top[i]) continue;
      to->num_top[i] = p->num_top[i];
      memcpy(to->top[i], p->top[i], sizeof to->top[i]);
    }
    ot_page_cache_hold(cache, known);
    ot_page_cache_release(cache, &page, 1);
    return known;
  }
  int32_t *const chain = chain_of(cache, before, p->tokens);
  p->parent = before;
  p->published = true;
  p->next = *chain;
  *chain = page;
  return page;
}

// The last page of a sequence becomes the oldest of them: a page outlives those after it.
void ot_page_cache_release(ot_page_cache *cache, const int32_t *pages, int64_t count) {
  for (int64_t i = count - 1; i >= 0; i--) {
    ot_page *const p = &cache->pages[pages[i]];
    if (--p->users > 0) continue;
    if (p->published) {
      append_newest(cache, pages[i]);
    } else {
      append_oldest(cache, pages[i]);
    }
  }
}

ot_status ot_page_cache_create(int64_t pages, ot_page_cache **out) {
  ot_page_cache *const cache = calloc(1, sizeof *cache);
  *out = cache;
  if (cache) {
    *cache = (ot_page_cache){.count = pages,
                             .pages = calloc((size_t)pages, sizeof *cache->pages),
                             .chains = calloc((size_t)pages, sizeof *cache->chains),
                             .oldest = -1,
                             .newest = -1};
  }
  if (!cache || !cache->pages || !cache->chains) {
    ot_page_cache_destroy(out);
    return ot_fail(OT_ENVIRONMENT, "out of memory for a cache of %lld pages", (long long)pages);
  }
  for (int32_t i = 0; i < pages; i++) {
    cache->chains[i] = -1;
    append_newest(cache, i);
  }
  return OT_OK;
}

void ot_page_cache_destroy(ot_page_cache **cache) {
  if (!cache || !*cache) return;
  free((*cache)->pages);
  free((*cache)->chains);
  free(*cache);
  *cache = NULL;
}
