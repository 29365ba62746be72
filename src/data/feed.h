// SPDX-License-Identifier: Apache-2.0
// What a run trains and validates on: its token shards behind one sampler, its tokenizer, and rows
// of samples ready to be loaded.
#pragma once

#include "base/arena.h"
#include "data/rows.h"
#include "describe/run.h"
#include "tokenizer/tokenizer.h"

typedef struct ot_feed ot_feed;

// Opens every shard of the run and its tokenizer, and checks them against each other and the model.
ot_status ot_feed_create(const ot_run *run, ot_feed **out);
void ot_feed_destroy(ot_feed **feed);

// Of names and sizes of the sources: ranks that do not see the same data differ in it.
uint64_t ot_feed_hash(const ot_feed *feed);

// Tokens of all training sources, each counted once.
int64_t ot_feed_tokens(const ot_feed *feed);

// Samples [first, first + B) of training.
ot_status ot_feed_train(ot_feed *feed, int64_t first, ot_rows *rows);

// Rows of a validation set that its validation_tokens take.
int64_t ot_feed_validation_rows(const ot_feed *feed, int set);

// Rows [first, first + B) of a validation set; those behind its end are wholly masked.
ot_status ot_feed_validation(ot_feed *feed, int set, int64_t first, ot_rows *rows);

// The run's tokenizer, or null. Valid until destroy.
const ot_tokenizer *ot_feed_tokenizer(const ot_feed *feed);

// The first sequence of `rows` as text with its ids, masked targets and document starts marked.
ot_status ot_feed_decode(const ot_feed *feed, const ot_rows *rows, ot_arena *arena,
                         const char **text);
