// SPDX-License-Identifier: Apache-2.0
// The update of a recorded step by AdamW (Loshchilov and Hutter 2019), checked from the step's own
// numbers: weights before and after, moments after, the gradient, the settings of the group. With
// the corrected moments m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t),
//   after = before - rate (m' / (sqrt(v') + epsilon) + decay before)
// so that the change is a sum of two known vectors, whose factors are fitted. Where the moments
// before the step are known, as in the first step, what was added to them is (1 - beta1) times the
// clipped gradient and (1 - beta2) times its square. Pure.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// The settings of a group of tensors.
typedef struct ot_adamw_settings {
  double rate, beta1, beta2, epsilon, decay;
  int64_t step;  // t, from 1
} ot_adamw_settings;

typedef struct ot_adamw_values {
  const double *before, *after;  // [count] weights
  const double *first, *second;  // [count] moments after the step
  const double *gradient;        // [count] before clipping
  // [count] moments before the step; null: zero in the first step, else unknown
  const double *first_before, *second_before;
} ot_adamw_values;

enum { OT_ADAMW_VECTORS = 5 };

// Sums over the elements of a tensor; zeros at first.
typedef struct ot_adamw_sums {
  int64_t elements;
  double products[OT_ADAMW_VECTORS][OT_ADAMW_VECTORS];
  double after;          // square of the weights after the step
  bool moments;          // those before the step are known
  double first;          // square of the first moments after the step
  double second, added;  // second moments after the step; what the step added, over 1 - beta2
  double error;          // square of the error of the change by the settings
} ot_adamw_sums;

void ot_adamw_measure(const ot_adamw_settings *settings, const ot_adamw_values *values,
                      int64_t count, ot_adamw_sums *sums);

typedef struct ot_adamw_result {
  double ratio;        // error of the change, in roundings of weights and moments
  double rate, decay;  // that the change shows: as the settings' ones
  double rest;         // error of the change with these two
  // Errors that move the change by one rounding of weights and moments: a share of the rate, a
  // decay; infinite where the change does not show them.
  double rate_unit, decay_unit;
  // With moments before the step, else NAN:
  double clip;          // factor of the gradient in what was added to the first moment
  double clip_rest;     // error of the first moment with it, relative to what was added
  double square;        // root of what was added to v / (1 - beta2) over |clipped gradient|, or 1
  double clip_noise;    // rounding of the moments in `clip_rest`
  double square_noise;  // and in `square`
} ot_adamw_result;

// Unit roundoffs of the stored weights and moments; the update was computed before these were
// rounded.
typedef struct ot_adamw_units {
  double weights, moments;
} ot_adamw_units;

ot_adamw_result ot_adamw_judge(const ot_adamw_settings *settings, const ot_adamw_sums *sums,
                               const ot_adamw_units *units);
