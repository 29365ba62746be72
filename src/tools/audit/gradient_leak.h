// SPDX-License-Identifier: Apache-2.0
// Leaks of the backward: the loss of some tokens of a document must have zero gradient with respect
// to the embeddings of later tokens, other documents and other sequences. Runs training steps on
// the layout of the run in which only those tokens have targets. Tokens that may be reached and
// tokens that may not have different ids, so the rows of the embedding's gradient distinguish them.
// A dependency through a choice (of experts) has no gradient and is found only by pairs of forwards
// (causality.c); faults of the backward are found only here.
#pragma once

#include "data/micro_batch.h"
#include "train/trainer.h"

// Whose embeddings must not be reached.
typedef enum ot_leak_kind {
  OT_LEAK_FUTURE,    // later tokens of the document
  OT_LEAK_DOCUMENT,  // other documents of the sequence
  OT_LEAK_BATCH,     // other sequences
  OT_LEAK_KINDS,
} ot_leak_kind;

typedef struct ot_gradient_probe ot_gradient_probe;

// Uses the weights, layout, dtypes and hooks of `trainer` and takes no step of it; `rows` (kept)
// gives positions and documents of all sequences. `*out` is null if a step would need more memory
// than an audit may use, or the vocabulary is too small. Collective over the world, as all
// functions below. Blocks.
ot_status ot_gradient_probe_create(ot_trainer *trainer, const ot_micro_batch *rows,
                                   ot_gradient_probe **out);
void ot_gradient_probe_destroy(ot_gradient_probe **probe);

// Tokens [first, last] of sequence `sequence` have targets: the beginning of its document.
typedef struct ot_gradient_trial {
  int64_t sequence, first, last;
  int64_t end;  // of the document
} ot_gradient_trial;

// Position of trial number `trial`.
ot_gradient_trial ot_gradient_trial_choose(uint64_t seed, int trial, const ot_micro_batch *rows);

typedef struct ot_gradient_leaks {
  bool own;                       // the tokens themselves: if not, there is no conclusion
  double largest[OT_LEAK_KINDS];  // largest |gradient| that must be zero; else 0
} ot_gradient_leaks;

// The same result on all ranks.
ot_status ot_gradient_probe_ask(ot_gradient_probe *probe, const ot_gradient_trial *trial,
                                ot_gradient_leaks *reach);

// See ot_variant_keep_layers.
ot_status ot_gradient_probe_keep(ot_gradient_probe *probe, int64_t layers, bool silenced);
