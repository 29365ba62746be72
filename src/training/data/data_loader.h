// SPDX-License-Identifier: Apache-2.0
// The data loader of a run: its token shards with their samplers, its tokenizer, and micro-batches
// ready to be loaded.
#pragma once

#include "base/arena.h"
#include "data/micro_batch.h"
#include "data/sampler.h"
#include "describe/run.h"
#include "tokenizer/tokenizer.h"

typedef struct ot_data_loader ot_data_loader;

// Opens every shard of the run and its tokenizer, and checks that they match each other and the
// model.
ot_status ot_data_loader_create(const ot_run *run, ot_data_loader **out);
void ot_data_loader_destroy(ot_data_loader **loader);

// Hash of the names and contents of the sources: it differs between ranks that see different data.
uint64_t ot_data_loader_hash(const ot_data_loader *loader);

// The files that must have the same content on every rank: token files of training, of validation,
// the tokenizer. Paths are valid until destroy.
typedef struct ot_data_file {
  const char *path;
  uint64_t hash;  // of the content
} ot_data_file;
int64_t ot_data_loader_num_files(const ot_data_loader *loader);
ot_data_file ot_data_loader_file(const ot_data_loader *loader, int64_t index);

// Tokens of all training sources, each source counted once.
int64_t ot_data_loader_tokens(const ot_data_loader *loader);

// Samples [first, first + B) of training.
ot_status ot_data_loader_train(ot_data_loader *loader, int64_t first, ot_micro_batch *rows);

// The settings of the data. Valid as long as the run.
const ot_run *ot_data_loader_run(const ot_data_loader *loader);

// drawn[i] = samples of training set i among the first `samples` of the run, [num_sources].
void ot_data_loader_count_drawn(const ot_data_loader *loader, int64_t samples, int64_t *drawn);

// A validation set.
ot_sampler_source ot_data_loader_validation_source(const ot_data_loader *loader, int64_t set);

// The training sets, in the order of first mention, and where a sample is in them.
int64_t ot_data_loader_num_sources(const ot_data_loader *loader);
ot_sampler_source ot_data_loader_source(const ot_data_loader *loader, int64_t source);
void ot_data_loader_locate(const ot_data_loader *loader, int64_t sample, ot_sample_place *place);

// Windows [first, first + B) of a training set; those after its last are empty: fully masked.
ot_status ot_data_loader_windows(ot_data_loader *loader, int64_t source, int64_t first,
                                 ot_micro_batch *rows);

// Sequences of a validation set that cover its validation_tokens.
int64_t ot_data_loader_validation_rows(const ot_data_loader *loader, int set);

// Sequences [first, first + B) of a validation set; those after its end are fully masked.
ot_status ot_data_loader_validation(ot_data_loader *loader, int set, int64_t first,
                                    ot_micro_batch *rows);

// The run's tokenizer, or null. Valid until destroy.
const ot_tokenizer *ot_data_loader_tokenizer(const ot_data_loader *loader);

// The first sequence of `rows` as text with its ids, marking masked targets and document starts.
ot_status ot_data_loader_decode(const ot_data_loader *loader, const ot_micro_batch *rows,
                                ot_arena *arena, const char **text);
