// SPDX-License-Identifier: Apache-2.0
// Training samples: sequence i of the run is a pure function of (seed, i), independent of which
// ranks read it. There are no index files and no state, so a run is resumed from one integer, the
// next sample.
//
// Sample i -> the mixture active at i -> a source and the draw's number k within it (blend.h) ->
// epoch k / n and index k % n, where n windows of sequence_length tokens tile the source -> a
// window, by a permutation keyed by (seed, source, epoch). A sequence is the window's tokens;
// targets are shifted by one. Documents are packed in it without gaps.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "describe/run.h"

typedef struct ot_sampler ot_sampler;  // safe to read from many threads

// The sources from sample `from_sample` until the next mixture.
typedef struct ot_sampler_mixture {
  int64_t from_sample;
  const ot_data_source *sources;  // a path may be in several mixtures: its epochs continue
  int64_t num_sources;
} ot_sampler_mixture;

typedef struct ot_sampler_request {
  const ot_sampler_mixture *mixtures;  // [num_mixtures], from_sample increasing from 0
  int64_t num_mixtures;
  uint64_t seed;
  int64_t sequence_length;
  bool document_mask;     // documents do not attend to each other
  bool sequential;        // validation: one source, its windows in order, the last one padded
  ot_data_format format;  // of all sources
  int64_t vocab_size;     // ids must be below; 0 = not checked
  int64_t eod;            // end-of-document id if there is no index; -1: see token_shard.h
  ot_document_boundary boundary;  // whether the id begins or ends a document
} ot_sampler_request;

// Opens the sources. OT_ENVIRONMENT and OT_USAGE as ot_token_shard_create and ot_blend_create, and
// for a source of fewer than 2 tokens.
ot_status ot_sampler_create(const ot_sampler_request *request, ot_sampler **out);
void ot_sampler_destroy(ot_sampler **sampler);

// Sequences to fill, each [B, sequence_length].
typedef struct ot_sample_rows {
  int32_t *tokens;
  int32_t *targets;     // the next token; -1 if there is none or, with document_mask, if it belongs
                        // to another document
  int32_t *positions;   // from the start of the document (document_mask) or of the sequence
  int32_t *doc_starts;  // index in the sequence of the first token visible to this one
} ot_sample_rows;

// Fills B sequences with samples `samples` [B] and counts their targets that are not -1. If a
// source is shorter than a sequence (and at the end of a sequential one) the rest is padding: token
// 0, target -1, attending only to itself. O(B * sequence_length). Blocks on files; allocates
// nothing.
ot_status ot_sampler_read(const ot_sampler *sampler, const int64_t *samples, int64_t B,
                          const ot_sample_rows *rows, int64_t *num_targets);

// The same for one sequence, a window of a source (numbers as in ot_sample_place).
ot_status ot_sampler_read_window(const ot_sampler *sampler, int64_t source_index, int64_t window,
                                 const ot_sample_rows *rows, int64_t *num_targets);

// Sequences of a sequential sampler that contain tokens; later ones are all padding.
int64_t ot_sampler_num_rows(const ot_sampler *sampler);

// The origin of a sample, for display.
typedef struct ot_sample_place {
  const char *path;  // as in the request; valid until destroy
  int64_t source;    // number of the path, in order of first mention
  int64_t epoch;     // complete passes over the source before
  int64_t window;    // index in the source's windows
  int64_t first;     // index in the source
  int64_t count;     // tokens of the sequence, with the last target
} ot_sample_place;
void ot_sampler_locate(const ot_sampler *sampler, int64_t sample, ot_sample_place *place);

// Sources in the order of first mention.
typedef struct ot_sampler_source {
  const char *path;
  int64_t tokens;
  int64_t windows;       // samples of one epoch
  const char *bin_path;  // token file
  const char *hash;      // of the content (ot_token_shard_info)
} ot_sampler_source;
int64_t ot_sampler_num_sources(const ot_sampler *sampler);
ot_sampler_source ot_sampler_source_at(const ot_sampler *sampler, int64_t source);

// drawn[i] = samples from source i among the first `samples` of the run, [num_sources].
void ot_sampler_count_drawn(const ot_sampler *sampler, int64_t samples, int64_t *drawn);
