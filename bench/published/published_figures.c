// SPDX-License-Identifier: Apache-2.0
// Means and medians over all rows; no row is omitted.
#include "published_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ot_published_error ot_published_error_of(const char *source, double predicted, double measured) {
  const double error = predicted > 0 ? 100 * (predicted - measured) / measured : 100;
  return (ot_published_error){source, fabs(error), error};
}

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Sorts `values` [count].
static double median_of(double *values, int64_t count) {
  qsort(values, (size_t)count, sizeof *values, compare_doubles);
  const int64_t half = count / 2;
  return count % 2 != 0 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

int64_t ot_published_sources(const ot_published_error *errors, int64_t count, const char **out) {
  int64_t sources = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t k = 0;
    while (k < sources && strcmp(out[k], errors[i].source) != 0) k++;
    if (k == sources) out[sources++] = errors[i].source;
  }
  return sources;
}

static double mean_of_source(const ot_published_error *errors, int64_t count, const char *source) {
  double sum = 0;
  int64_t rows = 0;
  for (int64_t i = 0; i < count; i++) {
    if (strcmp(errors[i].source, source) != 0) continue;
    sum += errors[i].percent;
    rows++;
  }
  return sum / (double)rows;
}

ot_published_figures ot_published_figures_of(const ot_published_error *errors, int64_t count,
                                             ot_arena *arena) {
  ot_published_figures f = {.rows = count};
  if (count == 0) return f;
  double *const values = ot_arena_array(arena, count, sizeof *values);
  const char **const sources = ot_arena_array(arena, count, sizeof *sources);
  for (int64_t i = 0; i < count; i++) {
    values[i] = errors[i].percent;
    f.mape += errors[i].percent / (double)count;
    if (errors[i].percent <= 10) f.within10 += 100 / (double)count;
  }
  f.median = median_of(values, count);
  for (int64_t i = 0; i < count; i++) values[i] = errors[i].signed_percent;
  f.bias = median_of(values, count);
  const int64_t num_sources = ot_published_sources(errors, count, sources);
  for (int64_t k = 0; k < num_sources; k++) {
    f.source_macro += mean_of_source(errors, count, sources[k]) / (double)num_sources;
  }
  return f;
}
