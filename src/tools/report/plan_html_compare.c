// SPDX-License-Identifier: Apache-2.0
// Plan 1 and the configurations of --compare, term by term: bars on one scale, and a table of the
// terms with what each adds or saves.
#include "base/quantity.h"
#include "report/chart.h"
#include "report/markup.h"
#include "report/page_frame.h"
#include "report/plan_html_parts.h"

enum { LEFT = 190, RIGHT = 100, TOP = 8, ROW = 44, BAR = 26, BOTTOM = 40, LABEL = 60 };

typedef struct comparison {
  const ot_plan_page *page;
  ot_text_builder *out;
  ot_arena *arena;  // of `out`
  int count;        // plan 1 and the others
  ot_scale x;
} comparison;

static const ot_page_plan *plan_of(const comparison *c, int i) {
  return i == 0 ? &c->page->plans[0] : &c->page->compared[i - 1].plan;
}

static const char *name_of(const comparison *c, int i) {
  return i == 0 ? "plan 1" : c->page->compared[i - 1].name;
}

static ot_interval range_of(const comparison *c, int i) {
  const ot_page_plan *const plan = plan_of(c, i);
  return ot_interval_80(plan->estimate->step_s, plan->doubt.step_variance);
}

static void put_bar(const comparison *c, int i) {
  ot_page_term terms[OT_STEP_TERMS];
  const ot_estimate *const e = plan_of(c, i)->estimate;
  const double y = TOP + i * ROW;
  double start_s = 0;
  ot_page_step_terms(e, terms);
  ot_chart_text(c->out, i == 0 ? "e strong" : "e", LEFT - 10, y + BAR / 2 + 5, name_of(c, i));
  for (int t = 0; t < OT_STEP_TERMS; t++) {
    if (terms[t].value <= 0) continue;
    const double x = ot_scale_at(&c->x, start_s);
    start_s += terms[t].value;
    const double width = ot_scale_at(&c->x, start_s) - x;
    const char *const title =
        ot_arena_format(c->arena, "%s, %s: %s (%s)", name_of(c, i), terms[t].name,
                        ot_figure_seconds(c->arena, terms[t].value), terms[t].meaning);
    ot_chart_box(c->out, terms[t].class, (ot_box){x, y, width, BAR}, title);
    if (width > LABEL + 14) {
      ot_chart_text(c->out, "m on", x + width / 2, y + BAR / 2 + 5, terms[t].name);
    }
  }
  // The interval of the step, under its bar.
  const ot_interval range = range_of(c, i);
  const double low = ot_scale_at(&c->x, range.low), high = ot_scale_at(&c->x, range.high);
  ot_chart_line(c->out, "tick", (ot_box){low, y + BAR + 6, high - low, 0});
  ot_chart_line(c->out, "tick", (ot_box){low, y + BAR + 3, 0, 6});
  ot_chart_line(c->out, "tick", (ot_box){high, y + BAR + 3, 0, 6});
}

static void put_axis(const comparison *c) {
  double ticks[OT_SCALE_TICKS];
  const double bottom = TOP + c->count * ROW;
  const int count = ot_scale_ticks(&c->x, 6, ticks);
  for (int i = 0; i < count; i++) {
    const double x = ot_scale_at(&c->x, ticks[i]);
    ot_chart_line(c->out, "grid", (ot_box){x, TOP, 0, bottom - TOP});
    ot_chart_text(c->out, "m dim", x, bottom + 16,
                  ot_tick_text(c->arena, ticks[i], ot_figure_seconds));
  }
  ot_chart_text(c->out, "m dim", (LEFT + OT_CHART_WIDTH - RIGHT) / 2.0, bottom + 34,
                "time of a step");
}

static bool any_value(const comparison *c, int term) {
  for (int i = 0; i < c->count; i++) {
    ot_page_term terms[OT_STEP_TERMS];
    ot_page_step_terms(plan_of(c, i)->estimate, terms);
    if (terms[term].value > 0) return true;
  }
  return false;
}

static void put_legend(const comparison *c) {
  ot_page_term terms[OT_STEP_TERMS];
  ot_page_step_terms(plan_of(c, 0)->estimate, terms);
  ot_text_put(c->out, "<ul class=\"legend\">\n");
  for (int t = 0; t < OT_STEP_TERMS; t++) {
    if (any_value(c, t)) ot_chart_legend(c->out, terms[t].class, terms[t].name, "");
  }
  ot_text_put(c->out, "</ul>\n");
}

// "1.2 s", and for others how much more or less than plan 1.
static void put_cell(const comparison *c, double value, double first, bool is_first) {
  const char *const here = value > 0 ? ot_figure_seconds(c->arena, value) : "0";
  const double more = value - first;
  const char *const delta = ot_figure_seconds(c->arena, more < 0 ? -more : more);
  ot_markup_element(c->out, "td",
                    is_first || more == 0 ? here
                                          : ot_arena_format(c->arena, "%s (%s%s)", here,
                                                            more < 0 ? "-" : "+", delta));
}

static void put_table(const comparison *c) {
  ot_page_term first[OT_STEP_TERMS], terms[OT_STEP_TERMS];
  ot_page_step_terms(plan_of(c, 0)->estimate, first);
  ot_text_put(c->out, "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th></th>");
  for (int i = 0; i < c->count; i++) ot_markup_element(c->out, "th", name_of(c, i));
  ot_text_put(c->out, "</tr></thead><tbody>\n");
  for (int t = 0; t <= OT_STEP_TERMS; t++) {
    const bool sum = t == OT_STEP_TERMS;
    if (!sum && !any_value(c, t)) continue;
    ot_text_put(c->out, sum ? "<tr class=\"best\">" : "<tr>");
    ot_markup_element(c->out, "th scope=\"row\"", sum ? "step" : first[t].name);
    for (int i = 0; i < c->count; i++) {
      const ot_estimate *const e = plan_of(c, i)->estimate;
      ot_page_step_terms(e, terms);
      put_cell(c, sum ? e->step_s : terms[t].value,
               sum ? plan_of(c, 0)->estimate->step_s : first[t].value, i == 0);
    }
    ot_text_put(c->out, "</tr>\n");
  }
  ot_text_put(c->out, "<tr><th scope=\"row\">in 4 of 5 cases</th>");
  for (int i = 0; i < c->count; i++) {
    ot_markup_element(c->out, "td", ot_page_step_range(plan_of(c, i), c->arena));
  }
  ot_text_put(c->out, "</tr>\n<tr><th scope=\"row\">memory</th>");
  for (int i = 0; i < c->count; i++) {
    const ot_memory_estimate *const m = &plan_of(c, i)->estimate->memory;
    ot_markup_element(c->out, "td", ot_figure_bytes(c->arena, (double)(m->reserved + m->context)));
  }
  ot_text_put(c->out, "</tr></tbody></table></div>\n");
}

static void put_reasons(const comparison *c) {
  for (int i = 1; i < c->count; i++) {
    const ot_page_compared *const other = &c->page->compared[i - 1];
    ot_markup_element(c->out, "h3",
                      ot_arena_format(c->arena, "%s compared with plan 1", other->name));
    ot_markup_list(c->out, "ul", other->plan.why.text, other->plan.why.num);
    if (other->first.num == 0) continue;
    ot_markup_element(
        c->out, "h3",
        ot_arena_format(c->arena, "%s compared with %s", other->name, c->page->compared[0].name));
    ot_markup_list(c->out, "ul", other->first.text, other->first.num);
  }
}

void ot_html_compared(const ot_plan_page *page, ot_text_builder *out) {
  comparison c = {.page = page, .out = out, .arena = out->arena, .count = page->num_compared + 1};
  double most = 0;
  for (int i = 0; i < c.count; i++) {
    const ot_interval range = range_of(&c, i);
    if (range.high > most) most = range.high;
  }
  c.x = (ot_scale){.maximum = most, .from = LEFT, .to = OT_CHART_WIDTH - RIGHT};
  ot_page_section(
      out, "compared", "Compared, term by term",
      "How to read: a bar is one step of the busiest stage, by term; the line under it "
      "holds the measured step in 4 of 5 cases. In brackets: more or less than plan 1.");
  ot_text_put(out, "<figure>\n");
  ot_chart_begin(out, TOP + c.count * ROW + BOTTOM,
                 "Steps of plan 1 and of the compared configurations; the table has the figures.");
  put_axis(&c);
  for (int i = 0; i < c.count; i++) put_bar(&c, i);
  ot_chart_end(out);
  put_legend(&c);
  ot_text_put(out, "</figure>\n");
  put_table(&c);
  put_reasons(&c);
  ot_page_section_end(out);
}
