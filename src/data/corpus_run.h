// SPDX-License-Identifier: Apache-2.0
// A corpus worked through by threads: blocks are processed side by side and committed one by one in
// the order of the corpus, so that the result does not depend on the number of threads. A failure
// counts when its block's turn comes: of several, the first in the corpus is reported.
#pragma once

#include "data/corpus.h"

typedef struct ot_corpus_job {
  // Works on one block; run by many threads, each with its own `worker`.
  ot_status (*process)(void *worker, const ot_corpus_block *block);
  // Takes over what `worker` made of the block; run by one thread at a time, in order. May be null.
  ot_status (*commit)(void *context, void *worker, const ot_corpus_block *block);
  void *context;         // first argument of `commit`
  void *const *workers;  // [num_threads]
  int num_threads;       // >= 1
} ot_corpus_job;

// Blocks until the corpus is done or a block failed. The caller's thread works too.
ot_status ot_corpus_run(ot_corpus *corpus, const ot_corpus_job *job);

// The processors that this process may run on.
int ot_corpus_default_threads(void);
