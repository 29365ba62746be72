// SPDX-License-Identifier: Apache-2.0
// The report of a judged step, as a product: what was compared, findings that name class, tensors,
// axis and factor, and the smallest faults that would have shown. Insufficient evidence is
// inconclusive, never clean.
#pragma once

#include "base/arena.h"
#include "base/json_writer.h"
#include "base/text_builder.h"
#include "judge/verdict.h"

// A part of the step: "gradient", and its comparison in words.
typedef struct ot_judged_part {
  const char *name, *words;
  bool agrees;
} ot_judged_part;

// The recorded gradient of a tensor.
typedef struct ot_judged_tensor {
  const char *name;  // "model.layers.3.mlp.up_proj.weight"
  const char *kind;  // "model.layers.*.mlp.up_proj.weight"
  int layer;         // -1: in no layer
  double ratio;      // its error in own errors; infinite: a number of it is not finite
} ot_judged_tensor;

typedef struct ot_judge_finding {
  int record;            // of two: 1 or 2; 0: of the only one, or between both
  const char *what;      // the class, one word: "missing_reduction"
  const char *tensors;   // in words, or null: the step as a whole
  const char *axis;      // of the mesh: "tp"; or null
  const char *factor;    // in words: "1/dp", "0.5004"; or null
  const char *evidence;  // sentences with the measurements
  const char *advice;    // a sentence with what to try, or null
  double confirmed;      // error that the fault leaves, in own errors; NAN: it is not explained
} ot_judge_finding;

// The smallest fault of a class that would have shown on this record.
typedef struct ot_sensitivity {
  const char *what;
  double factor;  // of the hypothesis; infinite: nothing would have shown
} ot_sensitivity;

// A number of the report, for programs.
typedef struct ot_judge_figure {
  const char *name;  // with its unit: "rms_nats"
  double value;
} ot_judge_figure;

typedef struct ot_judge_report {
  ot_arena *arena;   // holds all its texts
  const char *step;  // a line: model, software, mesh, batch, types
  ot_verdict verdict;
  const char *open;  // what could not be checked and what would decide it, or null
  int num_parts, num_findings, num_sensitivities, num_figures, num_tensors;
  ot_judged_part *parts;          // [num_parts]
  ot_judge_finding *findings;     // [num_findings]
  ot_sensitivity *sensitivities;  // [num_sensitivities]
  ot_judge_figure *figures;       // [num_figures]
  ot_judged_tensor *tensors;      // [num_tensors] in the order of the backward pass
  int64_t parts_capacity, findings_capacity, sensitivities_capacity, figures_capacity;
} ot_judge_report;

void ot_judge_add_part(ot_judge_report *report, const char *name, bool agrees, const char *words,
                       ...) __attribute__((format(printf, 4, 5)));

// Adds a finding and sets the verdict; the result is valid until the next call.
ot_judge_finding *ot_judge_find(ot_judge_report *report, const char *what);

void ot_judge_add_sensitivity(ot_judge_report *report, const char *what, double factor);

void ot_judge_add_figure(ot_judge_report *report, const char *name, double value);

// Appends `why` to what is open. Without findings the verdict becomes inconclusive.
void ot_judge_leave_open(ot_judge_report *report, const char *why, ...)
    __attribute__((format(printf, 2, 3)));

// Lines for this and other reports, each ended: what was compared; the smallest faults that would
// have shown, if any are known.
void ot_judge_report_put_parts(const ot_judge_report *report, ot_text_builder *out);
void ot_judge_report_put_sensitivity(const ot_judge_report *report, ot_text_builder *out);

// The report as lines, each ended; as one JSON document.
const char *ot_judge_report_print(const ot_judge_report *report);
const char *ot_judge_report_json(const ot_judge_report *report);
