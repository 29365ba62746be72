// SPDX-License-Identifier: Apache-2.0
// Common functions of training-step benchmarks: synthetic batches, and timings of a step.
#pragma once

#include "runtime/model_runtime.h"

// GPT-2 124M (Radford et al. 2019).
ot_model ot_bench_gpt2(void);

// Fills all batch fields of a micro-batch with tokens below `vocab`; speed does not depend on them.
void ot_bench_load(ot_runtime *runtime, int micro_batch, int64_t vocab);

// The scalars of a step of `targets` tokens in `sequences`.
void ot_bench_set_scalars(ot_runtime *runtime, int64_t targets, int64_t sequences);

// Seconds in F, R and B of the last traced run.
double ot_bench_forward_backward_s(ot_runtime *runtime);

// Median of values [count], up to OT_BENCH_REPEATS; does not modify them.
enum { OT_BENCH_REPEATS = 64 };
double ot_bench_median(const double *values, int count);

// Prints the time of the last run by operator.
void ot_bench_print_phases(ot_runtime *runtime);
