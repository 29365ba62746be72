// SPDX-License-Identifier: Apache-2.0
// The report of a run (`orthant report`) and its output formats: text, JSON, HTML.
#pragma once

#include "base/text_builder.h"
#include "describe/mesh.h"
#include "describe/run.h"
#include "report/chart_file.h"
#include "report/run_record.h"

typedef struct ot_run_page {
  const char *path;            // as given by the user
  const char *name;            // of the run, for titles; null: the path
  const ot_run *run;           // null: the directory has no readable config.yaml
  const char *no_run;          // then: why; else null
  const ot_mesh *mesh;         // null: unknown
  int64_t parameters;          // 0: unknown
  bool alive;                  // its process runs on this machine
  const char *holder;          // process that last held the directory; null: unknown
  int64_t num_checkpoints;     // in the directory
  const int64_t *checkpoints;  // [num_checkpoints] their steps, newest first
  const ot_run_record *record;
} ot_run_page;

// As text: tables of at most 100 columns; lines of the time line are as long as their events.
void ot_run_report(const ot_run_page *page, ot_text_builder *out);

// As one JSON document, in `arena`.
const char *ot_run_json(const ot_run_page *page, ot_arena *arena);

// As one self-contained HTML file: no network, no scripts.
// figures: receives its charts; null: not wanted
void ot_run_html(const ot_run_page *page, ot_text_builder *out, ot_figure_list *figures);

// ---- what the formats share ----

// "finished", "running (process 7 on n1)", ...
const char *ot_run_page_state(const ot_run_page *page, ot_arena *arena);

// "llama of 8.03B parameters"; "unknown" without a configuration.
const char *ot_run_page_model(const ot_run_page *page, ot_arena *arena);

// "8 ranks (pp 2 x tp 4)".
const char *ot_run_page_mesh(const ot_run_page *page, ot_arena *arena);

// Steps of the whole run; 0: unknown.
int64_t ot_run_page_total(const ot_run_page *page);

// Shares of the wall time in tenths of a percent, rounded so that they add up to 1000.
//   tenths  [OT_ACCOUNT_ITEMS]
void ot_run_page_tenths(const ot_run_account *account, int64_t *tenths);

// A sentence on an event of the time line; null: it is not shown there (steps, saves).
const char *ot_run_page_event(const ot_run_event *event, ot_arena *arena);

// Means of measured and predicted steps, without the first step of each process where there are
// others; NaN: unknown.
typedef struct ot_run_means {
  double step_s, predicted_step_s;
  double tokens_per_s, predicted_tokens_per_s;
  double mfu, predicted_mfu;
} ot_run_means;
ot_run_means ot_run_page_means(const ot_run_page *page);

// Seconds as "45.6 ms", "12 s", "3h12m"; "-" for NaN.
const char *ot_run_page_time(ot_arena *arena, double seconds);
