// SPDX-License-Identifier: Apache-2.0
// Corrects predictions by measured steps. Their errors y = ln(measured / predicted) are one draw of
// a normal process (advise/doubt.h): two factors that all configurations share, of computation and
// of exposed communication, which correct the rates of the cluster, and a part that only alike
// configurations share, which corrects each prediction. All are shrunk towards no error by what is
// known before any measurement. Closed form.
#pragma once

#include "advise/doubt.h"
#include "describe/cluster.h"

enum { OT_MOST_CALIBRATING = 50 };

typedef struct ot_calibrating_row {
  double log_ratio;  // ln(measured / predicted) of a step
  double variance;   // of that, as the prediction claims (ot_doubt)
  ot_traits traits;
  // results
  double residual;   // ln(measured / calibrated)
  double weight;     // less for outliers, at most 1.25
  double pull;       // its part in the corrections of others
  bool contradicts;  // farther from the others than noise explains in 19 of 20 cases; never the
                     // only row
} ot_calibrating_row;

typedef struct ot_calibration {
  double compute, exposed;  // factors of the time
  double scale;             // of all variances, so that they are those of the rows
  int count;
  ot_calibrating_row rows[OT_MOST_CALIBRATING];             // [count]
  double lower[OT_MOST_CALIBRATING * OT_MOST_CALIBRATING];  // Cholesky factor of their covariance
} ot_calibration;

// The row of a measured step of the configuration that `estimate` predicts.
void ot_calibrating_row_find(const ot_job *job, const ot_estimate *estimate, double log_ratio,
                             ot_calibrating_row *out);

// Fills in `calibration` from its rows; count in [1, OT_MOST_CALIBRATING].
void ot_calibration_find(ot_calibration *calibration);

// `cluster` with the efficiencies of kernels and links that the factors imply; efficiencies stay
// at most 1.
void ot_calibration_apply(const ot_calibration *calibration, ot_cluster *cluster);

// The factor of a step that is priced with these efficiencies, and its uncertainty.
typedef struct ot_correction {
  double factor;
  double variance;  // of ln(measured / corrected)
} ot_correction;

ot_correction ot_calibration_correction(const ot_calibration *calibration, const ot_traits *traits);

// The same as the correction of a job's estimates. Keeps `calibration`.
ot_step_correction ot_calibration_of_steps(const ot_calibration *calibration);

// The variance of ln(measured / estimated) of an estimate of `job`, which is so corrected.
double ot_calibration_variance(const ot_calibration *calibration, const ot_job *job,
                               const ot_estimate *estimate);
