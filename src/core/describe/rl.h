// SPDX-License-Identifier: Apache-2.0
// The section `rl:` of a run: what it learns from rewards, and how generation and training share
// workers. Keys and defaults: rl_keys.c.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum ot_rl_updates {
  OT_RL_IN_FLIGHT,    // generators take new weights between two decode steps
  OT_RL_SYNCHRONOUS,  // all workers generate a batch, then all train on it
} ot_rl_updates;

typedef enum ot_rl_clock_kind {
  OT_RL_SIMULATED,  // advances by prices: the bits depend on configuration and seed only
  OT_RL_REAL,       // generators are processes of their own
} ot_rl_clock_kind;

typedef enum ot_reward {
  OT_REWARD_EXACT_MATCH,      // 1 if the response is the answer, else 0
  OT_REWARD_EDIT_SIMILARITY,  // rl/edit_similarity.h
  OT_REWARD_ANSWER_LOGPROB,   // log-probability of the answer after the response
  OT_REWARD_COMMAND,          // rl/verifier.h
} ot_reward;

// The weight of a token in the loss (rl/policy_loss.h).
typedef enum ot_policy_objective {
  OT_POLICY_REINFORCE,
  OT_POLICY_TIS,
  OT_POLICY_CISPO,
  OT_POLICY_GRPO,
  OT_POLICY_GSPO,
  OT_POLICY_MIS,
  OT_POLICY_OBJECTIVES,
} ot_policy_objective;

// The divisor of the sum over tokens.
typedef enum ot_policy_average {
  OT_POLICY_TOKENS,     // of the batch (DAPO)
  OT_POLICY_SEQUENCES,  // Dr. GRPO, with a constant that depends on no length
  OT_POLICY_AVERAGES,
} ot_policy_average;

// Prices of a worker, in seconds of the simulated clock.
typedef struct ot_rl_costs {
  double decode_s;       // of a decode step, > 0
  double row_s;          // in addition, for each row, >= 0
  double train_token_s;  // training on a generated token, >= 0
  double train_batch_s;  // an update in addition, whatever its tokens: measured, without a key
  double publish_s;      // trainer and generators pause for new weights, >= 0
} ot_rl_costs;

typedef struct ot_run_rl {
  const char *prompts;         // file of JSON lines; "": the run does not learn from rewards
  const char *validation;      // the same; "": none
  int64_t validation_every;    // updates; 0 = before the first and after the last only
  int64_t validation_samples;  // of each prompt
  ot_reward reward;
  const char **command;  // [num_command] path and arguments of the reward's program
  int64_t num_command;
  double command_seconds;  // for each response
  int64_t command_memory;  // bytes of each process; 0 = no limit
  double length_power;     // answer_logprob: divided by the answer's length to this power
  double answer_weight;    // answer_logprob: weight of the answer's own cross-entropy
  ot_policy_objective objective;
  ot_policy_average average;
  double cap, low, high;  // bounds of the ratio; -1 = the objective's usual ones
  int group, batch;       // samples of a prompt, sequences of an update
  int64_t max_tokens;     // generated, of a sequence
  ot_rl_updates updates;
  ot_rl_clock_kind clock;
  const char **launch;  // [num_launch] words before the command of a generator on the real clock
  int64_t num_launch;
  int restarts;             // of each generator on the real clock
  int workers, generators;  // generators 0 = chosen
  int slots;                // of a generator; 0 = chosen
  int queue;                // 0 = twice the batch
  int max_lag;              // versions; 0 = no bound
  int recompute;            // key `cache`: 1 to compute K and V again
  ot_rl_costs costs;
  double length_mean, length_cv2;  // expected of responses, for forecasts; mean 0 = a quarter of
                                   // max_tokens
} ot_run_rl;

struct ot_schema;
extern const struct ot_schema ot_rl_schema;
