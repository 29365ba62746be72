// SPDX-License-Identifier: Apache-2.0
// The prompts of a run that learns from rewards: lines {"prompt": TEXT, "answer": TEXT}, as tokens.
// `answer` may be missing where the reward needs none. Other keys are refused.
#pragma once

#include "rl/edit_similarity.h"
#include "tokenizer/tokenizer.h"

typedef struct ot_rl_prompt {
  ot_bytes text, answer;
  const int32_t *tokens;  // [num_tokens] of the prompt, >= 1
  int64_t num_tokens;
  const int32_t *answer_tokens;  // [num_answer_tokens]
  int64_t num_answer_tokens;
} ot_rl_prompt;

typedef struct ot_rl_prompts {
  ot_rl_prompt *prompt;             // [count]
  int64_t count;                    // >= 1
  int64_t longest, longest_answer;  // tokens
} ot_rl_prompts;

// Reads the file at `path`, in `arena`. OT_USAGE names file and line.
ot_status ot_rl_prompts_read(const char *path, ot_encoder *encoder, ot_arena *arena,
                             ot_rl_prompts *out);

// The prompt of a group: all of them in an order of its own in each pass, by the seed.
const ot_rl_prompt *ot_rl_prompt_of_group(const ot_rl_prompts *prompts, uint64_t seed,
                                          int64_t group);
