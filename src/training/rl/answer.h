// SPDX-License-Identifier: Apache-2.0
// A response of the policy: its tokens with the log-probabilities and versions of the weights that
// made them, and its reward. The record that passes from a generator to the trainer.
#pragma once

#include "rl/prompt_file.h"

struct ot_sequence;

typedef struct ot_rl_answer {
  int64_t id, group;
  const ot_rl_prompt *prompt;
  int64_t count;                 // generated tokens, the end-of-text token included
  int32_t *tokens;               // [count]
  double *behaviour;             // [count] log-probabilities when they were made
  const int32_t *versions;       // [count] of the weights that made them; null: validation
  bool ended;                    // with the end-of-text token; false: cut at max_tokens
  bool done, failed;             // no token follows; logits were NaN
  bool fresh;                    // a token was made in the last step
  struct ot_sequence *sequence;  // while it is generated, else null
  double reward;
  double advantage;
  struct ot_rl_answer *next;  // unused ones
} ot_rl_answer;
