// SPDX-License-Identifier: Apache-2.0
// Leaks of the backward: the loss of some tokens of one document must have no gradient at all to
// the embeddings of later tokens, of other documents, of other sequences. Steps of training on the
// layout of the run, of which only those tokens have targets; who may be reached and who may not
// have tokens of their own, so that the rows of the embedding's gradient tell them apart. What a
// loss depends on through a choice (of experts) has no gradient and is not seen here: pairs of
// forwards see that (causality.h). What only a backward does wrong is seen here alone.
#pragma once

#include "data/rows.h"
#include "train/trainer.h"

// Who is reached that may not be.
typedef enum ot_leak_kind {
  OT_LEAK_FUTURE,    // later tokens of the document
  OT_LEAK_DOCUMENT,  // other documents of the sequence
  OT_LEAK_BATCH,     // other sequences
  OT_LEAK_KINDS,
} ot_leak_kind;

typedef struct ot_gradient_probe ot_gradient_probe;

// Takes the weights, layout, types and hooks of `trainer`, and no step of it; `rows` (kept) says
// positions and documents of all sequences. `*out` is null where a step would need more memory than
// an audit may take, or the vocabulary is too small. Collective over the world, as all of the
// below. Blocks.
ot_status ot_gradient_probe_create(ot_trainer *trainer, const ot_rows *rows,
                                   ot_gradient_probe **out);
void ot_gradient_probe_destroy(ot_gradient_probe **probe);

// Tokens [first, last] of sequence `sequence` have targets: the beginning of its document.
typedef struct ot_gradient_trial {
  int64_t sequence, first, last;
  int64_t end;  // of the document
} ot_gradient_trial;

// Place of trial number `trial`.
ot_gradient_trial ot_gradient_trial_choose(uint64_t seed, int trial, const ot_rows *rows);

typedef struct ot_gradient_reach {
  bool own;                       // the tokens themselves: if not, nothing can be said
  double largest[OT_LEAK_KINDS];  // |gradient| of an embedding that must have none; else 0
} ot_gradient_reach;

// The same on all ranks.
ot_status ot_gradient_probe_ask(ot_gradient_probe *probe, const ot_gradient_trial *trial,
                                ot_gradient_reach *reach);

// As ot_variant_keep_layers.
ot_status ot_gradient_probe_keep(ot_gradient_probe *probe, int64_t layers, bool silenced);
