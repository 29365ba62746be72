// SPDX-License-Identifier: Apache-2.0
// Errors are measured in ulps, so that few large elements do not dominate, and never in ulps finer
// than those of the median, so that near-cancelling elements do not either.
#include "audit/bias.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double percentile(const double *sorted, int64_t count, double share) {
  return sorted[(int64_t)(share * (double)(count - 1) + 0.5)];
}

static double median_size(const ot_bias_request *q, double *room) {
  int64_t n = 0;
  for (int64_t i = 0; i < q->count; i++) {
    if (q->exact[i] != 0) room[n++] = fabs(q->exact[i]);
  }
  if (n == 0) return 0;
  qsort(room, (size_t)n, sizeof *room, compare);
  return percentile(room, n, 0.5);
}

// Mean of `errors` and its t, with tails clipped.
static void measure_mean_error(double *errors, int64_t n, ot_bias *out) {
  qsort(errors, (size_t)n, sizeof *errors, compare);
  const double low = percentile(errors, n, 0.01), high = percentile(errors, n, 0.99);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; i++) {
    const double d = fmin(fmax(errors[i], low), high);
    sum += d;
    squares += d * d;
  }
  const double mean = sum / (double)n;
  const double variance = (squares - (double)n * mean * mean) / (double)(n - 1);
  out->mean_ulp = mean;
  if (variance > 0) {
    out->t = mean / sqrt(variance / (double)n);
  } else if (mean != 0) {
    out->t = copysign(INFINITY, mean);
  }
}

static void measure(const ot_bias_request *q, double *room, ot_bias *out) {
  const double least = median_size(q, room);
  double product = 0, signal = 0, error = 0;
  for (int64_t i = 0; i < q->count; i++) {
    const double r = q->exact[i], e = q->result[i] - r;
    if (r == 0) continue;
    room[out->count++] = copysign(e, e * r) / ot_format_ulp(q->format, fmax(fabs(r), least));
    product += e * r;
    signal += r * r;
    error += e * e;
  }
  if (out->count < 2) return;
  out->slope = product / signal;
  out->rms = sqrt(error / signal);
  measure_mean_error(room, out->count, out);
}

ot_status ot_bias_measure(const ot_bias_request *request, ot_bias *out) {
  *out = (ot_bias){0};
  double *const room = malloc((size_t)(request->count + 1) * sizeof *room);
  OT_CHECK(room, OT_ENVIRONMENT, "out of memory for %lld sums", (long long)request->count);
  measure(request, room, out);
  free(room);
  return OT_OK;
}

ot_bias_verdict ot_bias_judge(const ot_bias *bias) {
  if (!(fabs(bias->t) >= 6)) return isnan(bias->t) ? OT_BIAS_FOUND : OT_BIAS_NONE;
  if (fabs(bias->slope) >= 1e-2 || fabs(bias->mean_ulp) >= 4) return OT_BIAS_FOUND;
  return fabs(bias->slope) >= 1e-3 ? OT_BIAS_SLIGHT : OT_BIAS_NONE;
}
