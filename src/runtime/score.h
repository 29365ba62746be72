// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of given tokens under a model: what evaluation harnesses ask for.
#pragma once

#include "runtime/instance.h"

typedef struct ot_score_request {
  const int32_t *tokens;  // [count], all below the vocabulary
  int64_t count;          // [1, sequence_length of the instance]
} ot_score_request;

// Runs the tokens through `instance`, which has mode score, one sequence and weights.
//   logprobs  [count] ln p(token i | tokens before it); logprobs[0] is NaN, nothing comes before it
//   greedy    [count] true where the token is the most probable one; greedy[0] is false
ot_status ot_score(ot_instance *instance, const ot_score_request *request, double *logprobs,
                   bool *greedy);
