// SPDX-License-Identifier: Apache-2.0
// Reads and checks ids, and finds documents; token_shard_open.c opens the files.
#include "data/token_shard.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/token_shard_parts.h"

enum { BLOCK = OT_TOKEN_SHARD_BLOCK };

// ---- content ----

static ot_status hash_file(const ot_steady_file *file, char hex[OT_CONTENT_HASH_BYTES]) {
  return ot_content_hash_file(file->descriptor, file->path, file->bytes, hex);
}

static ot_status hash_content(ot_token_shard *t) {
  char hashes[2 * OT_CONTENT_HASH_BYTES] = "";
  OT_TRY(hash_file(&t->bin, hashes));
  if (t->bin.bytes <= OT_CONTENT_WHOLE_BYTES) OT_TRY(ot_shard_check_hash(t->bin_path, hashes));
  if (t->about.idx_path) OT_TRY(hash_file(&t->idx, hashes + OT_CONTENT_HASH_BYTES - 1));
  ot_content_hash_memory(hashes, ot_text_length(hashes), t->about.hash);
  return OT_OK;
}

static ot_status fill(ot_token_shard *t, const ot_token_shard_request *request) {
  t->bin.descriptor = t->idx.descriptor = -1;
  t->vocab_size = request->vocab_size;
  t->about = (ot_token_shard_info){
      .bin_path = t->bin_path, .documents = -1, .sequences = -1, .eod = request->eod};
  OT_TRY(ot_token_shard_open_files(t, request));
  // The scripts of llm.c write the id before each document, those of nanoGPT after it.
  const bool begins = t->about.format == OT_DATA_LLMC;
  t->about.boundary = request->boundary != OT_BOUNDARY_AUTO ? request->boundary
                      : begins                              ? OT_BOUNDARY_START
                                                            : OT_BOUNDARY_END;
  OT_TRY(hash_content(t));
  if (t->vocab_size == 0 || t->bin.bytes > OT_TOKEN_SHARD_CHECKED_BYTES) return OT_OK;
  ot_token_shard_scan_result ignored;
  return ot_token_shard_scan(t, &ignored);
}

ot_status ot_token_shard_create(const ot_token_shard_request *request, ot_token_shard **out) {
  *out = NULL;
  ot_token_shard *tokens = calloc(1, sizeof *tokens);
  OT_CHECK(tokens, OT_ENVIRONMENT, "out of memory (%s)", request->path);
  const ot_status status = fill(tokens, request);
  if (status != OT_OK) ot_token_shard_destroy(&tokens);
  *out = tokens;
  return status;
}

void ot_token_shard_destroy(ot_token_shard **tokens) {
  if (!*tokens) return;
  ot_steady_file_close(&(*tokens)->bin);
  ot_steady_file_close(&(*tokens)->idx);
  free(*tokens);
  *tokens = NULL;
}

const ot_token_shard_info *ot_token_shard_describe(const ot_token_shard *tokens) {
  return &tokens->about;
}

// ---- reading ----

// Converts raw[i] to int64 so that every dtype is checked alike.
static int64_t widen(ot_shard_type type, const uint8_t *raw, int64_t i) {
  switch (type) {
    case OT_SHARD_U8:
      return raw[i];
    case OT_SHARD_I8:
      return ((const int8_t *)raw)[i];
    case OT_SHARD_I16:
      return ((const int16_t *)(const void *)raw)[i];
    case OT_SHARD_U16:
      return ((const uint16_t *)(const void *)raw)[i];
    case OT_SHARD_I32:
      return ((const int32_t *)(const void *)raw)[i];
    case OT_SHARD_U32:
      return ((const uint32_t *)(const void *)raw)[i];
    case OT_SHARD_I64:
      return ((const int64_t *)(const void *)raw)[i];
  }
  OT_UNREACHABLE();
}

// Ids of common dtypes as int32, with the maximum as unsigned, which also reveals negative ones;
// branch-free loops that the compiler vectorises.
static uint32_t convert_u16(const uint16_t *raw, int64_t count, int32_t *ids) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const uint32_t id = raw[i];
    ids[i] = (int32_t)id;
    largest = id > largest ? id : largest;
  }
  return largest;
}

static uint32_t convert_32(const uint32_t *raw, int64_t count, int32_t *ids) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    ids[i] = (int32_t)raw[i];
    largest = raw[i] > largest ? raw[i] : largest;
  }
  return largest;
}

static uint32_t convert_any(ot_shard_type type, const uint8_t *raw, int64_t count, int32_t *ids) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t id = widen(type, raw, i);
    const uint32_t seen = id < 0 || id > INT32_MAX ? UINT32_MAX : (uint32_t)id;
    ids[i] = (int32_t)seen;
    largest = seen > largest ? seen : largest;
  }
  return largest;
}

static uint32_t convert(ot_shard_type type, const uint8_t *raw, int64_t count, int32_t *ids) {
  if (type == OT_SHARD_U16) return convert_u16((const uint16_t *)(const void *)raw, count, ids);
  if (type == OT_SHARD_I32 || type == OT_SHARD_U32) {
    return convert_32((const uint32_t *)(const void *)raw, count, ids);
  }
  return convert_any(type, raw, count, ids);
}

static ot_status fail_at_bad_id(const ot_token_shard *t, int64_t first, const uint8_t *raw,
                                int64_t limit) {
  int64_t i = 0;
  while (widen(t->type, raw, i) >= 0 && widen(t->type, raw, i) < limit) i++;
  return ot_fail(OT_ENVIRONMENT, "%s: token %lld (byte %lld) has id %lld; allowed: 0 to %lld",
                 t->bin_path, (long long)(first + i),
                 (long long)(t->data_start + (first + i) * t->about.token_bytes),
                 (long long)widen(t->type, raw, i), (long long)limit - 1);
}

ot_status ot_token_shard_read(const ot_token_shard *tokens, int64_t first, int64_t count,
                              int32_t *ids) {
  OT_ASSERT(first >= 0 && count >= 0 && first <= tokens->about.tokens - count);
  const int64_t size = tokens->about.token_bytes;
  const int64_t limit = tokens->vocab_size > 0 ? tokens->vocab_size : (int64_t)INT32_MAX + 1;
  _Alignas(8) uint8_t raw[BLOCK * 8];
  for (int64_t done = 0; done < count; done += BLOCK) {
    const int64_t n = count - done < BLOCK ? count - done : BLOCK;
    OT_TRY(ot_steady_file_read(&tokens->bin, tokens->data_start + (first + done) * size, raw,
                               n * size));
    const uint32_t largest = convert(tokens->type, raw, n, ids + done);
    if (largest >= limit) return fail_at_bad_id(tokens, first + done, raw, limit);
  }
  return OT_OK;
}

static ot_status document_start(const ot_token_shard *tokens, int64_t document, int64_t *start) {
  int64_t sequence = document;
  if (!tokens->plain_documents) {
    OT_TRY(ot_steady_file_read(&tokens->idx, tokens->document_table + 8 * document, &sequence, 8));
  }
  int64_t offset = tokens->about.tokens * tokens->about.token_bytes;
  if (sequence >= 0 && sequence < tokens->about.sequences) {
    OT_TRY(ot_steady_file_read(&tokens->idx, tokens->offset_table + 8 * sequence, &offset, 8));
  }
  *start = offset / tokens->about.token_bytes;
  return OT_OK;
}

static ot_status find_document(const ot_token_shard *tokens, int64_t position, int64_t *document) {
  int64_t low = 0, high = tokens->about.documents;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    int64_t start;
    OT_TRY(document_start(tokens, middle, &start));
    if (start <= position) {
      low = middle;
    } else {
      high = middle;
    }
  }
  *document = low;
  return OT_OK;
}

static ot_status boundaries_by_index(const ot_token_shard *t, const ot_token_shard_span *span,
                                     ot_token_shard_boundary_sink sink, void *context) {
  int64_t document;
  OT_TRY(find_document(t, span->first, &document));
  int64_t last = span->first;
  while (++document < t->about.documents) {
    int64_t start;
    OT_TRY(document_start(t, document, &start));
    if (start >= span->first + span->count) break;
    // Empty documents start where the next one does.
    if (start > last) sink(context, start);
    last = start;
  }
  return OT_OK;
}

ot_status ot_token_shard_boundaries(const ot_token_shard *tokens, const ot_token_shard_span *span,
                                    ot_token_shard_boundary_sink sink, void *context) {
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
  const ot_token_shard *tokens;
  ot_token_shard_document_sink sink;  // may be null
  void *context;
  int64_t documents;  // completed so far
  int64_t start;      // first token of the current document
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
  const ot_token_shard *const t = w->tokens;
  int32_t ids[BLOCK];
  for (int64_t first = 0; first < t->about.tokens; first += BLOCK) {
    const int64_t n = t->about.tokens - first < BLOCK ? t->about.tokens - first : BLOCK;
    OT_TRY(ot_token_shard_read(t, first, n, ids));
    OT_TRY(walk_block(w, ids, first, n));
  }
  // Tokens after the last boundary form a document, too.
  const bool open_end = t->about.documents < 0 && w->start < t->about.tokens;
  return open_end ? end_document(w, t->about.tokens) : OT_OK;
}

// ---- public ----

ot_status ot_token_shard_each_document(const ot_token_shard *tokens,
                                       ot_token_shard_document_sink sink, void *context) {
  if (tokens->about.documents < 0) {
    walk w = {.tokens = tokens, .sink = sink, .context = context};
    return walk_tokens(&w);
  }
  int64_t start = 0;
  for (int64_t i = 0; i < tokens->about.documents; i++) {
    int64_t end;
    OT_TRY(document_start(tokens, i + 1, &end));
    OT_TRY(sink(context, i, start, end - start));
    start = end;
  }
  return OT_OK;
}

typedef struct search {
  int64_t wanted;
  int64_t first, count;  // of the requested document, once found
  int64_t documents;     // documents seen
} search;

static ot_status read_document(void *context, int64_t document, int64_t first, int64_t count) {
  search *const s = context;
  s->documents++;
  if (document != s->wanted) return OT_OK;
  s->first = first;
  s->count = count;
  return OT_OK;
}

static ot_status check_document(const ot_token_shard *t, int64_t document, int64_t documents) {
  OT_CHECK(document >= 0 && document < documents, OT_USAGE,
           "%s has no document %lld; it has %lld, counted from 0", t->bin_path, (long long)document,
           (long long)documents);
  return OT_OK;
}

ot_status ot_token_shard_document(const ot_token_shard *tokens, int64_t document, int64_t *first,
                                  int64_t *count) {
  if (tokens->about.documents < 0) {
    search s = {.wanted = document};
    OT_TRY(ot_token_shard_each_document(tokens, read_document, &s));
    *first = s.first;
    *count = s.count;
    return check_document(tokens, document, s.documents);
  }
  OT_TRY(check_document(tokens, document, tokens->about.documents));
  int64_t end;
  OT_TRY(document_start(tokens, document, first));
  OT_TRY(document_start(tokens, document + 1, &end));
  *count = end - *first;
  return OT_OK;
}

ot_status ot_token_shard_verify(const ot_token_shard *tokens) {
  const ot_steady_file *const file = &tokens->bin;
  ot_content_hash *hash = NULL;
  char hex[OT_CONTENT_HASH_BYTES];
  if (file->bytes <= OT_CONTENT_WHOLE_BYTES) return OT_OK;  // compared when it was opened
  OT_TRY(ot_content_hash_create(&hash));
  const ot_status status =
      ot_content_hash_range(hash, file->descriptor, file->path, 0, file->bytes);
  ot_content_hash_print(hash, hex);
  ot_content_hash_destroy(&hash);
  OT_TRY(status);
  return ot_shard_check_hash(tokens->bin_path, hex);
}

ot_status ot_token_shard_scan(const ot_token_shard *tokens, ot_token_shard_scan_result *result) {
  walk w = {.tokens = tokens, .max_id = -1};
  OT_TRY(walk_tokens(&w));
  result->max_id = w.max_id;
  result->documents = tokens->about.documents >= 0 ? tokens->about.documents : w.documents;
  return OT_OK;
}
