// SPDX-License-Identifier: Apache-2.0
// The drawings of a run's page. Each appends one drawing with its legend; nothing is drawn without
// a value. The abscissa of all but the last two is the step.
#pragma once

#include "base/text_builder.h"
#include "report/run_record.h"

// A curve of a chart: a line through the means of the columns, from three of them on, and, behind
// it, their extremes. Few means have markers.
typedef struct ot_run_line {
  const ot_curve *curve;
  const char *name;
  const char *colour;  // "compute", "dp", ...: of the classes c- and l- of the style
} ot_run_line;

enum { OT_RUN_LINES_MAX = 7 };

typedef struct ot_run_chart {
  const ot_run_record *record;
  const char *label;         // of the ordinate
  const ot_run_line *lines;  // [num_lines]
  int num_lines;             // at most OT_RUN_LINES_MAX
  double limit;              // a dashed line; NaN: none
  const char *limit_name;    // of it
  bool from_zero;            // the ordinate begins at 0
  const char *(*figure)(ot_arena *arena, double value);
} ot_run_chart;

// True if a line has a value.
bool ot_run_chart_has(const ot_run_chart *chart);
void ot_chart_run_lines(const ot_run_chart *chart, ot_text_builder *out);

// Mean exposed communication of each column, stacked by axis.
bool ot_run_has_exposed(const ot_run_record *record);
void ot_chart_exposed(const ot_run_record *record, ot_text_builder *out);

// Layers downward, steps to the right; darker is larger, on a logarithmic scale.
void ot_chart_heat(const ot_run_record *record, const ot_heat_map *map, ot_text_builder *out);

// The items of the account as one bar.
void ot_chart_goodput(const ot_run_account *account, ot_text_builder *out);

// Processes, saves and failures over the wall time.
void ot_chart_run_time(const ot_run_record *record, ot_text_builder *out);
