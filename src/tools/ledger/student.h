// SPDX-License-Identifier: Apache-2.0
// Student's t distribution, and the jackknife whose intervals use it: of any statistics of runs
// that come in seeds. Pure.
#pragma once

#include <stdbool.h>

enum { OT_LEDGER_SEEDS = 64, OT_JACKKNIFE_VALUES = 48 };

// P(T > t) with `freedom` degrees of freedom, >= 1.
double ot_student_tail(double t, double freedom);

// The t with P(T <= t) = p, 0 < p < 1.
double ot_student_quantile(double p, double freedom);

// An estimate with its two-sided interval. `low` and `high` are infinite with fewer than two seeds.
typedef struct ot_measured {
  double value, se, low, high;
  double p;  // one-sided, of the value being above 0
} ot_measured;

// From its standard error: t with seeds - 1 degrees of freedom.
ot_measured ot_measured_of(double value, double se, int seeds, double coverage);

// Computes statistics [count] of all seeds but `left_out`; -1: of all.
typedef void (*ot_statistics)(const void *context, int left_out, double *values);

typedef struct ot_jackknife {
  ot_statistics statistics;
  const void *context;
  int seeds, count;  // at most OT_LEDGER_SEEDS, OT_JACKKNIFE_VALUES
  double coverage;   // of the intervals: 0.95
} ot_jackknife;

// A seed is a cluster: all its runs leave together.
//   out [count]
void ot_jackknife_estimate(const ot_jackknife *jackknife, ot_measured *out);

// An estimate as a margin test sees it: whether its interval of `coverage` lies within +-margin.
bool ot_measured_within(const ot_measured *estimate, int seeds, double coverage, double margin);
