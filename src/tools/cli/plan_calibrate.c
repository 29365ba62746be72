// SPDX-License-Identifier: Apache-2.0
// A row of a CSV is the job of the command line with the values of its columns; what neither gives
// is 1. Lines of metrics.jsonl have the prediction of their run with them.
#include "cli/plan_calibrate.h"

#include <stddef.h>
#include <string.h>

#include "base/extremes.h"
#include "base/math.h"
#include "base/number.h"
#include "base/sort.h"
#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "estimate/job_check.h"
#include "files/disk.h"
#include "record/metrics_read.h"

// A step that is farther from its prediction was of another job, or in another unit. Predictions
// of known software on known devices are within a third (docs/published.md).
static const double MOST_RATIO = 20;

enum { MOST_BYTES = 1 << 20, MOST_COLUMNS = 32 };

static const double MOST_STEP_S = 1 << 24;

// The columns of a CSV: keys of a question, and the time of a step.
static const char *const columns[] = {"tp",
                                      "pp",
                                      "vpp",
                                      "cp",
                                      "ep",
                                      "zero",
                                      "micro_batch_size",
                                      "pipeline",
                                      "recompute",
                                      "gpus",
                                      "global_batch_size",
                                      "sequence_length",
                                      "step_seconds"};
enum { STEP_SECONDS = OT_COUNT(columns) - 1 };

typedef struct reader {
  const char *file;
  ot_plan_request *request;
  ot_arena *arena;
  ot_calibration_report *out;
  int num_columns;
  const char *column[MOST_COLUMNS];
  int line;  // from 1
} reader;

// A configuration as a row gives it.
typedef struct measured_row {
  ot_question question;
  double step_s;
} measured_row;

// ---- text ----

// The next field of a line at `*at`, without spaces around it; null at its end.
static char *next_field(char **at) {
  if (!*at) return NULL;
  char *field = *at;
  char *const comma = strchr(field, ',');
  *at = comma ? comma + 1 : NULL;
  if (comma) *comma = '\0';
  field += strspn(field, " \t\r");
  for (size_t n = strlen(field); n > 0 && strchr(" \t\r", field[n - 1]); n--) field[n - 1] = '\0';
  return field;
}

static const char *column_names(ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  for (int i = 0; i < OT_COUNT(columns); i++) {
    ot_text_appendf(&text, "%s%s", i > 0 ? ", " : "", columns[i]);
  }
  return ot_text_builder_text(&text);
}

static ot_status read_header(reader *r, char *line) {
  bool timed = false;
  for (char *field = next_field(&line); field; field = next_field(&line)) {
    OT_CHECK(r->num_columns < MOST_COLUMNS, OT_USAGE, "%s: more than %d columns", r->file,
             MOST_COLUMNS);
    const char *found = NULL;
    for (int i = 0; i < OT_COUNT(columns); i++) {
      if (ot_text_equal(columns[i], field)) found = columns[i];
    }
    for (int i = 0; i < r->num_columns; i++) {
      OT_CHECK(r->column[i] != found, OT_USAGE, "%s: line 1 names column %s twice", r->file, field);
    }
    OT_CHECK(found, OT_USAGE, "%s: line 1: there is no column \"%s\"; one of %s", r->file, field,
             column_names(r->arena));
    timed = timed || found == columns[STEP_SECONDS];
    r->column[r->num_columns++] = found;
  }
  OT_CHECK(timed, OT_USAGE, "%s: line 1 names no column step_seconds", r->file);
  return OT_OK;
}

static ot_status read_seconds(const reader *r, const char *field, double *step_s) {
  OT_CHECK(ot_number_parse(field, false, step_s) && *step_s > 0 && *step_s <= MOST_STEP_S, OT_USAGE,
           "%s: line %d, column %s: \"%s\"; allowed: a number above 0, at most %g", r->file,
           r->line, columns[STEP_SECONDS], field, MOST_STEP_S);
  return OT_OK;
}

// Reads the fields of a line; the others of the question stay open.
static ot_status read_fields(const reader *r, char *line, measured_row *row) {
  ot_node *const values = ot_node_create(r->arena, OT_NODE_MAP);
  int i = 0;
  for (char *field = next_field(&line); field; field = next_field(&line), i++) {
    OT_CHECK(i < r->num_columns, OT_USAGE, "%s: line %d has more fields than line 1", r->file,
             r->line);
    if (field[0] == '\0') continue;
    if (r->column[i] == columns[STEP_SECONDS]) {
      OT_TRY(read_seconds(r, field, &row->step_s));
      continue;
    }
    ot_node *const word = ot_node_word(r->arena, field);
    ot_node_set_source(word, ot_arena_format(r->arena, "%s: line %d", r->file, r->line));
    ot_node_put(r->arena, values, r->column[i], word);
  }
  OT_CHECK(row->step_s > 0, OT_USAGE, "%s: line %d has no %s", r->file, r->line,
           columns[STEP_SECONDS]);
  return ot_question_read(values, r->arena, &row->question);
}

// ---- rows ----

static int64_t first_of(int64_t given, int64_t otherwise) { return given > 0 ? given : otherwise; }

// `asked`; its open values are those of the command line, or 1.
static ot_candidate candidate_of(const ot_candidate *asked, const ot_candidate *line) {
  ot_candidate out = *line;
  out.tp = (int)first_of(asked->tp, first_of(line->tp, 1));
  out.pp = (int)first_of(asked->pp, first_of(line->pp, 1));
  out.vpp = (int)first_of(asked->vpp, first_of(line->vpp, 1));
  out.cp = (int)first_of(asked->cp, first_of(line->cp, 1));
  out.ep = (int)first_of(asked->ep, first_of(line->ep, 1));
  out.etp = (int)first_of(line->etp, 1);
  out.zero = asked->zero >= 0 ? asked->zero : line->zero >= 0 ? line->zero : 0;
  out.micro_batch_size = first_of(asked->micro_batch_size, first_of(line->micro_batch_size, 1));
  if ((int)asked->pipeline >= 0) out.pipeline = asked->pipeline;
  if ((int)asked->recompute >= 0) out.recompute = asked->recompute;
  if ((int)out.recompute < 0) out.recompute = OT_RECOMPUTE_NONE;
  return out;
}

static ot_status price_row(const reader *r, const measured_row *row, ot_calibrated_step *out) {
  const ot_question *const q = &row->question;
  ot_job job = r->request->job;
  ot_candidate c = candidate_of(&q->given, &job.given);
  ot_cluster cluster;
  ot_estimator *estimator;
  ot_estimate estimate;
  job.devices = (int)first_of(q->devices, job.devices);
  job.global_batch_size = first_of(q->global_batch_size, job.global_batch_size);
  job.sequence_length = first_of(q->sequence_length, job.sequence_length);
  OT_TRY(ot_cluster_resize(job.cluster, job.devices, &cluster));
  job.cluster = &cluster;
  job.given = c;
  c.dp = (int)(job.devices / ((double)c.tp * c.pp * c.cp));
  c.dp_shard = c.dp;
  if ((int)c.pipeline < 0) c.pipeline = c.vpp > 1 ? OT_PIPELINE_INTERLEAVED : OT_PIPELINE_1F1B;
  c.micro_batches = c.dp > 0 ? job.global_batch_size / (c.micro_batch_size * c.dp) : 0;
  OT_TRY(ot_job_check(&job));
  OT_TRY(ot_candidate_check(&job, &c));
  OT_TRY(ot_estimator_build(&job, r->arena, &estimator));
  OT_TRY(ot_estimate_build(estimator, &c, &estimate));
  out->measured_s = row->step_s;
  out->predicted_s = estimate.step_s;
  ot_calibrating_row_find(&job, &estimate, ot_log(row->step_s / estimate.step_s), &out->row);
  return OT_OK;
}

static ot_status check_ratio(const char *place, const ot_calibrated_step *step) {
  const double ratio = step->measured_s / step->predicted_s;
  if (ratio <= MOST_RATIO && ratio >= 1 / MOST_RATIO) return OT_OK;
  ot_fail(OT_USAGE,
          "%s: a step of %.4g s is %.3g times the %.4g s predicted; allowed: %g times at most, or "
          "a %gth at least",
          place, step->measured_s, ratio, step->predicted_s, MOST_RATIO, MOST_RATIO);
  return ot_fail_hint(OT_USAGE,
                      "step_seconds is the time of one step in seconds; check gpus, "
                      "global_batch_size and --model, too");
}

static ot_status add_row(reader *r, char *line) {
  OT_CHECK(r->out->count < OT_MOST_CALIBRATING, OT_USAGE, "%s: more than %d steps", r->file,
           OT_MOST_CALIBRATING);
  ot_calibrated_step *const step = &r->out->steps[r->out->count++];
  measured_row row = {0};
  OT_TRY(read_fields(r, line, &row));
  step->name = ot_arena_format(r->arena, "line %d", r->line);
  if (price_row(r, &row, step) != OT_OK) {
    const char *const why = ot_arena_format(r->arena, "%s", ot_fail_message());
    return ot_fail(OT_USAGE, "%s: line %d: %s", r->file, r->line, why);
  }
  return check_ratio(
      ot_arena_format(r->arena, "%s: line %d, column step_seconds", r->file, r->line), step);
}

static ot_status read_csv(reader *r) {
  char *text;
  int64_t bytes;
  OT_TRY(ot_disk_read(r->arena, r->file, MOST_BYTES, &text, &bytes));
  for (char *line = text; line;) {
    char *const end = strchr(line, '\n');
    if (end) *end = '\0';
    r->line++;
    const bool blank = line[strspn(line, " \t\r")] == '\0';
    if (!blank) OT_TRY(r->num_columns == 0 ? read_header(r, line) : add_row(r, line));
    line = end ? end + 1 : NULL;
  }
  OT_CHECK(r->out->count > 0, OT_USAGE, "%s: no step below the names of columns", r->file);
  return OT_OK;
}

// ---- metrics.jsonl ----

// The steps of one run are one measurement: their median, without the first, which is slower.
typedef struct run_steps {
  ot_arena *arena;
  int64_t count, capacity, seen;
  double *ratio;  // [count] measured / predicted
  double step_s, exposed_s;
} run_steps;

static ot_status add_step(void *context, const ot_metrics_line *line) {
  run_steps *const s = context;
  const ot_metrics_step *const v = &line->values;
  if (line->kind != OT_METRICS_STEP || s->seen++ == 0) return OT_OK;
  if (!(v->step_s > 0) || !(v->predicted_step_s > 0)) return OT_OK;
  s->ratio = ot_arena_grow(s->arena, s->ratio, s->count, &s->capacity, sizeof *s->ratio);
  s->ratio[s->count++] = v->step_s / v->predicted_step_s;
  s->step_s += v->step_s;
  const double exposed[] = {v->exposed.tp_s, v->exposed.cp_s, v->exposed.ep_s, v->exposed.pp_s,
                            v->exposed.dp_s};
  for (int i = 0; i < OT_COUNT(exposed); i++) {
    if (exposed[i] > 0) s->exposed_s += exposed[i];
  }
  return OT_OK;
}

static ot_status read_metrics(reader *r) {
  run_steps s = {.arena = r->arena};
  OT_CHECK(ot_disk_is_file(r->file), OT_ENVIRONMENT, "cannot read %s: no such file", r->file);
  OT_TRY(ot_metrics_read(r->file, add_step, &s));
  OT_CHECK(s.count > 0, OT_USAGE,
           "%s: no step after the first has a prediction (predicted_step_seconds)", r->file);
  const double ratio = ot_median(s.ratio, s.count, r->arena), mean_s = s.step_s / (double)s.count;
  ot_calibrated_step *const step = &r->out->steps[r->out->count++];
  *step = (ot_calibrated_step){
      .name = ot_disk_base_name(r->file), .measured_s = mean_s, .predicted_s = mean_s / ratio};
  // The file does not say which configuration it is of: that of the command line.
  const ot_job *const job = &r->request->job;
  const ot_estimate own = {.candidate = candidate_of(&job->given, &job->given)};
  ot_calibrating_row_find(job, &own, ot_log(ratio), &step->row);
  step->row.traits.exposed = ot_smaller(s.exposed_s / s.step_s, 0.95);
  return check_ratio(r->file, step);
}

// ---- the calibration ----

static const char *cluster_path(const char *file, ot_arena *arena) {
  const char *const base = ot_disk_base_name(file), *const dot = strrchr(base, '.');
  const int length = (int)((dot && dot > base ? dot : base + strlen(base)) - file);
  return ot_arena_format(arena, "%.*s.cluster.yaml", length, file);
}

ot_status ot_plan_calibrate(const char *file, ot_plan_request *request, ot_arena *arena,
                            ot_calibration_report *out) {
  *out = (ot_calibration_report){
      .steps = ot_arena_array(arena, OT_MOST_CALIBRATING, sizeof *out->steps),
      .cluster_path = cluster_path(file, arena)};
  reader r = {.file = file, .request = request, .arena = arena, .out = out};
  OT_TRY(ot_text_ends_with(file, ".jsonl") ? read_metrics(&r) : read_csv(&r));
  ot_calibration *const c = &out->calibration;
  c->count = out->count;
  for (int i = 0; i < out->count; i++) c->rows[i] = out->steps[i].row;
  ot_calibration_find(c);
  for (int i = 0; i < out->count; i++) out->steps[i].row = c->rows[i];
  ot_cluster whole = *request->question.cluster;
  ot_calibration_apply(c, &whole);
  ot_calibration_apply(c, &request->cluster);
  out->correction = ot_calibration_of_steps(c);
  request->job.correction = &out->correction;
  return ot_cluster_file_save(&whole, out->cluster_path);
}
