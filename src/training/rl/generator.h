// SPDX-License-Identifier: Apache-2.0
// A generator: an inference engine with weights of its own, which it takes from the trainer between
// two steps. Tokens are drawn at temperature 1 from the whole vocabulary, keyed by the seed, the id
// of the response and the number of the token: they depend on the weights only, not on slots or on
// other responses.
#pragma once

#include "rl/answer.h"
#include "rl/learner.h"
#include "runtime/inference.h"
#include "tokenizer/special_tokens.h"

typedef struct ot_rl_generator ot_rl_generator;

typedef struct ot_rl_generator_request {
  const ot_run *run;
  int64_t slots;
  int64_t prompt_tokens;      // of the longest prompt
  int64_t max_tokens;         // generated
  bool recompute;             // of K and V of running responses, with new weights
  ot_special_tokens special;  // what ends a response
  uint64_t seed;              // of draws
} ot_rl_generator_request;

// Its weights are undefined until it takes some.
ot_status ot_rl_generator_create(const ot_rl_generator_request *request, ot_rl_generator **out);
void ot_rl_generator_destroy(ot_rl_generator **generator);

// Takes the weights of a trainer of the same model, as they are published.
ot_status ot_rl_generator_take(ot_rl_generator *generator, ot_rl_learner *from);
// The same from elsewhere: a parameter [rows, cols] at a time, in `dtype`. With the last one the
// engine has new weights.
void ot_rl_generator_put(ot_rl_generator *generator, const ot_parameter *parameter, ot_dtype dtype,
                         const void *values, bool last);

// Begins a response: answer->prompt, id, and room for max_tokens are set. Kept until it is done.
ot_status ot_rl_generator_start(ot_rl_generator *generator, ot_rl_answer *answer);

// Ends a response early.
void ot_rl_generator_cancel(ot_rl_generator *generator, ot_rl_answer *answer);

// One step of the engine: at most one token for each response. *rows: tokens computed.
ot_status ot_rl_generator_step(ot_rl_generator *generator, int64_t *rows);

bool ot_rl_generator_is_idle(const ot_rl_generator *generator);

ot_runtime *ot_rl_generator_runtime(ot_rl_generator *generator);
