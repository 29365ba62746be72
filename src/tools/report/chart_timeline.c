// SPDX-License-Identifier: Apache-2.0
// Actions of the same look share one path, so that steps of thousands of actions stay small. If
// they are too thin to distinguish, the beginning and the end of the step are drawn enlarged, too.
#include "base/quantity.h"
#include "report/chart.h"
#include "report/plan_html_parts.h"

enum {
  LEFT = 76,
  RIGHT = 16,
  TOP = 8,
  BOTTOM = 44,
  MOST_ACTIONS = 20000,  // of a drawing
  MOST_READABLE = 150,   // of a stage in a drawing
  ENLARGED = 56,         // of a stage in an enlarged part
  LABEL_WIDTH = 15,
  LABEL_HEIGHT = 13,
  SHADES = 4,
};

static const struct {
  const char *class, *name;
} kinds[] = {
    [OT_REPLAYED_FORWARD] = {"c-forward", "forward"},
    [OT_REPLAYED_BACKWARD] = {"c-backward", "backward"},
    [OT_REPLAYED_WEIGHT] = {"c-weight", "weight gradients"},
    [OT_REPLAYED_UPDATE] = {"c-update", "norm and update"},
};

typedef struct timeline_chart {
  const ot_candidate *candidate;
  const ot_replayed_step *step;
  ot_text_builder *out;
  ot_scale scale;  // of a part of the step
  double row;
  bool thin;  // too thin for edges
} timeline_chart;

// Chunks of a stage get lighter, the first is darkest.
static int shade_of(const timeline_chart *c, const ot_replayed_action *a) {
  const int chunk = a->chunk < 0 ? 0 : a->chunk / c->candidate->pp;
  return chunk < SHADES ? chunk : SHADES - 1;
}

static bool is_shown(const timeline_chart *c, const ot_replayed_action *a) {
  return a->end_s > c->scale.minimum && a->start_s < c->scale.maximum;
}

static ot_box box_of(const timeline_chart *c, const ot_replayed_action *a) {
  const double from_s = a->start_s > c->scale.minimum ? a->start_s : c->scale.minimum;
  const double to_s = a->end_s < c->scale.maximum ? a->end_s : c->scale.maximum;
  const double x = ot_scale_at(&c->scale, from_s);
  return (ot_box){x, TOP + a->stage * c->row + 1, ot_scale_at(&c->scale, to_s) - x, c->row - 2};
}

static void put_kind(const timeline_chart *c, ot_replayed_kind kind, int shade) {
  bool begun = false;
  for (int64_t i = 0; i < c->step->num_actions; i++) {
    const ot_replayed_action *const a = &c->step->actions[i];
    if (a->kind != kind || shade_of(c, a) != shade || !is_shown(c, a)) continue;
    const ot_box box = box_of(c, a);
    if (!begun)
      ot_text_appendf(c->out, "<path class=\"%s%s s%d\" d=\"", c->thin ? "" : "act ",
                      kinds[kind].class, shade);
    begun = true;
    ot_text_appendf(c->out, "M%.1f %.1fh%.1fv%.1fh-%.1fz", box.x, box.y, box.width, box.height,
                    box.width);
  }
  if (begun) ot_text_put(c->out, "\"/>\n");
}

static void put_numbers(const timeline_chart *c) {
  if (c->row < LABEL_HEIGHT) return;
  for (int64_t i = 0; i < c->step->num_actions; i++) {
    const ot_replayed_action *const a = &c->step->actions[i];
    if (a->micro_batch < 0 || !is_shown(c, a)) continue;
    const ot_box box = box_of(c, a);
    if (box.width < LABEL_WIDTH) continue;
    ot_chart_text(c->out, "m on small", box.x + box.width / 2, box.y + box.height / 2 + 4,
                  ot_arena_format(c->out->arena, "%d", a->micro_batch));
  }
}

static void put_axes(const timeline_chart *c, const char *label) {
  ot_arena *const arena = c->out->arena;
  const int stages = c->candidate->pp;
  const int every = c->row >= 11 ? 1 : (int)(11 / c->row) + 1;
  const double bottom = TOP + stages * c->row;
  double ticks[OT_SCALE_TICKS];
  ot_chart_box(c->out, "idle", (ot_box){LEFT, TOP, OT_CHART_WIDTH - LEFT - RIGHT, bottom - TOP},
               NULL);
  for (int i = 0; i < stages; i += every) {
    ot_chart_text(c->out, "e", LEFT - 8, TOP + i * c->row + c->row / 2 + 4,
                  ot_arena_format(arena, "stage %d", i));
  }
  const int count = ot_scale_ticks(&c->scale, 8, ticks);
  for (int i = 0; i < count; i++) {
    const double x = ot_scale_at(&c->scale, ticks[i]);
    ot_chart_line(c->out, "tick", (ot_box){x, bottom, 0, 5});
    ot_chart_text(c->out, "m dim", x, bottom + 18,
                  ot_tick_text(arena, ticks[i], ot_figure_seconds));
  }
  ot_chart_text(c->out, "m dim", (LEFT + OT_CHART_WIDTH - RIGHT) / 2.0, bottom + 37, label);
}

static void put_part(timeline_chart *c, double from_s, double to_s, const char *label) {
  c->scale =
      (ot_scale){.minimum = from_s, .maximum = to_s, .from = LEFT, .to = OT_CHART_WIDTH - RIGHT};
  ot_chart_begin(c->out, TOP + c->candidate->pp * c->row + BOTTOM,
                 "Activity of each stage over one step: forward, backward, update, idle.");
  put_axes(c, label);
  for (int kind = 0; kind < OT_REPLAYED_KINDS; kind++) {
    for (int shade = 0; shade < SHADES; shade++) put_kind(c, (ot_replayed_kind)kind, shade);
  }
  put_numbers(c);
  ot_chart_end(c->out);
}

static void put_legend(const timeline_chart *c) {
  bool seen[OT_REPLAYED_KINDS] = {false};
  for (int64_t i = 0; i < c->step->num_actions; i++) seen[c->step->actions[i].kind] = true;
  ot_text_put(c->out, "<ul class=\"legend\">\n");
  for (int i = 0; i < OT_REPLAYED_KINDS; i++) {
    if (seen[i]) ot_chart_legend(c->out, kinds[i].class, kinds[i].name, "");
  }
  ot_chart_legend(c->out, "idle", "idle", "");
  ot_text_put(c->out, "</ul>\n");
}

void ot_chart_timeline(const ot_candidate *candidate, const ot_replayed_step *step,
                       ot_text_builder *out) {
  timeline_chart c = {.candidate = candidate, .step = step, .out = out};
  const double even = 440.0 / candidate->pp;
  const double of_stage = (double)step->num_actions / candidate->pp;
  c.row = even > 30 ? 30 : even < 7 ? 7 : even;
  c.thin = of_stage > MOST_READABLE;
  if (step->num_actions <= MOST_ACTIONS) {
    put_part(&c, 0, step->total_s, "time from the start of the step");
  }
  if (c.thin) {
    const double part_s = step->total_s * ENLARGED / of_stage;
    c.thin = false;
    put_part(&c, 0, part_s, "its beginning, enlarged");
    put_part(&c, step->total_s - part_s, step->total_s, "its end, enlarged");
  }
  put_legend(&c);
}
