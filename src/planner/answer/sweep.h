// SPDX-License-Identifier: Apache-2.0
// A grid of option values and its points, each a question of its own whose best plan is a row of
// figures (`orthant plan --sweep`, and the page's). Pure.
#pragma once

#include "answer/question.h"

enum { OT_SWEEP_AXES = 8, OT_SWEEP_VALUES = 64, OT_SWEEP_POINTS = 4096 };

// The values of one option.
typedef struct ot_sweep_axis {
  const char *option;  // with hyphens
  const char *column;  // the same with underscores
  int count;
  const char *value[OT_SWEEP_VALUES];  // [count]
} ot_sweep_axis;

typedef struct ot_sweep {
  int num_axes;
  ot_sweep_axis axis[OT_SWEEP_AXES];  // [num_axes]
  int64_t num_points;
} ot_sweep;

// Adds the axis KEY=A,B,C or KEY=A..B, which doubles A up to B. OT_USAGE if the option cannot vary
// or does already, or if there are too many values or points.
ot_status ot_sweep_add(ot_sweep *sweep, const char *given, ot_arena *arena);

// Appends the members `points`, their number, and `axes` [{key, values}].
void ot_sweep_write_json(const ot_sweep *sweep, ot_json_writer *w);

// The value of an axis at a point; that of the last axis varies fastest.
const char *ot_sweep_value(const ot_sweep *sweep, int64_t point, int axis);

// Why a point has no plan, or null; `status`: of its request and its plans.
const char *ot_sweep_reason(ot_status status, const ot_plan_page *page, ot_arena *arena);

// Elapsed seconds of the run with the best plan, with failures where they are modelled.
double ot_sweep_elapsed_s(const ot_plan_page *page);

typedef enum ot_sweep_kind {
  OT_SWEEP_NONE,
  OT_SWEEP_INTEGER,
  OT_SWEEP_REAL,
  OT_SWEEP_BOOLEAN,
  OT_SWEEP_TEXT
} ot_sweep_kind;

typedef struct ot_sweep_field {
  const char *name;
  ot_sweep_kind kind;
  int64_t integer;
  double real;
  const char *text;
} ot_sweep_field;

// The values that vary, what the job makes of them, and the figures of the best plan.
typedef struct ot_sweep_row {
  int count;
  ot_sweep_field field[48];  // [count]
} ot_sweep_row;

// The plan of a point; the page is not read if there is a reason.
typedef struct ot_sweep_planned {
  const ot_plan_request *request;
  const ot_plan_page *page;
  const char *reason;  // why there is no plan, or null
} ot_sweep_planned;

// The row of a point.
void ot_sweep_row_build(const ot_sweep *sweep, int64_t point, const ot_sweep_planned *planned,
                        ot_sweep_row *out);

// Appends the names of the fields, and the fields, as lines of CSV (RFC 4180).
void ot_sweep_row_print_names(const ot_sweep_row *row, ot_text_builder *out);
void ot_sweep_row_print(const ot_sweep_row *row, ot_text_builder *out);

// Appends the members `line`, the row as CSV, and `point`, as an object: what the page shows.
void ot_sweep_row_write_members(const ot_sweep_row *row, ot_json_writer *w);

// The row as an object.
void ot_sweep_row_write_json(const ot_sweep_row *row, const char *key, ot_json_writer *w);

// ---- a deadline ----

typedef struct ot_deadline_search {
  int most, host;  // devices; of a host, at least 1
  // Elapsed seconds of the run with the best plan on some devices; 0: none fits.
  ot_status (*run)(void *context, int devices, double *elapsed_s);
  void *context;
} ot_deadline_search;

// The fewest devices of whole hosts, or of a part of one, whose run ends within `time` ("30d"):
// exact up to 48 counts below what a bisection finds. OT_USAGE if it is no time, OT_FINDINGS if all
// of them are too few.
ot_status ot_deadline_meet(const char *time, const ot_deadline_search *search, ot_arena *arena,
                           ot_deadline *out);
