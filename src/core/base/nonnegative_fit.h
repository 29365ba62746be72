// SPDX-License-Identifier: Apache-2.0
// Fits constants x_i >= 0 of value = sum of x_i term_i to timings: the cost per unit of work when
// several kinds of work were timed together. Minimises relative errors and gives outliers little
// weight. Pure.
#pragma once

#include <stdbool.h>

#include "base/arena.h"

enum { OT_FIT_TERMS = 6 };

typedef struct ot_fit_sample {
  double term[OT_FIT_TERMS];  // >= 0; unused ones are 0
  double value;               // > 0
} ot_fit_sample;

typedef struct ot_fit {
  double x[OT_FIT_TERMS];
  double residual;  // median of |sum / value - 1|
} ot_fit;

// Fits to `samples` [count >= 1] with x_i >= least [OT_FIT_TERMS] (null: 0); scratch in `arena`.
// Among equally good solutions it returns the one with the fewest terms above their least,
// preferring later terms. Cost: O(2^terms count).
ot_fit ot_fit_nonnegative(const ot_fit_sample *samples, int64_t count, const double *least,
                          ot_arena *arena);

double ot_fit_value(const ot_fit *fit, const ot_fit_sample *sample);
