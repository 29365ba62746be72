// SPDX-License-Identifier: Apache-2.0
// Each point is the command line with some values replaced, planned in memory of its own.
#include "cli/plan_sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer/sweep.h"
#include "base/number.h"
#include "base/text.h"
#include "cli/installed.h"
#include "cli/plan_live.h"
#include "cli/plan_progress.h"
#include "files/output_file.h"
#include "host/heap.h"

// The grid, and what becomes of its points.
typedef struct sweep {
  const ot_options *options;
  ot_sweep grid;
  ot_json_writer json;
  // the page
  const char *html;  // its path; null: none
  bool silent;       // it goes to standard output
  ot_json_writer rows;
  ot_text_builder names, csv;
  int64_t shown;  // the first point with a plan, -1: none yet
} sweep;

// ---- one point ----

// Plans `options`; a combination that is invalid or does not fit has a reason.
static ot_status plan_point(const ot_options *options, ot_arena *arena, ot_plan_request *request,
                            ot_plan_page *page, const char **reason) {
  const ot_plan_build build = {.request = request, .brief = true};
  ot_status status = ot_plan_request_read(options, arena, request);
  if (status == OT_OK) status = ot_plan_answer(&build, arena, page);
  if (status != OT_OK && status != OT_USAGE) return status;
  *reason = ot_sweep_reason(status, page, arena);
  return OT_OK;
}

// ---- the grid ----

static void print_row(const ot_sweep_row *row, bool first, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  if (first) ot_sweep_row_print_names(row, &text);
  ot_sweep_row_print(row, &text);
  fputs(text.text, stdout);
  fflush(stdout);
}

// ---- the page ----

static ot_status begin_page(sweep *s, ot_arena *arena) {
  s->shown = -1;
  s->csv.arena = s->names.arena = arena;
  if (!s->html) return OT_OK;
  if (!ot_installed_page(arena)) {
    ot_fail(OT_ENVIRONMENT, "--html: a sweep is shown by the page, which is not built");
    return ot_fail_hint(OT_ENVIRONMENT,
                        "make page, or leave --html out: the lines have all figures");
  }
  s->rows = ot_json_begin(arena, 0);
  ot_json_object(&s->rows, NULL);
  ot_sweep_write_json(&s->grid, &s->rows);
  ot_json_array(&s->rows, "rows");
  return OT_OK;
}

// Keeps what the page shows of point `index`.
static void keep_row(sweep *s, int64_t index, const ot_sweep_row *row, bool fits) {
  if (index == 0) ot_sweep_row_print_names(row, &s->names);
  ot_json_object(&s->rows, NULL);
  ot_sweep_row_write_members(row, &s->rows);
  ot_json_end(&s->rows);
  ot_sweep_row_print(row, &s->csv);
  if (fits && s->shown < 0) s->shown = index;
}

// The command line with the values of point `index`.
static ot_status options_at(const sweep *s, int64_t index, ot_arena *arena,
                            const ot_options **out) {
  *out = s->options;
  for (int i = 0; i < s->grid.num_axes; i++) {
    OT_TRY(ot_options_replace(*out, s->grid.axis[i].option, ot_sweep_value(&s->grid, index, i),
                              arena, out));
  }
  return OT_OK;
}

static ot_status run_point(sweep *s, int64_t index, ot_arena *arena) {
  const ot_options *options;
  ot_plan_request *const request = ot_arena_take(arena, sizeof *request);
  ot_sweep_row *const row = ot_arena_take(arena, sizeof *row);
  ot_plan_page page;
  const char *reason;
  OT_TRY(options_at(s, index, arena, &options));
  OT_TRY(plan_point(options, arena, request, &page, &reason));
  ot_sweep_row_build(&s->grid, index, &(ot_sweep_planned){request, &page, reason}, row);
  if (s->html) keep_row(s, index, row, !reason);
  if (ot_options_json(s->options)) {
    ot_sweep_row_write_json(row, NULL, &s->json);
  } else if (!s->silent) {
    print_row(row, index == 0, arena);
  }
  return OT_OK;
}

// The page opens with the first point that has a plan.
static ot_status write_page(sweep *s) {
  ot_arena *const arena = ot_options_arena(s->options);
  ot_text_builder text = {.arena = arena};
  ot_plan_request *const request = ot_arena_take(arena, sizeof *request);
  const ot_plan_build build = {.request = request};
  const char *const names = ot_text_builder_text(&s->names);
  const ot_options *options;
  ot_plan_page page;
  ot_json_end(&s->rows);
  ot_json_text(&s->rows, "names", names);
  ot_json_end(&s->rows);
  const ot_plan_live_rows rows = {
      s->rows.text, ot_arena_format(arena, "%s%s", names, ot_text_builder_text(&s->csv))};
  OT_TRY(options_at(s, s->shown < 0 ? 0 : s->shown, arena, &options));
  OT_TRY(ot_plan_request_read(options, arena, request));
  OT_TRY(ot_plan_answer(&build, arena, &page));
  OT_TRY(ot_plan_live_write(options, &page, request->question.cluster, &rows, &text));
  return ot_output_file_replace(s->html, text.text, text.length);
}

static ot_status read_sweep(sweep *s) {
  static const char *const alone[] = {"calibrate", "emit", "trace", "compare", "deadline", "brief"};
  ot_arena *const arena = ot_options_arena(s->options);
  for (int i = 0; i < OT_COUNT(alone); i++) {
    OT_CHECK(!ot_options_given(s->options, alone[i]), OT_USAGE,
             "--sweep has many plans, --%s one (use one of them)", alone[i]);
  }
  for (int i = 0; i < ot_options_count(s->options, "sweep"); i++) {
    OT_TRY(ot_sweep_add(&s->grid, ot_options_values(s->options, "sweep")[i], arena));
  }
  s->html = ot_options_text(s->options, "html");
  s->silent = s->html && ot_output_file_is_stdout(s->html);
  OT_CHECK(!s->silent || !ot_options_json(s->options), OT_USAGE,
           "--html %s and --json both print on stdout", s->html);
  return begin_page(s, arena);
}

ot_status ot_plan_sweep(const ot_options *options) {
  sweep *const s = ot_arena_take(ot_options_arena(options), sizeof *s);
  s->options = options;
  OT_TRY(read_sweep(s));
  s->json = ot_json_begin(ot_options_arena(options), 2);
  ot_json_object(&s->json, NULL);
  ot_json_array(&s->json, "points");
  for (int64_t i = 0; i < s->grid.num_points; i++) {
    ot_heap heap = {0};
    ot_arena arena = ot_heap_arena_create(&heap);
    const ot_status status = run_point(s, i, &arena);
    ot_heap_release(&heap);
    OT_TRY(status);
  }
  ot_json_end(&s->json);
  ot_json_end(&s->json);
  if (ot_options_json(options)) puts(s->json.text);
  return s->html ? write_page(s) : OT_OK;
}

// ---- the deadline ----

// A search in memory of its own.
static ot_status try_devices(void *context, int devices, double *elapsed_s) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_plan_request *const request = ot_arena_take(&arena, sizeof *request);
  const char *const value = ot_arena_format(&arena, "%d", devices);
  const ot_options *changed;
  const char *reason;
  ot_plan_page page;
  ot_status status = ot_options_replace(context, "gpus", value, &arena, &changed);
  if (status == OT_OK) status = plan_point(changed, &arena, request, &page, &reason);
  if (status == OT_OK) *elapsed_s = reason ? 0 : ot_sweep_elapsed_s(&page);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_plan_deadline(const ot_options *options, ot_deadline *deadline,
                           const ot_options **out) {
  ot_arena *const arena = ot_options_arena(options);
  ot_plan_request *const request = ot_arena_take(arena, sizeof *request);
  OT_TRY(ot_plan_request_read(options, arena, request));
  const ot_deadline_search search = {ot_job_all_devices(&request->job),
                                     ot_cluster_host(request->job.cluster), try_devices,
                                     (void *)options};
  OT_TRY(ot_deadline_meet(ot_options_text(options, "deadline"), &search, arena, deadline));
  return ot_options_replace(options, "gpus", ot_arena_format(arena, "%d", deadline->fewest), arena,
                            out);
}
