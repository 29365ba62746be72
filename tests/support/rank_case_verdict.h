// SPDX-License-Identifier: Apache-2.0
// Compares runs with the same run on one rank and counts failures.
#pragma once

#include "support/rank_case.h"

// Number of runs of each type, their largest differences, and the first failures as text.
typedef struct rank_verdict {
  int runs, failures;
  rank_difference largest[2];  // float32, float64
  char text[4096];
} rank_verdict;

// Tolerances of what rank_difference reports:
//   float64: loss, norm and expert statistics within 1e-12, gradients of every step within 1e-12,
//           weights within 1e-10
//   float32: loss, norm and expert statistics within 1e-5, gradients of the first step within 1e-5
//           (later ones come from weights that differ), weights within 1e-3 of lr x steps. Where
//           the bits of products depend on their shape (blas_bits.h), gradients within 1e-5, or
//           twice the distance of one rank from float64, of one rank in float32 or in float64
// AdamW's eps is 1e-6 in float64 and 1e-3 in float32: with a smaller one, an element whose gradient
// is pure rounding error moves by lr times the sign of that error.
// Appends reasons to verdict->text. True if equal.
bool rank_judge(const rank_request *request, const rank_result *result, rank_verdict *verdict);

// Runs `request` if rank_sampled selects it and judges it. A run that fails counts as a difference.
// Where bits of products depend on their shape, a model with experts may differ in float32 once:
// with other sequences it must be equal.
void rank_try(const rank_request *request, rank_verdict *verdict);

// Prints the result and fails the test if a run was not equal.
void rank_conclude(const rank_verdict *verdict, const char *what);
