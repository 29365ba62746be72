// SPDX-License-Identifier: Apache-2.0
// The terms of steps and memory with their colours. One bar: the whole step, term by term from left
// to right.
#include <assert.h>

#include "base/quantity.h"
#include "report/chart.h"
#include "report/markup.h"
#include "report/plan_html_parts.h"

static const char *const classes[] = {"c-compute", "c-again",   "c-tp",   "c-cp",
                                      "c-ep",      "c-pp",      "c-dp",   "c-all",
                                      "c-bubble",  "c-teacher", "c-host", "c-update"};
static_assert(sizeof classes / sizeof classes[0] == OT_STEP_TERMS, "one class for each term");

void ot_page_step_terms(const ot_estimate *e, ot_page_term *terms) {
  ot_step_term all[OT_STEP_TERMS];
  ot_step_terms(e, all);
  for (int i = 0; i < OT_STEP_TERMS; i++)
    terms[i] = (ot_page_term){all[i].name, classes[i], all[i].meaning, all[i].seconds};
}

void ot_page_memory_terms(const ot_memory_estimate *m, ot_page_term *terms) {
  const ot_page_term all[] = {
      {"weights", "c-weights", "resident on the device", (double)m->weights},
      {"gradients", "c-gradients", "accumulators", (double)m->gradients},
      {"optimizer", "c-optimizer", "moments and master weights", (double)m->optimizer},
      {"activations", "c-activations", "kept from forward to backward", (double)m->activations},
      {"gathered", "c-gathered", "weights all-gathered from other devices", (double)m->gathered},
      {"buffers", "c-buffers", "scratch, messages, batches", (double)m->buffers},
      {"teacher", "c-teacher", "weights and activations of a live teacher", (double)m->teacher},
      {"allocator", "c-loss", "fragmentation and slack", (double)(m->reserved - m->peak)},
      {"runtime", "c-context", "of the device and the communication library", (double)m->context},
  };
  static_assert(sizeof all / sizeof all[0] == OT_MEMORY_TERMS, "one row for each class");
  for (int i = 0; i < OT_MEMORY_TERMS; i++) terms[i] = all[i];
}

void ot_chart_legend(ot_text_builder *out, const char *class, const char *name, const char *text) {
  ot_text_appendf(out, "<li><i class=\"key %s\"></i>", class);
  ot_markup_text(out, name);
  if (text[0] != '\0') {
    ot_text_put(out, " ");
    ot_markup_element(out, "b", text);
  }
  ot_text_put(out, "</li>\n");
}

static void put_legend(const ot_page_term *terms, double total_s, ot_text_builder *out) {
  ot_text_put(out, "<ul class=\"legend\">\n");
  for (int i = 0; i < OT_STEP_TERMS; i++) {
    if (terms[i].value <= 0) continue;
    const char *const figure =
        ot_arena_format(out->arena, "%s, %s", ot_figure_seconds(out->arena, terms[i].value),
                        ot_figure_share(out->arena, terms[i].value / total_s));
    ot_chart_legend(out, terms[i].class, terms[i].name, figure);
  }
  ot_text_put(out, "</ul>\n");
}

void ot_chart_terms(const ot_estimate *estimate, ot_text_builder *out) {
  enum { HEIGHT = 92, TOP = 8, BAR = 44, LABEL_WIDTH = 74 };
  ot_page_term terms[OT_STEP_TERMS];
  double ticks[OT_SCALE_TICKS];
  const ot_scale scale = {.maximum = estimate->step_s, .from = 16, .to = OT_CHART_WIDTH - 24};
  ot_page_step_terms(estimate, terms);
  ot_chart_begin(out, HEIGHT, "The terms of one step as parts of a bar, listed below.");
  double start_s = 0;
  for (int i = 0; i < OT_STEP_TERMS; i++) {
    if (terms[i].value <= 0) continue;
    const double x = ot_scale_at(&scale, start_s);
    start_s += terms[i].value;
    const double width = ot_scale_at(&scale, start_s) - x;
    const char *const title =
        ot_arena_format(out->arena, "%s: %s (%s)", terms[i].name,
                        ot_figure_seconds(out->arena, terms[i].value), terms[i].meaning);
    ot_chart_box(out, terms[i].class, (ot_box){x, TOP, width, BAR}, title);
    if (width > LABEL_WIDTH) {
      ot_chart_text(out, "m on", x + width / 2, TOP + BAR / 2 + 5, terms[i].name);
    }
  }
  const int count = ot_scale_ticks(&scale, 8, ticks);
  for (int i = 0; i < count; i++) {
    const double x = ot_scale_at(&scale, ticks[i]);
    ot_chart_line(out, "tick", (ot_box){x, TOP + BAR, 0, 5});
    ot_chart_text(out, "m dim", x, TOP + BAR + 19,
                  ot_tick_text(out->arena, ticks[i], ot_figure_seconds));
  }
  ot_chart_text(out, "m dim", OT_CHART_WIDTH / 2.0, HEIGHT - 4, "time of one step");
  ot_chart_end(out);
  put_legend(terms, estimate->step_s, out);
}
