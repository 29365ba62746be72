// SPDX-License-Identifier: Apache-2.0
// The report of a run as JSON: seconds, bytes and shares as numbers; null where unknown.
#include <math.h>

#include "base/json_writer.h"
#include "report/run_page.h"

static void write_count(ot_json_writer *w, const char *key, int64_t value) {
  if (value >= 0)
    ot_json_integer(w, key, value);
  else
    ot_json_null(w, key);
}

static void write_range(ot_json_writer *w, const ot_curve *curve) {
  ot_json_real(w, "first", curve->first);
  ot_json_real(w, "last", curve->last);
  ot_json_real(w, "minimum", curve->all.count > 0 ? curve->all.minimum : NAN);
}

static void write_curves(ot_json_writer *w, const char *key, const ot_validation_curve *curves,
                         int64_t count) {
  ot_json_array(w, key);
  for (int64_t i = 0; i < count; i++) {
    ot_json_object(w, NULL);
    ot_json_text(w, "name", curves[i].name);
    write_range(w, &curves[i].curve);
    ot_json_end(w);
  }
  ot_json_end(w);
}

static void write_run(const ot_run_page *page, ot_json_writer *w, ot_arena *arena) {
  const ot_run_record *const record = page->record;
  ot_json_text(w, "run", page->path);
  ot_json_text(w, "state", ot_run_page_state(page, arena));
  ot_json_text(w, "model", ot_run_page_model(page, arena));
  ot_json_text(w, "mesh", ot_run_page_mesh(page, arena));
  write_count(w, "parameters", page->parameters > 0 ? page->parameters : -1);
  ot_json_integer(w, "steps", record->last_step);
  write_count(w, "total_steps", ot_run_page_total(page) > 0 ? ot_run_page_total(page) : -1);
  write_count(w, "tokens", record->tokens);
  ot_json_object(w, "loss");
  write_range(w, &record->curves[OT_CURVE_LOSS]);
  ot_json_end(w);
  write_curves(w, "validation", record->validation, record->num_validation);
  write_curves(w, "evaluation", record->figures, record->num_figures);
}

static void write_speed(const ot_run_page *page, ot_json_writer *w) {
  static const char *const axes[] = {"tp", "cp", "ep", "pp", "dp"};
  const ot_run_means m = ot_run_page_means(page);
  const ot_run_totals *const t = &page->record->totals;
  ot_json_object(w, "measured");
  ot_json_real(w, "step_seconds", m.step_s);
  ot_json_real(w, "tokens_per_second", m.tokens_per_s);
  ot_json_real(w, "mfu", m.mfu);
  write_count(w, "memory_bytes", t->memory_peak_bytes);
  ot_json_object(w, "exposed_seconds");
  for (int i = 0; i < OT_COUNT(axes); i++) {
    const ot_curve_column *const all = &page->record->curves[OT_CURVE_TP + i].all;
    ot_json_real(w, axes[i], all->count > 0 ? all->sum / (double)all->count : NAN);
  }
  ot_json_end(w);
  ot_json_end(w);
  ot_json_object(w, "predicted");
  ot_json_real(w, "step_seconds", m.predicted_step_s);
  ot_json_real(w, "tokens_per_second", m.predicted_tokens_per_s);
  ot_json_real(w, "mfu", m.predicted_mfu);
  write_count(w, "memory_bytes", t->planned_bytes);
  ot_json_end(w);
}

static void write_goodput(const ot_run_account *a, ot_json_writer *w) {
  if (a->num_attempts == 0) {
    ot_json_null(w, "goodput");
    return;
  }
  ot_json_object(w, "goodput");
  ot_json_real(w, "share", a->wall_s > 0 ? a->item_s[OT_ACCOUNT_PRODUCTIVE] / a->wall_s : NAN);
  ot_json_real(w, "wall_seconds", a->wall_s);
  ot_json_object(w, "seconds");
  for (int i = 0; i < OT_ACCOUNT_ITEMS; i++)
    ot_json_real(w, ot_account_name((ot_account_item)i), a->item_s[i]);
  ot_json_end(w);
  ot_json_integer(w, "failures", a->failures);
  ot_json_integer(w, "restarts", a->num_attempts - 1);
  ot_json_integer(w, "lost_steps", a->lost_steps);
  ot_json_real(w, "mtbf_seconds", a->mtbf_s);
  ot_json_real(w, "recovery_seconds", a->recovery_s);
  ot_json_integer(w, "saves", a->saves);
  ot_json_integer(w, "failed_saves", a->failed_saves);
  ot_json_real(w, "save_seconds", a->save_s);
  ot_json_real(w, "blocked_seconds", a->blocked_s);
  ot_json_real(w, "interval_seconds", a->interval_s);
  ot_json_object(w, "expected");
  ot_json_real(w, "share", a->modelled ? a->expected.productive : NAN);
  ot_json_real(w, "best_interval_seconds", a->modelled ? a->expected.best_s : NAN);
  ot_json_real(w, "young_interval_seconds", a->modelled ? a->expected.young_s : NAN);
  ot_json_real(w, "daly_interval_seconds", a->modelled ? a->expected.daly_s : NAN);
  ot_json_end(w);
  ot_json_end(w);
}

static void write_events(const ot_run_event_list *list, ot_json_writer *w, ot_arena *arena) {
  ot_json_array(w, "events");
  for (int64_t i = 0; i < list->count; i++) {
    const ot_run_event *const e = &list->event[i];
    const char *const text = ot_run_page_event(e, arena);
    if (!text) continue;
    ot_json_object(w, NULL);
    ot_json_text(w, "event", ot_run_event_name(e->kind));
    ot_json_real(w, "time", e->time_s);
    write_count(w, "step", e->step);
    ot_json_text(w, "text", text);
    ot_json_end(w);
  }
  ot_json_end(w);
}

const char *ot_run_json(const ot_run_page *page, ot_arena *arena) {
  const ot_run_record *const record = page->record;
  ot_json_writer w = ot_json_begin(arena, 2);
  ot_json_object(&w, NULL);
  write_run(page, &w, arena);
  write_speed(page, &w);
  write_goodput(&record->account, &w);
  ot_json_array(&w, "checkpoints");
  for (int64_t i = 0; i < page->num_checkpoints; i++)
    ot_json_integer(&w, NULL, page->checkpoints[i]);
  ot_json_end(&w);
  ot_json_array(&w, "audits");
  for (int64_t i = 0; i < record->num_audits; i++) {
    ot_json_object(&w, NULL);
    ot_json_text(&w, "audit", record->audits[i].name);
    ot_json_integer(&w, "runs", record->audits[i].runs);
    ot_json_integer(&w, "findings", record->audits[i].findings);
    ot_json_end(&w);
  }
  ot_json_end(&w);
  ot_json_integer(&w, "spikes", record->num_spikes);
  write_events(&record->events, &w, arena);
  ot_json_end(&w);
  return w.text;
}
