// SPDX-License-Identifier: Apache-2.0
// The report of a run as text: small tables, measured beside predicted.
#include <math.h>

#include "base/quantity.h"
#include "base/text.h"
#include "report/run_page.h"

typedef struct report {
  const ot_run_page *page;
  const ot_run_record *record;
  ot_text_builder *out;
  ot_arena *arena;  // of `out`
} report;

static void line(const report *r, const char *label, const char *text) {
  ot_text_appendf(r->out, "  %-13s %s\n", label, text);
}

// ---- the run ----

static const char *of_total(const report *r, double done, double total) {
  if (total <= 0) return ot_figure_count(r->arena, done);
  return ot_arena_format(r->arena, "%s of %s", ot_figure_count(r->arena, done),
                         ot_figure_count(r->arena, total));
}

static const char *from_to(const report *r, const ot_curve *curve) {
  if (curve->all.count == 0) return "no finite value";
  return ot_arena_format(r->arena, "%.4g -> %.4g", curve->first, curve->last);
}

static void put_run(const report *r) {
  const ot_run_record *const record = r->record;
  const int64_t total = ot_run_page_total(r->page);
  ot_text_appendf(r->out, "%s: %s, step %lld", r->page->path, ot_run_page_state(r->page, r->arena),
                  (long long)record->last_step);
  if (total > 0) ot_text_appendf(r->out, " of %lld", (long long)total);
  ot_text_put(r->out, "\n");
  if (r->page->no_run) line(r, "settings", r->page->no_run);
  line(r, "model", ot_run_page_model(r->page, r->arena));
  line(r, "mesh", ot_run_page_mesh(r->page, r->arena));
  if (record->num_steps == 0) {
    line(r, "metrics", "no step yet");
    return;
  }
  const double tokens = r->page->run ? (double)ot_run_tokens_after(r->page->run, total) : 0;
  if (record->tokens >= 0) line(r, "tokens", of_total(r, (double)record->tokens, tokens));
  line(r, "loss", from_to(r, &record->curves[OT_CURVE_LOSS]));
  for (int64_t i = 0; i < record->num_validation; i++) {
    const ot_validation_curve *const v = &record->validation[i];
    const char *const text = from_to(r, &v->curve);
    line(r, "validation", v->name[0] ? ot_arena_format(r->arena, "%s (%s)", text, v->name) : text);
  }
  for (int64_t i = 0; i < record->num_figures; i++) {
    const ot_validation_curve *const v = &record->figures[i];
    const char *const text = from_to(r, &v->curve);
    line(r, "evaluation", ot_arena_format(r->arena, "%s (%s)", text, v->name));
  }
}

// ---- speed and memory ----

static const char *rate(const report *r, double per_s) {
  if (!isfinite(per_s)) return "-";
  return ot_arena_format(r->arena, "%s/s", ot_figure_count(r->arena, per_s));
}

static const char *share(const report *r, double value) {
  return isfinite(value) ? ot_figure_share(r->arena, value) : "-";
}

static const char *bytes(const report *r, int64_t value) {
  return value >= 0 ? ot_figure_bytes(r->arena, (double)value) : "-";
}

static void pair(const report *r, const char *label, const char *measured, const char *predicted) {
  ot_text_appendf(r->out, "  %-13s %-12s %s\n", label, measured, predicted);
}

static void put_exposed(const report *r) {
  static const char *const axes[] = {"tp", "cp", "ep", "pp", "dp"};
  const double step_s = r->record->totals.step_s;
  ot_text_builder text = {.arena = r->arena};
  for (int i = 0; i < OT_COUNT(axes); i++) {
    const ot_curve_column *const all = &r->record->curves[OT_CURVE_TP + i].all;
    if (all->count == 0 || !(all->sum > 0)) continue;
    ot_text_appendf(&text, "%s%s %s (%s)", text.length > 0 ? ", " : "", axes[i],
                    ot_run_page_time(r->arena, all->sum / (double)all->count),
                    share(r, all->sum / step_s));
  }
  if (text.length > 0) line(r, "exposed", ot_text_builder_text(&text));
}

static void put_speed(const report *r) {
  const ot_run_means m = ot_run_page_means(r->page);
  const ot_run_totals *const t = &r->record->totals;
  if (r->record->num_steps == 0) return;
  ot_text_put(r->out, "\n");
  pair(r, "", "measured", "predicted");
  pair(r, "step", ot_run_page_time(r->arena, m.step_s),
       ot_run_page_time(r->arena, m.predicted_step_s));
  pair(r, "tokens", rate(r, m.tokens_per_s), rate(r, m.predicted_tokens_per_s));
  pair(r, "MFU", share(r, m.mfu), share(r, m.predicted_mfu));
  pair(r, "peak memory", bytes(r, t->memory_peak_bytes), bytes(r, t->planned_bytes));
  put_exposed(r);
}

// ---- goodput ----

static void put_items(const report *r) {
  const ot_run_account *const a = &r->record->account;
  int64_t tenths[OT_ACCOUNT_ITEMS];
  ot_run_page_tenths(a, tenths);
  ot_text_appendf(
      r->out, "\ngoodput %lld.%lld%% of %s\n", (long long)(tenths[OT_ACCOUNT_PRODUCTIVE] / 10),
      (long long)(tenths[OT_ACCOUNT_PRODUCTIVE] % 10), ot_run_page_time(r->arena, a->wall_s));
  for (int i = 0; i < OT_ACCOUNT_ITEMS; i++) {
    if (fabs(a->item_s[i]) < 1e-6 * a->wall_s) continue;
    ot_text_appendf(r->out, "  %-13s %-9s %5.1f%%  %s\n", ot_account_name((ot_account_item)i),
                    ot_run_page_time(r->arena, a->item_s[i]), (double)tenths[i] / 10,
                    ot_account_meaning((ot_account_item)i));
  }
}

static void put_failures(const report *r) {
  const ot_run_account *const a = &r->record->account;
  const int64_t restarts = a->num_attempts - 1;
  if (restarts == 0 && a->failures == 0) return;
  ot_text_builder text = {.arena = r->arena};
  ot_text_appendf(&text, "%lld, %lld restart%s, %lld step%s repeated", (long long)a->failures,
                  (long long)restarts, ot_text_plural(restarts, "s"), (long long)a->lost_steps,
                  ot_text_plural(a->lost_steps, "s"));
  if (isfinite(a->mtbf_s))
    ot_text_appendf(&text, "; one in %s", ot_run_page_time(r->arena, a->mtbf_s));
  line(r, "failures", ot_text_builder_text(&text));
  if (isfinite(a->recovery_s))
    line(r, "recovery",
         ot_arena_format(r->arena, "%s each", ot_run_page_time(r->arena, a->recovery_s)));
}

static void put_checkpoints(const report *r) {
  const ot_run_account *const a = &r->record->account;
  if (a->saves > 0) {
    const char *const failed =
        a->failed_saves > 0 ? ot_arena_format(r->arena, ", %lld failed", (long long)a->failed_saves)
                            : "";
    line(r, "saves",
         ot_arena_format(r->arena, "%lld of %s, %s each, %s blocked, one per %s of steps%s",
                         (long long)a->saves, bytes(r, a->save_bytes),
                         ot_run_page_time(r->arena, a->save_s),
                         ot_run_page_time(r->arena, a->blocked_s),
                         ot_run_page_time(r->arena, a->interval_s), failed));
  }
  if (!a->modelled) return;
  const ot_goodput *const g = &a->expected;
  line(
      r, "expected",
      ot_arena_format(r->arena, "%s with such failures and saves; best is a save per %s (Young %s)",
                      share(r, g->productive), ot_run_page_time(r->arena, g->best_s),
                      ot_run_page_time(r->arena, g->young_s)));
}

// ---- time line ----

static void put_event(const report *r, const ot_run_event *e, const char *text) {
  const double since_s = e->time_s - r->record->account.begin_s;
  ot_text_appendf(
      r->out, "  %-13s %s\n",
      ot_arena_format(r->arena, "+%s", ot_run_page_time(r->arena, since_s > 0 ? since_s : 0)),
      text);
}

// The first and the last ones.
static void put_time_line(const report *r) {
  enum { FIRST = 10, LAST = 20 };
  const ot_run_event_list *const list = &r->record->events;
  int64_t shown = 0, at = 0;
  for (int64_t i = 0; i < list->count; i++)
    shown += ot_run_page_event(&list->event[i], r->arena) != NULL;
  if (shown == 0) return;
  ot_text_put(r->out, "\ntime line\n");
  for (int64_t i = 0; i < list->count; i++) {
    const char *const text = ot_run_page_event(&list->event[i], r->arena);
    if (!text) continue;
    if (at < FIRST || at >= shown - LAST) put_event(r, &list->event[i], text);
    if (at == FIRST && shown > FIRST + LAST)
      line(r, "...", ot_arena_format(r->arena, "%lld more", (long long)(shown - FIRST - LAST)));
    at++;
  }
}

static void put_audits(const report *r) {
  const ot_run_record *const record = r->record;
  if (record->num_audits > 0) ot_text_put(r->out, "\naudits\n");
  for (int64_t i = 0; i < record->num_audits; i++) {
    const ot_audit_total *const a = &record->audits[i];
    line(r, a->name,
         ot_arena_format(r->arena, "%lld, %lld finding%s", (long long)a->runs,
                         (long long)a->findings, ot_text_plural(a->findings, "s")));
  }
}

void ot_run_report(const ot_run_page *page, ot_text_builder *out) {
  const report r = {.page = page, .record = page->record, .out = out, .arena = out->arena};
  put_run(&r);
  put_speed(&r);
  if (r.record->account.num_attempts > 0) {
    put_items(&r);
    put_failures(&r);
    put_checkpoints(&r);
  } else if (r.record->num_steps > 0) {
    ot_text_put(out, "\ngoodput unknown: the run has no event log (" OT_RUN_EVENTS_FILE ")\n");
  }
  put_time_line(&r);
  put_audits(&r);
}
