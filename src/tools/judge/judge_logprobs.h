// SPDX-License-Identifier: Apache-2.0
// Judges log-probabilities of the same tokens by two programs, such as an engine and a trainer:
// against each other and, with a checkpoint, against those that the plain model computes in
// float64. Differences beyond rounding are named.
#pragma once

#include "judge/judge.h"
#include "judge/logprobs_read.h"

typedef struct ot_judge_logprobs_request {
  const char *path[2];  // files of logprobs_read.h; the first one is that of the sampler
  const ot_logprob_file *values[2];  // in place of a file, what it would hold; null: it is read
  const char *checkpoint;            // null: none
  ot_judge_type type;   // of the computation; auto: float32 or bf16, as the values show
  int64_t most_tokens;  // to compute again
  int threads;
  void (*progress)(void *context, int done, int all);  // after each block; null: never
  void *context;
} ot_judge_logprobs_request;

// The report lives in `arena`; its figures have the estimators of the KL divergence and the
// importance ratios. Errors are those of logprobs_read.h, logprobs_pair.h and logprobs_model.h.
// Blocks.
ot_status ot_judge_logprobs(const ot_judge_logprobs_request *request, ot_arena *arena,
                            ot_judge_report *out);
