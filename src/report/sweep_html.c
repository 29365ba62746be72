// SPDX-License-Identifier: Apache-2.0
// The first value that is a number (else the first) runs along the charts. A vertical bar at a
// point is the interval of its step; a cross at the bottom is a point without a plan.
#include "report/sweep_html.h"

#include "base/number.h"
#include "base/quantity.h"
#include "base/text.h"
#include "report/chart.h"
#include "report/markup.h"
#include "report/page_frame.h"
#include "report/plan_html_parts.h"

enum { LEFT = 84, RIGHT = 90, TOP = 28, HEIGHT = 260, BOTTOM = 50, MOST_SERIES = 8, APART = 5 };

static const char *const classes[MOST_SERIES] = {"compute", "tp", "pp",  "dp",
                                                 "ep",      "cp", "all", "update"};

// A combination of all values but that along the charts.
typedef struct series {
  const char *name;  // "global_batch_size 512, engine torchtitan"; "" if nothing else varies
  int64_t first;     // a point of it
} series;

typedef struct sweep {
  const ot_sweep_page *page;
  ot_text_builder *out;
  ot_arena *arena;  // of `out`
  int along;        // axis of the charts
  bool numbers;     // its values are
  double *x;        // [num_points] along it
  int *of;          // [num_points] series; MOST_SERIES: not drawn
  int num_series;
  series all[MOST_SERIES];
  int64_t num_left_out;  // points of further series
  bool priced;
} sweep;

// ---- what varies ----

static bool is_number(const ot_sweep_page *p, int axis) {
  for (int64_t i = 0; i < p->num_points; i++) {
    int64_t whole;
    double real;
    const char *const text = p->points[i].value[axis];
    if (!ot_number_parse_size(text, &whole) && !ot_number_parse(text, false, &real)) return false;
  }
  return true;
}

static bool varies(const ot_sweep_page *p, int axis) {
  for (int64_t i = 1; i < p->num_points; i++) {
    if (!ot_text_equal(p->points[i].value[axis], p->points[0].value[axis])) return true;
  }
  return false;
}

static void choose_along(sweep *s) {
  for (int i = 0; i < s->page->num_axes && !s->numbers; i++) {
    if (!varies(s->page, i) || !is_number(s->page, i)) continue;
    s->numbers = true;
    s->along = i;
  }
}

// A number, or the place of a word among the different ones.
static double place_of(const sweep *s, int64_t point) {
  const ot_sweep_page *const p = s->page;
  const char *const text = p->points[point].value[s->along];
  int64_t whole;
  double real = 0;
  if (s->numbers && ot_number_parse_size(text, &whole)) return (double)whole;
  if (s->numbers && ot_number_parse(text, false, &real)) return real;
  double places = 0;
  for (int64_t i = 0; i < point; i++) {
    if (ot_text_equal(p->points[i].value[s->along], text)) return s->x[i];
    if (s->x[i] + 1 > places) places = s->x[i] + 1;
  }
  return places;
}

static bool same_series(const sweep *s, int64_t a, int64_t b) {
  for (int i = 0; i < s->page->num_axes; i++) {
    if (i == s->along) continue;
    if (!ot_text_equal(s->page->points[a].value[i], s->page->points[b].value[i])) return false;
  }
  return true;
}

static const char *name_of(const sweep *s, int64_t point) {
  ot_text_builder name = {.arena = s->arena};
  for (int i = 0; i < s->page->num_axes; i++) {
    if (i == s->along || !varies(s->page, i)) continue;
    ot_text_appendf(&name, "%s%s %s", name.length > 0 ? ", " : "", s->page->axis[i],
                    s->page->points[point].value[i]);
  }
  return ot_text_builder_text(&name);
}

static void find_series(sweep *s) {
  for (int64_t i = 0; i < s->page->num_points; i++) {
    s->x[i] = place_of(s, i);
    s->priced = s->priced || s->page->points[i].dollars > 0;
    int k = 0;
    while (k < s->num_series && !same_series(s, s->all[k].first, i)) k++;
    s->of[i] = k;
    s->num_left_out += k == MOST_SERIES;
    if (k == s->num_series && k < MOST_SERIES) s->all[s->num_series++] = (series){name_of(s, i), i};
  }
}

// ---- one chart ----

typedef struct metric {
  const char *id, *title, *reading;
  double (*value)(const ot_sweep_point *point);
  const char *(*figure)(ot_arena *arena, double value);
} metric;

static double step_of(const ot_sweep_point *p) { return p->step_s; }
static double rate_of(const ot_sweep_point *p) { return p->tokens_per_s; }
static double mfu_of(const ot_sweep_point *p) { return p->mfu; }
static double memory_of(const ot_sweep_point *p) { return p->memory_bytes; }
static double days_of(const ot_sweep_point *p) { return p->run_s / 86400; }
static double dollars_of(const ot_sweep_point *p) { return p->dollars; }

static const char *days_text(ot_arena *arena, double days) {
  return ot_arena_format(arena, "%.3g d", days);
}

static const char *dollars_text(ot_arena *arena, double dollars) {
  return ot_arena_format(arena, "$%s", ot_figure_count(arena, dollars));
}

static const char *rate_text(ot_arena *arena, double rate) {
  return ot_arena_format(arena, "%s/s", ot_figure_count(arena, rate));
}

enum { STEP, MEMORY = 3 };  // of these, with the interval of the step and with the capacity

static const metric metrics[] = {
    {"step", "Step time",
     "Lower is faster. The bar at a point holds the measured step in 4 of 5 cases.", step_of,
     ot_figure_seconds},
    {"rate", "Tokens a second", "Of all devices together. A line that bends down wastes devices.",
     rate_of, rate_text},
    {"mfu", "MFU", "Model FLOPs, with the causal half of attention, over the peak of the devices.",
     mfu_of, ot_figure_share},
    {"memory", "Memory of the fullest device", "Below the dashed capacity of a device.", memory_of,
     ot_figure_bytes},
    {"run", "Time of the run", "All tokens, with failures where they are modelled.", days_of,
     days_text},
    {"cost", "Cost of the run", "Device hours at the given price.", dollars_of, dollars_text},
};

typedef struct drawing {
  const sweep *s;
  const metric *m;
  ot_scale x, y;
} drawing;

static bool has_ranges(const drawing *d) { return d->m == &metrics[STEP]; }
static bool has_limit(const drawing *d) { return d->m == &metrics[MEMORY]; }

static ot_scale scale_of(double least, double most, double from, double to) {
  const bool wide = least > 0 && most >= 4 * least;
  return (ot_scale){.log = wide, .minimum = least, .maximum = most, .from = from, .to = to};
}

static void find_scales(drawing *d) {
  const ot_sweep_page *const p = d->s->page;
  double x[2] = {d->s->x[0], d->s->x[0]}, y[2] = {1e300, 0};
  for (int64_t i = 0; i < p->num_points; i++) {
    const ot_sweep_point *const point = &p->points[i];
    const double value = d->m->value(point);
    const double high = has_ranges(d)  ? point->high_s
                        : has_limit(d) ? point->capacity_bytes
                                       : value;
    const double low = has_ranges(d) ? point->low_s : value;
    x[0] = d->s->x[i] < x[0] ? d->s->x[i] : x[0];
    x[1] = d->s->x[i] > x[1] ? d->s->x[i] : x[1];
    if (point->reason || d->s->of[i] == MOST_SERIES) continue;
    y[0] = low < y[0] ? low : y[0];
    y[1] = high > y[1] ? high : y[1];
  }
  const bool falls = y[1] >= 8 * y[0] && y[0] > 0;
  d->x = scale_of(x[0], x[1] > x[0] ? x[1] : x[0] + 1, LEFT + 30, OT_CHART_WIDTH - RIGHT - 30);
  if (!d->s->numbers) d->x.log = false;
  d->y = (ot_scale){.log = falls,
                    .minimum = falls ? y[0] / 1.15 : 0,
                    .maximum = y[1] * (falls ? 1.15 : 1.06),
                    .from = TOP + HEIGHT,
                    .to = TOP};
}

static void put_value_ticks(const drawing *d) {
  ot_text_builder *const out = d->s->out;
  double ticks[OT_SCALE_TICKS];
  const int count = ot_scale_ticks(&d->y, 5, ticks);
  for (int i = 0; i < count; i++) {
    const double y = ot_scale_at(&d->y, ticks[i]);
    ot_chart_line(out, "grid", (ot_box){LEFT, y, OT_CHART_WIDTH - LEFT - RIGHT, 0});
    ot_chart_text(out, "e dim", LEFT - 8, y + 4, ot_tick_text(d->s->arena, ticks[i], d->m->figure));
  }
}

// A tick at each value along the chart, with its text where there is room.
static void put_place_ticks(const drawing *d) {
  enum { ROOM = 7 };  // of a character
  const ot_sweep_page *const p = d->s->page;
  ot_text_builder *const out = d->s->out;
  double end = 0;
  for (int64_t i = 0; i < p->num_points; i++) {
    if (!same_series(d->s, i, 0)) continue;
    const char *const text = p->points[i].value[d->s->along];
    const double x = ot_scale_at(&d->x, d->s->x[i]);
    const double half = (double)ot_text_length(text) * ROOM / 2.0;
    ot_chart_line(out, "tick", (ot_box){x, TOP + HEIGHT, 0, 5});
    if (x - half < end) continue;
    ot_chart_text(out, "m dim", x, TOP + HEIGHT + 18, text);
    end = x + half + ROOM;
  }
  ot_chart_text(
      out, "m dim", (LEFT + OT_CHART_WIDTH - RIGHT) / 2.0, TOP + HEIGHT + 38,
      ot_arena_format(d->s->arena, "%s%s", p->axis[d->s->along], d->x.log ? " (log)" : ""));
  ot_chart_text(out, "dim", 8, TOP - 12,
                ot_arena_format(d->s->arena, "%s%s", d->m->title, d->y.log ? " (log)" : ""));
}

// Series with equal values stand next to each other.
static double x_of(const drawing *d, int64_t i) {
  const double shift = has_ranges(d) ? (d->s->of[i] - (d->s->num_series - 1) / 2.0) * APART : 0;
  return ot_scale_at(&d->x, d->s->x[i]) + shift;
}

static void put_point(const drawing *d, int64_t i) {
  const ot_sweep_point *const p = &d->s->page->points[i];
  ot_text_builder *const out = d->s->out;
  const char *const class = classes[d->s->of[i]];
  const double x = x_of(d, i), value = d->m->value(p);
  if (p->reason) {
    ot_text_appendf(out, "<g><text class=\"m dim\" x=\"%.1f\" y=\"%.1f\">&#215;", x,
                    TOP + HEIGHT - 4.0);
    ot_markup_element(out, "title", p->reason);
    ot_text_put(out, "</text></g>\n");
    return;
  }
  if (has_ranges(d)) {
    const double top = ot_scale_at(&d->y, p->high_s), bottom = ot_scale_at(&d->y, p->low_s);
    const char *const line = ot_arena_format(d->s->arena, "curve band l-%s", class);
    ot_chart_line(out, line, (ot_box){x, top, 0, bottom - top});
    ot_chart_line(out, line, (ot_box){x - 3, top, 6, 0});
    ot_chart_line(out, line, (ot_box){x - 3, bottom, 6, 0});
  }
  ot_text_appendf(out, "<circle class=\"dot c-%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\">", class, x,
                  ot_scale_at(&d->y, value));
  ot_markup_element(
      out, "title",
      ot_arena_format(d->s->arena, "%s %s%s%s: %s with %s", d->s->page->axis[d->s->along],
                      p->value[d->s->along], d->s->all[d->s->of[i]].name[0] != '\0' ? ", " : "",
                      d->s->all[d->s->of[i]].name, d->m->figure(d->s->arena, value), p->plan));
  ot_text_put(out, "</circle>\n");
}

// A line joins the neighbours of a series along the chart, in their order in the sweep.
static void put_series(const drawing *d, int k) {
  const ot_sweep_page *const p = d->s->page;
  ot_text_builder *const out = d->s->out;
  bool open = false;
  ot_text_appendf(out, "<path class=\"curve l-%s\" d=\"M0 0", classes[k]);
  for (int64_t i = 0; i < p->num_points && d->s->numbers; i++) {
    if (d->s->of[i] != k) continue;
    if (p->points[i].reason) {
      open = false;
      continue;
    }
    ot_text_appendf(out, "%c%.1f %.1f", open ? 'L' : 'M', x_of(d, i),
                    ot_scale_at(&d->y, d->m->value(&p->points[i])));
    open = true;
  }
  ot_text_put(out, "\"/>\n");
  for (int64_t i = 0; i < p->num_points; i++) {
    if (d->s->of[i] == k) put_point(d, i);
  }
}

static void put_capacity(const drawing *d) {
  double least = 1e300;
  for (int64_t i = 0; i < d->s->page->num_points && has_limit(d); i++) {
    const ot_sweep_point *const p = &d->s->page->points[i];
    if (!p->reason && p->capacity_bytes < least) least = p->capacity_bytes;
  }
  if (least == 1e300) return;
  const double y = ot_scale_at(&d->y, least);
  ot_chart_line(d->s->out, "limit", (ot_box){LEFT, y, OT_CHART_WIDTH - LEFT - RIGHT, 0});
  ot_chart_text(d->s->out, "strong", OT_CHART_WIDTH - RIGHT + 8, y + 4,
                ot_arena_format(d->s->arena, "%s", ot_figure_bytes(d->s->arena, least)));
}

static void put_legend(const sweep *s) {
  ot_text_put(s->out, "<ul class=\"legend\">\n");
  for (int k = 0; k < s->num_series && s->all[k].name[0] != '\0'; k++) {
    ot_chart_legend(s->out, ot_arena_format(s->arena, "c-%s", classes[k]), s->all[k].name, "");
  }
  ot_text_put(s->out, "</ul>\n");
}

static void put_chart(const sweep *s, const metric *m) {
  drawing d = {.s = s, .m = m};
  find_scales(&d);
  ot_page_section(s->out, m->id, m->title, m->reading);
  ot_text_put(s->out, "<figure>\n");
  ot_chart_begin(s->out, TOP + HEIGHT + BOTTOM,
                 ot_arena_format(s->arena, "%s against %s; the table below has the figures.",
                                 m->title, s->page->axis[s->along]));
  put_value_ticks(&d);
  put_place_ticks(&d);
  put_capacity(&d);
  for (int k = 0; k < s->num_series; k++) put_series(&d, k);
  ot_chart_end(s->out);
  put_legend(s);
  ot_text_put(s->out, "</figure>\n");
  ot_page_section_end(s->out);
}

// ---- the table ----

static void cell(const sweep *s, const char *text) { ot_markup_element(s->out, "td", text); }

static void put_row(const sweep *s, const ot_sweep_point *p) {
  ot_text_put(s->out, "<tr>");
  for (int i = 0; i < s->page->num_axes; i++) cell(s, p->value[i]);
  if (p->reason) {
    ot_markup_element(
        s->out, ot_arena_format(s->arena, "td class=\"t dim\" colspan=\"%d\"", s->priced ? 8 : 7),
        p->reason);
  } else {
    cell(s, ot_figure_seconds(s->arena, p->step_s));
    cell(s, ot_arena_format(s->arena, "%s to %s", ot_figure_seconds(s->arena, p->low_s),
                            ot_figure_seconds(s->arena, p->high_s)));
    cell(s, ot_figure_share(s->arena, p->mfu));
    cell(s, rate_text(s->arena, p->tokens_per_s));
    cell(s, ot_arena_format(s->arena, "%s of %s", ot_figure_bytes(s->arena, p->memory_bytes),
                            ot_figure_bytes(s->arena, p->capacity_bytes)));
    cell(s, days_text(s->arena, p->run_s / 86400));
    if (s->priced) cell(s, dollars_text(s->arena, p->dollars));
    ot_markup_element(s->out, "td class=\"t\"", p->plan);
  }
  ot_text_put(s->out, "</tr>\n");
}

static void put_table(const sweep *s) {
  static const char *const names[] = {"step", "in 4 of 5 cases", "mfu", "tokens", "memory", "run"};
  ot_page_section(s->out, "points", "All points", "The best plan with each combination of values.");
  ot_text_put(s->out, "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>");
  for (int i = 0; i < s->page->num_axes; i++) ot_markup_element(s->out, "th", s->page->axis[i]);
  for (int i = 0; i < OT_COUNT(names); i++) ot_markup_element(s->out, "th", names[i]);
  if (s->priced) ot_markup_element(s->out, "th", "cost");
  ot_markup_element(s->out, "th", "plan");
  ot_text_put(s->out, "</tr></thead><tbody>\n");
  for (int64_t i = 0; i < s->page->num_points; i++) put_row(s, &s->page->points[i]);
  ot_text_put(s->out, "</tbody></table></div>\n");
  ot_page_section_end(s->out);
}

// ---- the page ----

static bool any_fits(const ot_sweep_page *page) {
  for (int64_t i = 0; i < page->num_points; i++) {
    if (!page->points[i].reason) return true;
  }
  return false;
}

static void put_head(const sweep *s, int num_charts) {
  ot_text_builder text = {.arena = s->arena};
  for (int i = 0; i < s->page->num_axes; i++) {
    ot_text_appendf(&text, "%s%s", i > 0 ? ", " : "The best plan for each value of ",
                    s->page->axis[i]);
  }
  if (s->num_left_out > 0) {
    ot_text_appendf(&text, ". The charts show the first %d combinations", MOST_SERIES);
  }
  ot_page_begin(s->out, ot_arena_format(s->arena, "Orthant sweep: %s", s->page->title),
                s->page->title, ot_text_builder_text(&text));
  ot_page_navigation(s->out, true);
  for (int i = 0; i < num_charts; i++) ot_page_link(s->out, metrics[i].id, metrics[i].title);
  ot_page_link(s->out, "points", "All points");
  ot_page_navigation(s->out, false);
}

void ot_sweep_html(const ot_sweep_page *page, ot_text_builder *out) {
  sweep s = {.page = page, .out = out, .arena = out->arena};
  s.x = ot_arena_array(s.arena, page->num_points, sizeof *s.x);
  s.of = ot_arena_array(s.arena, page->num_points, sizeof *s.of);
  choose_along(&s);
  find_series(&s);
  const int num_charts = any_fits(page) ? OT_COUNT(metrics) - !s.priced : 0;
  put_head(&s, num_charts);
  for (int i = 0; i < num_charts; i++) put_chart(&s, &metrics[i]);
  put_table(&s);
  ot_text_put(out,
              "</main>\n<footer>\n<p>Predicted by simulating steps, not measured. Units are powers "
              "of 1000.</p>\n</footer>\n</body>\n</html>\n");
}
