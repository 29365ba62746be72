// SPDX-License-Identifier: Apache-2.0
// Options that describe the job or fix a part of its plan can vary.
#include "answer/sweep.h"

#include "answer/plan_cost.h"
#include "base/number.h"
#include "base/text.h"
#include "describe/pipeline_rules.h"

// ---- what varies ----

// `text` with the character `from` replaced.
static char *replaced(const char *text, char from, char to, ot_arena *arena) {
  char *const out = ot_arena_text(arena, text, ot_text_length(text));
  for (char *at = out; *at != '\0'; at++) *at = *at == from ? to : *at;
  return out;
}

static const char *column_of(const char *key, ot_arena *arena) {
  static const char *const brief[][2] = {{"batch", "global_batch_size"},
                                         {"sequence", "sequence_length"}};
  for (int i = 0; i < OT_COUNT(brief); i++) {
    if (ot_text_equal(key, brief[i][0])) return brief[i][1];
  }
  return replaced(key, '-', '_', arena);
}

// How many plans are shown varies no plan.
static bool can_vary(const ot_key *key) {
  return key->type != OT_KEY_BOOL && !ot_text_equal(key->name, "top");
}

static ot_status check_column(const ot_sweep_axis *axis, ot_arena *arena) {
  static const char *const files[] = {"model", "cluster", "engine"};
  ot_text_builder all = {.arena = arena};
  for (int i = 0; i < OT_COUNT(files); i++) {
    if (ot_text_equal(axis->column, files[i])) return OT_OK;
    ot_text_appendf(&all, "%s%s", i > 0 ? " " : "", files[i]);
  }
  for (int i = 0; i < ot_question_schema.num_keys; i++) {
    const ot_key *const key = &ot_question_schema.keys[i];
    if (!can_vary(key)) continue;
    if (ot_text_equal(axis->column, key->name)) return OT_OK;
    ot_text_appendf(&all, " %s", replaced(key->name, '_', '-', arena));
  }
  ot_fail(OT_USAGE, "--sweep: \"%s\" cannot vary", axis->option);
  return ot_fail_hint(OT_USAGE, "these can: %s", ot_text_builder_text(&all));
}

static ot_status add_value(ot_sweep_axis *axis, const char *value) {
  OT_CHECK(axis->count < OT_SWEEP_VALUES, OT_USAGE, "--sweep %s: more than %d values", axis->option,
           OT_SWEEP_VALUES);
  axis->value[axis->count++] = value;
  return OT_OK;
}

// "64..4096": the first number, doubled up to the last.
static ot_status add_range(ot_sweep_axis *axis, const char *from, const char *to, ot_arena *arena) {
  int64_t first, last;
  OT_CHECK(ot_number_parse_size(from, &first) && ot_number_parse_size(to, &last) && first >= 1 &&
               first <= last && last <= INT64_MAX / 2,
           OT_USAGE, "--sweep %s=%s..%s: not two whole numbers, the smaller first", axis->option,
           from, to);
  for (int64_t n = first; n <= last; n *= 2) {
    OT_TRY(add_value(axis, ot_arena_format(arena, "%lld", (long long)n)));
  }
  return OT_OK;
}

static ot_status add_list(ot_sweep_axis *axis, const char *values, ot_arena *arena) {
  for (const char *at = values;; at++) {
    const char *end = at;
    while (*end != '\0' && *end != ',') end++;
    OT_CHECK(end > at, OT_USAGE, "--sweep %s=%s: a value is missing", axis->option, values);
    OT_TRY(add_value(axis, ot_arena_text(arena, at, end - at)));
    if (*end == '\0') return OT_OK;
    at = end;
  }
}

static bool varies(const ot_sweep *sweep, const char *option) {
  for (int i = 0; i < sweep->num_axes; i++) {
    if (ot_text_equal(sweep->axis[i].option, option)) return true;
  }
  return false;
}

ot_status ot_sweep_add(ot_sweep *sweep, const char *given, ot_arena *arena) {
  const char *const equals = ot_text_find(given, "=");
  OT_CHECK(equals && equals > given, OT_USAGE, "--sweep: \"%s\" is not KEY=VALUES", given);
  OT_CHECK(sweep->num_axes < OT_SWEEP_AXES, OT_USAGE, "--sweep: more than %d options vary",
           OT_SWEEP_AXES);
  ot_sweep_axis *const axis = &sweep->axis[sweep->num_axes];
  *axis = (ot_sweep_axis){.column = column_of(ot_arena_text(arena, given, equals - given), arena)};
  axis->option = replaced(axis->column, '_', '-', arena);
  OT_TRY(check_column(axis, arena));
  OT_CHECK(!varies(sweep, axis->option), OT_USAGE, "--sweep: %s is given twice", axis->option);
  const char *const values = equals + 1, *const dots = ot_text_find(values, "..");
  OT_TRY(dots ? add_range(axis, ot_arena_text(arena, values, dots - values), dots + 2, arena)
              : add_list(axis, values, arena));
  const int64_t points = (sweep->num_axes > 0 ? sweep->num_points : 1) * axis->count;
  OT_CHECK(points <= OT_SWEEP_POINTS, OT_USAGE, "--sweep: %lld combinations; at most %d",
           (long long)points, OT_SWEEP_POINTS);
  sweep->num_points = points;
  sweep->num_axes++;
  return OT_OK;
}

void ot_sweep_write_json(const ot_sweep *sweep, ot_json_writer *w) {
  ot_json_integer(w, "points", sweep->num_points);
  ot_json_array(w, "axes");
  for (int i = 0; i < sweep->num_axes; i++) {
    const ot_sweep_axis *const axis = &sweep->axis[i];
    ot_json_object(w, NULL);
    ot_json_text(w, "key", axis->column);
    ot_json_array(w, "values");
    for (int v = 0; v < axis->count; v++) ot_json_text(w, NULL, axis->value[v]);
    ot_json_end(w);
    ot_json_end(w);
  }
  ot_json_end(w);
}

const char *ot_sweep_value(const ot_sweep *sweep, int64_t point, int axis) {
  for (int i = sweep->num_axes - 1; i > axis; i--) point /= sweep->axis[i].count;
  return sweep->axis[axis].value[point % sweep->axis[axis].count];
}

// ---- one point ----

const char *ot_sweep_reason(ot_status status, const ot_plan_page *page, ot_arena *arena) {
  if (status != OT_OK) return ot_arena_format(arena, "%s", ot_fail_message());
  return page->num_plans > 0 ? NULL : "no plan fits";
}

double ot_sweep_elapsed_s(const ot_plan_page *page) {
  if (page->goodput) return page->goodput->elapsed_s;
  return (double)page->steps * page->plans[0].estimate->step_s;
}

// A value that varies has its column already.
static void add(ot_sweep_row *row, ot_sweep_field field) {
  for (int i = 0; i < row->count; i++) {
    if (ot_text_equal(row->field[i].name, field.name)) return;
  }
  OT_ASSERT(row->count < OT_COUNT(row->field));
  row->field[row->count++] = field;
}

static void add_integer(ot_sweep_row *row, const char *name, int64_t value, bool known) {
  add(row, (ot_sweep_field){name, known ? OT_SWEEP_INTEGER : OT_SWEEP_NONE, value, 0, NULL});
}

static void add_real(ot_sweep_row *row, const char *name, double value, bool known) {
  add(row, (ot_sweep_field){name, known ? OT_SWEEP_REAL : OT_SWEEP_NONE, 0, value, NULL});
}

static void add_text(ot_sweep_row *row, const char *name, const char *value) {
  add(row, (ot_sweep_field){name, value ? OT_SWEEP_TEXT : OT_SWEEP_NONE, 0, 0, value});
}

// The values that vary, as numbers where they are, then what the job makes of them.
static void add_keys(ot_sweep_row *row, const ot_sweep *sweep, int64_t point, const ot_job *job) {
  for (int i = 0; i < sweep->num_axes; i++) {
    const char *const text = ot_sweep_value(sweep, point, i);
    int64_t whole;
    if (ot_number_parse_size(text, &whole)) {
      add_integer(row, sweep->axis[i].column, whole, true);
    } else {
      add_text(row, sweep->axis[i].column, text);
    }
  }
  add_integer(row, "gpus", ot_job_all_devices(job), job->devices > 0);
  add_integer(row, "global_batch_size", job->global_batch_size, job->global_batch_size > 0);
  add_integer(row, "sequence_length", job->sequence_length, job->sequence_length > 0);
}

static void add_candidate(ot_sweep_row *row, const ot_candidate *c, bool fits) {
  add_integer(row, "tp", c->tp, fits);
  add_integer(row, "pp", c->pp, fits);
  add_integer(row, "vpp", c->vpp, fits);
  add_integer(row, "cp", c->cp, fits);
  add_integer(row, "ep", c->ep, fits);
  add_integer(row, "dp", c->dp, fits);
  add_integer(row, "dp_shard", c->dp_shard, fits);
  add_integer(row, "zero", c->zero, fits);
  add_integer(row, "micro_batch_size", c->micro_batch_size, fits);
  add_integer(row, "micro_batches", c->micro_batches, fits);
  add_text(row, "pipeline", fits ? ot_pipeline_name(c->pipeline) : NULL);
  add_text(row, "recompute", fits ? ot_recompute_names[c->recompute] : NULL);
}

static void add_figures(ot_sweep_row *row, const ot_plan_page *page, bool fits, bool priced) {
  static const ot_estimate none;
  const ot_estimate *const e = fits ? page->plans[0].estimate : &none;
  const double variance = fits ? page->plans[0].doubt.step_variance : 0;
  const ot_interval likely = ot_interval_80(e->step_s, variance);
  add_candidate(row, &e->candidate, fits);
  add_real(row, "step_seconds", e->step_s, fits);
  add_real(row, "step_seconds_low", likely.low, fits);
  add_real(row, "step_seconds_high", likely.high, fits);
  add_real(row, "mfu", e->mfu, fits);
  add_real(row, "tokens_per_second", e->tokens_per_s, fits);
  add_integer(row, "memory_bytes", e->memory.reserved + e->memory.context, fits);
  add_integer(row, "capacity_bytes", e->memory.capacity, fits);
  add_real(row, "run_seconds", fits ? ot_sweep_elapsed_s(page) : 0, fits);
  if (!priced) return;
  add_real(row, "dollars", fits ? ot_plan_cost_of(page, &page->plans[0]).dollars : 0, fits);
}

void ot_sweep_row_build(const ot_sweep *sweep, int64_t point, const ot_sweep_planned *planned,
                        ot_sweep_row *out) {
  const bool fits = !planned->reason;
  *out = (ot_sweep_row){0};
  add_keys(out, sweep, point, &planned->request->job);
  add(out, (ot_sweep_field){"fits", OT_SWEEP_BOOLEAN, fits, 0, NULL});
  add_figures(out, planned->page, fits, planned->request->question.price > 0);
  add_text(out, "reason", planned->reason);
}

// ---- output ----

static void put_text(const char *text, ot_text_builder *out) {
  bool plain = true;
  for (const char *at = text; *at != '\0'; at++) plain = plain && !ot_text_has(",\"\n", *at);
  if (plain) {
    ot_text_put(out, text);
    return;
  }
  ot_text_put(out, "\"");
  for (const char *at = text; *at != '\0'; at++) {
    if (*at == '"') ot_text_put(out, "\"");
    ot_text_append(out, at, 1);
  }
  ot_text_put(out, "\"");
}

static void put_field(const ot_sweep_field *f, ot_text_builder *out) {
  char number[32];
  switch (f->kind) {
    case OT_SWEEP_NONE:
      break;
    case OT_SWEEP_INTEGER:
      ot_text_appendf(out, "%lld", (long long)f->integer);
      break;
    case OT_SWEEP_REAL:
      ot_number_print(number, sizeof number, f->real, 6);
      ot_text_put(out, number);
      break;
    case OT_SWEEP_BOOLEAN:
      ot_text_put(out, f->integer ? "true" : "false");
      break;
    case OT_SWEEP_TEXT:
      put_text(f->text, out);
      break;
  }
}

void ot_sweep_row_print_names(const ot_sweep_row *row, ot_text_builder *out) {
  for (int i = 0; i < row->count; i++) {
    ot_text_appendf(out, "%s%s", i > 0 ? "," : "", row->field[i].name);
  }
  ot_text_put(out, "\n");
}

void ot_sweep_row_print(const ot_sweep_row *row, ot_text_builder *out) {
  for (int i = 0; i < row->count; i++) {
    if (i > 0) ot_text_put(out, ",");
    put_field(&row->field[i], out);
  }
  ot_text_put(out, "\n");
}

void ot_sweep_row_write_json(const ot_sweep_row *row, const char *key, ot_json_writer *w) {
  ot_json_object(w, key);
  for (int i = 0; i < row->count; i++) {
    const ot_sweep_field *const f = &row->field[i];
    if (f->kind == OT_SWEEP_NONE) ot_json_null(w, f->name);
    if (f->kind == OT_SWEEP_INTEGER) ot_json_integer(w, f->name, f->integer);
    if (f->kind == OT_SWEEP_REAL) ot_json_real(w, f->name, f->real);
    if (f->kind == OT_SWEEP_BOOLEAN) ot_json_boolean(w, f->name, f->integer != 0);
    if (f->kind == OT_SWEEP_TEXT) ot_json_text(w, f->name, f->text);
  }
  ot_json_end(w);
}

void ot_sweep_row_write_members(const ot_sweep_row *row, ot_json_writer *w) {
  ot_text_builder line = {.arena = w->arena};
  ot_sweep_row_print(row, &line);
  ot_json_text(w, "line", ot_text_builder_text(&line));
  ot_sweep_row_write_json(row, "point", w);
}
