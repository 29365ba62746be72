// SPDX-License-Identifier: Apache-2.0
// Continues a prompt, one token at a time against a key-value cache.
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
