// SPDX-License-Identifier: Apache-2.0
// Inference with a trained model: continuations of a prompt, token by token with a key-value cache,
// and log-probabilities of given tokens, as evaluation harnesses need.
#pragma once

#include "runtime/model_runtime.h"

typedef struct ot_generate_request {
  const int32_t *prompt;  // [num_prompt], at least one token, all below the vocabulary
  int64_t num_prompt;
  int64_t max_tokens;  // maximum number of generated tokens
  double temperature;  // 0 = the most probable token, lowest id on ties
  uint64_t seed;       // of the draws; draw i depends on (seed, i) only
  int32_t stop;        // token that ends the text, or -1
  int64_t vocab_size;  // ids >= vocab_size (padding) are never drawn
} ot_generate_request;

// Called for each generated token; false ends the generation.
typedef bool (*ot_generate_sink)(void *context, int32_t token);

// `runtime` has modes prefill and decode, one sequence, sequence_length >= num_prompt - 1 (at
// least 1), cache_positions >= num_prompt + max_tokens, and weights. The stop token is not passed
// to the sink.
ot_status ot_generate(ot_runtime *runtime, const ot_generate_request *request,
                      ot_generate_sink sink, void *context);

typedef struct ot_score_request {
  const int32_t *tokens;  // [count], all below the vocabulary
  int64_t count;          // [1, sequence_length of the runtime]
} ot_score_request;

// Runs the tokens through `runtime`, which has mode score, one sequence and weights.
//   logprobs  [count] ln p(token i | tokens before it); logprobs[0] is NaN
//   greedy    [count] true where the token is the argmax; greedy[0] is false
ot_status ot_score(ot_runtime *runtime, const ot_score_request *request, double *logprobs,
                   bool *greedy);
