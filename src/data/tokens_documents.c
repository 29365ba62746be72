// SPDX-License-Identifier: Apache-2.0
// Documents of a shard: by its index, or by end-of-document ids, which takes reading the tokens.
#include "data/tokens_parts.h"

enum { BLOCK = 2048 };

static ot_status boundaries_by_index(const ot_tokens *t, const ot_tokens_span *span,
                                     ot_tokens_boundary_sink sink, void *context) {
  int64_t document;
  OT_TRY(ot_tokens_find_document(t, span->first, &document));
  int64_t last = span->first;
  while (++document < t->about.documents) {
    int64_t start;
    OT_TRY(ot_tokens_document_start(t, document, &start));
    if (start >= span->first + span->count) break;
    // Empty documents begin where the next one does.
    if (start > last) sink(context, start);
    last = start;
  }
  return OT_OK;
}

ot_status ot_tokens_boundaries(const ot_tokens *tokens, const ot_tokens_span *span,
                               ot_tokens_boundary_sink sink, void *context) {
  if (span->count == 0) return OT_OK;
  if (tokens->about.documents >= 0) return boundaries_by_index(tokens, span, sink, context);
  const bool begins = tokens->about.boundary == OT_BOUNDARY_START;
  for (int64_t i = 1; i < span->count; i++) {
    const int32_t here = i + 1 < span->count ? span->ids[i] : span->last;
    if ((begins ? here : span->ids[i - 1]) == tokens->about.eod) sink(context, span->first + i);
  }
  return OT_OK;
}

// ---- without an index: all tokens, in order ----

typedef struct walk {
  const ot_tokens *tokens;
  ot_tokens_document_sink sink;  // may be null
  void *context;
  int64_t documents;  // ended so far
  int64_t start;      // first token of the document that is being read
  int32_t max_id;
} walk;

static ot_status end_document(walk *w, int64_t end) {
  const int64_t first = w->start;
  w->start = end;
  const int64_t document = w->documents++;
  return w->sink ? w->sink(w->context, document, first, end - first) : OT_OK;
}

static ot_status walk_block(walk *w, const int32_t *ids, int64_t first, int64_t count) {
  const bool by_eod = w->tokens->about.documents < 0;
  const int64_t eod = w->tokens->about.eod;
  const bool begins = w->tokens->about.boundary == OT_BOUNDARY_START;
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] > w->max_id) w->max_id = ids[i];
    if (!by_eod || ids[i] != eod) continue;
    const int64_t end = first + i + !begins;
    if (end > w->start) OT_TRY(end_document(w, end));
  }
  return OT_OK;
}

static ot_status walk_tokens(walk *w) {
  const ot_tokens *const t = w->tokens;
  int32_t ids[BLOCK];
  for (int64_t first = 0; first < t->about.tokens; first += BLOCK) {
    const int64_t n = t->about.tokens - first < BLOCK ? t->about.tokens - first : BLOCK;
    OT_TRY(ot_tokens_read(t, first, n, ids));
    OT_TRY(walk_block(w, ids, first, n));
  }
  // Tokens after the last boundary are a document too.
  const bool open_end = t->about.documents < 0 && w->start < t->about.tokens;
  return open_end ? end_document(w, t->about.tokens) : OT_OK;
}

// ---- public ----

ot_status ot_tokens_each_document(const ot_tokens *tokens, ot_tokens_document_sink sink,
                                  void *context) {
  if (tokens->about.documents < 0) {
    walk w = {.tokens = tokens, .sink = sink, .context = context};
    return walk_tokens(&w);
  }
  int64_t start = 0;
  for (int64_t i = 0; i < tokens->about.documents; i++) {
    int64_t end;
    OT_TRY(ot_tokens_document_start(tokens, i + 1, &end));
    OT_TRY(sink(context, i, start, end - start));
    start = end;
  }
  return OT_OK;
}

typedef struct search {
  int64_t wanted;
  int64_t first, count;  // of the wanted document, once found
  int64_t documents;     // seen
} search;

static ot_status look_at(void *context, int64_t document, int64_t first, int64_t count) {
  search *const s = context;
  s->documents++;
  if (document != s->wanted) return OT_OK;
  s->first = first;
  s->count = count;
  return OT_OK;
}

static ot_status check_document(const ot_tokens *t, int64_t document, int64_t documents) {
  OT_CHECK(document >= 0 && document < documents, OT_USAGE,
           "%s has no document %lld; it has %lld, counted from 0", t->bin_path, (long long)document,
           (long long)documents);
  return OT_OK;
}

ot_status ot_tokens_document(const ot_tokens *tokens, int64_t document, int64_t *first,
                             int64_t *count) {
  if (tokens->about.documents < 0) {
    search s = {.wanted = document};
    OT_TRY(ot_tokens_each_document(tokens, look_at, &s));
    *first = s.first;
    *count = s.count;
    return check_document(tokens, document, s.documents);
  }
  OT_TRY(check_document(tokens, document, tokens->about.documents));
  int64_t end;
  OT_TRY(ot_tokens_document_start(tokens, document, first));
  OT_TRY(ot_tokens_document_start(tokens, document + 1, &end));
  *count = end - *first;
  return OT_OK;
}

ot_status ot_tokens_scan(const ot_tokens *tokens, ot_tokens_scan_result *result) {
  walk w = {.tokens = tokens, .max_id = -1};
  OT_TRY(walk_tokens(&w));
  result->max_id = w.max_id;
  result->documents = tokens->about.documents >= 0 ? tokens->about.documents : w.documents;
  return OT_OK;
}
