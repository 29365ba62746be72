// SPDX-License-Identifier: Apache-2.0
// Sequences that a student writes itself, from the first tokens of those of the data, for a teacher
// to judge (on-policy distillation: Agarwal et al. 2024, GKD). The student is a copy of the trained
// weights on one rank with an inference engine; equal weights write the same on every rank.
#pragma once

#include "data/micro_batch.h"
#include "describe/run.h"
#include "runtime/inference.h"
#include "tokenizer/special_tokens.h"

typedef struct ot_rollouts ot_rollouts;

// For micro-batches of `run`, whose texts end as its model and `tokenizer` say, which may be null.
// Keeps `run`.
ot_status ot_rollouts_create(const ot_run *run, const ot_tokenizer *tokenizer, int threads,
                             ot_rollouts **out);
void ot_rollouts_destroy(ot_rollouts **rollouts);

// Takes the weights of `student`. Collective over its world. Blocks.
ot_status ot_rollouts_renew(ot_rollouts *rollouts, ot_runtime *student);

// Keeps run->distill.prompt_tokens of each sequence of `rows` and replaces the rest by tokens drawn
// from the student at temperature 1; each sequence is one document. After an end of text comes
// padding. Targets within the prompt are masked if alpha is 1.
//   logprobs  [R] log-probability of the target of each row when it was drawn; 0 in the prompt
ot_status ot_rollouts_write(ot_rollouts *rollouts, ot_micro_batch *rows, double *logprobs);
