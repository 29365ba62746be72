// SPDX-License-Identifier: Apache-2.0
// The page of a ledger: figures of the claims, a forest plot, losses against compute, the newest
// stack as a waterfall, and the table.
#include <math.h>

#include "base/text.h"
#include "report/chart.h"
#include "report/ledger_page.h"
#include "report/markup.h"
#include "report/page_frame.h"

enum { LEFT = 190, RIGHT = 150, TOP = 30, ROW = 22, LADDER = 380, AXIS = 46, COLOURS = 8 };

// Changes in the order of their proposals take these in turn.
static const char *const colours[COLOURS] = {"compute", "tp",     "pp",  "dp",
                                             "ep",      "update", "all", "cp"};

typedef struct ledger_html {
  const ot_ledger_page *page;
  ot_arena *arena;
  ot_text_builder *out;
} ledger_html;

static const char *plain(ot_arena *arena, double value) {
  return ot_arena_format(arena, "%.4g", value);
}

static void put_dot(const ledger_html *h, const char *colour, double x, double y, double radius) {
  ot_text_appendf(h->out, "<circle class=\"dot c-%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n",
                  colour, x, y, radius);
}

static void put_stroke(const ledger_html *h, const char *colour, ot_box box) {
  ot_text_appendf(h->out, "<path class=\"curve l-%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", colour,
                  box.x, box.y, box.x + box.width, box.y + box.height);
}

static void widen(ot_scale *scale, double value) {
  if (!isfinite(value)) return;
  scale->minimum = fmin(scale->minimum, value);
  scale->maximum = fmax(scale->maximum, value);
}

static void put_ticks(const ledger_html *h, const ot_scale *x, double bottom, const char *title) {
  double ticks[OT_SCALE_TICKS];
  const int count = ot_scale_ticks(x, 8, ticks);
  for (int i = 0; i < count; i++) {
    const double at = ot_scale_at(x, ticks[i]);
    ot_chart_line(h->out, "grid", (ot_box){at, TOP, 0, bottom - TOP});
    ot_chart_text(h->out, "m dim", at, bottom + 18, ot_tick_text(h->arena, ticks[i], plain));
  }
  ot_chart_text(h->out, "m dim", (x->from + x->to) / 2, bottom + 38, title);
}

// ---- forest ----

// An interval and its estimate; `name` to the left, m with its interval to the right.
typedef struct forest_row {
  const char *name, *colour;
  double value, low, high;
  bool whole;  // the mean over scales
} forest_row;

static void put_forest_row(const ledger_html *h, const ot_scale *x, double y,
                           const forest_row *row) {
  ot_chart_text(h->out, row->whole ? "e strong" : "e dim", LEFT - 12, y + 4, row->name);
  if (!isfinite(row->value)) return;
  const double low = fmax(isfinite(row->low) ? row->low : x->minimum, x->minimum);
  const double high = fmin(isfinite(row->high) ? row->high : x->maximum, x->maximum);
  const double from = ot_scale_at(x, low), to = ot_scale_at(x, high);
  if (to > from) put_stroke(h, row->colour, (ot_box){from, y, to - from, 0});
  if (row->value >= x->minimum && row->value <= x->maximum)
    put_dot(h, row->colour, ot_scale_at(x, row->value), y, row->whole ? 5 : 3);
  if (row->whole)
    ot_chart_text(h->out, "small", OT_CHART_WIDTH - RIGHT + 8, y + 4,
                  ot_arena_format(h->arena, "%.3f [%.3f, %.3f]", exp(row->value), exp(row->low),
                                  exp(row->high)));
}

static double put_forest_change(const ledger_html *h, const ot_scale *x, double y, int64_t i) {
  const ot_ledger_policy *const p = &h->page->ledger->policy;
  const ot_ledger_row *const row = &h->page->rows[i];
  const ot_node *const values = ot_node_child(row->look, "ln_m");
  const ot_node *const bounds = ot_node_child(row->look, "ci_scale");
  const char *const colour = colours[i % COLOURS];
  const forest_row mean = {row->change,
                           colour,
                           ot_record_real(row->look, "mean"),
                           ot_record_bound(row->look, "ci", 0),
                           ot_record_bound(row->look, "ci", 1),
                           true};
  put_forest_row(h, x, y, &mean);
  for (int s = 0; s < p->num_scales && p->num_scales > 1; s++) {
    const char *const name = p->scales[s].name;
    const forest_row one = {name,
                            colour,
                            ot_record_real(values, name),
                            ot_record_bound(bounds, name, 0),
                            ot_record_bound(bounds, name, 1),
                            false};
    put_forest_row(h, x, y += ROW, &one);
  }
  return y + ROW * 1.3;
}

static int64_t count_looks(const ot_ledger_page *p) {
  int64_t count = 0;
  for (int64_t i = 0; i < p->num_rows; i++) count += p->rows[i].look != NULL;
  return count;
}

static void put_forest(const ledger_html *h) {
  const ot_ledger_page *const p = h->page;
  const ot_ledger_policy *const policy = &p->ledger->policy;
  ot_scale x = {false, -0.02, 0.02, LEFT, OT_CHART_WIDTH - RIGHT};
  for (int64_t i = 0; i < p->num_rows; i++) {
    if (!p->rows[i].look) continue;
    widen(&x, ot_record_bound(p->rows[i].look, "ci", 0));
    widen(&x, ot_record_bound(p->rows[i].look, "ci", 1));
    const ot_node *const values = ot_node_child(p->rows[i].look, "ln_m");
    for (const ot_node *at = values ? values->first : NULL; at; at = at->next)
      widen(&x, ot_record_real(values, at->key));
  }
  x.minimum = fmax(x.minimum * 1.05, -1);
  x.maximum = fmin(x.maximum * 1.05, 1);
  const double rows = policy->num_scales > 1 ? (double)policy->num_scales + 1.3 : 1.3;
  const double bottom = TOP + 12 + ROW * rows * (double)count_looks(p);
  ot_chart_begin(h->out, bottom + AXIS, "ln m of each change with its 95 % interval");
  put_ticks(h, &x, bottom, "ln m (the mean over scales, and each scale; at the right m)");
  ot_chart_line(h->out, "limit", (ot_box){ot_scale_at(&x, 0), TOP, 0, bottom - TOP});
  double y = TOP + 14;
  for (int64_t i = 0; i < p->num_rows; i++)
    if (p->rows[i].look) y = put_forest_change(h, &x, y, i);
  ot_chart_end(h->out);
}

// ---- losses against compute ----

// Means over seeds of the runs of an arm at a scale and budget.
typedef struct mean_point {
  double compute, loss;
  int count;
} mean_point;

static mean_point mean_of(const ot_ledger *l, const char *change, const char *scale,
                          double budget) {
  mean_point m = {0};
  for (int64_t i = 0; i < l->record.count; i++) {
    const ot_node *const run = l->record.line[i].tree;
    const bool own = ot_text_equal(l->record.line[i].kind, "run") &&
                     ot_text_equal(ot_record_text(run, "change"), change) &&
                     ot_text_equal(ot_record_text(run, "scale"), scale) &&
                     ot_text_equal(ot_record_text(run, "base"), l->base_hash) &&
                     ot_record_real(run, "budget") == budget &&
                     ot_record_integer(run, "seed") < l->policy.seeds.base + l->policy.seeds.count;
    if (!own || isnan(ot_record_real(run, "loss"))) continue;
    m.compute += ot_record_real(run, "model_flops");
    m.loss += ot_record_real(run, "loss");
    m.count++;
  }
  m.compute /= m.count;
  m.loss /= m.count;
  return m;
}

typedef struct ladder_chart {
  const ledger_html *h;
  ot_scale x, y;
  bool draws;  // else only measures
} ladder_chart;

static void ladder_point(ladder_chart *c, const char *colour, const mean_point *m, double radius) {
  if (m->count == 0) return;
  widen(&c->x, m->compute);
  widen(&c->y, m->loss);
  if (c->draws)
    put_dot(c->h, colour, ot_scale_at(&c->x, m->compute), ot_scale_at(&c->y, m->loss), radius);
}

// The baseline at a scale: its budgets joined by lines.
static void ladder_base(ladder_chart *c, const char *scale) {
  const ot_ledger *const l = c->h->page->ledger;
  mean_point last = {0};
  double budgets[OT_LEDGER_BUDGETS + 1] = {1};
  int count = 1;
  for (int i = 0; i < l->policy.slope.num_factors; i++)
    budgets[count++] = l->policy.slope.factors[i];
  for (int i = 1; i < count; i++)
    for (int k = i; k > 0 && budgets[k] < budgets[k - 1]; k--) {
      const double swapped = budgets[k];
      budgets[k] = budgets[k - 1];
      budgets[k - 1] = swapped;
    }
  for (int i = 0; i < count; i++) {
    const mean_point m = mean_of(l, "base", scale, budgets[i]);
    ladder_point(c, "total", &m, budgets[i] == 1 ? 5 : 3);
    if (m.count == 0) continue;
    const double x = ot_scale_at(&c->x, m.compute), y = ot_scale_at(&c->y, m.loss);
    const double before_x = ot_scale_at(&c->x, last.compute);
    const double before_y = ot_scale_at(&c->y, last.loss);
    if (c->draws && last.count > 0)
      put_stroke(c->h, "total", (ot_box){before_x, before_y, x - before_x, y - before_y});
    last = m;
  }
}

static void ladder_all(ladder_chart *c) {
  const ot_ledger_page *const p = c->h->page;
  const ot_ledger *const l = p->ledger;
  for (int s = 0; s < l->policy.num_scales; s++) {
    const char *const scale = l->policy.scales[s].name;
    ladder_base(c, scale);
    for (int64_t i = 0; i < p->num_rows; i++) {
      const mean_point m = mean_of(l, p->rows[i].change, scale, 1);
      ladder_point(c, colours[i % COLOURS], &m, 4);
    }
  }
}

static void put_loss_axis(const ladder_chart *c) {
  double ticks[OT_SCALE_TICKS];
  const int count = ot_scale_ticks(&c->y, 6, ticks);
  for (int i = 0; i < count; i++) {
    const double y = ot_scale_at(&c->y, ticks[i]);
    ot_chart_line(c->h->out, "grid", (ot_box){LEFT, y, OT_CHART_WIDTH - LEFT - 20, 0});
    ot_chart_text(c->h->out, "e dim", LEFT - 8, y + 4, plain(c->h->arena, ticks[i]));
  }
  ot_chart_text(c->h->out, "dim", 8, TOP - 12, "loss");
}

static void put_ladder(const ledger_html *h) {
  const ot_ledger_page *const p = h->page;
  ladder_chart c = {.h = h,
                    .x = {true, INFINITY, 0, LEFT, OT_CHART_WIDTH - 20},
                    .y = {false, INFINITY, -INFINITY, TOP + LADDER, TOP}};
  ladder_all(&c);
  if (!(c.x.maximum > 0)) return;
  c.x.minimum *= 0.9;
  c.x.maximum *= 1.1;
  const double room = fmax(0.05 * (c.y.maximum - c.y.minimum), 1e-4);
  c.y.minimum -= room;
  c.y.maximum += room;
  c.draws = true;
  ot_chart_key keys[16] = {{"c-total", "base", "mean"}};
  int count = 1;
  for (int64_t i = 0; i < p->num_rows && count < 16; i++)
    if (!ot_text_equal(p->rows[i].verdict, "proposed"))
      keys[count++] = (ot_chart_key){ot_arena_format(h->arena, "c-%s", colours[i % COLOURS]),
                                     p->rows[i].change, p->rows[i].verdict};
  const double bottom = TOP + LADDER;
  ot_chart_begin(h->out, bottom + AXIS + ot_chart_keys_height(count), "loss against compute");
  put_loss_axis(&c);
  put_ticks(h, &c.x, bottom, "model FLOPs of a run (log)");
  ladder_all(&c);
  ot_chart_keys(h->out, bottom + AXIS, keys, count);
  ot_chart_end(h->out);
}

// ---- a stack ----

// Bars from `from` to `to` in ln m.
static void put_step(const ledger_html *h, const ot_scale *x, double y, const forest_row *bar) {
  const double a = ot_scale_at(x, bar->low), b = ot_scale_at(x, bar->high);
  ot_chart_text(h->out, bar->whole ? "e strong" : "e", LEFT - 12, y + 12, bar->name);
  ot_chart_box(h->out, bar->colour, (ot_box){fmin(a, b), y, fmax(fabs(b - a), 1), ROW - 6}, NULL);
  ot_chart_text(h->out, "small", fmax(a, b) + 6, y + 12, plain(h->arena, bar->value));
}

static void put_stack(const ledger_html *h, const ot_node *merge) {
  const ot_node *const alone = ot_node_child(merge, "alone");
  const double whole = ot_record_real(merge, "ln_m"), gap = ot_record_real(merge, "gap");
  ot_scale x = {false, fmin(0, whole), fmax(0, whole), LEFT, OT_CHART_WIDTH - RIGHT};
  double sum = 0;
  for (const ot_node *part = alone->first; part; part = part->next)
    widen(&x, sum += ot_record_real(alone, part->key));
  const double bottom = TOP + ROW * (double)(ot_node_count(alone) + 2) + 8;
  ot_chart_begin(h->out, bottom + AXIS, "a stack: its parts alone, the gap, the whole");
  put_ticks(h, &x, bottom, "ln m, added up");
  double y = TOP + 4;
  sum = 0;
  for (const ot_node *part = alone->first; part; part = part->next, y += ROW) {
    const double value = ot_record_real(alone, part->key);
    const forest_row bar = {part->key, "c-compute", value, sum, sum + value, false};
    put_step(h, &x, y, &bar);
    sum += value;
  }
  const forest_row missing = {"gap", "c-dp", gap, sum, sum + gap, false};
  put_step(h, &x, y, &missing);
  const forest_row total = {"the stack", "c-total", whole, 0, whole, true};
  put_step(h, &x, y + ROW, &total);
  ot_chart_end(h->out);
  ot_markup_element(h->out, "p class=\"read\"", ot_record_text(merge, "verdict"));
}

// ---- the page ----

static void put_tiles(const ledger_html *h) {
  const ot_ledger_page *const p = h->page;
  const struct {
    double figure;
    const char *what;
  } tiles[] = {{p->proposed, "proposed"},
               {p->looked, "looked at"},
               {p->accepted, "accepted"},
               {p->kept, "kept in the newest stack"},
               {p->expected_false, "false claims to expect, at most"}};
  ot_text_put(h->out, "<div class=\"tiles\">\n");
  for (int i = 0; i < OT_COUNT(tiles); i++)
    ot_page_tile(h->out, plain(h->arena, tiles[i].figure), tiles[i].what);
  ot_text_put(h->out, "</div>\n");
}

static void put_cell(const ledger_html *h, double value) {
  ot_markup_element(h->out, "td", isfinite(value) ? plain(h->arena, value) : "-");
}

typedef struct heading {
  const char *text;
  bool is_text;  // of its cells
} heading;

static void begin_table(const ledger_html *h, const heading *heads, int count) {
  ot_text_put(h->out, "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>");
  for (int i = 0; i < count; i++)
    ot_markup_element(
        h->out,
        heads[i].is_text ? "th scope=\"col\" style=\"text-align:left\"" : "th scope=\"col\"",
        heads[i].text);
  ot_text_put(h->out, "</tr></thead><tbody>\n");
}

static void put_table(const ledger_html *h) {
  static const heading heads[] = {{"change", true},   {"class", true},  {"verdict", true},
                                  {"signed", true},   {"pairs", false}, {"m", false},
                                  {"low", false},     {"high", false},  {"shrunk", false},
                                  {"m total", false}, {"why", true}};
  begin_table(h, heads, OT_COUNT(heads));
  for (int64_t i = 0; i < h->page->num_rows; i++) {
    const ot_ledger_row *const row = &h->page->rows[i];
    const ot_node *const look = row->look, *const decided = row->decided;
    const double figures[] = {look ? ot_record_real(look, "pairs") : NAN,
                              look ? exp(ot_record_real(look, "mean")) : NAN,
                              look ? exp(ot_record_bound(look, "ci", 0)) : NAN,
                              look ? exp(ot_record_bound(look, "ci", 1)) : NAN,
                              decided ? ot_record_real(decided, "shrunk") : NAN,
                              decided ? ot_record_real(decided, "m_total") : NAN};
    ot_text_put(h->out, "<tr>");
    ot_markup_element(h->out, "th scope=\"row\"", row->change);
    ot_markup_element(h->out, "td class=\"t\"", row->class);
    ot_markup_element(h->out, "td class=\"t\"", row->verdict);
    ot_markup_element(h->out, "td class=\"t\"", row->signer);
    for (int k = 0; k < OT_COUNT(figures); k++) put_cell(h, figures[k]);
    ot_markup_element(h->out, "td class=\"t\"", decided ? ot_record_text(decided, "why") : "");
    ot_text_put(h->out, "</tr>\n");
  }
  ot_text_put(h->out, "</tbody></table></div>\n");
}

static void put_predictions(const ledger_html *h) {
  static const heading heads[] = {{"change", true},     {"scale", true}, {"pairs", false},
                                  {"predicted", false}, {"low", false},  {"high", false},
                                  {"found", false},     {"result", true}};
  begin_table(h, heads, OT_COUNT(heads));
  for (int64_t i = 0; i < h->page->num_predictions; i++) {
    const ot_ledger_prediction *const p = &h->page->predictions[i];
    const double figures[] = {p->pairs, p->loss, p->low, p->high, p->found};
    ot_text_put(h->out, "<tr>");
    ot_markup_element(h->out, "th scope=\"row\"", p->change);
    ot_markup_element(h->out, "td class=\"t\"", p->scale);
    for (int k = 0; k < OT_COUNT(figures); k++) put_cell(h, figures[k]);
    ot_markup_element(h->out, "td class=\"t\"", ot_ledger_prediction_word(p));
    ot_text_put(h->out, "</tr>\n");
  }
  ot_text_put(h->out, "</tbody></table></div>\n");
}

static void put_figure(const ledger_html *h, void (*put)(const ledger_html *)) {
  ot_text_put(h->out, "<figure class=\"scroll\" tabindex=\"0\">\n");
  put(h);
  ot_text_put(h->out, "</figure>\n");
}

static void put_newest_stack(const ledger_html *h) {
  put_stack(h, h->page->merges[h->page->num_merges - 1]);
}

void ot_ledger_print_html(const ot_ledger_page *page, ot_text_builder *out) {
  const ledger_html h = {page, out->arena, out};
  const bool stack = page->num_merges > 0;
  ot_page_begin(out, "Orthant ledger", "Compute multipliers", page->ledger->directory);
  ot_page_navigation(out, true);
  ot_page_link(out, "claims", "Claims");
  ot_page_link(out, "forest", "Multipliers");
  ot_page_link(out, "ladder", "Ladder");
  if (page->num_predictions > 0) ot_page_link(out, "predictions", "Predictions");
  if (stack) ot_page_link(out, "stack", "Stack");
  ot_page_navigation(out, false);
  ot_page_section(out, "claims", "Claims", NULL);
  put_tiles(&h);
  put_table(&h);
  ot_page_section_end(out);
  ot_page_section(
      out, "forest", "Multipliers",
      "A change with ln m = 0.1 reaches the loss of the baseline with about "
      "10 % less compute. Lines are 95 % intervals; left of the dashed line it costs compute.");
  if (page->ledger->policy.num_scales == 1)
    ot_markup_element(out, "p class=\"read\"",
                      "One scale: what holds at larger ones is not known.");
  put_figure(&h, put_forest);
  ot_page_section_end(out);
  ot_page_section(out, "ladder", "Loss against compute",
                  "Means over seeds. The baseline with its other budgets, whose slope turns "
                  "differences of losses into compute; changes at the compute that they took.");
  put_figure(&h, put_ladder);
  ot_page_section_end(out);
  if (page->num_predictions > 0) {
    ot_page_section(out, "predictions", "Losses predicted before they were run",
                    "Of a scale from the smaller ones, with 95 % intervals: a change has the gain "
                    "that it had there, the base falls as any convex curve can.");
    put_predictions(&h);
    ot_page_section_end(out);
  }
  if (stack) {
    ot_page_section(out, "stack", "The newest stack",
                    "The parts alone add up to more or less than the stack: the gap.");
    put_figure(&h, put_newest_stack);
    ot_page_section_end(out);
  }
  ot_text_put(out, "</main>\n</body>\n</html>\n");
}
