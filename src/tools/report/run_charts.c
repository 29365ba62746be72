// SPDX-License-Identifier: Apache-2.0
// A drawing has a fixed number of columns, so its size does not depend on the length of the run.
#include "report/run_charts.h"

#include <math.h>

#include "base/extremes.h"
#include "base/quantity.h"
#include "report/chart.h"
#include "report/markup.h"
#include "report/run_page.h"

enum { LEFT = 104, RIGHT = 20, TOP = 22, HEIGHT = 180, BOTTOM = 42 };

typedef struct frame {
  const ot_run_record *record;
  ot_text_builder *out;
  ot_arena *arena;
  ot_scale x, y;
} frame;

static ot_scale step_scale(const ot_run_record *record) {
  return (ot_scale){.minimum = -0.5,
                    .maximum = (double)record->last_step + 0.5,
                    .from = LEFT,
                    .to = OT_CHART_WIDTH - RIGHT};
}

static void put_step_axis(const frame *f, double bottom) {
  double ticks[OT_SCALE_TICKS];
  const int count = ot_scale_ticks(&f->x, 8, ticks);
  for (int i = 0; i < count; i++) {
    if (ticks[i] != floor(ticks[i])) continue;
    const double x = ot_scale_at(&f->x, ticks[i]);
    ot_chart_line(f->out, "tick", (ot_box){x, bottom, 0, 5});
    ot_chart_text(f->out, "m dim", x, bottom + 18,
                  ot_tick_text(f->arena, ticks[i], ot_figure_count));
  }
  ot_chart_text(f->out, "m dim", (LEFT + OT_CHART_WIDTH - RIGHT) / 2.0, bottom + 35, "step");
}

static void put_value_axis(const frame *f, const char *label,
                           const char *(*figure)(ot_arena *arena, double value)) {
  double ticks[OT_SCALE_TICKS];
  const int count = ot_scale_ticks(&f->y, 4, ticks);
  for (int i = 0; i < count; i++) {
    const double y = ot_scale_at(&f->y, ticks[i]);
    ot_chart_line(f->out, "grid", (ot_box){LEFT, y, OT_CHART_WIDTH - LEFT - RIGHT, 0});
    ot_chart_text(f->out, "e dim", LEFT - 8, y + 4, ot_tick_text(f->arena, ticks[i], figure));
  }
  ot_chart_text(f->out, "dim", 8, TOP - 8, label);
}

// ---- curves ----

bool ot_run_chart_has(const ot_run_chart *chart) {
  for (int i = 0; i < chart->num_lines; i++)
    if (chart->lines[i].curve->all.count > 0) return true;
  return false;
}

// Logarithmic where values differ by more than two powers of ten.
static ot_scale value_scale(const ot_run_chart *chart) {
  double least = INFINITY, most = -INFINITY;
  for (int i = 0; i < chart->num_lines; i++) {
    const ot_curve_column *const all = &chart->lines[i].curve->all;
    if (all->count == 0) continue;
    least = ot_smaller(least, all->minimum);
    most = ot_larger(most, all->maximum);
  }
  if (isfinite(chart->limit)) most = ot_larger(most, chart->limit);
  ot_scale scale = {.from = TOP + HEIGHT, .to = TOP};
  scale.log = !chart->from_zero && least > 0 && most / least > 100;
  const double margin = most > least ? 0.05 * (most - least) : ot_larger(fabs(most) / 10, 1e-12);
  scale.minimum = chart->from_zero && least >= 0 ? 0 : scale.log ? least / 1.2 : least - margin;
  scale.maximum = scale.log ? most * 1.2 : most + margin;
  return scale;
}

// The extremes of columns that have more than one value.
static void put_band(const frame *f, const ot_run_line *line) {
  bool begun = false;
  const double width = (f->x.to - f->x.from) / (double)f->record->columns;
  for (int64_t i = 0; i < f->record->columns; i++) {
    const ot_curve_column *const c = &line->curve->column[i];
    if (c->count < 2) continue;
    if (!begun)
      ot_text_appendf(f->out, "<path class=\"band l-%s\" stroke-width=\"%.1f\" d=\"", line->colour,
                      ot_larger(width, 1));
    begun = true;
    ot_text_appendf(f->out, "M%.1f %.1fV%.1f",
                    ot_scale_at(&f->x, ot_run_record_step(f->record, f->record->columns, i)),
                    ot_scale_at(&f->y, c->minimum) + 0.4, ot_scale_at(&f->y, c->maximum) - 0.4);
  }
  if (begun) ot_text_put(f->out, "\"/>\n");
}

// The mean of a column, where it is drawn.
static ot_box mean_place(const frame *f, const ot_run_line *line, int64_t column) {
  const ot_curve_column *const c = &line->curve->column[column];
  return (ot_box){
      .x = ot_scale_at(&f->x, ot_run_record_step(f->record, f->record->columns, column)),
      .y = ot_scale_at(&f->y, c->sum / (double)c->count)};
}

static void put_path(const frame *f, const ot_run_line *line) {
  char move = 'M';
  ot_text_appendf(f->out, "<path class=\"curve l-%s\" d=\"", line->colour);
  for (int64_t i = 0; i < f->record->columns; i++) {
    if (line->curve->column[i].count == 0) continue;
    const ot_box at = mean_place(f, line, i);
    ot_text_appendf(f->out, "%c%.1f %.1f", move, at.x, at.y);
    move = 'L';
  }
  ot_text_put(f->out, "\"/>\n");
}

static void put_markers(const frame *f, const ot_run_line *line) {
  for (int64_t i = 0; i < f->record->columns; i++) {
    if (line->curve->column[i].count == 0) continue;
    const ot_box at = mean_place(f, line, i);
    ot_text_appendf(f->out, "<circle class=\"dot c-%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n",
                    line->colour, at.x, at.y);
  }
}

// Two points would be a straight line through steps that nobody measured.
static void put_means(const frame *f, const ot_run_line *line) {
  enum { LINE_FROM = 3, MARKERS_BELOW = 30 };
  int64_t points = 0;
  for (int64_t i = 0; i < f->record->columns; i++) points += line->curve->column[i].count > 0;
  if (points >= LINE_FROM) put_path(f, line);
  if (points < MARKERS_BELOW) put_markers(f, line);
}

// Where the run was started again.
static void put_restarts(const frame *f) {
  const ot_run_account *const a = &f->record->account;
  enum { MOST = 200 };
  for (int64_t i = 1; i < a->num_attempts && i < MOST; i++) {
    const double x = ot_scale_at(&f->x, (double)a->attempts[i].step);
    ot_chart_line(f->out, "grid", (ot_box){x, TOP, 0, HEIGHT});
  }
}

static void put_limit(const frame *f, const ot_run_chart *chart) {
  if (!isfinite(chart->limit)) return;
  const double y = ot_scale_at(&f->y, chart->limit);
  ot_chart_line(f->out, "limit", (ot_box){LEFT, y, OT_CHART_WIDTH - LEFT - RIGHT, 0});
  ot_chart_text(f->out, "e", OT_CHART_WIDTH - RIGHT - 4, y - 5, chart->limit_name);
}

void ot_chart_run_lines(const ot_run_chart *chart, ot_text_builder *out) {
  if (!ot_run_chart_has(chart)) return;
  const frame f = {.record = chart->record,
                   .out = out,
                   .arena = out->arena,
                   .x = step_scale(chart->record),
                   .y = value_scale(chart)};
  ot_chart_key keys[OT_RUN_LINES_MAX];
  int num_keys = 0;
  for (int i = 0; i < chart->num_lines && chart->num_lines > 1; i++) {
    const ot_run_line *const line = &chart->lines[i];
    if (line->curve->all.count == 0) continue;
    keys[num_keys++] = (ot_chart_key){ot_arena_format(f.arena, "c-%s", line->colour), line->name,
                                      chart->figure(f.arena, line->curve->last)};
  }
  ot_chart_begin(out, TOP + HEIGHT + BOTTOM + ot_chart_keys_height(num_keys), chart->label);
  put_value_axis(&f, f.y.log ? ot_arena_format(f.arena, "%s (log)", chart->label) : chart->label,
                 chart->figure);
  put_restarts(&f);
  put_step_axis(&f, TOP + HEIGHT);
  for (int i = 0; i < chart->num_lines; i++) put_band(&f, &chart->lines[i]);
  for (int i = 0; i < chart->num_lines; i++) put_means(&f, &chart->lines[i]);
  put_limit(&f, chart);
  ot_chart_keys(out, TOP + HEIGHT + BOTTOM, keys, num_keys);
  ot_chart_end(out);
}

// ---- exposed communication ----

static const char *const axes[] = {"tp", "cp", "ep", "pp", "dp"};

bool ot_run_has_exposed(const ot_run_record *record) {
  for (int i = 0; i < OT_COUNT(axes); i++)
    if (record->curves[OT_CURVE_TP + i].all.sum > 0) return true;
  return false;
}

static double mean_of(const ot_run_record *record, int axis, int64_t column) {
  const ot_curve_column *const c = &record->curves[OT_CURVE_TP + axis].column[column];
  return c->count > 0 ? c->sum / (double)c->count : 0;
}

static void put_layer(const frame *f, int axis, double *base_s) {
  const double width = (f->x.to - f->x.from) / (double)f->record->columns;
  ot_text_appendf(f->out, "<path class=\"c-%s\" d=\"M0 0", axes[axis]);
  for (int64_t i = 0; i < f->record->columns; i++) {
    const double value_s = mean_of(f->record, axis, i);
    if (!(value_s > 0)) continue;
    const double low = ot_scale_at(&f->y, base_s[i]);
    base_s[i] += value_s;
    ot_text_appendf(f->out, "M%.1f %.1fh%.2fV%.1fh-%.2fz", f->x.from + (double)i * width, low,
                    width, ot_scale_at(&f->y, base_s[i]), width);
  }
  ot_text_put(f->out, "\"/>\n");
}

void ot_chart_exposed(const ot_run_record *record, ot_text_builder *out) {
  double base_s[OT_CURVE_COLUMNS] = {0};
  double most_s = 0;
  for (int64_t i = 0; i < record->columns; i++) {
    double sum_s = 0;
    for (int axis = 0; axis < OT_COUNT(axes); axis++) sum_s += mean_of(record, axis, i);
    most_s = ot_larger(most_s, sum_s);
  }
  if (!(most_s > 0)) return;
  const frame f = {.record = record,
                   .out = out,
                   .arena = out->arena,
                   .x = step_scale(record),
                   .y = {.maximum = most_s * 1.05, .from = TOP + HEIGHT, .to = TOP}};
  ot_chart_key keys[OT_COUNT(axes)];
  int num_keys = 0;
  for (int axis = 0; axis < OT_COUNT(axes); axis++) {
    const ot_curve_column *const all = &record->curves[OT_CURVE_TP + axis].all;
    if (!(all->sum > 0)) continue;
    keys[num_keys++] = (ot_chart_key){ot_arena_format(f.arena, "c-%s", axes[axis]), axes[axis],
                                      ot_figure_seconds(f.arena, all->sum / (double)all->count)};
  }
  ot_chart_begin(out, TOP + HEIGHT + BOTTOM + ot_chart_keys_height(num_keys),
                 "Exposed communication of a step by axis");
  put_value_axis(&f, "exposed time of a step", ot_figure_seconds);
  put_step_axis(&f, TOP + HEIGHT);
  for (int axis = 0; axis < OT_COUNT(axes); axis++) put_layer(&f, axis, base_s);
  ot_chart_keys(out, TOP + HEIGHT + BOTTOM, keys, num_keys);
  ot_chart_end(out);
}

// ---- health ----

enum { SHADES = 10 };

// The smallest value above 0 that is drawn.
static double least_of(const ot_heat_map *map) {
  double least = map->maximum;
  for (int64_t i = 0; i < map->num_rows; i++) {
    for (int c = 0; c < OT_HEAT_COLUMNS; c++) {
      const double value = map->rows[i].value[c];
      if (value > 0 && value < least) least = value;
    }
  }
  return least;
}

static int shade_of(const ot_scale *shades, double value) {
  if (!(value > 0)) return 0;
  const double range = log(shades->maximum / shades->minimum);
  const double share = range > 0 ? log(value / shades->minimum) / range : 1;
  return share >= 0 && share <= 1 ? (int)(share * (SHADES - 1) + 0.5) : SHADES - 1;
}

// The ordinate of `f` is the scale of the shades.
static void put_cells(const frame *f, const ot_heat_map *map, double row, int shade) {
  const int64_t columns = ot_smaller_whole(f->record->columns, OT_HEAT_COLUMNS);
  const double width = (f->x.to - f->x.from) / (double)columns;
  bool begun = false;
  for (int64_t i = 0; i < map->num_rows; i++) {
    for (int64_t c = 0; c < columns; c++) {
      const double value = map->rows[i].value[c];
      if (isnan(value) || shade_of(&f->y, value) != shade) continue;
      if (!begun)
        ot_text_appendf(f->out, "<path class=\"cell c-compute\" fill-opacity=\"%.2f\" d=\"",
                        0.08 + 0.92 * shade / (SHADES - 1));
      begun = true;
      ot_text_appendf(f->out, "M%.1f %.1fh%.2fv%.2fh-%.2fz", f->x.from + (double)c * width,
                      TOP + (double)i * row, width, row, width);
    }
  }
  if (begun) ot_text_put(f->out, "\"/>\n");
}

void ot_chart_heat(const ot_run_record *record, const ot_heat_map *map, ot_text_builder *out) {
  if (!(map->maximum > 0)) return;
  const double row = ot_larger(3, ot_smaller(16, 420.0 / (double)map->num_rows));
  const double height = row * (double)map->num_rows;
  const frame f = {.record = record,
                   .out = out,
                   .arena = out->arena,
                   .x = step_scale(record),
                   .y = {.minimum = least_of(map), .maximum = map->maximum}};
  const int64_t every = row >= 11 ? 1 : (int64_t)(11 / row) + 1;
  ot_chart_begin(out, TOP + height + BOTTOM, map->name);
  ot_chart_text(
      out, "dim", 8, TOP - 8,
      ot_arena_format(f.arena, "%s, from %.3g to %.3g", map->name, f.y.minimum, map->maximum));
  ot_chart_box(out, "idle", (ot_box){LEFT, TOP, OT_CHART_WIDTH - LEFT - RIGHT, height}, NULL);
  for (int64_t i = 0; i < map->num_rows; i += every)
    ot_chart_text(out, row < 11 ? "e dim small" : "e dim", LEFT - 8,
                  TOP + ((double)i + 0.5) * row + 4, map->rows[i].name);
  for (int shade = 0; shade < SHADES; shade++) put_cells(&f, map, row, shade);
  put_step_axis(&f, TOP + height);
  ot_chart_end(out);
}

// ---- goodput ----

static const char *const classes[OT_ACCOUNT_ITEMS] = {[OT_ACCOUNT_PRODUCTIVE] = "c-compute",
                                                      [OT_ACCOUNT_STRAGGLERS] = "c-again",
                                                      [OT_ACCOUNT_LOST] = "c-dp",
                                                      [OT_ACCOUNT_CHECKPOINTS] = "c-tp",
                                                      [OT_ACCOUNT_VALIDATION] = "c-ep",
                                                      [OT_ACCOUNT_AUDITS] = "c-all",
                                                      [OT_ACCOUNT_EVALUATION] = "c-total",
                                                      [OT_ACCOUNT_START] = "c-update",
                                                      [OT_ACCOUNT_DETECTION] = "c-cp",
                                                      [OT_ACCOUNT_WAITING] = "c-host",
                                                      [OT_ACCOUNT_LOADING] = "c-pp",
                                                      [OT_ACCOUNT_IDLE] = "c-bubble",
                                                      [OT_ACCOUNT_OTHER] = "idle"};

void ot_chart_goodput(const ot_run_account *a, ot_text_builder *out) {
  enum { BAR = 44, LABEL_WIDTH = 84 };
  const ot_scale x = {
      .maximum = a->wall_s > 0 ? a->wall_s : 1, .from = 16, .to = OT_CHART_WIDTH - 24};
  int64_t tenths[OT_ACCOUNT_ITEMS];
  ot_run_page_tenths(a, tenths);
  ot_chart_key keys[OT_ACCOUNT_ITEMS];
  int num_keys = 0;
  for (int i = 0; i < OT_ACCOUNT_ITEMS; i++) {
    if (fabs(a->item_s[i]) < 1e-6 * a->wall_s) continue;
    keys[num_keys++] = (ot_chart_key){
        classes[i], ot_account_name((ot_account_item)i),
        ot_arena_format(out->arena, "%s, %.1f%%", ot_run_page_time(out->arena, a->item_s[i]),
                        (double)tenths[i] / 10)};
  }
  ot_chart_begin(out, BAR + 20 + ot_chart_keys_height(num_keys),
                 "Where the wall time of the run went");
  double at_s = 0;
  for (int i = 0; i < OT_ACCOUNT_ITEMS; i++) {
    if (!(a->item_s[i] > 0)) continue;
    const double from = ot_scale_at(&x, at_s);
    at_s += a->item_s[i];
    const double width = ot_smaller(ot_scale_at(&x, at_s), x.to) - from;
    if (!(width > 0)) continue;
    const char *const name = ot_account_name((ot_account_item)i);
    ot_chart_box(
        out, classes[i], (ot_box){from, 8, width, BAR},
        ot_arena_format(out->arena, "%s: %s", name, ot_run_page_time(out->arena, a->item_s[i])));
    const bool pale = i == OT_ACCOUNT_IDLE || i == OT_ACCOUNT_OTHER;
    if (width > LABEL_WIDTH)
      ot_chart_text(out, pale ? "m" : "m on", from + width / 2, 8 + BAR / 2 + 5, name);
  }
  ot_chart_keys(out, BAR + 16, keys, num_keys);
  ot_chart_end(out);
}

// ---- wall time ----

// At most one mark of a kind per unit of the drawing.
static void put_marks(const frame *f, ot_run_event_kind kind, const char *class, ot_box place) {
  const ot_run_event_list *const list = &f->record->events;
  double last = -1;
  for (int64_t i = 0; i < list->count; i++) {
    const ot_run_event *const e = &list->event[i];
    const double x = ot_scale_at(&f->x, e->time_s);
    if (e->kind != kind || !(x - last >= 1)) continue;
    if (x < LEFT - 1 || x > OT_CHART_WIDTH - RIGHT + 1) continue;
    last = x;
    const char *const text = ot_run_page_event(e, f->arena);
    ot_chart_box(f->out, class, (ot_box){x - place.width / 2, place.y, place.width, place.height},
                 text ? text
                      : ot_arena_format(f->arena, "%s of step %lld", ot_run_event_name(kind),
                                        (long long)e->step));
  }
}

static void put_processes(const frame *f, double y, double height) {
  enum { MOST = 2000 };
  const ot_run_account *const a = &f->record->account;
  ot_chart_box(f->out, "idle", (ot_box){LEFT, y, OT_CHART_WIDTH - LEFT - RIGHT, height}, NULL);
  for (int64_t i = 0; i < a->num_attempts && i < MOST; i++) {
    const ot_run_attempt *const t = &a->attempts[i];
    const double from = ot_scale_at(&f->x, t->begin_s), to = ot_scale_at(&f->x, t->end_s);
    ot_chart_box(f->out, "act c-compute", (ot_box){from, y, ot_larger(to - from, 0.5), height},
                 ot_arena_format(f->arena, "process %lld, from step %lld", (long long)i + 1,
                                 (long long)t->step));
  }
}

// Ticks at round numbers of the unit that suits the wall time.
static void put_time_axis(const frame *f, double wall_s, double bottom) {
  static const struct {
    double seconds;
    const char *name;
  } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}, {1e-3, "ms"}};
  int unit = 0;
  while (unit + 1 < OT_COUNT(units) && wall_s < 2 * units[unit].seconds) unit++;
  const ot_scale scale = {
      .maximum = wall_s / units[unit].seconds, .from = f->x.from, .to = f->x.to};
  double ticks[OT_SCALE_TICKS];
  const int count = ot_scale_ticks(&scale, 8, ticks);
  for (int i = 0; i < count; i++) {
    const double x = ot_scale_at(&scale, ticks[i]);
    ot_chart_line(f->out, "tick", (ot_box){x, bottom, 0, 5});
    ot_chart_text(f->out, "m dim", x, bottom + 18,
                  ot_arena_format(f->arena, "%.4g %s", ticks[i], units[unit].name));
  }
  ot_chart_text(f->out, "m dim", (f->x.from + f->x.to) / 2, bottom + 35,
                "time since the run began");
}

void ot_chart_run_time(const ot_run_record *record, ot_text_builder *out) {
  enum { ROW = 22, GAP = 8 };
  static const struct {
    ot_run_event_kind kind;
    const char *name, *class;
  } rows[] = {{OT_RUN_EVENT_SAVE, "saves", "c-tp"},
              {OT_RUN_EVENT_FAILURE, "failures", "c-dp"},
              {OT_RUN_EVENT_SPIKE, "spikes", "c-ep"},
              {OT_RUN_EVENT_STRAGGLER, "stragglers", "c-again"}};
  const ot_run_account *const a = &record->account;
  if (a->num_attempts == 0 || !(a->wall_s > 0)) return;
  const frame f = {
      .record = record,
      .out = out,
      .arena = out->arena,
      .x = {
          .minimum = a->begin_s, .maximum = a->end_s, .from = LEFT, .to = OT_CHART_WIDTH - RIGHT}};
  const double bottom = 8 + (1 + OT_COUNT(rows)) * (ROW + GAP);
  ot_chart_begin(out, bottom + BOTTOM, "Processes, saves, failures and outliers over the time");
  ot_chart_text(out, "e", LEFT - 8, 8 + ROW / 2 + 4, "processes");
  put_processes(&f, 8, ROW);
  for (int i = 0; i < OT_COUNT(rows); i++) {
    const double y = 8 + (i + 1) * (ROW + GAP);
    ot_chart_text(out, "e", LEFT - 8, y + ROW / 2 + 4, rows[i].name);
    ot_chart_line(out, "grid", (ot_box){LEFT, y + ROW / 2.0, OT_CHART_WIDTH - LEFT - RIGHT, 0});
    put_marks(&f, rows[i].kind, rows[i].class, (ot_box){0, y, i == 0 ? 2 : 4, ROW});
  }
  put_time_axis(&f, a->wall_s, bottom);
  ot_chart_end(out);
}
