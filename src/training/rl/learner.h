// SPDX-License-Identifier: Apache-2.0
// The trainer of a run that learns from rewards: packs sequences of any length as documents into
// the rows of micro-batches, scores them, and takes steps in which each token has a weight of its
// own (ops/head.h with K = 1). Its ranks are those of `parallel:`: the leader does what is below,
// the others follow (ot_rl_learner_follow).
#pragma once

#include "state/training_state.h"

typedef struct ot_rl_learner ot_rl_learner;

// A document: tokens of which those from `first` on are scored or trained on.
typedef struct ot_rl_document {
  const int32_t *prompt, *rest;  // [num_prompt], [num_rest]: its tokens, in this order
  int64_t num_prompt, num_rest;
  const int32_t *last;  // [num_last] more, or null
  int64_t num_last;
  int64_t first;   // >= 1
  double *values;  // [tokens - first] in: weights of a step; out: log-probabilities of a score
} ot_rl_document;

int64_t ot_rl_document_tokens(const ot_rl_document *document);

// Places for `most_documents` of up to data.sequence_length tokens. Weights are those of run->init.
// Keeps `run` and `world` (null: one rank). Collective over the world.
ot_status ot_rl_learner_create(const ot_run *run, ot_world *world, int64_t most_documents,
                               ot_rl_learner **out);
void ot_rl_learner_destroy(ot_rl_learner **learner);

// Does the part of a rank that does not lead in all that follows, until the leader dismisses them.
// Blocks.
ot_status ot_rl_learner_follow(ot_rl_learner *learner);
ot_status ot_rl_learner_dismiss(ot_rl_learner *learner);

// Log-probabilities, at temperature 1, by the weights as they are.
ot_status ot_rl_learner_score(ot_rl_learner *learner, ot_rl_document *documents, int64_t count);

typedef struct ot_rl_step {
  double loss;  // the sum over tokens of weight * -log p
  double gradient_norm, learning_rate;
  int64_t rows;  // of micro-batches, padding included
} ot_rl_step;

// One optimizer step, number `step` (from 0) of the run. OT_NUMERIC if it is not finite; then
// nothing was updated.
ot_status ot_rl_learner_step(ot_rl_learner *learner, const ot_rl_document *documents, int64_t count,
                             int64_t step, ot_rl_step *report);

// Gives the weights to `taker`, block by block (ot_runtime_publish).
ot_status ot_rl_learner_publish(ot_rl_learner *learner, const ot_weight_taker *taker);

// Weights and optimizer state as the checkpoint at state->path, and back (training_state.h).
ot_status ot_rl_learner_save(ot_rl_learner *learner, ot_state_request *state);
ot_status ot_rl_learner_load(ot_rl_learner *learner, ot_state_request *state);

ot_runtime *ot_rl_learner_runtime(ot_rl_learner *learner);
