// SPDX-License-Identifier: Apache-2.0
// What benchmarks of training steps have in common: something to train on, and how to read what a
// step took.
#pragma once

#include "runtime/instance.h"

// Any tokens below `vocab`, as all batch fields of a micro-batch: speed does not depend on them.
void ot_bench_load(ot_instance *instance, int micro_batch, int64_t vocab);

// The scalars of a step of `targets` tokens in `sequences`.
void ot_bench_set_scalars(ot_instance *instance, int64_t targets, int64_t sequences);

// Seconds in F, R and B of the last run, which was traced.
double ot_bench_forward_backward_s(ot_instance *instance);

// Of values [count], up to OT_BENCH_REPEATS, which stay as they are.
enum { OT_BENCH_REPEATS = 64 };
double ot_bench_median(const double *values, int count);

// Where the time of the last run went, by operator.
void ot_bench_print_phases(ot_instance *instance);
