// SPDX-License-Identifier: Apache-2.0
// Tables for people and one JSON document for programs.
#include "published_report.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "published_groups.h"
#include "published_ranking.h"

// Mean, median and source-macro errors of step time of other planners, and of a constant
// utilisation per device family with one source left out, on the fully described rows of the same
// data; measured in 2025 with networks adapted to each row.
static const struct {
  const char *name;
  double mape, median, source_macro;
} peers[] = {
    {"calculon", 32.7, 18.9, 25.9},
    {"llm-analysis", 18.4, 14.6, 19.0},
    {"constant utilisation", 22.7, 17.6, 23.5},
};

static const char *const *list_sources(const ot_published_prices *prices, ot_arena *arena,
                                       int64_t *count) {
  ot_published_error *const errors = ot_arena_array(arena, prices->num_rows + 1, sizeof *errors);
  const int64_t all = ot_published_errors(prices, OT_PUBLISHED_ALL, NULL, errors);
  const char **const sources = ot_arena_array(arena, all + 1, sizeof *sources);
  *count = ot_published_sources(errors, all, sources);
  return sources;
}

// ---- JSON ----

static void write_figure(ot_json_writer *w, const char *key, const ot_published_figures *f,
                         double value) {
  if (f->rows == 0) {
    ot_json_null(w, key);
  } else {
    ot_json_real(w, key, value);
  }
}

static void write_figures(ot_json_writer *w, const char *key, const ot_published_figures *f) {
  ot_json_object(w, key);
  ot_json_integer(w, "rows", f->rows);
  write_figure(w, "mape", f, f->mape);
  write_figure(w, "median", f, f->median);
  write_figure(w, "within10", f, f->within10);
  write_figure(w, "source_macro", f, f->source_macro);
  write_figure(w, "bias", f, f->bias);
  write_figure(w, "between", f, f->between);
  write_figure(w, "within", f, f->within);
  write_figure(w, "cover80", f, f->cover80);
  write_figure(w, "cover95", f, f->cover95);
  write_figure(w, "cover80_sources", f, f->cover80_sources);
  write_figure(w, "width80", f, f->width80);
  ot_json_end(w);
}

static void write_groups(ot_json_writer *w, const ot_published_prices *prices, ot_arena *arena) {
  for (int g = 0; g < OT_PUBLISHED_GROUPS; g++) {
    const ot_published_figures f =
        ot_published_group_figures(prices, (ot_published_group)g, NULL, arena);
    write_figures(w, ot_published_group_name((ot_published_group)g), &f);
  }
}

static void write_ranking(ot_json_writer *w, const ot_published_prices *prices, ot_arena *arena) {
  const ot_published_ranking ranking = ot_published_ranking_of(prices, arena);
  ot_json_object(w, "ranking");
  ot_json_integer(w, "sweeps", ranking.sweeps);
  ot_json_integer(w, "pairs", ranking.pairs);
  ot_json_real(w, "right_order", ranking.right_order);
  ot_json_real(w, "right_sweeps", ranking.right_sweeps);
  ot_json_real(w, "told", ranking.told);
  ot_json_real(w, "right_told", ranking.right_told);
  ot_json_real(w, "worst_regret", ranking.worst_regret);
  ot_json_real(w, "mean_regret", ranking.mean_regret);
  ot_json_real(w, "median_regret", ranking.median_regret);
  ot_json_end(w);
}

static void write_calibrated(ot_json_writer *w, const ot_published_report *report,
                             ot_arena *arena) {
  if (report->calibrate == 0) return;
  ot_json_object(w, "calibrated");
  ot_json_integer(w, "k", report->calibrate);
  for (int g = 0; g < OT_PUBLISHED_MEMORY; g++) {
    const ot_published_figures f =
        ot_published_calibrated_figures(report->calibrated, (ot_published_group)g, arena);
    write_figures(w, ot_published_group_name((ot_published_group)g), &f);
  }
  ot_json_end(w);
}

const char *ot_published_json(const ot_published_report *report, ot_arena *arena) {
  const ot_published_prices *const prices = report->prices;
  ot_json_writer w = ot_json_begin(arena, 2);
  ot_json_object(&w, NULL);
  write_groups(&w, prices, arena);
  int64_t num_sources;
  const char *const *const sources = list_sources(prices, arena, &num_sources);
  ot_json_object(&w, "sources");
  for (int64_t i = 0; i < num_sources; i++) {
    const ot_published_figures f =
        ot_published_group_figures(prices, OT_PUBLISHED_ALL, sources[i], arena);
    write_figures(&w, sources[i], &f);
  }
  ot_json_end(&w);
  if (report->left_out->num_rows > 0) {
    ot_json_object(&w, "left_out");
    write_groups(&w, report->left_out, arena);
    write_ranking(&w, report->left_out, arena);
    ot_json_end(&w);
  }
  write_calibrated(&w, report, arena);
  write_ranking(&w, prices, arena);
  ot_json_array(&w, "unpriced");
  for (int64_t i = 0; i < prices->num_rows; i++) {
    if (!prices->price[i].priced) ot_json_text(&w, NULL, prices->price[i].row->id);
  }
  ot_json_end(&w);
  ot_json_array(&w, "beyond");
  for (int64_t i = 0; i < prices->num_rows; i++) {
    const ot_published_price *const p = &prices->price[i];
    if (p->beyond) ot_json_text(&w, NULL, ot_arena_format(arena, "%s: %s", p->row->id, p->beyond));
  }
  ot_json_end(&w);
  ot_json_end(&w);
  return w.text;
}

// ---- text ----

static void print_figures(ot_text_builder *out, const char *name, const ot_published_figures *f) {
  ot_text_appendf(out, "%-52.52s %5lld %7.1f %7.1f %7.1f %7.1f %+7.1f", name, (long long)f->rows,
                  f->mape, f->median, f->within10, f->source_macro, f->bias);
}

static void print_title(ot_text_builder *out, const char *title) {
  ot_text_appendf(out, "%-52s %5s %7s %7s %7s %7s %7s %7s %7s %4s %4s %4s\n", title, "rows", "mape",
                  "median", "in 10%", "macro", "bias", "between", "within", "c80", "c95", "s80");
}

static void print_spread(ot_text_builder *out, const char *name, const ot_published_figures *f) {
  print_figures(out, name, f);
  ot_text_appendf(out, " %7.3f %7.3f %4.0f %4.0f %4.0f\n", f->between, f->within, f->cover80,
                  f->cover95, f->cover80_sources);
}

static void print_groups(ot_text_builder *out, const char *title,
                         const ot_published_prices *prices) {
  print_title(out, title);
  for (int g = 0; g < OT_PUBLISHED_GROUPS; g++) {
    const ot_published_figures f =
        ot_published_group_figures(prices, (ot_published_group)g, NULL, out->arena);
    if (f.rows == 0) continue;
    print_spread(out, g == OT_PUBLISHED_MEMORY ? "peak memory" : ot_published_group_name(g), &f);
  }
  ot_text_put(out, "\n");
}

static void print_calibrated(ot_text_builder *out, const ot_published_report *report) {
  if (report->calibrate == 0) return;
  print_title(out, ot_arena_format(out->arena, "after %d steps of a source, its other rows",
                                   report->calibrate));
  for (int g = 0; g < OT_PUBLISHED_MEMORY; g++) {
    const ot_published_figures f =
        ot_published_calibrated_figures(report->calibrated, (ot_published_group)g, out->arena);
    if (f.rows > 0) print_spread(out, ot_published_group_name((ot_published_group)g), &f);
  }
  ot_text_put(out, "\n");
}

// Ends the line of a source with its error under constants fitted without it.
static void print_left_out(ot_text_builder *out, const ot_published_prices *left_out,
                           const char *source) {
  const ot_published_figures f =
      ot_published_group_figures(left_out, OT_PUBLISHED_ALL, source, out->arena);
  if (f.rows > 0) ot_text_appendf(out, "   left out %7.1f", f.mape);
  ot_text_put(out, "\n");
}

static void print_tables(ot_text_builder *out, const ot_published_report *report) {
  const ot_published_prices *const prices = report->prices;
  if (report->left_out->num_rows > 0) {
    print_groups(out, "step time of runs never seen, errors in %", report->left_out);
  }
  print_calibrated(out, report);
  print_groups(out, "step time, errors in %", prices);
  int64_t num_sources;
  const char *const *const sources = list_sources(prices, out->arena, &num_sources);
  for (int64_t i = 0; i < num_sources; i++) {
    const ot_published_figures f =
        ot_published_group_figures(prices, OT_PUBLISHED_ALL, sources[i], out->arena);
    print_figures(out, sources[i], &f);
    print_left_out(out, report->left_out, sources[i]);
  }
  ot_text_put(out, "\n");
  for (int i = 0; i < OT_COUNT(peers); i++) {
    ot_text_appendf(out, "%-52s %5s %7.1f %7.1f %7s %7.1f\n", peers[i].name, "core", peers[i].mape,
                    peers[i].median, "", peers[i].source_macro);
  }
}

static void print_ranking(ot_text_builder *out, const char *title,
                          const ot_published_prices *prices) {
  const ot_published_ranking r = ot_published_ranking_of(prices, out->arena);
  ot_text_appendf(
      out,
      "\n%s: %lld sweeps; of %lld pairs that differ by more than 4 %%, %.1f %% in "
      "the right order (mean over sweeps %.1f %%); %.0f %% are told apart, %.1f %% of these in the "
      "right order; regret of the first choice: mean %.1f %%, median %.1f %%, worst %.1f %%\n",
      title, (long long)r.sweeps, (long long)r.pairs, r.right_order, r.right_sweeps, r.told,
      r.right_told, r.mean_regret, r.median_regret, r.worst_regret);
}

// Compares with the measurement, and lists the components in GB.
static void print_memory(ot_text_builder *out, const ot_published_row *row,
                         const ot_memory_estimate *m) {
  ot_text_appendf(out, ", measured %.1f (stage %d: weights %.2f gradients %.2f optimizer %.2f",
                  row->memory_gb, m->stage, 1e-9 * (double)m->weights, 1e-9 * (double)m->gradients,
                  1e-9 * (double)m->optimizer);
  ot_text_appendf(out, " activations %.2f gathered %.2f buffers %.2f reserved %.2f context %.2f)",
                  1e-9 * (double)m->activations, 1e-9 * (double)m->gathered,
                  1e-9 * (double)m->buffers, 1e-9 * (double)m->reserved, 1e-9 * (double)m->context);
}

static void print_row(ot_text_builder *out, const ot_published_price *price) {
  const ot_published_row *const r = price->row;
  ot_text_appendf(out, "%-14s %-22.22s %-16.16s ", r->id, r->model.name, r->gpu.name);
  if (!price->priced) {
    ot_text_appendf(out, "not priced: %s\n", price->reason);
    return;
  }
  const ot_estimate *const e = &price->estimate;
  const ot_published_error error =
      ot_published_error_of(r->source, price->step_s, r->step_time_s > 0 ? r->step_time_s : 1);
  ot_text_appendf(out, "%9.4f s, measured %9.4f (%+6.1f %%); ", price->step_s, r->step_time_s,
                  r->step_time_s > 0 ? error.signed_percent : 0);
  ot_text_appendf(out, "compute %.3f recompute %.3f update %.3f bubble %.3f host %.3f exposed",
                  e->compute_s, e->recompute_s, e->update_s, e->bubble_s, e->host_s);
  for (int i = 0; i < OT_TIMELINE_AXES; i++) ot_text_appendf(out, " %.3f", e->exposed_s[i]);
  ot_text_appendf(out, "; %.1f GB", price->memory_gb);
  if (r->memory_gb > 0) print_memory(out, r, &e->memory);
  ot_text_appendf(out, "; %s", price->engine);
  char candidate[256];
  ot_candidate_print(&e->candidate, candidate, sizeof candidate);
  ot_text_appendf(out, "; %s\n", candidate);
}

static double error_of(const ot_published_price *price) {
  const ot_published_row *const r = price->row;
  if (!ot_published_has_step(r)) return 0;
  return ot_published_error_of(r->source, price->step_s, r->step_time_s).percent;
}

static int compare_errors(const void *a, const void *b) {
  const double x = error_of(*(const ot_published_price *const *)a);
  const double y = error_of(*(const ot_published_price *const *)b);
  return (x < y) - (x > y);
}

static void print_worst(ot_text_builder *out, const ot_published_prices *prices, int worst) {
  const int64_t n = prices->num_rows;
  const ot_published_price **const order = ot_arena_array(out->arena, n + 1, sizeof *order);
  for (int64_t i = 0; i < n; i++) order[i] = &prices->price[i];
  qsort(order, (size_t)n, sizeof *order, compare_errors);
  ot_text_appendf(out, "\nworst rows\n");
  for (int64_t i = 0; i < n && i < worst; i++) print_row(out, order[i]);
}

void ot_published_print(const ot_published_report *report, const ot_published_view *view,
                        ot_text_builder *out) {
  const ot_published_prices *const prices = report->prices;
  print_tables(out, report);
  if (report->left_out->num_rows > 0) {
    print_ranking(out, "ranking of runs never seen", report->left_out);
  }
  print_ranking(out, "ranking", prices);
  int64_t unpriced = 0;
  for (int64_t i = 0; i < prices->num_rows; i++) unpriced += !prices->price[i].priced;
  if (unpriced > 0) {
    ot_text_appendf(out, "\nnot priced, counted as 100 %%: %lld rows\n", (long long)unpriced);
    for (int64_t i = 0; i < prices->num_rows; i++) {
      if (!prices->price[i].priced) print_row(out, &prices->price[i]);
    }
  }
  if (view->rows) {
    ot_text_put(out, "\n");
    for (int64_t i = 0; i < prices->num_rows; i++) print_row(out, &prices->price[i]);
  }
  if (view->worst > 0) print_worst(out, prices, view->worst);
}
