// SPDX-License-Identifier: Apache-2.0
// The data loader of a run: its token shards with their samplers, its tokenizer, and micro-batches
// ready to be loaded.
#pragma once

#include "base/arena.h"
#include "data/rows.h"
#include "describe/run.h"
#include "tokenizer/tokenizer.h"

typedef struct ot_feed ot_feed;

// Opens every shard of the run and its tokenizer, and checks that they match each other and the
// model.
ot_status ot_feed_create(const ot_run *run, ot_feed **out);
void ot_feed_destroy(ot_feed **feed);

// Hash of the names and sizes of the sources: it differs between ranks that see different data.
uint64_t ot_feed_hash(const ot_feed *feed);

// Tokens of all training sources, each source counted once.
int64_t ot_feed_tokens(const ot_feed *feed);

// Samples [first, first + B) of training.
ot_status ot_feed_train(ot_feed *feed, int64_t first, ot_rows *rows);

// Sequences of a validation set that cover its validation_tokens.
int64_t ot_feed_validation_rows(const ot_feed *feed, int set);

// Sequences [first, first + B) of a validation set; those after its end are fully masked.
ot_status ot_feed_validation(ot_feed *feed, int set, int64_t first, ot_rows *rows);

// The run's tokenizer, or null. Valid until destroy.
const ot_tokenizer *ot_feed_tokenizer(const ot_feed *feed);

// The first sequence of `rows` as text with its ids, marking masked targets and document starts.
ot_status ot_feed_decode(const ot_feed *feed, const ot_rows *rows, ot_arena *arena,
                         const char **text);
