// SPDX-License-Identifier: Apache-2.0
// A line for each step, and the same as an object.
#include "answer/plan_calibrated.h"

#include "base/math.h"
#include "base/quantity.h"
#include "base/text.h"

void ot_calibration_print(const ot_calibration_report *report, ot_text_builder *out) {
  const ot_calibration *const c = &report->calibration;
  ot_arena *const a = out->arena;
  ot_text_appendf(out, "calibrated by %d step%s: computation takes %.3f of the time predicted, ",
                  report->count, ot_text_plural(report->count, "s"), c->compute);
  ot_text_appendf(out, "exposed communication %.3f\n", c->exposed);
  for (int i = 0; i < report->count; i++) {
    const ot_calibrated_step *const s = &report->steps[i];
    ot_text_appendf(out, "  %-12s measured %s, predicted %s, calibrated %+.1f %%%s\n", s->name,
                    ot_figure_seconds(a, s->measured_s), ot_figure_seconds(a, s->predicted_s),
                    100 * (ot_exp(-s->row.residual) - 1),
                    s->row.contradicts ? ": contradicts the others" : "");
  }
  ot_text_appendf(out, "  wrote %s\n\n", report->cluster_path);
}

void ot_calibration_write(const ot_calibration_report *report, ot_json_writer *w) {
  ot_json_object(w, "calibration");
  ot_json_real(w, "compute", report->calibration.compute);
  ot_json_real(w, "exposed", report->calibration.exposed);
  ot_json_text(w, "cluster", report->cluster_path);
  ot_json_array(w, "steps");
  for (int i = 0; i < report->count; i++) {
    const ot_calibrated_step *const s = &report->steps[i];
    ot_json_object(w, NULL);
    ot_json_text(w, "name", s->name);
    ot_json_real(w, "measured_seconds", s->measured_s);
    ot_json_real(w, "predicted_seconds", s->predicted_s);
    ot_json_real(w, "residual", s->row.residual);
    ot_json_boolean(w, "contradicts", s->row.contradicts);
    ot_json_end(w);
  }
  ot_json_end(w);
  ot_json_end(w);
}
