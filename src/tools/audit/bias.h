// SPDX-License-Identifier: Apache-2.0
// Bias as opposed to variance: whether the errors of many low-precision reductions have a nonzero
// mean. A bias compounds from step to step; noise averages out.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "audit/rounding.h"
#include "base/status.h"

typedef struct ot_bias_request {
  const double *result, *exact;  // [count]
  int64_t count;
  const ot_format *format;  // errors are measured in its ulps
} ot_bias_request;

// e = result - exact, r = exact.
typedef struct ot_bias {
  int64_t count;    // elements with r != 0
  double slope;     // sum(e r) / sum(r^2): relative change of the signal
  double mean_ulp;  // mean of e sign(r) / ulp(max(|r|, median |r|)), clipped at the 1st and 99th
                    // percentile
  double t;         // mean_ulp over its standard error: N(0, 1) without bias
  double rms;       // sqrt(sum(e^2) / sum(r^2))
} ot_bias;

// OT_ENVIRONMENT if there is no memory for `count` numbers.
ot_status ot_bias_measure(const ot_bias_request *request, ot_bias *out);

typedef enum ot_bias_verdict { OT_BIAS_NONE, OT_BIAS_SLIGHT, OT_BIAS_FOUND } ot_bias_verdict;

// Finding: |t| >= 6 and |slope| >= 1 % or 4 ulp; slight: |t| >= 6 and 0.1 %.
ot_bias_verdict ot_bias_judge(const ot_bias *bias);
