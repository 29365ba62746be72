// SPDX-License-Identifier: Apache-2.0
// One bar per stage. Equal stages are not merged, so that the chart shows the balance.
#include "base/quantity.h"
#include "report/chart.h"
#include "report/plan_html_parts.h"

enum { LEFT = 76, RIGHT = 150, TOP = 26, BOTTOM = 46, LABEL_HEIGHT = 11 };

typedef struct memory_chart {
  const ot_page_plan *plan;
  ot_text_builder *out;
  ot_scale scale;
  double row;  // height of a stage
  int stages;
} memory_chart;

static double used_of(const ot_memory_estimate *m) { return (double)(m->reserved + m->context); }

static void put_stage(const memory_chart *c, int stage) {
  ot_arena *const arena = c->out->arena;
  const ot_memory_estimate *const m = &c->plan->stages[stage].memory;
  const double y = TOP + stage * c->row, middle = y + c->row / 2 + 4;
  ot_page_term terms[OT_MEMORY_TERMS];
  double sum = 0;
  ot_page_memory_terms(m, terms);
  for (int i = 0; i < OT_MEMORY_TERMS; i++) {
    if (terms[i].value <= 0) continue;
    const double x = ot_scale_at(&c->scale, sum);
    sum += terms[i].value;
    const char *const title =
        ot_arena_format(arena, "stage %d, %s: %s (%s)", stage, terms[i].name,
                        ot_figure_bytes(arena, terms[i].value), terms[i].meaning);
    ot_chart_box(c->out, terms[i].class,
                 (ot_box){x, y + 1, ot_scale_at(&c->scale, sum) - x, c->row - 2}, title);
  }
  const int every = c->row >= LABEL_HEIGHT ? 1 : (int)(LABEL_HEIGHT / c->row) + 1;
  if (stage % every != 0) return;
  ot_chart_text(c->out, "e", LEFT - 8, middle, ot_arena_format(arena, "stage %d", stage));
  ot_chart_text(c->out, "", ot_scale_at(&c->scale, sum) + 6, middle,
                ot_arena_format(arena, "%s, %.0f%%", ot_figure_bytes(arena, used_of(m)),
                                100 * used_of(m) / (double)m->capacity));
}

static void put_axes(const memory_chart *c) {
  ot_arena *const arena = c->out->arena;
  double ticks[OT_SCALE_TICKS];
  const double bottom = TOP + c->stages * c->row;
  const int count = ot_scale_ticks(&c->scale, 8, ticks);
  for (int i = 0; i < count; i++) {
    const double x = ot_scale_at(&c->scale, ticks[i]);
    ot_chart_line(c->out, "grid", (ot_box){x, TOP, 0, bottom - TOP});
    ot_chart_text(c->out, "m dim", x, bottom + 17, ot_tick_text(arena, ticks[i], ot_figure_bytes));
  }
  ot_chart_text(c->out, "m dim", (LEFT + OT_CHART_WIDTH - RIGHT) / 2.0, bottom + 36,
                "memory of each device of the stage");
}

static void put_capacity(const memory_chart *c) {
  const double capacity = (double)c->plan->estimate->memory.capacity;
  const double x = ot_scale_at(&c->scale, capacity);
  ot_chart_line(c->out, "limit", (ot_box){x, TOP - 6, 0, c->stages * c->row + 10});
  ot_chart_text(
      c->out, "m strong", x, TOP - 11,
      ot_arena_format(c->out->arena, "capacity %s", ot_figure_bytes(c->out->arena, capacity)));
}

static void put_legend(const memory_chart *c) {
  ot_page_term terms[OT_MEMORY_TERMS], fullest[OT_MEMORY_TERMS];
  ot_page_memory_terms(&c->plan->estimate->memory, fullest);
  ot_text_put(c->out, "<ul class=\"legend\">\n");
  for (int i = 0; i < OT_MEMORY_TERMS; i++) {
    double most = 0;
    for (int stage = 0; stage < c->stages; stage++) {
      ot_page_memory_terms(&c->plan->stages[stage].memory, terms);
      if (terms[i].value > most) most = terms[i].value;
    }
    if (most <= 0) continue;
    ot_chart_legend(c->out, fullest[i].class, fullest[i].name,
                    ot_figure_bytes(c->out->arena, fullest[i].value));
  }
  ot_text_put(c->out, "</ul>\n");
}

void ot_chart_memory(const ot_page_plan *plan, ot_text_builder *out) {
  memory_chart c = {.plan = plan, .out = out, .stages = plan->estimate->candidate.pp};
  double most = (double)plan->estimate->memory.capacity;
  for (int i = 0; i < c.stages; i++) {
    if (used_of(&plan->stages[i].memory) > most) most = used_of(&plan->stages[i].memory);
  }
  const double even = 420.0 / c.stages;
  c.row = even > 28 ? 28 : even < 6 ? 6 : even;
  c.scale = (ot_scale){.maximum = most * 1.02, .from = LEFT, .to = OT_CHART_WIDTH - RIGHT};
  ot_chart_begin(out, TOP + c.stages * c.row + BOTTOM,
                 "Memory of each stage by class against the capacity of a device; the table below "
                 "has the figures.");
  put_axes(&c);
  for (int i = 0; i < c.stages; i++) put_stage(&c, i);
  put_capacity(&c);
  ot_chart_end(out);
  put_legend(&c);
}
