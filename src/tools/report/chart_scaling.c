// SPDX-License-Identifier: Apache-2.0
// Both axes are logarithmic: terms that fall in proportion are straight lines down, constant terms
// are flat, and their crossing is the point of the chart.
#include "base/quantity.h"
#include "report/chart.h"
#include "report/markup.h"
#include "report/plan_html_parts.h"

enum { LEFT = 76, RIGHT = 118, TOP = 30, HEIGHT = 400, BOTTOM = 46, LINES = OT_STEP_TERMS + 1 };

// The label at the right end of a line.
typedef struct end_label {
  const char *name, *class;
  double y;
} end_label;

typedef struct scaling_chart {
  const ot_scaling_chart *request;
  ot_text_builder *out;
  ot_scale x, y;
  end_label label[LINES];
  int num_labels;
} scaling_chart;

static double value_of(const scaling_chart *c, int point, int term) {
  const ot_estimate *const e = &c->request->scaling->estimate[point];
  ot_page_term terms[OT_STEP_TERMS];
  if (term == OT_STEP_TERMS) return e->step_s;
  ot_page_step_terms(e, terms);
  return terms[term].value;
}

static void put_points(const scaling_chart *c, int term, const ot_page_term *what) {
  const ot_scaling *const s = c->request->scaling;
  for (int i = 0; i < s->num; i++) {
    const double value = value_of(c, i, term);
    if (value < c->y.minimum) continue;
    ot_text_appendf(c->out, "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\">",
                    what->class, ot_scale_at(&c->x, s->devices[i]), ot_scale_at(&c->y, value));
    ot_markup_element(c->out, "title",
                      ot_arena_format(c->out->arena, "%d devices, %s: %s", s->devices[i],
                                      what->name, ot_figure_seconds(c->out->arena, value)));
    ot_text_put(c->out, "</circle>\n");
  }
}

// A line is interrupted where its values are below the minimum of the axis.
static void put_line(scaling_chart *c, int term, const ot_page_term *what) {
  const ot_scaling *const s = c->request->scaling;
  bool open = false, any = false;
  double last_y = 0;
  for (int i = 0; i < s->num; i++) {
    const double value = value_of(c, i, term);
    if (value < c->y.minimum) {
      open = false;
      continue;
    }
    if (!any) ot_text_appendf(c->out, "<path class=\"curve l%s\" d=\"", what->class + 1);
    any = true;
    last_y = ot_scale_at(&c->y, value);
    ot_text_appendf(c->out, "%c%.1f %.1f", open ? 'L' : 'M', ot_scale_at(&c->x, s->devices[i]),
                    last_y);
    open = true;
  }
  if (!any) return;
  ot_text_put(c->out, "\"/>\n");
  put_points(c, term, what);
  if (open) c->label[c->num_labels++] = (end_label){what->name, what->class, last_y};
}

// Labels keep their order and a minimum distance.
static void put_labels(scaling_chart *c) {
  enum { DISTANCE = 14 };
  for (int i = 1; i < c->num_labels; i++) {
    for (int k = i; k > 0 && c->label[k].y < c->label[k - 1].y; k--) {
      const end_label swapped = c->label[k];
      c->label[k] = c->label[k - 1];
      c->label[k - 1] = swapped;
    }
  }
  for (int i = 1; i < c->num_labels; i++) {
    const double least = c->label[i - 1].y + DISTANCE;
    if (c->label[i].y < least) c->label[i].y = least;
  }
  for (int i = 0; i < c->num_labels; i++) {
    ot_chart_text(c->out, "", OT_CHART_WIDTH - RIGHT + 10, c->label[i].y + 4, c->label[i].name);
  }
}

static void put_axes(const scaling_chart *c) {
  const ot_scaling *const s = c->request->scaling;
  ot_arena *const arena = c->out->arena;
  double ticks[OT_SCALE_TICKS];
  const double bottom = TOP + HEIGHT;
  const int count = ot_scale_ticks(&c->y, 6, ticks);
  for (int i = 0; i < count; i++) {
    const double y = ot_scale_at(&c->y, ticks[i]);
    ot_chart_line(c->out, "grid", (ot_box){LEFT, y, OT_CHART_WIDTH - LEFT - RIGHT, 0});
    ot_chart_text(c->out, "e dim", LEFT - 8, y + 4, ot_figure_seconds(arena, ticks[i]));
  }
  const int every = s->num > 14 ? 2 : 1;
  for (int i = 0; i < s->num; i++) {
    const double x = ot_scale_at(&c->x, s->devices[i]);
    ot_chart_line(c->out, "tick", (ot_box){x, bottom, 0, 5});
    if (i % every == 0) {
      ot_chart_text(c->out, "m dim", x, bottom + 18, ot_arena_format(arena, "%d", s->devices[i]));
    }
  }
  ot_chart_text(c->out, "m dim", (LEFT + OT_CHART_WIDTH - RIGHT) / 2.0, bottom + 38,
                ot_arena_format(arena, "devices (log), %lld sequences a step throughout",
                                (long long)c->request->global_batch_size));
  ot_chart_text(c->out, "dim", 8, TOP - 14, "time of a step (log)");
}

static void put_job(const scaling_chart *c) {
  const double devices = c->request->devices;
  if (devices < c->x.minimum || devices > c->x.maximum) return;
  const double x = ot_scale_at(&c->x, devices);
  const bool right = x > LEFT + 0.7 * (OT_CHART_WIDTH - LEFT - RIGHT);
  ot_chart_line(c->out, "limit", (ot_box){x, TOP, 0, HEIGHT});
  ot_chart_text(c->out, right ? "e strong" : "strong", x + (right ? -5 : 5), TOP - 3, "this job");
}

static void find_scales(scaling_chart *c) {
  const ot_scaling *const s = c->request->scaling;
  double most = 0, least = 1e300;
  for (int i = 0; i < s->num; i++) {
    for (int term = 0; term <= OT_STEP_TERMS; term++) {
      const double value = value_of(c, i, term);
      if (value > most) most = value;
      if (value > 0 && value < least) least = value;
    }
  }
  if (least < most / 5000) least = most / 5000;
  const double first = s->devices[0], last = s->devices[s->num - 1];
  c->x = (ot_scale){.log = true,
                    .minimum = s->num > 1 ? first : first / 2,
                    .maximum = s->num > 1 ? last : last * 2,
                    .from = LEFT + 8,
                    .to = OT_CHART_WIDTH - RIGHT - 4};
  c->y = (ot_scale){
      .log = true, .minimum = least / 1.2, .maximum = most * 1.2, .from = TOP + HEIGHT, .to = TOP};
}

static void put_legend(const scaling_chart *c) {
  ot_page_term terms[OT_STEP_TERMS];
  ot_page_step_terms(&c->request->scaling->estimate[0], terms);
  ot_text_put(c->out, "<ul class=\"legend\">\n");
  ot_chart_legend(c->out, "c-total", "the whole step", "");
  for (int i = 0; i < OT_STEP_TERMS; i++) {
    bool seen = false;
    for (int k = 0; k < c->request->scaling->num; k++) {
      if (value_of(c, k, i) >= c->y.minimum) seen = true;
    }
    if (seen) ot_chart_legend(c->out, terms[i].class, terms[i].name, "");
  }
  ot_text_put(c->out, "</ul>\n");
}

void ot_chart_scaling(const ot_scaling_chart *request, ot_text_builder *out) {
  static const ot_page_term total = {.name = "step", .class = "c-total"};
  scaling_chart c = {.request = request, .out = out};
  ot_page_term terms[OT_STEP_TERMS];
  if (request->scaling->num == 0) return;
  ot_page_step_terms(&request->scaling->estimate[0], terms);
  find_scales(&c);
  ot_chart_begin(out, TOP + HEIGHT + BOTTOM,
                 "Terms of the step time against the number of devices; the table below has the "
                 "figures.");
  put_axes(&c);
  put_job(&c);
  for (int i = 0; i < OT_STEP_TERMS; i++) put_line(&c, i, &terms[i]);
  put_line(&c, OT_STEP_TERMS, &total);
  put_labels(&c);
  ot_chart_end(out);
  put_legend(&c);
}
