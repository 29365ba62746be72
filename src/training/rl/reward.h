// SPDX-License-Identifier: Apache-2.0
// Rewards of responses, by name. exact_match: 1 if the response ended and is the answer to the
// byte. edit_similarity: edit_similarity.h, of response and answer. command: verifier.h.
// answer_logprob needs the policy: rl_run.c scores it.
#pragma once

#include "describe/rl.h"
#include "rl/answer.h"
#include "rl/verifier.h"

typedef struct ot_rewarder ot_rewarder;

// Keeps `rl` and `tokenizer`. Starts the program of a command.
ot_status ot_rewarder_create(const ot_run_rl *rl, const ot_tokenizer *tokenizer, ot_rewarder **out);
void ot_rewarder_destroy(ot_rewarder **rewarder);

// Sets the reward of `answer`, for any reward but answer_logprob. A program that gives none costs
// the response its reward, which is 0 then; after ten in a row OT_ENVIRONMENT. Blocks.
ot_status ot_rewarder_judge(ot_rewarder *rewarder, ot_rl_answer *answer);

// Responses without a reward so far.
int64_t ot_rewarder_failures(const ot_rewarder *rewarder);

// Whether the response repeats `run` or more tokens of the answer in order: it tells the answer
// rather than helps to find it. Then answer_logprob gives the value without the response.
bool ot_answer_leaks(const ot_rl_answer *answer, int64_t run);
