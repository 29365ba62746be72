// SPDX-License-Identifier: Apache-2.0
// The page of a run from top to bottom: where it stands, curves of the model, speed, goodput, what
// happened, health.
#include <math.h>

#include "base/quantity.h"
#include "base/text.h"
#include "report/markup.h"
#include "report/page_frame.h"
#include "report/run_charts.h"
#include "report/run_page.h"

typedef struct html {
  const ot_run_page *page;
  const ot_run_record *record;
  ot_text_builder *out;
  ot_arena *arena;          // of `out`
  ot_figure_list *figures;  // null: not wanted
} html;

static int64_t begin_figure(const html *h) {
  ot_text_put(h->out, "<figure>\n");
  return h->out->length;
}

// Ends the figure that began at byte `first`.
static void end_figure(const html *h, const char *title, int64_t first) {
  if (h->figures) ot_figure_add(h->figures, title, h->out, first);
  ot_text_put(h->out, "</figure>\n");
}

static const char *real(ot_arena *arena, double value) {
  return isfinite(value) ? ot_arena_format(arena, "%.4g", value) : "-";
}

static const char *rate(ot_arena *arena, double value) {
  return isfinite(value) ? ot_arena_format(arena, "%s/s", ot_figure_count(arena, value)) : "-";
}

static const char *share(ot_arena *arena, double value) {
  return isfinite(value) ? ot_figure_share(arena, value) : "-";
}

// ---- summary ----

static void put_tiles(const html *h) {
  const ot_run_means m = ot_run_page_means(h->page);
  const ot_run_account *const a = &h->record->account;
  const int64_t total = ot_run_page_total(h->page);
  const int64_t peak = h->record->totals.memory_peak_bytes;
  const int64_t planned = h->record->totals.planned_bytes;
  ot_arena *const arena = h->arena;
  ot_text_put(h->out, "<div class=\"tiles\">\n");
  ot_page_tile(h->out, ot_arena_format(arena, "%lld", (long long)h->record->last_step),
               total > 0 ? ot_arena_format(arena, "of %lld steps", (long long)total) : "steps");
  ot_page_tile(h->out, real(arena, h->record->curves[OT_CURVE_LOSS].last), "loss, nats");
  ot_page_tile(
      h->out, rate(arena, m.tokens_per_s),
      ot_arena_format(arena, "tokens, predicted %s", rate(arena, m.predicted_tokens_per_s)));
  ot_page_tile(h->out, share(arena, m.mfu),
               ot_arena_format(arena, "MFU, predicted %s", share(arena, m.predicted_mfu)));
  if (a->num_attempts > 0 && a->wall_s > 0)
    ot_page_tile(
        h->out, share(arena, a->item_s[OT_ACCOUNT_PRODUCTIVE] / a->wall_s),
        ot_arena_format(arena, "goodput of %s, %lld failure%s", ot_run_page_time(arena, a->wall_s),
                        (long long)a->failures, ot_text_plural(a->failures, "s")));
  if (peak >= 0)
    ot_page_tile(h->out, ot_figure_bytes(arena, (double)peak),
                 planned >= 0 ? ot_arena_format(arena, "peak memory, planned %s",
                                                ot_figure_bytes(arena, (double)planned))
                              : "peak memory");
  ot_text_put(h->out, "</div>\n");
}

// The text report, which has every figure.
static void put_report(const html *h) {
  ot_text_builder text = {.arena = h->arena};
  ot_run_report(h->page, &text);
  ot_page_text(h->out, "The report as text", ot_text_builder_text(&text));
}

static void put_summary(const html *h) {
  ot_page_section(h->out, "summary", "Where it stands", NULL);
  put_tiles(h);
  put_report(h);
  ot_page_section_end(h->out);
}

// ---- curves ----

static void put_chart(const html *h, const char *heading, const ot_run_chart *chart) {
  if (!ot_run_chart_has(chart)) return;
  ot_markup_element(h->out, "h3", heading);
  const int64_t first = begin_figure(h);
  ot_chart_run_lines(chart, h->out);
  end_figure(h, heading, first);
}

static void put_curve(const html *h, const char *heading, ot_curve_kind kind,
                      const ot_run_chart *form) {
  const ot_run_line line = {&h->record->curves[kind], heading, "compute"};
  ot_run_chart chart = *form;
  chart.record = h->record;
  chart.lines = &line;
  chart.num_lines = 1;
  put_chart(h, heading, &chart);
}

static void put_loss(const html *h) {
  enum { SETS = OT_RUN_LINES_MAX - 1 };
  static const char *const colours[SETS] = {"dp", "tp", "pp", "ep", "update", "cp"};
  ot_run_line lines[SETS + 1] = {{&h->record->curves[OT_CURVE_LOSS], "training", "compute"}};
  int count = 1;
  for (int64_t i = 0; i < h->record->num_validation && i < SETS; i++) {
    const ot_validation_curve *const v = &h->record->validation[i];
    const char *const name =
        v->name[0] ? ot_arena_format(h->arena, "validation %s", v->name) : "validation";
    lines[count++] = (ot_run_line){&v->curve, name, colours[i]};
  }
  const ot_run_chart chart = {.record = h->record,
                              .label = "nats per token",
                              .lines = lines,
                              .num_lines = count,
                              .limit = NAN,
                              .figure = real};
  put_chart(h, "Loss", &chart);
}

static void put_figures(const html *h) {
  for (int64_t i = 0; i < h->record->num_figures; i++) {
    const ot_validation_curve *const v = &h->record->figures[i];
    const ot_run_line line = {&v->curve, v->name, "compute"};
    const ot_run_chart chart = {.record = h->record,
                                .label = v->name,
                                .lines = &line,
                                .num_lines = 1,
                                .limit = NAN,
                                .figure = real};
    put_chart(h, ot_arena_format(h->arena, "Evaluation: %s", v->name), &chart);
  }
}

static void put_training(const html *h) {
  ot_page_section(h->out, "training", "Training",
                  "How to read: a line is the mean of the steps at this place, the lighter band "
                  "behind it their smallest and largest value. Upright lines are restarts.");
  put_loss(h);
  put_figures(h);
  put_curve(h, "Gradient norm", OT_CURVE_GRADIENT_NORM,
            &(ot_run_chart){.label = "before clipping", .limit = NAN, .figure = real});
  put_curve(h, "Learning rate", OT_CURVE_LEARNING_RATE,
            &(ot_run_chart){.label = "rate", .limit = NAN, .from_zero = true, .figure = real});
  ot_page_section_end(h->out);
}

static void put_speed(const html *h) {
  const ot_run_means m = ot_run_page_means(h->page);
  const int64_t planned = h->record->totals.planned_bytes;
  ot_page_section(h->out, "speed", "Speed and memory",
                  "How to read: measured values; the dashed line is the prediction or the plan.");
  put_curve(h, "Throughput", OT_CURVE_TOKENS_PER_S,
            &(ot_run_chart){.label = "tokens per second",
                            .limit = m.predicted_tokens_per_s,
                            .limit_name = "predicted",
                            .from_zero = true,
                            .figure = ot_figure_count});
  put_curve(h, "MFU", OT_CURVE_MFU,
            &(ot_run_chart){.label = "of the peak",
                            .limit = m.predicted_mfu,
                            .limit_name = "predicted",
                            .from_zero = true,
                            .figure = ot_figure_share});
  if (ot_run_has_exposed(h->record)) {
    static const char heading[] = "Exposed communication";
    ot_markup_element(h->out, "h3", heading);
    const int64_t first = begin_figure(h);
    ot_chart_exposed(h->record, h->out);
    end_figure(h, heading, first);
  }
  put_curve(h, "Memory", OT_CURVE_MEMORY,
            &(ot_run_chart){.label = "peak so far",
                            .limit = planned >= 0 ? (double)planned : NAN,
                            .limit_name = "planned",
                            .from_zero = true,
                            .figure = ot_figure_bytes});
  ot_page_section_end(h->out);
}

// ---- goodput and events ----

static void put_expected(const html *h) {
  const ot_run_account *const a = &h->record->account;
  if (!a->modelled) return;
  const ot_goodput *const g = &a->expected;
  ot_text_put(h->out, "<table class=\"facts\"><tbody>\n");
  ot_markup_pair(h->out, "expected goodput",
                 ot_arena_format(h->arena, "%s, by the model of plans with the figures below",
                                 share(h->arena, g->productive)));
  ot_markup_pair(h->out, "time between failures", ot_run_page_time(h->arena, a->mtbf_s));
  ot_markup_pair(h->out, "recovery", ot_run_page_time(h->arena, a->recovery_s));
  ot_markup_pair(h->out, "stall of a save", ot_run_page_time(h->arena, a->blocked_s));
  ot_markup_pair(h->out, "steps per save", ot_run_page_time(h->arena, a->interval_s));
  ot_markup_pair(
      h->out, "best interval",
      ot_arena_format(h->arena, "%s (Young %s, Daly %s)", ot_run_page_time(h->arena, g->best_s),
                      ot_run_page_time(h->arena, g->young_s),
                      ot_run_page_time(h->arena, g->daly_s)));
  ot_text_put(h->out, "</tbody></table>\n");
}

static void put_goodput(const html *h) {
  const ot_run_account *const a = &h->record->account;
  if (a->num_attempts == 0 || !(a->wall_s > 0)) return;
  ot_page_section(h->out, "goodput", "Where the time went",
                  "How to read: the bar is the wall time of the run; blue are steps that count.");
  const int64_t first = begin_figure(h);
  ot_chart_goodput(a, h->out);
  end_figure(h, "Where the time went", first);
  put_expected(h);
  ot_page_section_end(h->out);
}

static void put_event(const html *h, const ot_run_event *e, const char *text) {
  const double since_s = e->time_s - h->record->account.begin_s;
  ot_text_put(h->out, "<tr>");
  ot_markup_element(
      h->out, "th scope=\"row\"",
      ot_arena_format(h->arena, "+%s", ot_run_page_time(h->arena, since_s > 0 ? since_s : 0)));
  ot_markup_element(h->out, "td class=\"t\"", text);
  ot_text_put(h->out, "</tr>\n");
}

// The first and the last ones.
static void put_events(const html *h) {
  enum { FIRST = 50, LAST = 150 };
  const ot_run_event_list *const list = &h->record->events;
  int64_t shown = 0, at = 0;
  for (int64_t i = 0; i < list->count; i++)
    shown += ot_run_page_event(&list->event[i], h->arena) != NULL;
  ot_text_put(h->out, "<table><tbody>\n");
  for (int64_t i = 0; i < list->count; i++) {
    const char *const text = ot_run_page_event(&list->event[i], h->arena);
    if (!text) continue;
    if (at < FIRST || at >= shown - LAST) put_event(h, &list->event[i], text);
    at++;
  }
  ot_text_put(h->out, "</tbody></table>\n");
}

static void put_time(const html *h) {
  if (h->record->account.num_attempts == 0) return;
  ot_page_section(h->out, "time", "What happened",
                  "How to read: a blue bar is a process of the run; a mark is an event.");
  const int64_t first = begin_figure(h);
  ot_chart_run_time(h->record, h->out);
  end_figure(h, "What happened", first);
  ot_page_fold(h->out, "Events as a table");
  put_events(h);
  ot_page_fold_end(h->out);
  ot_page_section_end(h->out);
}

// ---- health ----

static bool has_health(const html *h) {
  for (int i = 0; i < OT_HEAT_MAPS; i++)
    if (h->record->heat[i].maximum > 0) return true;
  return false;
}

static void put_health(const html *h) {
  if (!has_health(h)) return;
  ot_page_section(h->out, "health", "Health of the layers",
                  "How to read: a row is a layer, darker is larger (logarithmic); a layer that "
                  "darkens before the loss rises is where to look.");
  for (int i = 0; i < OT_HEAT_MAPS; i++) {
    const int64_t first = begin_figure(h);
    ot_chart_heat(h->record, &h->record->heat[i], h->out);
    end_figure(h, ot_arena_format(h->arena, "%s by layer", h->record->heat[i].name), first);
  }
  ot_page_section_end(h->out);
}

// ---- the page ----

static void put_navigation(const html *h) {
  const bool steps = h->record->num_steps > 0, events = h->record->account.num_attempts > 0;
  const struct {
    const char *id, *name;
    bool shown;
  } links[] = {{"summary", "Summary", true},
               {"training", "Training", steps},
               {"speed", "Speed and memory", steps},
               {"goodput", "Goodput", events && h->record->account.wall_s > 0},
               {"time", "What happened", events},
               {"health", "Health", has_health(h)}};
  ot_page_navigation(h->out, true);
  for (int i = 0; i < OT_COUNT(links); i++)
    if (links[i].shown) ot_page_link(h->out, links[i].id, links[i].name);
  ot_page_navigation(h->out, false);
}

void ot_run_html(const ot_run_page *page, ot_text_builder *out, ot_figure_list *figures) {
  const html h = {
      .page = page, .record = page->record, .out = out, .arena = out->arena, .figures = figures};
  const char *const name = page->name ? page->name : page->path;
  const char *const title =
      page->run ? ot_arena_format(h.arena, "%s: %s", name, ot_run_page_model(page, h.arena)) : name;
  ot_page_begin(out, ot_arena_format(h.arena, "Orthant run %s", title), title,
                ot_arena_format(h.arena, "%s; %s; %s", ot_run_page_state(page, h.arena),
                                ot_run_page_mesh(page, h.arena), page->path));
  put_navigation(&h);
  put_summary(&h);
  if (h.record->num_steps > 0) {
    put_training(&h);
    put_speed(&h);
  }
  put_goodput(&h);
  put_time(&h);
  put_health(&h);
  ot_text_put(out,
              "</main>\n<footer>\n<p>Measured by the run. MFU is model FLOPs, with the causal half "
              "of attention, over the dense peak of the precision. Units are powers of 1000."
              "</p>\n</footer>\n</body>\n</html>\n");
}
