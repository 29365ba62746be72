// SPDX-License-Identifier: Apache-2.0
// Errors of a group of rows: mean, median and share within 10 %, over rows and over sources, and
// how much of them is common to the rows of a source.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

// One row of a group: its measured and predicted values.
typedef struct ot_published_error {
  const char *source;
  double percent;         // 100 |predicted - measured| / measured; 100 if not predicted
  double signed_percent;  // the same, signed; 100 if not predicted
  double log_ratio;       // ln(measured / predicted), within [-0.6, 0.6]; -0.6 if not predicted
  double variance;        // of that, as the prediction claims (advise/doubt.h)
} ot_published_error;

typedef struct ot_published_figures {
  int64_t rows;
  double mape;          // mean of percent
  double median;        // of percent
  double within10;      // share of rows with percent <= 10, in percent
  double source_macro;  // mean over sources of the mean of their rows
  double bias;          // median of signed_percent
  double between;       // standard deviation of the effects of sources, of ln(measured / predicted)
  double within;        // the same of rows within a source, without outliers
  double cover80, cover95;  // share of rows inside these intervals of the prediction, percent
  double cover80_sources;   // share of sources whose mean logarithm is inside the first
  double width80;           // mean width of the first in percent of the prediction
} ot_published_figures;

// The error of `predicted`, without a variance; 0 stands for a row without a prediction.
ot_published_error ot_published_error_of(const char *source, double predicted, double measured);

// Figures of `errors` [count]; all 0 if there are none.
ot_published_figures ot_published_figures_of(const ot_published_error *errors, int64_t count,
                                             ot_arena *arena);

// The different sources of `errors` [count], in order of appearance, into `out` [count]; returns
// their number.
int64_t ot_published_sources(const ot_published_error *errors, int64_t count, const char **out);
