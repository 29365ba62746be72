// SPDX-License-Identifier: Apache-2.0
// How far a prediction may be wrong. Errors are those of published runs predicted without their
// source (docs/published.md): an effect of the source (hardware, software, day), a residual within
// it, and more for what was never seen. y = ln(measured / predicted) has Student's t distribution
// with 4 degrees of freedom.
#pragma once

#include "estimate/estimate.h"

// The run whose uncertainty is wanted.
typedef struct ot_doubt_request {
  const ot_job *job;
  const ot_candidate *candidate;
  bool unknown_software;  // no engine file describes it
  bool open;              // chunks, micro-batch size or recompute are guesses
} ot_doubt_request;

enum { OT_MOST_DOUBTS = 10 };

// Variances of y, and why they are larger than those of the best known runs.
typedef struct ot_doubt {
  double step_variance, memory_variance;
  int num_reasons;
  const char *reason[OT_MOST_DOUBTS];
} ot_doubt;

void ot_doubt_find(const ot_doubt_request *request, ot_doubt *out);

// The memory margin (ot_job) with which a plan that is estimated to fit does so in 4 of 5 cases.
double ot_doubt_memory_margin(const ot_job *job);

typedef struct ot_interval {
  double low, high;
} ot_interval;

// Intervals that hold the true value in 80 and in 95 of 100 cases; in the last, it is above the
// upper end once in 40.
ot_interval ot_interval_80(double value, double variance);
ot_interval ot_interval_95(double value, double variance);

// ---- how errors of two configurations are correlated ----

enum { OT_TRAITS = 11 };

// Traits that configurations have in common: the more alike, the more alike their errors.
typedef struct ot_traits {
  double at[OT_TRAITS];
  double exposed;      // share of communication that no computation hides
  const char *device;  // kind of device
} ot_traits;

void ot_traits_find(const ot_job *job, const ot_estimate *estimate, ot_traits *out);

// Covariance of y of two configurations run by one software, without the noise of each measurement:
// common factors of computation and of exposed communication, and what only alike configurations
// share.
typedef struct ot_covariance {
  double compute, exposed, shape;
} ot_covariance;

ot_covariance ot_traits_covariance(const ot_traits *a, const ot_traits *b);
double ot_covariance_sum(const ot_covariance *covariance);

// Variance of y of repeated measurements of one configuration.
extern const double ot_doubt_noise;

// Whether the prediction cannot tell which of two configurations of a job is the faster: the slower
// one wins in more than one of five cases. `ratio`: of their predicted steps.
bool ot_traits_equal(const ot_traits *a, const ot_traits *b, double ratio);
bool ot_doubt_equal(const ot_job *job, const ot_estimate *a, const ot_estimate *b);
