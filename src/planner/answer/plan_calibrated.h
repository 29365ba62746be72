// SPDX-License-Identifier: Apache-2.0
// The changes that measured steps made to the predictions of a plan, as text and as JSON.
#pragma once

#include "advise/calibrate.h"
#include "base/json_writer.h"
#include "base/text_builder.h"

// One measured step and what the calibration says of it.
typedef struct ot_calibrated_step {
  const char *name;  // "line 3", "steps.jsonl"
  double measured_s, predicted_s;
  ot_calibrating_row row;
} ot_calibrated_step;

typedef struct ot_calibration_report {
  ot_calibration calibration;
  ot_step_correction correction;  // the same for the job
  const char *cluster_path;       // the file that was written
  int count;
  ot_calibrated_step *steps;  // [count]
} ot_calibration_report;

// One line a step, the factors, and what contradicts the rest.
void ot_calibration_print(const ot_calibration_report *report, ot_text_builder *out);

// "calibration": {"compute", "exposed", "cluster", "steps": [...]} in the open object.
void ot_calibration_write(const ot_calibration_report *report, ot_json_writer *w);
