// SPDX-License-Identifier: Apache-2.0
// A run as its directory tells it: events, totals and curves of its metrics, and the account of its
// time. Read in time linear in the metrics and in memory that does not grow with them: a curve
// keeps the smallest and the largest value of each column of its drawing, so that a spike of one
// step of a million stays visible.
#pragma once

#include "report/run_account.h"

enum { OT_CURVE_COLUMNS = 400, OT_HEAT_COLUMNS = 120 };

typedef enum ot_curve_kind {
  OT_CURVE_LOSS,
  OT_CURVE_GRADIENT_NORM,
  OT_CURVE_LEARNING_RATE,
  OT_CURVE_TOKENS_PER_S,
  OT_CURVE_MFU,
  OT_CURVE_STEP_S,
  OT_CURVE_TP,  // exposed communication, seconds
  OT_CURVE_CP,
  OT_CURVE_EP,
  OT_CURVE_PP,
  OT_CURVE_DP,
  OT_CURVE_MEMORY,  // peak, bytes
  OT_CURVE_KINDS,
} ot_curve_kind;

// Values in a column; count 0: none. Values that are not finite are left out.
typedef struct ot_curve_column {
  double minimum, maximum, sum;
  int64_t count;
} ot_curve_column;

// A curve over the steps of the run, and its totals.
typedef struct ot_curve {
  ot_curve_column column[OT_CURVE_COLUMNS];
  ot_curve_column all;
  double first, last;  // NaN: no value
} ot_curve;

typedef struct ot_validation_curve {
  const char *name;  // "" for the unnamed set
  ot_curve curve;
} ot_validation_curve;

// Health of one group ("gradient_norm", ...): a row for each layer, the largest value of each
// column. Norms of the tensors of a layer are combined, of other values the largest is kept.
typedef struct ot_heat_row {
  const char *name;               // "layers.3", "embedding"
  double value[OT_HEAT_COLUMNS];  // NaN: none
  double pending;                 // of the line that is read
} ot_heat_row;

typedef struct ot_heat_map {
  const char *name;
  bool norms;
  ot_heat_row *rows;  // [num_rows]
  int64_t num_rows, capacity, next;
  double maximum;  // 0: no value above 0
} ot_heat_map;

enum { OT_HEAT_MAPS = 4 };

typedef struct ot_audit_total {
  const char *name;
  int64_t runs, findings;
} ot_audit_total;

// Sums over lines for the ratios of means, of lines in which both sides are known.
typedef struct ot_run_totals {
  double step_s, tokens;                     // measured
  double predicted_s, predicted_of_s;        // and the measured time of the same lines
  double mfu_s, mfu_of_s;                    // sum of mfu x seconds
  double predicted_mfu_s;                    // the same where a prediction is known
  int64_t memory_peak_bytes, planned_bytes;  // largest; -1: unknown
  int64_t steps;                             // with a time
} ot_run_totals;

typedef struct ot_run_record {
  int64_t last_step;  // 0: no step
  int64_t tokens;     // of the last step; -1: unknown
  int64_t num_steps;  // with metrics
  int64_t columns;    // in use: fewer for short runs
  ot_curve curves[OT_CURVE_KINDS];
  ot_validation_curve *validation;  // [num_validation]
  int64_t num_validation, validation_capacity;
  ot_validation_curve *figures;  // [num_figures] of evaluations, "TASK/FIGURE"
  int64_t num_figures, figures_capacity;
  ot_heat_map heat[OT_HEAT_MAPS];
  ot_audit_total *audits;  // [num_audits]
  int64_t num_audits, audits_capacity;
  int64_t num_spikes;  // outliers in metrics
  ot_run_totals totals;
  ot_run_totals
      later;  // without the first step of each process, which chooses and captures kernels
  ot_run_event_list events;
  ot_run_account account;
} ot_run_record;

// Reads metrics and events at these paths, either of which may be absent, into `arena`.
ot_status ot_run_record_read(ot_arena *arena, const char *metrics, const char *events,
                             ot_run_record *record);

// The step in the middle of column `i`, of `columns` in all.
double ot_run_record_step(const ot_run_record *record, int64_t columns, int64_t i);

// The column of `step` of `columns` in all.
int64_t ot_run_record_column(const ot_run_record *record, int64_t columns, int64_t step);
