// SPDX-License-Identifier: Apache-2.0
// Whether a run is equal to the same run on one rank, and a count of runs that were not.
#pragma once

#include "support/rank_case.h"

// Runs so far of each type, their largest differences, and the first failures as text.
typedef struct rank_verdict {
  int runs, failures;
  rank_difference largest[2];  // float32, float64
  char text[4096];
} rank_verdict;

// Equal means
//   float64: loss, norm and what is reported of experts within 1e-12, gradients of every step
//   within 1e-12, weights within 1e-10
//   float32: loss, norm and experts within 1e-5, gradients of the first step (the later ones are
//   made from weights that differ) within 1e-5, weights within 1e-3 of lr x steps, each
// of what rank_difference says. AdamW's eps is 1e-6 in float64 and 1e-3 in float32: with a smaller
// one, an element whose gradient is all rounding moves by lr times the sign of that.
// Reasons are added to verdict->text. True when equal.
bool rank_judge(const rank_request *request, const rank_result *result, rank_verdict *verdict);

// Runs `request`, where rank_sampled says so, and judges it; a run that does not end well is a
// failure, too.
void rank_try(const rank_request *request, rank_verdict *verdict);

// Prints what was found, and fails the test when something was not equal.
void rank_conclude(const rank_verdict *verdict, const char *what);
