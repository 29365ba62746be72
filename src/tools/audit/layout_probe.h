// SPDX-License-Identifier: Apache-2.0
// The input of a model's head, computed on the ranks and layout of its run: the activation of each
// token after the last layer. Each rank keeps its rows of an answer; answers are compared locally,
// and all ranks learn by how much each row differs. The head works token by token, so it cannot
// leak.
#pragma once

#include "train/trainer.h"

typedef struct ot_layout_probe_request {
  ot_trainer *trainer;     // provides weights, layout, dtypes and hooks; takes no step
  const ot_model *model;   // the trainer's, or one with the same parameters
  int64_t rank_sequences;  // per data-parallel rank
  int64_t tokens;          // per sequence, see ot_layout_tokens
  bool wide;               // stores weights and activations in the compute dtype
} ot_layout_probe_request;

typedef struct ot_layout_probe ot_layout_probe;

// Allocates memory (weights and activations of an evaluation, in addition to the run's) and loads
// the weights. Collective over the world, as all functions below. Blocks.
ot_status ot_layout_probe_create(const ot_layout_probe_request *request, ot_layout_probe **out);
void ot_layout_probe_destroy(ot_layout_probe **probe);

// Sequences over all ranks.
int64_t ot_layout_probe_sequences(const ot_layout_probe *probe);

// Keeps the answer.
//   rows  [sequences, tokens], the same on all ranks; targets are ignored
ot_status ot_layout_probe_ask(ot_layout_probe *probe, const ot_micro_batch *rows);

// The maximum difference of each row of the answer to `rows` from the kept one, on all ranks: zero
// if and only if all bits are equal; infinite if one is NaN.
//   changes  [sequences * tokens]
ot_status ot_layout_probe_compare(ot_layout_probe *probe, const ot_micro_batch *rows,
                                  double *changes);

// The mean of -ln p over the unmasked targets of `rows`, at least one; on all ranks.
ot_status ot_layout_probe_score(ot_layout_probe *probe, const ot_micro_batch *rows, double *nats);

// Loads the trainer's weights as ot_variant_keep_layers does.
ot_status ot_layout_probe_keep(ot_layout_probe *probe, int64_t layers, bool silenced);

// The largest number of tokens up to `most`, of a sequence of `sequence`, that the layout of
// `world` can shard.
int64_t ot_layout_tokens(const ot_world *world, int64_t sequence, int64_t most);

// Sequences per data-parallel rank, so that all have at least `wanted`.
int64_t ot_layout_sequences(const ot_world *world, int64_t wanted);
