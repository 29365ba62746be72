// SPDX-License-Identifier: Apache-2.0
// Reads metrics.jsonl line by line, in time linear in the file and memory of its longest line.
#pragma once

#include "record/metrics.h"

typedef enum ot_metrics_line_kind {
  OT_METRICS_OTHER,  // of another version of this program
  OT_METRICS_STEP,
  OT_METRICS_VALIDATION,
  OT_METRICS_AUDIT,
  OT_METRICS_SPIKE,
  OT_METRICS_FIGURE,  // of an evaluation
} ot_metrics_line_kind;

typedef struct ot_metrics_line {
  ot_metrics_line_kind kind;
  int64_t step;
  ot_metrics_step values;  // of a step; what the line lacks is unknown
  const char *name;  // validation: "" for the unnamed set; of an audit or a spike; TASK/FIGURE
  double value;      // loss in nats, findings, z, figure
} ot_metrics_line;

// The line and its texts are valid during the call. A failure ends the reading.
typedef ot_status (*ot_metrics_visitor)(void *context, const ot_metrics_line *line);

// Visits the lines of the file at `path`, which need not exist. An incomplete last line is not one
// yet; any other that is not a JSON object with a step is an error with its number.
ot_status ot_metrics_read(const char *path, ot_metrics_visitor visit, void *context);
