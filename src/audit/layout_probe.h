// SPDX-License-Identifier: Apache-2.0
// A model asked, on the ranks and the layout of its run, what enters its head: what each token has
// become after the last layer. Every rank keeps the rows that it has of an answer; two answers are
// compared where their rows are, and all ranks learn by how much each row differs. The head works
// row by row, so that nothing leaks there.
#pragma once

#include "train/trainer.h"

typedef struct ot_layout_probe_request {
  ot_trainer *trainer;     // whose weights, layout, types and hooks are taken; takes no step
  const ot_model *model;   // the trainer's, or one with the same parameters
  int64_t rank_sequences;  // of each rank of data parallelism
  int64_t tokens;          // of each sequence, see ot_layout_tokens
  bool wide;               // weights and activations are as wide as what is computed in
} ot_layout_probe_request;

typedef struct ot_layout_probe ot_layout_probe;

// Takes the memory (weights and activations of an evaluation, in addition to the run's) and loads
// the weights. Collective over the world, as all of the below. Blocks.
ot_status ot_layout_probe_create(const ot_layout_probe_request *request, ot_layout_probe **out);
void ot_layout_probe_destroy(ot_layout_probe **probe);

// Sequences of all ranks together.
int64_t ot_layout_probe_sequences(const ot_layout_probe *probe);

// Keeps the answer.
//   rows  [sequences, tokens], the same on all ranks; targets are not looked at
ot_status ot_layout_probe_ask(ot_layout_probe *probe, const ot_rows *rows);

// By how much each row of the answer to `rows` differs at most from the one that was kept, on all
// ranks: exactly zero where every bit is the same and nowhere else; infinite where one is no
// number.
//   changes  [sequences * tokens]
ot_status ot_layout_probe_compare(ot_layout_probe *probe, const ot_rows *rows, double *changes);

// The mean of -ln p over the unmasked targets of `rows`, of which there is one at least; on all
// ranks.
ot_status ot_layout_probe_score(ot_layout_probe *probe, const ot_rows *rows, double *nats);

// Weights as the trainer has them, as ot_variant_keep_layers.
ot_status ot_layout_probe_keep(ot_layout_probe *probe, int64_t layers, bool silenced);

// Of at most `most` tokens of a sequence of `sequence`, as many as every layout of `team` can cut.
int64_t ot_layout_tokens(const ot_team *team, int64_t sequence, int64_t most);

// Sequences for each rank of data parallelism, so that all have `wanted` at least.
int64_t ot_layout_sequences(const ot_team *team, int64_t wanted);
