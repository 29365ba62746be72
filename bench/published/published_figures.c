// SPDX-License-Identifier: Apache-2.0
// Means and medians over all rows; no row is omitted.
#include "published_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advise/doubt.h"

static const double MOST_LOG_RATIO = 0.6;

ot_published_error ot_published_error_of(const char *source, double predicted, double measured) {
  const double error = predicted > 0 ? 100 * (predicted - measured) / measured : 100;
  const double ratio = predicted > 0 ? log(measured / predicted) : -MOST_LOG_RATIO;
  return (ot_published_error){.source = source,
                              .percent = fabs(error),
                              .signed_percent = error,
                              .log_ratio = fmax(-MOST_LOG_RATIO, fmin(ratio, MOST_LOG_RATIO))};
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

static bool is_inside(double log_ratio, ot_interval around_one) {
  return exp(log_ratio) >= around_one.low && exp(log_ratio) <= around_one.high;
}

static bool is_source_inside(const ot_published_error *errors, int64_t count, const char *source) {
  double ratio = 0, variance = 0, rows = 0;
  for (int64_t i = 0; i < count; i++) {
    if (strcmp(errors[i].source, source) != 0) continue;
    ratio += errors[i].log_ratio;
    variance += errors[i].variance;
    rows++;
  }
  return is_inside(ratio / rows, ot_interval_80(1, variance / rows));
}

static void count_covered(const ot_published_error *errors, int64_t count,
                          const char *const *sources, int64_t num_sources,
                          ot_published_figures *f) {
  for (int64_t i = 0; i < count; i++) {
    const ot_interval most = ot_interval_80(1, errors[i].variance);
    const ot_interval all = ot_interval_95(1, errors[i].variance);
    f->cover80 += is_inside(errors[i].log_ratio, most) ? 100 / (double)count : 0;
    f->cover95 += is_inside(errors[i].log_ratio, all) ? 100 / (double)count : 0;
    f->width80 += 100 * (most.high - most.low) / (double)count;
  }
  for (int64_t k = 0; k < num_sources; k++) {
    if (!is_source_inside(errors, count, sources[k])) continue;
    f->cover80_sources += 100 / (double)num_sources;
  }
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

// ---- between and within sources ----

// y_ij = b_i + e_ij for row j of source i: b normal with deviation `between`, e Student's t of
// DEGREES with deviation `within`; every source has the same weight. Maximum likelihood by
// expectation-maximisation (Lange, Little and Taylor 1989).
enum { DEGREES = 4, ROUNDS = 200, INNER_ROUNDS = 4 };
static const double LEAST_DEVIATION = 1e-4;

// Sums over the rows of one source, given the deviations so far.
typedef struct source_sums {
  double rows, weight, weighted;
} source_sums;

static double weight_of(double residual, double within) {
  const double t = residual / within;
  return (DEGREES + 1) / (DEGREES + t * t);
}

// Adds the expected squares of one source.
static void add_source(const ot_published_error *errors, int64_t count, const char *source,
                       const ot_published_figures *f, double squares[2]) {
  double effect = 0, variance = 0;
  source_sums s = {0};
  for (int round = 0; round < INNER_ROUNDS; round++) {
    s = (source_sums){0};
    for (int64_t i = 0; i < count; i++) {
      if (strcmp(errors[i].source, source) != 0) continue;
      const double w = weight_of(errors[i].log_ratio - effect, f->within);
      s.rows++;
      s.weight += w;
      s.weighted += w * errors[i].log_ratio;
    }
    const double within = f->within * f->within, between = f->between * f->between;
    variance = 1 / (s.weight / within + 1 / between);
    effect = variance * s.weighted / within;
  }
  squares[0] += effect * effect + variance;
  for (int64_t i = 0; i < count; i++) {
    if (strcmp(errors[i].source, source) != 0) continue;
    const double residual = errors[i].log_ratio - effect;
    squares[1] += weight_of(residual, f->within) * (residual * residual + variance) / s.rows;
  }
}

static void find_deviations(const ot_published_error *errors, int64_t count,
                            const char *const *sources, int64_t num_sources,
                            ot_published_figures *f) {
  f->between = f->within = 0.1;
  for (int round = 0; round < ROUNDS; round++) {
    double squares[2] = {0};
    for (int64_t k = 0; k < num_sources; k++) add_source(errors, count, sources[k], f, squares);
    f->between = fmax(LEAST_DEVIATION, sqrt(squares[0] / (double)num_sources));
    f->within = fmax(LEAST_DEVIATION, sqrt(squares[1] / (double)num_sources));
  }
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
  find_deviations(errors, count, sources, num_sources, &f);
  count_covered(errors, count, sources, num_sources, &f);
  return f;
}
