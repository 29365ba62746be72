// SPDX-License-Identifier: Apache-2.0
// Bias apart from variance: of many sums that were made in low precision, whether their errors lean
// towards one side. A bias compounds from step to step; noise averages out.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "audit/rounding.h"
#include "base/status.h"

typedef struct ot_bias_request {
  const double *result, *exact;  // [count]
  int64_t count;
  const ot_format *format;  // in whose units errors are measured
} ot_bias_request;

// e = result - exact, r = exact.
typedef struct ot_bias {
  int64_t count;    // of elements with r != 0
  double slope;     // sum(e r) / sum(r^2): the gain that the signal has lost (or won)
  double mean_ulp;  // mean of e sign(r) / ulp(max(|r|, median |r|)), cut at the 1st and the 99th
                    // percentile
  double t;         // mean_ulp over its standard error: N(0, 1) where there is no bias
  double rms;       // sqrt(sum(e^2) / sum(r^2))
} ot_bias;

// OT_ENVIRONMENT when there is no memory for count numbers.
ot_status ot_bias_measure(const ot_bias_request *request, ot_bias *out);

typedef enum ot_bias_verdict { OT_BIAS_NONE, OT_BIAS_SLIGHT, OT_BIAS_FOUND } ot_bias_verdict;

// Found: |t| >= 6 and a slope of 1 % or 4 ulp; slight: |t| >= 6 and 0.1 %. Both sides count.
ot_bias_verdict ot_bias_judge(const ot_bias *bias);
