// SPDX-License-Identifier: Apache-2.0
#include "judge/judge_report.h"

#include <math.h>
#include <stdarg.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "judge/report_parts.h"

// ---- what is added ----

void ot_judge_add_part(ot_judge_report *r, const char *name, bool agrees, const char *words, ...) {
  r->parts = ot_arena_grow(r->arena, r->parts, r->num_parts, &r->parts_capacity, sizeof *r->parts);
  va_list arguments;
  va_start(arguments, words);
  r->parts[r->num_parts++] =
      (ot_judged_part){name, ot_arena_format_list(r->arena, words, arguments), agrees};
  va_end(arguments);
}

ot_judge_finding *ot_judge_find(ot_judge_report *r, const char *what) {
  r->findings = ot_arena_grow(r->arena, r->findings, r->num_findings, &r->findings_capacity,
                              sizeof *r->findings);
  ot_judge_finding *const finding = &r->findings[r->num_findings++];
  *finding = (ot_judge_finding){.what = what, .evidence = "", .confirmed = NAN};
  r->verdict = OT_VERDICT_FINDING;
  return finding;
}

void ot_judge_add_sensitivity(ot_judge_report *r, const char *what, double factor) {
  r->sensitivities = ot_arena_grow(r->arena, r->sensitivities, r->num_sensitivities,
                                   &r->sensitivities_capacity, sizeof *r->sensitivities);
  r->sensitivities[r->num_sensitivities++] = (ot_sensitivity){what, factor};
}

void ot_judge_add_figure(ot_judge_report *r, const char *name, double value) {
  r->figures =
      ot_arena_grow(r->arena, r->figures, r->num_figures, &r->figures_capacity, sizeof *r->figures);
  r->figures[r->num_figures++] = (ot_judge_figure){name, value};
}

void ot_judge_leave_open(ot_judge_report *r, const char *why, ...) {
  va_list arguments;
  va_start(arguments, why);
  const char *const text = ot_arena_format_list(r->arena, why, arguments);
  va_end(arguments);
  if (r->num_findings == 0) r->verdict = OT_VERDICT_INCONCLUSIVE;
  r->open = r->open ? ot_arena_format(r->arena, "%s; %s", r->open, text) : text;
}

// ---- text ----

static void print_finding(const ot_judge_finding *f, int number, ot_text_builder *out) {
  ot_text_appendf(out, "finding %d", number);
  if (f->record > 0) ot_text_appendf(out, " in record %d", f->record);
  ot_text_appendf(out, ": %s", f->what);
  if (f->axis) ot_text_appendf(out, " over %s", f->axis);
  if (f->factor) ot_text_appendf(out, ", factor %s", f->factor);
  if (f->tensors) ot_text_appendf(out, ", %s", f->tensors);
  ot_text_appendf(out, "\n  %s\n", f->evidence);
  if (isfinite(f->confirmed))
    ot_text_appendf(out, "  with it %.2g x own error remains\n", f->confirmed);
  if (f->advice) ot_text_appendf(out, "  try: %s\n", f->advice);
}

void ot_judge_report_put_sensitivity(const ot_judge_report *r, ot_text_builder *out) {
  if (r->num_sensitivities == 0) return;
  ot_text_put(out, "smallest fault that would have shown:");
  for (int i = 0; i < r->num_sensitivities; i++) {
    const ot_sensitivity *const s = &r->sensitivities[i];
    ot_text_appendf(out, "%s %s ", i > 0 ? "," : "", s->what);
    if (isfinite(s->factor)) ot_text_appendf(out, "%.2g", s->factor);
    if (!isfinite(s->factor)) ot_text_put(out, "none");
  }
  ot_text_put(out, "\n");
}

void ot_judge_report_put_parts(const ot_judge_report *r, ot_text_builder *out) {
  for (int i = 0; i < r->num_parts; i++) {
    ot_text_appendf(out, "  %-9s %-72s %s\n", r->parts[i].name, r->parts[i].words,
                    r->parts[i].agrees ? "agrees" : "DIFFERS");
  }
}

void ot_judge_report_put_findings(const ot_judge_report *r, ot_text_builder *out) {
  for (int i = 0; i < r->num_findings; i++) print_finding(&r->findings[i], i + 1, out);
}

void ot_judge_report_put_verdict(const ot_judge_report *r, ot_text_builder *out) {
  ot_judge_report_put_sensitivity(r, out);
  ot_text_appendf(out, "verdict: %s", ot_verdict_name(r->verdict));
  if (r->open) ot_text_appendf(out, "; not decided: %s", r->open);
  ot_text_put(out, "\n");
}

const char *ot_judge_report_print(const ot_judge_report *r) {
  ot_text_builder out = {.arena = r->arena};
  ot_text_appendf(&out, "judge: %s\n", r->step);
  ot_judge_report_put_parts(r, &out);
  ot_judge_report_put_findings(r, &out);
  ot_judge_report_put_verdict(r, &out);
  return ot_text_builder_text(&out);
}

// ---- JSON ----

static void write_findings(const ot_judge_report *r, ot_json_writer *w) {
  ot_json_array(w, "findings");
  for (int i = 0; i < r->num_findings; i++) {
    const ot_judge_finding *const f = &r->findings[i];
    ot_json_object(w, NULL);
    if (f->record > 0) ot_json_integer(w, "record", f->record);
    ot_json_text(w, "what", f->what);
    ot_json_text(w, "tensors", f->tensors);
    ot_json_text(w, "axis", f->axis);
    ot_json_text(w, "factor", f->factor);
    ot_json_text(w, "evidence", f->evidence);
    ot_json_text(w, "advice", f->advice);
    ot_json_real(w, "confirmed", f->confirmed);
    ot_json_end(w);
  }
  ot_json_end(w);
}

void ot_judge_report_write(const ot_judge_report *r, ot_json_writer *w) {
  ot_json_text(w, "verdict", ot_verdict_name(r->verdict));
  ot_json_text(w, "step", r->step);
  ot_json_array(w, "parts");
  for (int i = 0; i < r->num_parts; i++) {
    ot_json_object(w, NULL);
    ot_json_text(w, "name", r->parts[i].name);
    ot_json_boolean(w, "agrees", r->parts[i].agrees);
    ot_json_text(w, "words", r->parts[i].words);
    ot_json_end(w);
  }
  ot_json_end(w);
  write_findings(r, w);
  ot_json_object(w, "sensitivity");
  for (int i = 0; i < r->num_sensitivities; i++) {
    ot_json_real(w, r->sensitivities[i].what, r->sensitivities[i].factor);
  }
  ot_json_end(w);
  if (r->num_figures > 0) ot_json_object(w, "figures");
  for (int i = 0; i < r->num_figures; i++) ot_json_real(w, r->figures[i].name, r->figures[i].value);
  if (r->num_figures > 0) ot_json_end(w);
  ot_json_text(w, "not_decided", r->open);
}

void ot_judge_report_write_tensors(const ot_judge_report *r, ot_json_writer *w) {
  ot_json_array(w, "tensors");
  for (int t = 0; t < r->num_tensors; t++) {
    ot_json_object(w, NULL);
    ot_json_text(w, "name", r->tensors[t].name);
    ot_json_real(w, "ratio", r->tensors[t].ratio);
    ot_json_end(w);
  }
  ot_json_end(w);
}

const char *ot_judge_report_json(const ot_judge_report *r) {
  ot_json_writer w = ot_json_begin(r->arena, 2);
  ot_json_object(&w, NULL);
  ot_judge_report_write(r, &w);
  if (r->num_figures == 0) ot_judge_report_write_tensors(r, &w);
  ot_json_end(&w);
  return w.text;
}
