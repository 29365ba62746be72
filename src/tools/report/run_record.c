// SPDX-License-Identifier: Apache-2.0
// Two passes over the metrics: one for the last step, which fixes the columns, one for the values.
#include "report/run_record.h"

#include <math.h>
#include <string.h>

#include "base/extremes.h"
#include "base/text.h"
#include "record/metrics_read.h"

typedef struct record_reader {
  ot_run_record *record;
  ot_account_builder *account;
  ot_arena *arena;
} record_reader;

int64_t ot_run_record_column(const ot_run_record *record, int64_t columns, int64_t step) {
  if (record->last_step < 1) return 0;
  const int64_t column =
      (int64_t)((double)step / ((double)record->last_step + 1) * (double)columns);
  return column < columns ? column : columns - 1;
}

double ot_run_record_step(const ot_run_record *record, int64_t columns, int64_t i) {
  return ((double)i + 0.5) * ((double)record->last_step + 1) / (double)columns - 0.5;
}

static void add_value(ot_curve_column *column, double value) {
  if (column->count == 0) column->minimum = column->maximum = value;
  column->minimum = ot_smaller(column->minimum, value);
  column->maximum = ot_larger(column->maximum, value);
  column->sum += value;
  column->count++;
}

static void add_point(const ot_run_record *record, ot_curve *curve, int64_t step, double value) {
  if (!isfinite(value)) return;
  if (curve->all.count == 0) curve->first = value;
  curve->last = value;
  add_value(&curve->all, value);
  add_value(&curve->column[ot_run_record_column(record, record->columns, step)], value);
}

// ---- health ----

// "layers.3" of "model.layers.3.mlp.up_proj.weight": all of a layer share a row.
static const char *row_name(const char *name, ot_arena *arena) {
  const char *begin = ot_text_starts_with(name, "model.") ? name + 6 : name;
  for (const char *at = begin; *at; at++) {
    const bool digit = *at >= '0' && *at <= '9' && at > begin && at[-1] == '.';
    if (digit) return ot_arena_text(arena, begin, at - begin + (int64_t)strspn(at, "0123456789"));
  }
  const int64_t length = ot_text_length(begin);
  const bool weight = ot_text_ends_with(begin, ".weight");
  return ot_arena_text(arena, begin, weight ? length - 7 : length);
}

static bool is_row(const ot_heat_row *row, const char *name) {
  const char *const begin = ot_text_starts_with(name, "model.") ? name + 6 : name;
  const int64_t length = ot_text_length(row->name);
  if (memcmp(begin, row->name, (size_t)ot_smaller_whole(length, ot_text_length(begin))) != 0)
    return false;
  const char *const rest = ot_text_length(begin) >= length ? begin + length : "?";
  const char last = length > 0 ? row->name[length - 1] : '\0';
  const bool layer = last >= '0' && last <= '9';
  return rest[0] == '\0' || ot_text_equal(rest, ".weight") || (layer && rest[0] == '.');
}

// Keys come in the same order on every line, so the row is this one or the next.
static ot_heat_row *find_row(ot_heat_map *map, const char *name, ot_arena *arena) {
  for (int64_t i = 0; i < map->num_rows; i++) {
    const int64_t at = (map->next + i) % map->num_rows;
    if (!is_row(&map->rows[at], name)) continue;
    map->next = at;
    return &map->rows[at];
  }
  map->rows = ot_arena_grow(arena, map->rows, map->num_rows, &map->capacity, sizeof *map->rows);
  ot_heat_row *const row = &map->rows[map->num_rows++];
  *row = (ot_heat_row){.name = row_name(name, arena), .pending = NAN};
  for (int c = 0; c < OT_HEAT_COLUMNS; c++) row->value[c] = NAN;
  return row;
}

static void add_health(ot_run_record *record, const ot_metric *metric, ot_arena *arena) {
  for (int m = 0; m < OT_HEAT_MAPS; m++) {
    ot_heat_map *const map = &record->heat[m];
    const int64_t length = ot_text_length(map->name);
    if (!ot_text_starts_with(metric->name, map->name) || metric->name[length] != '/') continue;
    if (!isfinite(metric->value)) return;
    ot_heat_row *const row = find_row(map, metric->name + length + 1, arena);
    const double value = metric->value;
    if (isnan(row->pending)) row->pending = 0;
    row->pending = map->norms ? row->pending + value * value : ot_larger(row->pending, value);
    return;
  }
}

// The line is complete.
static void close_health(ot_run_record *record, int64_t step) {
  const int64_t column =
      ot_run_record_column(record, ot_smaller_whole(record->columns, OT_HEAT_COLUMNS), step);
  for (int m = 0; m < OT_HEAT_MAPS; m++) {
    ot_heat_map *const map = &record->heat[m];
    for (int64_t i = 0; i < map->num_rows; i++) {
      ot_heat_row *const row = &map->rows[i];
      if (isnan(row->pending)) continue;
      const double value = map->norms ? sqrt(row->pending) : row->pending;
      row->value[column] = ot_larger(row->value[column], value);
      row->pending = NAN;
      map->maximum = ot_larger(map->maximum, value);
    }
  }
}

// ---- lines ----

static void add_totals(ot_run_totals *t, const ot_metrics_step *v) {
  t->memory_peak_bytes = ot_larger_whole(t->memory_peak_bytes, v->memory_peak_bytes);
  t->planned_bytes = ot_larger_whole(t->planned_bytes, v->memory_planned_bytes);
  if (!(v->step_s > 0)) return;
  t->steps++;
  t->step_s += v->step_s;
  if (isfinite(v->tokens_per_s)) t->tokens += v->tokens_per_s * v->step_s;
  if (isfinite(v->mfu)) {
    t->mfu_s += v->mfu * v->step_s;
    t->mfu_of_s += v->step_s;
  }
  if (!(v->predicted_step_s > 0)) return;
  t->predicted_s += v->predicted_step_s;
  t->predicted_of_s += v->step_s;
  if (isfinite(v->mfu)) t->predicted_mfu_s += v->mfu * v->step_s;
}

static void add_step(record_reader *r, const ot_metrics_step *v) {
  ot_run_record *const record = r->record;
  const double values[OT_CURVE_KINDS] = {
      [OT_CURVE_LOSS] = v->loss_nats,
      [OT_CURVE_GRADIENT_NORM] = v->gradient_norm,
      [OT_CURVE_LEARNING_RATE] = v->learning_rate,
      [OT_CURVE_TOKENS_PER_S] = v->tokens_per_s,
      [OT_CURVE_MFU] = v->mfu,
      [OT_CURVE_STEP_S] = v->step_s,
      [OT_CURVE_TP] = v->exposed.tp_s,
      [OT_CURVE_CP] = v->exposed.cp_s,
      [OT_CURVE_EP] = v->exposed.ep_s,
      [OT_CURVE_PP] = v->exposed.pp_s,
      [OT_CURVE_DP] = v->exposed.dp_s,
      [OT_CURVE_MEMORY] = v->memory_peak_bytes >= 0 ? (double)v->memory_peak_bytes : NAN,
  };
  for (int i = 0; i < OT_CURVE_KINDS; i++)
    add_point(record, &record->curves[i], v->step, values[i]);
  if (v->tokens >= 0) record->tokens = v->tokens;
  add_totals(&record->totals, v);
  const bool begins = ot_account_add_step(r->account, v) || record->num_steps == 0;
  if (!begins) add_totals(&record->later, v);
  record->num_steps++;
  for (int i = 0; i < v->num_health; i++) add_health(record, &v->health[i], r->arena);
  if (v->num_health > 0) close_health(record, v->step);
}

static void add_named(record_reader *r, const ot_metrics_line *line, ot_validation_curve **curves,
                      int64_t *count, int64_t *capacity) {
  int64_t i = 0;
  while (i < *count && !ot_text_equal((*curves)[i].name, line->name)) i++;
  if (i == *count) {
    *curves = ot_arena_grow(r->arena, *curves, i, capacity, sizeof **curves);
    (*curves)[i] = (ot_validation_curve){
        .name = ot_arena_text(r->arena, line->name, ot_text_length(line->name)),
        .curve = {.first = NAN, .last = NAN}};
    ++*count;
  }
  add_point(r->record, &(*curves)[i].curve, line->step, line->value);
}

static void add_audit(record_reader *r, const ot_metrics_line *line) {
  ot_run_record *const record = r->record;
  int64_t i = 0;
  while (i < record->num_audits && !ot_text_equal(record->audits[i].name, line->name)) i++;
  if (i == record->num_audits) {
    record->audits = ot_arena_grow(r->arena, record->audits, i, &record->audits_capacity,
                                   sizeof *record->audits);
    record->audits[i] =
        (ot_audit_total){.name = ot_arena_text(r->arena, line->name, ot_text_length(line->name))};
    record->num_audits++;
  }
  record->audits[i].runs++;
  if (line->value > 0 && line->value < 1e15) record->audits[i].findings += (int64_t)line->value;
}

static ot_status add_line(void *context, const ot_metrics_line *line) {
  record_reader *const r = context;
  if (line->kind == OT_METRICS_STEP) add_step(r, &line->values);
  ot_run_record *const record = r->record;
  if (line->kind == OT_METRICS_VALIDATION) {
    add_named(r, line, &record->validation, &record->num_validation, &record->validation_capacity);
  }
  if (line->kind == OT_METRICS_FIGURE) {
    add_named(r, line, &record->figures, &record->num_figures, &record->figures_capacity);
  }
  if (line->kind == OT_METRICS_AUDIT) add_audit(r, line);
  record->num_spikes += line->kind == OT_METRICS_SPIKE;
  return OT_OK;
}

ot_status ot_run_record_read(ot_arena *arena, const char *metrics, const char *events,
                             ot_run_record *record) {
  static const char *const maps[OT_HEAT_MAPS] = {"gradient_norm", "update_ratio", "max_activation",
                                                 "max_attention_logit"};
  *record = (ot_run_record){.tokens = -1, .totals = {.memory_peak_bytes = -1, .planned_bytes = -1}};
  for (int i = 0; i < OT_CURVE_KINDS; i++) record->curves[i].first = record->curves[i].last = NAN;
  for (int i = 0; i < OT_HEAT_MAPS; i++)
    record->heat[i] = (ot_heat_map){.name = maps[i], .norms = i == 0};
  OT_TRY(ot_run_events_read(arena, events, &record->events));
  OT_TRY(ot_metrics_newest(metrics, &record->last_step));
  record->columns = ot_smaller_whole(record->last_step + 1, OT_CURVE_COLUMNS);
  record_reader r = {
      .record = record, .account = ot_account_begin(&record->events, arena), .arena = arena};
  OT_TRY(ot_metrics_read(metrics, add_line, &r));
  ot_account_finish(r.account, &record->account);
  return OT_OK;
}
