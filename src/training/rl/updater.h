// SPDX-License-Identifier: Apache-2.0
// An update of the policy from a batch of responses: rewards, advantages within groups, the scores
// of the weights as they are, a weight for each token, one optimizer step.
#pragma once

#include "rl/learner.h"
#include "rl/policy_loss.h"
#include "rl/reward.h"

typedef struct ot_rl_updater ot_rl_updater;

typedef struct ot_rl_updater_request {
  const ot_run *run;
  ot_world *world;                            // null: one rank
  const ot_rl_prompts *prompts, *validation;  // whose responses it will get; validation: or null
  const ot_tokenizer *tokenizer;
} ot_rl_updater_request;

// Documents that its learner takes at once.
int64_t ot_rl_updater_documents(const ot_run *run);

// Keeps what `request` points to. Creates its learner: collective over the world, of which this is
// the leader.
ot_status ot_rl_updater_create(const ot_rl_updater_request *request, ot_rl_updater **out);
void ot_rl_updater_destroy(ot_rl_updater **updater);

// Sets the rewards of `answers` [count].
ot_status ot_rl_updater_judge(ot_rl_updater *updater, ot_rl_answer *const *answers, int64_t count);

typedef struct ot_rl_update {
  ot_rl_step step;
  ot_policy_figures policy;  // before the step
  int64_t sequences, tokens;
  double reward, reward_deviation;
  double useful;       // share of the groups whose rewards differ
  double length;       // mean, tokens
  double ended;        // share of responses that ended
  double answer_gain;  // answer_logprob: nats a token that a response adds to the answer's
                       // log-probability; else NaN
  int64_t failures;    // responses that the reward's program gave none, so far
} ot_rl_update;

// Takes step number `step` (from 0) on `answers` [count], judged, with groups next to each other.
ot_status ot_rl_updater_step(ot_rl_updater *updater, ot_rl_answer *const *answers, int64_t count,
                             int64_t step, ot_rl_update *update);

ot_rl_learner *ot_rl_updater_learner(ot_rl_updater *updater);
