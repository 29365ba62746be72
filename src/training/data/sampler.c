// SPDX-License-Identifier: Apache-2.0
// From an index to a window by arithmetic; from a window to a sequence by one read.
#include "data/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/text.h"
#include "data/blend.h"
#include "data/token_shard.h"
#include "host/heap.h"

typedef struct source {
  const char *path;
  ot_token_shard *tokens;
  int64_t num_tokens;
  int64_t windows;
} source;

typedef struct mixture {
  int64_t from_sample;
  ot_blend *blend;
  int64_t num_sources;
  int64_t *source;  // [num_sources] index into sampler's sources
  int64_t *before;  // [num_sources] samples of that source drawn by earlier mixtures
} mixture;

struct ot_sampler {
  ot_heap heap;
  source *sources;  // [num_sources]
  int64_t num_sources;
  int64_t sources_capacity;
  mixture *mixtures;  // [num_mixtures]
  int64_t num_mixtures;
  uint64_t seed;
  int64_t T;
  bool document_mask;
  bool sequential;
};

// ---- creating ----

static ot_status check_request(const ot_sampler_request *r) {
  OT_CHECK(r->num_mixtures >= 1 && r->mixtures[0].num_sources >= 1, OT_USAGE, "no training data");
  OT_CHECK(r->sequence_length >= 1 && r->sequence_length < INT32_MAX, OT_USAGE,
           "sequence_length %lld is out of range; allowed: 1 to %d", (long long)r->sequence_length,
           INT32_MAX - 1);
  for (int64_t i = 0; i < r->num_mixtures; i++) {
    const int64_t from = r->mixtures[i].from_sample;
    OT_CHECK(i == 0 ? from == 0 : from > r->mixtures[i - 1].from_sample, OT_USAGE,
             "mixture %lld starts at sample %lld; the starts must increase from 0", (long long)i,
             (long long)from);
  }
  OT_CHECK(!r->sequential || (r->num_mixtures == 1 && r->mixtures[0].num_sources == 1), OT_USAGE,
           "a sequential sampler has one source");
  return OT_OK;
}

static ot_status open_source(const ot_sampler_request *request, const char *path, source *s) {
  const ot_token_shard_request tokens = {.path = path,
                                         .format = request->format,
                                         .vocab_size = request->vocab_size,
                                         .eod = request->eod,
                                         .boundary = request->boundary};
  OT_TRY(ot_token_shard_create(&tokens, &s->tokens));
  s->num_tokens = ot_token_shard_describe(s->tokens)->tokens;
  OT_CHECK(s->num_tokens >= 2, OT_ENVIRONMENT, "%s has %lld tokens; at least 2 are needed", path,
           (long long)s->num_tokens);
  const int64_t T = request->sequence_length;
  const int64_t predicted = s->num_tokens - 1;
  s->windows = request->sequential ? (predicted + T - 1) / T : predicted / T;
  if (s->windows == 0) s->windows = 1;
  return OT_OK;
}

// PREFIX, PREFIX.bin and PREFIX.idx are one source.
static int64_t stem_length(const char *path) {
  const bool suffix = ot_text_ends_with(path, ".bin") || ot_text_ends_with(path, ".idx");
  return (int64_t)strlen(path) - (suffix ? 4 : 0);
}

static ot_status find_source(ot_sampler *s, const ot_sampler_request *request, const char *path,
                             int64_t *index) {
  const int64_t stem = stem_length(path);
  for (int64_t i = 0; i < s->num_sources; i++) {
    const char *const known = s->sources[i].path;
    if (stem != stem_length(known) || memcmp(known, path, (size_t)stem) != 0) continue;
    *index = i;
    return OT_OK;
  }
  ot_arena arena = ot_heap_arena_create(&s->heap);
  s->sources =
      ot_arena_grow(&arena, s->sources, s->num_sources, &s->sources_capacity, sizeof *s->sources);
  *index = s->num_sources;
  source *const added = &s->sources[s->num_sources++];
  *added = (source){.path = ot_arena_text(&arena, path, (int64_t)strlen(path))};
  return open_source(request, path, added);
}

static ot_status fill_mixture(ot_sampler *s, const ot_sampler_request *request, int64_t i) {
  const ot_sampler_mixture *const from = &request->mixtures[i];
  mixture *const m = &s->mixtures[i];
  ot_arena arena = ot_heap_arena_create(&s->heap);
  m->from_sample = from->from_sample;
  m->num_sources = from->num_sources;
  m->source = ot_arena_array(&arena, from->num_sources, sizeof *m->source);
  m->before = ot_arena_array(&arena, from->num_sources, sizeof *m->before);
  double *const weights = ot_arena_array(&arena, from->num_sources, sizeof *weights);
  for (int64_t k = 0; k < from->num_sources; k++) {
    weights[k] = from->sources[k].weight;
    OT_TRY(find_source(s, request, from->sources[k].path, &m->source[k]));
    for (int64_t earlier = 0; earlier < k; earlier++) {
      OT_CHECK(m->source[earlier] != m->source[k], OT_USAGE, "%s is listed twice in one mixture",
               from->sources[k].path);
    }
  }
  return ot_blend_create(weights, from->num_sources, &m->blend);
}

static void add_draws(const mixture *m, int64_t samples, int64_t *drawn) {
  ot_blend_count(m->blend, samples, &(ot_blend_sums){m->source, drawn});
}

// Samples of each source drawn before mixture `i` starts.
static void count_earlier_draws(ot_sampler *s, int64_t i, int64_t *drawn) {
  mixture *const m = &s->mixtures[i];
  for (int64_t k = 0; k < m->num_sources; k++) m->before[k] = drawn[m->source[k]];
  if (i + 1 == s->num_mixtures) return;
  add_draws(m, s->mixtures[i + 1].from_sample - m->from_sample, drawn);
}

static ot_status fill(ot_sampler *s, const ot_sampler_request *request) {
  OT_TRY(check_request(request));
  ot_arena arena = ot_heap_arena_create(&s->heap);
  s->seed = request->seed;
  s->T = request->sequence_length;
  s->document_mask = request->document_mask;
  s->sequential = request->sequential;
  s->num_mixtures = request->num_mixtures;
  s->mixtures = ot_arena_array(&arena, request->num_mixtures, sizeof *s->mixtures);
  for (int64_t i = 0; i < s->num_mixtures; i++) OT_TRY(fill_mixture(s, request, i));
  int64_t *const drawn = ot_arena_array(&arena, s->num_sources, sizeof *drawn);
  for (int64_t i = 0; i < s->num_mixtures; i++) count_earlier_draws(s, i, drawn);
  return OT_OK;
}

ot_status ot_sampler_create(const ot_sampler_request *request, ot_sampler **out) {
  *out = NULL;
  ot_sampler *sampler = calloc(1, sizeof *sampler);
  OT_CHECK(sampler, OT_ENVIRONMENT, "out of memory (data)");
  const ot_status status = fill(sampler, request);
  if (status != OT_OK) ot_sampler_destroy(&sampler);
  *out = sampler;
  return status;
}

void ot_sampler_destroy(ot_sampler **sampler) {
  ot_sampler *const s = *sampler;
  if (!s) return;
  for (int64_t i = 0; i < s->num_sources; i++) ot_token_shard_destroy(&s->sources[i].tokens);
  for (int64_t i = 0; s->mixtures && i < s->num_mixtures; i++) {
    ot_blend_destroy(&s->mixtures[i].blend);
  }
  ot_heap_release(&s->heap);
  free(s);
  *sampler = NULL;
}

// ---- from sample to window ----

static const mixture *mixture_at(const ot_sampler *s, int64_t sample) {
  int64_t i = s->num_mixtures - 1;
  while (i > 0 && sample < s->mixtures[i].from_sample) i--;
  return &s->mixtures[i];
}

// The RNG stream that permutes one epoch of one source.
static uint64_t order_stream(int64_t source_index, int64_t epoch) {
  const int64_t key[2] = {source_index, epoch};
  return ot_hash_bytes(ot_hash_text(OT_HASH_START, "data order"), key, sizeof key);
}

// The tokens of the place's window.
static void find_tokens(const ot_sampler *sampler, ot_sample_place *place) {
  place->first = place->window * sampler->T;
  const int64_t left = sampler->sources[place->source].num_tokens - place->first;
  place->count = left < sampler->T + 1 ? left : sampler->T + 1;
}

void ot_sampler_locate(const ot_sampler *sampler, int64_t sample, ot_sample_place *place) {
  OT_ASSERT(sample >= 0);
  const mixture *const m = mixture_at(sampler, sample);
  const ot_blend_draw draw = ot_blend_at(m->blend, sample - m->from_sample);
  const int64_t index = m->source[draw.source];
  const int64_t k = m->before[draw.source] + draw.before;
  const source *const from = &sampler->sources[index];
  *place = (ot_sample_place){.path = from->path, .source = index, .window = k};
  if (!sampler->sequential) {
    place->epoch = k / from->windows;
    place->window = (int64_t)ot_rng_permute(sampler->seed, order_stream(index, place->epoch),
                                            (uint64_t)(k % from->windows), (uint64_t)from->windows);
  } else if (k >= from->windows) {
    place->first = from->num_tokens;
    return;
  }
  find_tokens(sampler, place);
}

// ---- from window to sequence ----

typedef struct row {
  const ot_sampler *sampler;
  ot_sample_rows at;  // pointers to this sequence
  int64_t first;      // in the source
  int64_t start;      // of the document being filled, index in the sequence
  int64_t next;       // first index not yet filled with positions
} row;

static void fill_positions(row *r, int64_t end) {
  for (; r->next < end; r->next++) {
    r->at.doc_starts[r->next] = (int32_t)r->start;
    r->at.positions[r->next] = (int32_t)(r->next - r->start);
  }
}

static void begin_document(void *context, int64_t position) {
  row *const r = context;
  const int64_t i = position - r->first;
  r->at.targets[i - 1] = -1;
  fill_positions(r, i);
  r->start = i;
}

// Padding from index `from` on: each token is a document of its own.
static void pad(row *r, int64_t from) {
  for (int64_t i = from; i < r->sampler->T; i++) {
    r->at.tokens[i] = 0;
    r->at.targets[i] = -1;
    r->at.positions[i] = 0;
    r->at.doc_starts[i] = (int32_t)i;
  }
}

static ot_status fill_row(row *r, const ot_sample_place *place) {
  const ot_sampler *const s = r->sampler;
  const ot_token_shard *const tokens = s->sources[place->source].tokens;
  const int64_t T = s->T;
  // The last target is one token beyond the sequence.
  const int64_t inside = place->count > T ? T : place->count;
  pad(r, inside);
  if (inside == 0) return OT_OK;
  OT_TRY(ot_token_shard_read(tokens, place->first, inside, r->at.tokens));
  memcpy(r->at.targets, r->at.tokens + 1, (size_t)(inside - 1) * sizeof *r->at.targets);
  r->at.targets[inside - 1] = -1;
  if (place->count > T) {
    OT_TRY(ot_token_shard_read(tokens, place->first + T, 1, &r->at.targets[T - 1]));
  }
  if (s->document_mask) {
    const ot_token_shard_span span = {
        .first = place->first,
        .count = place->count,
        .ids = r->at.tokens,
        .last = place->count > T ? r->at.targets[T - 1] : r->at.tokens[inside - 1]};
    OT_TRY(ot_token_shard_boundaries(tokens, &span, begin_document, r));
  }
  fill_positions(r, inside);
  return OT_OK;
}

static ot_status read_place(const ot_sampler *sampler, const ot_sample_place *place,
                            const ot_sample_rows *at, int64_t *num_targets) {
  row r = {.sampler = sampler, .first = place->first, .at = *at};
  OT_TRY(fill_row(&r, place));
  for (int64_t i = 0; i < sampler->T; i++) *num_targets += at->targets[i] >= 0;
  return OT_OK;
}

ot_status ot_sampler_read(const ot_sampler *sampler, const int64_t *samples, int64_t B,
                          const ot_sample_rows *rows, int64_t *num_targets) {
  const int64_t T = sampler->T;
  *num_targets = 0;
  for (int64_t b = 0; b < B; b++) {
    ot_sample_place place;
    ot_sampler_locate(sampler, samples[b], &place);
    const ot_sample_rows at = {.tokens = rows->tokens + b * T,
                               .targets = rows->targets + b * T,
                               .positions = rows->positions + b * T,
                               .doc_starts = rows->doc_starts + b * T};
    OT_TRY(read_place(sampler, &place, &at, num_targets));
  }
  return OT_OK;
}

ot_status ot_sampler_read_window(const ot_sampler *sampler, int64_t source_index, int64_t window,
                                 const ot_sample_rows *rows, int64_t *num_targets) {
  ot_sample_place place = {.source = source_index, .window = window};
  find_tokens(sampler, &place);
  *num_targets = 0;
  return read_place(sampler, &place, rows, num_targets);
}

// ---- queries ----

int64_t ot_sampler_num_rows(const ot_sampler *sampler) { return sampler->sources[0].windows; }

int64_t ot_sampler_num_sources(const ot_sampler *sampler) { return sampler->num_sources; }

ot_sampler_source ot_sampler_source_at(const ot_sampler *sampler, int64_t source_index) {
  const source *const s = &sampler->sources[source_index];
  const ot_token_shard_info *const about = ot_token_shard_describe(s->tokens);
  return (ot_sampler_source){.path = s->path,
                             .tokens = s->num_tokens,
                             .windows = s->windows,
                             .bin_path = about->bin_path,
                             .hash = about->hash};
}

void ot_sampler_count_drawn(const ot_sampler *sampler, int64_t samples, int64_t *drawn) {
  for (int64_t i = 0; i < sampler->num_sources; i++) drawn[i] = 0;
  for (int64_t i = 0; i < sampler->num_mixtures; i++) {
    const mixture *const m = &sampler->mixtures[i];
    const int64_t left = samples - m->from_sample;
    if (left <= 0) return;
    const bool last = i + 1 == sampler->num_mixtures;
    const int64_t length = last ? left : sampler->mixtures[i + 1].from_sample - m->from_sample;
    add_draws(m, left < length ? left : length, drawn);
  }
}
