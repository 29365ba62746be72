// SPDX-License-Identifier: Apache-2.0
// Order statistics of a few numbers.
#include <stdlib.h>

#include "measure/measure_parts.h"

void ot_timings_add(ot_timings *timings, double seconds) {
  if (timings->count < OT_TIMINGS_MOST) timings->seconds[timings->count] = seconds;
  timings->count++;
  timings->total_s += seconds;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Sorts them; returns their number.
static int64_t sort(ot_timings *timings) {
  const int64_t n = timings->count < OT_TIMINGS_MOST ? timings->count : OT_TIMINGS_MOST;
  qsort(timings->seconds, (size_t)n, sizeof *timings->seconds, by_value);
  return n;
}

ot_timing ot_timings_read(ot_timings *timings) {
  const int64_t n = sort(timings);
  const double *const s = timings->seconds;
  if (n == 0) return (ot_timing){0};
  const double median = s[n / 2];
  return (ot_timing){.seconds = s[n / 4],
                     .fastest_s = s[0],
                     .spread = median > 0 ? (s[3 * n / 4] - s[n / 4]) / median : 0};
}

double ot_timings_median(ot_timings *timings) {
  const int64_t n = sort(timings);
  return n > 0 ? timings->seconds[n / 2] : 0;
}

// Selection sort of the front.
int ot_timings_fastest(const double *seconds, int count, int *fastest) {
  const int most = count < 5 ? count > 0 : count / 5;
  for (int i = 0; i < count; i++) fastest[i] = i;
  for (int i = 0; i < most; i++) {
    for (int k = i + 1; k < count; k++) {
      if (seconds[fastest[k]] >= seconds[fastest[i]]) continue;
      const int kept = fastest[i];
      fastest[i] = fastest[k];
      fastest[k] = kept;
    }
  }
  return most;
}

double ot_timings_fast_mean(const double *seconds, int count) {
  int fastest[OT_TIMINGS_MOST];
  double sum_s = 0;
  const int n = ot_timings_fastest(seconds, count, fastest);
  for (int i = 0; i < n; i++) sum_s += seconds[fastest[i]] / n;
  return sum_s;
}
