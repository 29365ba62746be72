// SPDX-License-Identifier: Apache-2.0
// The pages of a KV cache, which sequences that begin alike share (Kwon et al. 2023). A full page
// is found again by its tokens and the page before it, also after its sequence has ended, until its
// memory is needed; the page unused for longest goes first. Next to K and V a page keeps the
// log-probability of each of its tokens, and the most probable tokens if they were asked for, so
// that scoring a known prefix costs nothing.
#pragma once

#include "base/status.h"
#include "ops/decode.h"
#include "runtime/draw.h"

typedef struct ot_page_cache ot_page_cache;

// The scores of a token given those before it. logprob NaN: none.
typedef struct ot_token_score {
  double logprob, best;  // of the token, and of the most probable token
  int32_t greedy;        // the most probable token
} ot_token_score;

enum { OT_MOST_TOP = 20 };

typedef struct ot_page {
  int32_t tokens[OT_PAGE_SLOTS];
  ot_token_score scores[OT_PAGE_SLOTS];
  int num_top[OT_PAGE_SLOTS];  // most probable tokens that are known
  ot_scored_token top[OT_PAGE_SLOTS][OT_MOST_TOP];
  uint64_t serial;       // distinguishes this content from earlier ones of the page
  uint64_t parent;       // serial of the page before it, 0: none
  int64_t users;         // sequences that hold it
  bool published;        // full, and found by others
  int32_t next;          // in the chain of its hash, or -1
  int32_t older, newer;  // in the list of pages without users, -1: end
} ot_page;

ot_status ot_page_cache_create(int64_t pages, ot_page_cache **out);
void ot_page_cache_destroy(ot_page_cache **cache);

// Pages without users.
int64_t ot_page_cache_unused(const ot_page_cache *cache);

ot_page *ot_page_cache_page(ot_page_cache *cache, int32_t page);

// The page with `tokens` [OT_PAGE_SLOTS] after the page `parent` (-1: at the start), or -1.
int32_t ot_page_cache_find(const ot_page_cache *cache, int32_t parent, const int32_t *tokens);

// Adds a user to a page.
void ot_page_cache_hold(ot_page_cache *cache, int32_t page);

// Takes an unused page for new content, with one user; -1: there is none.
int32_t ot_page_cache_take(ot_page_cache *cache);

// Makes a full page known, after `parent`; returns it. If another page has that content, that one
// gets the scores and the user instead, and is returned.
int32_t ot_page_cache_publish(ot_page_cache *cache, int32_t page, int32_t parent);

// No page is found from now on: their content is that of other weights.
void ot_page_cache_forget(ot_page_cache *cache);

// Nothing is known of the tokens of a page any more.
void ot_page_cache_clear_scores(ot_page_cache *cache, int32_t page);

// Removes a user of `pages` [count], the pages of a sequence in order.
void ot_page_cache_release(ot_page_cache *cache, const int32_t *pages, int64_t count);
