// SPDX-License-Identifier: Apache-2.0
// What a trained model says: continuations of a prompt, one token at a time against a key-value
// cache, and log-probabilities of given tokens, which evaluation harnesses ask for.
#pragma once

#include "runtime/instance.h"

typedef struct ot_generate_request {
  const int32_t *prompt;  // [num_prompt], at least one token, all below the vocabulary
  int64_t num_prompt;
  int64_t max_tokens;  // most tokens made
  double temperature;  // 0 = the most probable token, lowest id on ties
  uint64_t seed;       // of the draws; draw i depends on (seed, i) only
  int32_t stop;        // token that ends the text, or -1
  int64_t vocab_size;  // ids at and above it are never drawn (a padded vocabulary)
} ot_generate_request;

// Called for each token as it is made; false ends the generation.
typedef bool (*ot_generate_sink)(void *context, int32_t token);

// `instance` has modes prefill and decode, one sequence, sequence_length >= num_prompt - 1 (at
// least 1), cache_positions >= num_prompt + max_tokens and weights. The stop token is not handed
// out.
ot_status ot_generate(ot_instance *instance, const ot_generate_request *request,
                      ot_generate_sink sink, void *context);

typedef struct ot_score_request {
  const int32_t *tokens;  // [count], all below the vocabulary
  int64_t count;          // [1, sequence_length of the instance]
} ot_score_request;

// Runs the tokens through `instance`, which has mode score, one sequence and weights.
//   logprobs  [count] ln p(token i | tokens before it); logprobs[0] is NaN, nothing comes before it
//   greedy    [count] true where the token is the most probable one; greedy[0] is false
ot_status ot_score(ot_instance *instance, const ot_score_request *request, double *logprobs,
                   bool *greedy);
