// SPDX-License-Identifier: Apache-2.0
// Sums, and a table of two columns.
#include "record/step_means.h"

#include <math.h>

#include "base/text.h"
#include "base/text_builder.h"

static void add(ot_step_figures *sum, const ot_step_figures *step) {
  sum->step_s += step->step_s;
  sum->bubble_fraction += step->bubble_fraction;
  for (int i = 0; i < OT_TIMELINE_PARTS; i++) sum->part_s[i] += step->part_s[i];
  for (int i = 0; i < OT_TIMELINE_AXES; i++) sum->exposed_axis_s[i] += step->exposed_axis_s[i];
}

void ot_step_means_add(ot_step_means *means, const ot_step_figures *measured,
                       const ot_step_figures *predicted) {
  const bool warm = means->warm;
  means->warm = true;
  if (!warm) return;
  means->num_steps++;
  add(&means->measured, measured);
  if (!predicted) return;
  means->num_predicted++;
  add(&means->predicted, predicted);
}

// One row: a sum over steps of each column, times `scale`.
typedef struct row {
  const char *name;
  const char *unit;
  double scale, measured, predicted;
} row;

static void print_row(const ot_step_means *means, const row *r, ot_text_builder *text) {
  const double measured = r->scale * r->measured / (double)means->num_steps;
  if (isnan(measured)) {
    ot_text_appendf(text, "\n  %-14s %9s %*s", r->name, "-", (int)ot_text_length(r->unit), "");
  } else {
    ot_text_appendf(text, "\n  %-14s %9.2f %s", r->name, measured, r->unit);
  }
  if (means->num_predicted == 0) return;
  const char *const space = ot_text_length(r->unit) < 2 ? "  " : " ";
  ot_text_appendf(text, "%s%9.2f %s", space, r->scale * r->predicted / (double)means->num_predicted,
                  r->unit);
}

static void print_parts(const ot_step_means *means, ot_text_builder *text) {
  for (int i = 0; i < OT_TIMELINE_PARTS; i++) {
    const row r = {.name = ot_timeline_part_name((ot_timeline_part)i),
                   .unit = "ms",
                   .scale = 1e3,
                   .measured = means->measured.part_s[i],
                   .predicted = means->predicted.part_s[i]};
    if (r.measured > 0 || r.predicted > 0) print_row(means, &r, text);
  }
}

static void print_exposed(const ot_step_means *means, ot_text_builder *text) {
  for (int i = 0; i < OT_TIMELINE_AXES; i++) {
    char name[32];
    ot_text_format(name, sizeof name, "exposed %s", ot_timeline_axis_name((ot_timeline_axis)i));
    const row r = {.name = name,
                   .unit = "ms",
                   .scale = 1e3,
                   .measured = means->measured.exposed_axis_s[i],
                   .predicted = means->predicted.exposed_axis_s[i]};
    if (r.measured > 0 || r.predicted > 0) print_row(means, &r, text);
  }
}

const char *ot_step_means_print(const ot_step_means *means, int ranks, ot_arena *arena) {
  if (means->num_steps == 0 || (ranks == 1 && means->num_predicted == 0)) return NULL;
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "mean of %-8ld measured%s", means->num_steps,
                  means->num_predicted > 0 ? "    predicted" : "");
  const row step = {"step", "ms", 1e3, means->measured.step_s, means->predicted.step_s};
  print_row(means, &step, &text);
  print_parts(means, &text);
  if (ranks == 1) return ot_text_builder_text(&text);
  print_exposed(means, &text);
  const row bubble = {"bubble", "%", 100, means->measured.bubble_fraction,
                      means->predicted.bubble_fraction};
  const double pipeline_s = means->measured.exposed_axis_s[OT_TIMELINE_PP];
  if (pipeline_s > 0) print_row(means, &bubble, &text);
  return ot_text_builder_text(&text);
}
