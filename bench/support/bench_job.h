// SPDX-License-Identifier: Apache-2.0
// The training job that programs for GPUs measure, from options that they share.
#pragma once

#include "cli/options.h"
#include "runtime/model_runtime.h"

// Rows of these options, for `.shared`.
typedef struct ot_bench_job_options {
  ot_option model, sequence, micro_batch, micro_batches, precision, recompute, device;
} ot_bench_job_options;
extern const ot_bench_job_options ot_bench_job_rows;

// One rank with the defaults of RUN.yaml, but for what the options give.
typedef struct ot_bench_job {
  const char *name;  // of the model
  ot_model model;
  ot_run run;
  int micro_batches[2];  // 1, then what was asked for, if that is more
  ot_runtime_request request;
} ot_bench_job;

// `job` must stay where it is, because the request refers to it. Lists are in `arena`.
ot_status ot_bench_job_load(const ot_options *options, ot_arena *arena, ot_bench_job *job);

// Tokens of a step of the largest order.
int64_t ot_bench_job_tokens(const ot_bench_job *job);
