// SPDX-License-Identifier: Apache-2.0
// Training samples: row i of the run is a pure function of (seed, i), whatever ranks read it. There
// are no index files and no state, so a run is resumed from one integer, the next sample.
//
// Sample i -> the mixture that holds at i -> a source and the draw's number k within it (blend.h)
// -> epoch k / n and place k % n, where n windows of sequence_length tokens tile the source -> a
// window, by a permutation keyed by (seed, source, epoch). A row is the window's tokens, and
// targets one further on. Documents lie back to back in it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "describe/run.h"

typedef struct ot_sampler ot_sampler;  // safe to read from many threads

// The sources from sample `from_sample` on, until the next mixture.
typedef struct ot_sampler_mixture {
  int64_t from_sample;
  const ot_data_source *sources;  // one path may come in several mixtures: its epochs go on
  int64_t num_sources;
} ot_sampler_mixture;

typedef struct ot_sampler_request {
  const ot_sampler_mixture *mixtures;  // [num_mixtures], from_sample increasing from 0
  int64_t num_mixtures;
  uint64_t seed;
  int64_t sequence_length;
  bool document_mask;     // documents do not see each other
  bool sequential;        // validation: one source, its windows in order, the last one padded
  ot_data_format format;  // of all sources
  int64_t vocab_size;     // ids must be below; 0 = not checked
  int64_t eod;            // end-of-document id of formats without an index; -1: see tokens.h
  ot_document_boundary boundary;  // where that stands
} ot_sampler_request;

// Opens the sources. OT_ENVIRONMENT and OT_USAGE as of ot_tokens_create and ot_blend_create, and
// for a source of fewer than 2 tokens.
ot_status ot_sampler_create(const ot_sampler_request *request, ot_sampler **out);
void ot_sampler_destroy(ot_sampler **sampler);

// Rows to fill, each [B, sequence_length].
typedef struct ot_sample_rows {
  int32_t *tokens;
  int32_t *targets;     // the next token; -1 where there is none, and, with document_mask, where it
                        // belongs to another document
  int32_t *positions;   // from the start of the document in the row (document_mask) or of the row
  int32_t *doc_starts;  // index in the row of the first token that this one may see
} ot_sample_rows;

// Fills B rows with samples `samples` [B] and counts their targets that are not -1. Where a source
// is shorter than a row (and at the end of a sequential one) the rest is padding: token 0, target
// -1, seeing only itself. O(B * sequence_length). Blocks on files; allocates nothing.
ot_status ot_sampler_read(const ot_sampler *sampler, const int64_t *samples, int64_t B,
                          const ot_sample_rows *rows, int64_t *num_targets);

// Rows of a sequential sampler that hold tokens; later ones are all padding.
int64_t ot_sampler_num_rows(const ot_sampler *sampler);

// Where a sample comes from, for people.
typedef struct ot_sample_place {
  const char *path;  // as in the request; valid until destroy
  int64_t source;    // number of the path, in the order of first mention
  int64_t epoch;     // times that the source was read before
  int64_t window;    // of the source's windows
  int64_t first;     // token of the source
  int64_t count;     // tokens of the row, the last target included
} ot_sample_place;
void ot_sampler_locate(const ot_sampler *sampler, int64_t sample, ot_sample_place *place);

// Sources in the order of first mention.
typedef struct ot_sampler_source {
  const char *path;
  int64_t tokens;
  int64_t windows;  // samples of one epoch
} ot_sampler_source;
int64_t ot_sampler_num_sources(const ot_sampler *sampler);
ot_sampler_source ot_sampler_source_at(const ot_sampler *sampler, int64_t source);
