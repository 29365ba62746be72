// SPDX-License-Identifier: Apache-2.0
// Corrects the rates of a cluster by measured steps: two factors, of computation and of exposed
// communication, shrunk towards 1 by what is known of them before any measurement. Closed form.
#pragma once

#include "describe/cluster.h"
#include "plan/estimate.h"

enum { OT_MOST_CALIBRATING = 50 };

typedef struct ot_calibrating_row {
  double log_ratio;  // ln(measured / predicted) of a step
  double exposed;    // share of exposed communication in the prediction, [0, 0.95]
  // results
  double residual;   // ln(measured / calibrated)
  double weight;     // less for outliers, at most 1.25
  bool contradicts;  // farther from the others than noise explains in 19 of 20 cases
} ot_calibrating_row;

typedef struct ot_calibration {
  double compute, exposed;  // factors of the time
  double deviation;         // of measured steps after the calibration, of the logarithm
} ot_calibration;

// Share of the step in which it waits for communication, as in ot_calibrating_row.
double ot_calibrating_exposed(const ot_estimate *estimate);

// Finds the factors and fills the results of the rows; count in [1, OT_MOST_CALIBRATING].
//   rows  [count]
void ot_calibration_find(ot_calibrating_row *rows, int count, ot_calibration *out);

// `cluster` with the efficiencies of kernels and links that the factors imply; efficiencies stay
// at most 1.
void ot_calibration_apply(const ot_calibration *calibration, ot_cluster *cluster);
