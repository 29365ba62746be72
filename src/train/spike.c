// SPDX-License-Identifier: Apache-2.0
// z = (x - median) / (1.4826 MAD): for normal values, MAD is 0.6745 standard deviations.
#include "train/spike.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(double *values, int64_t n) {
  qsort(values, (size_t)n, sizeof *values, compare);
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

static double measure(const ot_spike_monitor *monitor, double value) {
  const int64_t n = monitor->count < OT_SPIKE_WINDOW ? monitor->count : OT_SPIKE_WINDOW;
  double sorted[OT_SPIKE_WINDOW];
  if (n < OT_SPIKE_LEAST) return 0;
  for (int64_t i = 0; i < n; i++) sorted[i] = monitor->values[i];
  const double median = median_of(sorted, n);
  for (int64_t i = 0; i < n; i++) sorted[i] = fabs(monitor->values[i] - median);
  const double deviation = fmax(1.4826 * median_of(sorted, n), 1e-3 * fabs(median));
  return deviation > 0 ? (value - median) / deviation : 0;
}

bool ot_spike_add(ot_spike_monitor *monitor, double value) {
  static const double once = 20, twice = 8;
  if (!isfinite(value)) return false;
  const bool before = monitor->high;
  monitor->z = measure(monitor, value);
  monitor->high = monitor->z > twice;
  monitor->values[monitor->count++ % OT_SPIKE_WINDOW] = value;
  return monitor->z > once || (monitor->high && before);
}
