// SPDX-License-Identifier: Apache-2.0
// How much of the error of recorded gradients some vectors explain together: weighted least squares
// over a set of tensors. Each tensor has the weight elements / (own error)^2, so that rounding of
// every tensor counts alike. The same fit to the judge's own rounding says which factors mean
// nothing: rounding is correlated, so the usual standard error would be far too small. Pure.
#pragma once

#include "judge/evidence.h"

enum { OT_FIT_MOST = 12 };  // vectors of a fit

// A set of tensors: bit or flag per tensor; null: all.
typedef struct ot_factor_request {
  int count;
  int vectors[OT_FIT_MOST];  // [count] of the evidence
  const bool *members;       // [num_tensors]; null: all tensors
} ot_factor_request;

typedef struct ot_factor_fit {
  int count;
  double factor[OT_FIT_MOST];  // [count] of each vector in the error, less that in own rounding
                               // (between two records: in the error alone)
  double spread[OT_FIT_MOST];  // [count] what rounding alone moves it by: the largest of both own
                               // runs, their difference, and independent roundings of elements
  double rest;                 // largest error that remains on a member, in own errors
  double typical;              // its median over the members
  int worst;                   // the tensor with the largest; -1: no member
} ot_factor_fit;

// False if the vectors are not independent on these tensors, or one of them is zero.
bool ot_factor_fit_find(const ot_evidence *evidence, const ot_factor_request *request,
                        ot_factor_fit *out);

// The error that remains on tensor `tensor` with the factors of a fit, in own errors. The own error
// of a gradient grows with the gradient: with OT_EVIDENCE_GRADIENT among the vectors, so does it.
double ot_factor_rest(const ot_evidence *evidence, const ot_factor_request *request,
                      const double *factors, int tensor);
