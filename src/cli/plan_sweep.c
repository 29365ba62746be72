// SPDX-License-Identifier: Apache-2.0
// Each point is the command line with some values replaced, planned in memory of its own.
#include "cli/plan_sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer/plan_cost.h"
#include "base/number.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/plan_progress.h"
#include "describe/pipeline_rules.h"
#include "files/output_file.h"
#include "host/heap.h"
#include "report/sweep_html.h"

enum { MOST_AXES = OT_SWEEP_AXES, MOST_VALUES = 64, MOST_POINTS = 4096, MOST_FIELDS = 48 };

// ---- what varies ----

// The values of one option.
typedef struct axis {
  const char *option;
  int count;
  const char *value[MOST_VALUES];
} axis;

// Options that describe the job or fix a part of its plan.
static const char *const swept[] = {"model",
                                    "cluster",
                                    "gpus",
                                    "global-batch-size",
                                    "sequence-length",
                                    "tokens",
                                    "tp",
                                    "pp",
                                    "vpp",
                                    "cp",
                                    "ep",
                                    "etp",
                                    "dp",
                                    "zero",
                                    "pipeline",
                                    "micro-batch-size",
                                    "recompute",
                                    "recompute-modules",
                                    "precision",
                                    "engine",
                                    "price",
                                    "memory-margin",
                                    "expert-imbalance"};

static const char *option_of(const char *key, ot_arena *arena) {
  static const char *const brief[][2] = {{"batch", "global-batch-size"},
                                         {"sequence", "sequence-length"}};
  char *const name = ot_arena_text(arena, key, ot_text_length(key));
  for (char *at = name; *at != '\0'; at++) *at = *at == '_' ? '-' : *at;
  for (int i = 0; i < OT_COUNT(brief); i++) {
    if (strcmp(name, brief[i][0]) == 0) return brief[i][1];
  }
  return name;
}

static ot_status check_swept(const char *option, ot_arena *arena) {
  ot_text_builder all = {.arena = arena};
  for (int i = 0; i < OT_COUNT(swept); i++) {
    if (strcmp(option, swept[i]) == 0) return OT_OK;
    ot_text_appendf(&all, "%s%s", i > 0 ? " " : "", swept[i]);
  }
  ot_fail(OT_USAGE, "--sweep: \"%s\" cannot vary", option);
  return ot_fail_hint(OT_USAGE, "these can: %s", ot_text_builder_text(&all));
}

static ot_status add_value(axis *a, const char *value) {
  OT_CHECK(a->count < MOST_VALUES, OT_USAGE, "--sweep %s: more than %d values", a->option,
           MOST_VALUES);
  a->value[a->count++] = value;
  return OT_OK;
}

// "64..4096": the first number, doubled up to the last.
static ot_status add_range(axis *a, const char *from, const char *to, ot_arena *arena) {
  int64_t first, last;
  OT_CHECK(ot_number_parse_size(from, &first) && ot_number_parse_size(to, &last) && first >= 1 &&
               first <= last && last <= INT64_MAX / 2,
           OT_USAGE, "--sweep %s=%s..%s: not two whole numbers, the smaller first", a->option, from,
           to);
  for (int64_t n = first; n <= last; n *= 2) {
    OT_TRY(add_value(a, ot_arena_format(arena, "%lld", (long long)n)));
  }
  return OT_OK;
}

// KEY=A,B,C or KEY=A..B
static ot_status read_axis(const char *given, ot_arena *arena, axis *out) {
  char *const key = ot_arena_text(arena, given, ot_text_length(given));
  char *const values = strchr(key, '=');
  *values = '\0';
  *out = (axis){.option = option_of(key, arena)};
  OT_TRY(check_swept(out->option, arena));
  char *const dots = strstr(values + 1, "..");
  if (dots) {
    *dots = '\0';
    return add_range(out, values + 1, dots + 2, arena);
  }
  for (char *at = values + 1; at;) {
    char *const comma = strchr(at, ',');
    if (comma) *comma = '\0';
    OT_CHECK(*at != '\0', OT_USAGE, "--sweep %s: a value is missing", given);
    OT_TRY(add_value(out, at));
    at = comma ? comma + 1 : NULL;
  }
  return OT_OK;
}

// The grid, and where in it.
typedef struct sweep {
  const ot_options *options;
  int num_axes;
  axis axes[MOST_AXES];
  int at[MOST_AXES];  // of the values
  int64_t num_points;
  ot_json_writer json;
  const char *html;        // path of the page; null: none
  bool silent;             // the page goes to standard output
  ot_sweep_point *points;  // [num_points] for the page
  const char *title;       // of the page
} sweep;

// ---- one point ----

typedef enum field_kind {
  FIELD_NONE,
  FIELD_INTEGER,
  FIELD_REAL,
  FIELD_BOOLEAN,
  FIELD_TEXT
} field_kind;

typedef struct field {
  const char *name;
  field_kind kind;
  int64_t integer;
  double real;
  const char *text;
} field;

typedef struct point {
  int count;
  field field[MOST_FIELDS];
  bool fits;  // leaves the figures out where it does not
} point;

// A value that varies has its column already.
static void add(point *p, field f) {
  OT_ASSERT(p->count < MOST_FIELDS);
  for (int i = 0; i < p->count; i++) {
    if (strcmp(p->field[i].name, f.name) == 0) return;
  }
  p->field[p->count++] = f;
}

static void add_integer(point *p, const char *name, int64_t value) {
  add(p, (field){name, p->fits ? FIELD_INTEGER : FIELD_NONE, value, 0, NULL});
}

static void add_real(point *p, const char *name, double value) {
  add(p, (field){name, p->fits ? FIELD_REAL : FIELD_NONE, 0, value, NULL});
}

static void add_text(point *p, const char *name, const char *value) {
  add(p, (field){name, value ? FIELD_TEXT : FIELD_NONE, 0, 0, value});
}

static void add_candidate(point *p, const ot_candidate *c) {
  add_integer(p, "tp", c->tp);
  add_integer(p, "pp", c->pp);
  add_integer(p, "vpp", c->vpp);
  add_integer(p, "cp", c->cp);
  add_integer(p, "ep", c->ep);
  add_integer(p, "dp", c->dp);
  add_integer(p, "dp_shard", c->dp_shard);
  add_integer(p, "zero", c->zero);
  add_integer(p, "micro_batch_size", c->micro_batch_size);
  add_integer(p, "micro_batches", c->micro_batches);
  add_text(p, "pipeline", p->fits ? ot_pipeline_name(c->pipeline) : NULL);
  add_text(p, "recompute", p->fits ? ot_recompute_names[c->recompute] : NULL);
}

// Seconds of the whole run, with failures where they are modelled.
static double elapsed_of(const ot_plan_page *page) {
  if (page->goodput) return page->goodput->elapsed_s;
  return (double)page->steps * page->plans[0].estimate->step_s;
}

static void add_figures(point *p, const ot_plan_page *page) {
  static const ot_estimate none;
  const ot_estimate *const e = p->fits ? page->plans[0].estimate : &none;
  const ot_interval likely =
      ot_interval_80(e->step_s, p->fits ? page->plans[0].doubt.step_variance : 0);
  add_candidate(p, &e->candidate);
  add_real(p, "step_seconds", e->step_s);
  add_real(p, "step_seconds_low", likely.low);
  add_real(p, "step_seconds_high", likely.high);
  add_real(p, "mfu", e->mfu);
  add_real(p, "tokens_per_second", e->tokens_per_s);
  add_integer(p, "memory_bytes", e->memory.reserved + e->memory.context);
  add_integer(p, "capacity_bytes", e->memory.capacity);
  add_real(p, "run_seconds", p->fits ? elapsed_of(page) : 0);
  if (page->price > 0) {
    add_real(p, "dollars", p->fits ? ot_plan_cost_of(page, &page->plans[0]).dollars : 0);
  }
}

// Plans `options`; a combination that is invalid has no plan but a reason.
static ot_status plan_point(const ot_options *options, ot_arena *arena, ot_plan_request *request,
                            ot_plan_page *page, const char **reason) {
  const ot_plan_build build = {.request = request,
                               .top = 1,
                               .price = ot_options_real(options, "price"),
                               .plans_only = true,
                               .stretch = ot_plan_stretch};
  ot_status status = ot_plan_request_read(options, arena, request);
  if (status == OT_OK) status = ot_plan_answer(&build, arena, page);
  *reason = NULL;
  if (status == OT_OK && page->num_plans > 0) return OT_OK;
  if (status == OT_OK) *reason = "no plan fits";
  if (status == OT_USAGE) *reason = ot_arena_format(arena, "%s", ot_fail_message());
  if (status == OT_USAGE) *page = (ot_plan_page){.price = build.price};
  return status == OT_USAGE ? OT_OK : status;
}

static bool is_axis(const axis *axes, int num_axes, const char *option) {
  for (int i = 0; i < num_axes; i++) {
    if (strcmp(axes[i].option, option) == 0) return true;
  }
  return false;
}

static char *column_of(const char *option, ot_arena *arena) {
  char *const name = ot_arena_text(arena, option, ot_text_length(option));
  for (char *at = name; *at != '\0'; at++) *at = *at == '-' ? '_' : *at;
  return name;
}

// The values that vary, as numbers where they are, then what the job makes of them.
static void add_keys(point *p, const sweep *s, const ot_job *job, ot_arena *arena) {
  const struct {
    const char *name;
    int64_t value;
  } amounts[] = {{"gpus", job->devices},
                 {"global_batch_size", job->global_batch_size},
                 {"sequence_length", job->sequence_length}};
  for (int i = 0; i < s->num_axes; i++) {
    const char *const text = s->axes[i].value[s->at[i]];
    const char *const name = column_of(s->axes[i].option, arena);
    int64_t whole;
    const bool number = ot_number_parse_size(text, &whole);
    add(p, number ? (field){name, FIELD_INTEGER, whole, 0, NULL}
                  : (field){name, FIELD_TEXT, 0, 0, text});
  }
  for (int i = 0; i < OT_COUNT(amounts); i++) {
    const field_kind kind = amounts[i].value > 0 ? FIELD_INTEGER : FIELD_NONE;
    add(p, (field){amounts[i].name, kind, amounts[i].value, 0, NULL});
  }
}

// ---- output ----

// Quotes a text with commas or quotes (RFC 4180).
static void print_csv_text(const char *text) {
  if (!strpbrk(text, ",\"\n")) {
    fputs(text, stdout);
    return;
  }
  putchar('"');
  for (const char *at = text; *at != '\0'; at++) {
    if (*at == '"') putchar('"');
    putchar(*at);
  }
  putchar('"');
}

static void print_csv_field(const field *f) {
  char number[32];
  switch (f->kind) {
    case FIELD_NONE:
      break;
    case FIELD_INTEGER:
      printf("%lld", (long long)f->integer);
      break;
    case FIELD_REAL:
      ot_number_print(number, sizeof number, f->real, 6);
      fputs(number, stdout);
      break;
    case FIELD_BOOLEAN:
      fputs(f->integer ? "true" : "false", stdout);
      break;
    case FIELD_TEXT:
      print_csv_text(f->text);
      break;
  }
}

static void print_csv(const point *p, bool header) {
  for (int i = 0; header && i < p->count; i++) printf("%s%s", i > 0 ? "," : "", p->field[i].name);
  if (header) putchar('\n');
  for (int i = 0; i < p->count; i++) {
    if (i > 0) putchar(',');
    print_csv_field(&p->field[i]);
  }
  putchar('\n');
  fflush(stdout);
}

static void write_json(const point *p, ot_json_writer *w) {
  ot_json_object(w, NULL);
  for (int i = 0; i < p->count; i++) {
    const field *const f = &p->field[i];
    if (f->kind == FIELD_NONE) ot_json_null(w, f->name);
    if (f->kind == FIELD_INTEGER) ot_json_integer(w, f->name, f->integer);
    if (f->kind == FIELD_REAL) ot_json_real(w, f->name, f->real);
    if (f->kind == FIELD_BOOLEAN) ot_json_boolean(w, f->name, f->integer != 0);
    if (f->kind == FIELD_TEXT) ot_json_text(w, f->name, f->text);
  }
  ot_json_end(w);
}

// ---- the page ----

static const char *kept(const sweep *s, const char *text) {
  return ot_arena_format(ot_options_arena(s->options), "%s", text);
}

// Keeps what the page shows of point `index`.
static void keep_point(sweep *s, int64_t index, const ot_plan_page *page, const char *reason) {
  ot_sweep_point *const p = &s->points[index];
  for (int i = 0; i < s->num_axes; i++) p->value[i] = s->axes[i].value[s->at[i]];
  p->reason = reason ? kept(s, reason) : NULL;
  if (reason) return;
  const ot_estimate *const e = page->plans[0].estimate;
  const ot_interval likely = ot_interval_80(e->step_s, page->plans[0].doubt.step_variance);
  char plan[256];
  ot_candidate_print(&e->candidate, plan, sizeof plan);
  p->plan = kept(s, plan);
  p->step_s = e->step_s;
  p->low_s = likely.low;
  p->high_s = likely.high;
  p->mfu = e->mfu;
  p->tokens_per_s = e->tokens_per_s;
  p->memory_bytes = (double)(e->memory.reserved + e->memory.context);
  p->capacity_bytes = (double)e->memory.capacity;
  p->run_s = elapsed_of(page);
  if (page->price > 0) p->dollars = ot_plan_cost_of(page, &page->plans[0]).dollars;
  if (!s->title) {
    s->title = kept(s, is_axis(s->axes, s->num_axes, "cluster") ? "" : page->job->cluster->name);
    s->title = ot_arena_format(ot_options_arena(s->options), "%s%s%s",
                               is_axis(s->axes, s->num_axes, "model") ? "" : page->model_name,
                               s->title[0] != '\0' ? " on " : "", s->title);
  }
}

static ot_status write_page(const sweep *s) {
  ot_text_builder text = {.arena = ot_options_arena(s->options)};
  ot_sweep_page page = {.title = s->title && s->title[0] != '\0' ? s->title : "Sweep",
                        .num_axes = s->num_axes,
                        .num_points = s->num_points,
                        .points = s->points};
  for (int i = 0; i < s->num_axes; i++) page.axis[i] = s->axes[i].option;
  ot_sweep_html(&page, &text);
  return ot_output_file_replace(s->html, text.text, text.length);
}

// ---- the grid ----

static ot_status run_point(sweep *s, int64_t index, ot_arena *arena) {
  const ot_options *options = s->options;
  for (int i = 0; i < s->num_axes; i++) {
    OT_TRY(ot_options_replace(options, s->axes[i].option, s->axes[i].value[s->at[i]], arena,
                              &options));
  }
  ot_plan_request *const request = ot_arena_take(arena, sizeof *request);
  ot_plan_page page;
  const char *reason;
  point *const p = ot_arena_take(arena, sizeof *p);
  OT_TRY(plan_point(options, arena, request, &page, &reason));
  if (s->html) keep_point(s, index, &page, reason);
  p->fits = page.num_plans > 0;
  add_keys(p, s, &request->job, arena);
  add(p, (field){"fits", FIELD_BOOLEAN, p->fits, 0, NULL});
  add_figures(p, &page);
  add_text(p, "reason", reason);
  if (ot_options_json(s->options)) {
    write_json(p, &s->json);
  } else if (!s->silent) {
    print_csv(p, index == 0);
  }
  return OT_OK;
}

// The next combination; the last value varies fastest.
static void advance(sweep *s) {
  for (int i = s->num_axes - 1; i >= 0; i--) {
    if (++s->at[i] < s->axes[i].count) return;
    s->at[i] = 0;
  }
}

static ot_status read_sweep(sweep *s) {
  static const char *const alone[] = {"calibrate", "emit", "trace", "compare", "deadline"};
  const int count = ot_options_count(s->options, "sweep");
  OT_CHECK(count <= MOST_AXES, OT_USAGE, "--sweep: more than %d options vary", MOST_AXES);
  for (int i = 0; i < OT_COUNT(alone); i++) {
    OT_CHECK(!ot_options_given(s->options, alone[i]), OT_USAGE,
             "--sweep has many plans, --%s one (use one of them)", alone[i]);
  }
  s->num_points = 1;
  for (; s->num_axes < count; s->num_axes++) {
    axis *const a = &s->axes[s->num_axes];
    OT_TRY(read_axis(ot_options_values(s->options, "sweep")[s->num_axes],
                     ot_options_arena(s->options), a));
    OT_CHECK(!is_axis(s->axes, s->num_axes, a->option), OT_USAGE, "--sweep: %s is given twice",
             a->option);
    s->num_points *= a->count;
  }
  OT_CHECK(s->num_points <= MOST_POINTS, OT_USAGE, "--sweep: %lld combinations; at most %d",
           (long long)s->num_points, MOST_POINTS);
  s->html = ot_options_text(s->options, "html");
  s->silent = s->html && ot_output_file_is_stdout(s->html);
  OT_CHECK(!s->silent || !ot_options_json(s->options), OT_USAGE,
           "--html %s and --json both print on stdout", s->html);
  s->points = ot_arena_array(ot_options_arena(s->options), s->num_points, sizeof *s->points);
  return OT_OK;
}

ot_status ot_plan_sweep(const ot_options *options) {
  sweep *const s = ot_arena_take(ot_options_arena(options), sizeof *s);
  s->options = options;
  OT_TRY(read_sweep(s));
  s->json = ot_json_begin(ot_options_arena(options), 2);
  ot_json_object(&s->json, NULL);
  ot_json_array(&s->json, "points");
  for (int64_t i = 0; i < s->num_points; i++, advance(s)) {
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

// "30d": seconds, minutes, hours, days, weeks.
static ot_status read_duration(const char *text, double *seconds) {
  static const struct {
    const char *unit;
    double s;
  } units[] = {{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}, {"w", 604800}};
  char number[32];
  for (int i = 0; i < OT_COUNT(units); i++) {
    const size_t length = strlen(text), end = strlen(units[i].unit);
    if (!ot_text_ends_with(text, units[i].unit) || length - end >= sizeof number) continue;
    ot_text_format(number, sizeof number, "%.*s", (int)(length - end), text);
    if (!ot_number_parse(number, false, seconds)) continue;
    *seconds *= units[i].s;
    if (*seconds > 0) return OT_OK;
  }
  return ot_fail(OT_USAGE, "--deadline: \"%s\" is no time such as 12h, 30d or 6w", text);
}

// Adds a trial with `devices`, whose arena ends with it.
static ot_status try_devices(const ot_options *options, int devices, ot_deadline *d) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_plan_request *const request = ot_arena_take(&arena, sizeof *request);
  const char *const value = ot_arena_format(&arena, "%d", devices);
  const ot_options *changed;
  const char *reason;
  ot_plan_page page;
  ot_status status = ot_options_replace(options, "gpus", value, &arena, &changed);
  if (status == OT_OK) status = plan_point(changed, &arena, request, &page, &reason);
  OT_ASSERT(d->num_trials < OT_MOST_DEADLINE_TRIALS);
  if (status == OT_OK) {
    d->trials[d->num_trials++] =
        (ot_deadline_trial){devices, page.num_plans > 0 ? elapsed_of(&page) : 0};
  }
  ot_heap_release(&heap);
  return status;
}

static bool is_in_time(const ot_deadline *d) {
  const double elapsed_s = d->trials[d->num_trials - 1].elapsed_s;
  return elapsed_s > 0 && elapsed_s <= d->seconds;
}

// Halves `most` devices while the run ends in time, then tries three quarters of the last.
static ot_status find_devices(const ot_options *options, int most, ot_deadline *d, int *fewest) {
  *fewest = 0;
  for (int n = most; n >= 1; n /= 2) {
    OT_TRY(try_devices(options, n, d));
    if (!is_in_time(d)) break;
    *fewest = n;
    if (n % 2 != 0) return OT_OK;
  }
  if (*fewest == 0 || *fewest % 4 != 0) return OT_OK;
  OT_TRY(try_devices(options, *fewest / 4 * 3, d));
  if (is_in_time(d)) *fewest = *fewest / 4 * 3;
  return OT_OK;
}

static const char *days_of(double seconds, ot_arena *arena) {
  return ot_arena_format(arena, "%.3g days", seconds / 86400);
}

static const char *deadline_text(const ot_deadline *d, int fewest, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "%s:", days_of(d->seconds, arena));
  for (int i = 0; i < d->num_trials; i++) {
    const ot_deadline_trial *const t = &d->trials[i];
    ot_text_appendf(&text, "%s %d devices %s", i > 0 ? "," : "", t->devices,
                    t->elapsed_s > 0 ? "take" : "are too few to hold it");
    if (t->elapsed_s > 0) ot_text_appendf(&text, " %s", days_of(t->elapsed_s, arena));
  }
  ot_text_appendf(&text, "; planned for %d", fewest);
  return ot_text_builder_text(&text);
}

ot_status ot_plan_deadline(const ot_options *options, ot_deadline *deadline,
                           const ot_options **out) {
  ot_arena *const arena = ot_options_arena(options);
  ot_plan_request *const request = ot_arena_take(arena, sizeof *request);
  int fewest;
  *deadline = (ot_deadline){0};
  OT_TRY(read_duration(ot_options_text(options, "deadline"), &deadline->seconds));
  OT_TRY(ot_plan_request_read(options, arena, request));
  OT_TRY(find_devices(options, request->job.devices, deadline, &fewest));
  if (fewest == 0) {
    const double elapsed_s = deadline->trials[0].elapsed_s;
    ot_fail(OT_FINDINGS, "--deadline: %d devices %s%s", request->job.devices,
            elapsed_s > 0 ? "take " : "are too few to hold the run",
            elapsed_s > 0 ? days_of(elapsed_s, arena) : "");
    return ot_fail_hint(OT_FINDINGS, "give more with --gpus, or fewer --tokens");
  }
  deadline->text = deadline_text(deadline, fewest, arena);
  return ot_options_replace(options, "gpus", ot_arena_format(arena, "%d", fewest), arena, out);
}
