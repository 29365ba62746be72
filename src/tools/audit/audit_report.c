// SPDX-License-Identifier: Apache-2.0
// Reports as JSON and as text.
#include "audit/audit_report.h"

#include <stdarg.h>

#include "base/text.h"
#include "base/text_builder.h"

ot_finding *ot_audit_find(ot_audit_report *report, const char *what, const char *where,
                          const char *advice, const char *evidence, ...) {
  report->findings = ot_arena_grow(report->arena, report->findings, report->num_findings,
                                   &report->capacity, sizeof *report->findings);
  ot_finding *const finding = &report->findings[report->num_findings++];
  va_list arguments;
  va_start(arguments, evidence);
  *finding = (ot_finding){.what = what,
                          .where = ot_arena_format(report->arena, "%s", where),
                          .evidence = ot_arena_format_list(report->arena, evidence, arguments),
                          .advice = advice};
  va_end(arguments);
  report->verdict = OT_VERDICT_FINDING;
  return finding;
}

void ot_audit_find_judged(ot_audit_report *report, const ot_judge_finding *found,
                          const char *where) {
  ot_arena *const arena = report->arena;
  const char *const axis = found->axis ? ot_arena_format(arena, "over %s: ", found->axis) : "";
  const char *const factor =
      found->factor ? ot_arena_format(arena, "factor %s: ", found->factor) : "";
  ot_audit_find(report, ot_arena_format(arena, "%s", found->what),
                found->tensors ? found->tensors : where,
                found->advice ? ot_arena_format(arena, "%s", found->advice) : NULL, "%s%s%s", axis,
                factor, found->evidence);
}

void ot_audit_inconclusive(ot_audit_report *report, const char *why, ...) {
  va_list arguments;
  va_start(arguments, why);
  const char *const text = ot_arena_format_list(report->arena, why, arguments);
  va_end(arguments);
  if (report->num_findings == 0) report->verdict = OT_VERDICT_INCONCLUSIVE;
  report->summary =
      report->summary ? ot_arena_format(report->arena, "%s; %s", report->summary, text) : text;
}

static void write_finding(const ot_finding *finding, ot_json_writer *json) {
  ot_json_object(json, NULL);
  ot_json_text(json, "what", finding->what);
  ot_json_text(json, "where", finding->where);
  ot_json_text(json, "evidence", finding->evidence);
  ot_json_text(json, "advice", finding->advice);
  if (finding->details) ot_json_raw(json, "details", finding->details);
  ot_json_end(json);
}

void ot_audit_report_write_findings(const ot_audit_report *report, ot_json_writer *json) {
  for (int i = 0; i < report->num_findings; i++) write_finding(&report->findings[i], json);
}

void ot_audit_report_write(const ot_audit_report *report, ot_json_writer *json, const char *key) {
  ot_json_object(json, key);
  ot_json_text(json, "audit", report->audit);
  ot_json_text(json, "verdict", ot_verdict_name(report->verdict));
  ot_json_text(json, "summary", report->summary);
  ot_json_array(json, "findings");
  ot_audit_report_write_findings(report, json);
  ot_json_end(json);
  if (report->figures) ot_json_raw(json, "figures", report->figures);
  ot_json_end(json);
}

const char *ot_audit_report_print(const ot_audit_report *report) {
  ot_text_builder text = {.arena = report->arena};
  ot_text_appendf(&text, "%s: %s\n", report->audit, ot_verdict_name(report->verdict));
  if (report->summary) ot_text_appendf(&text, "  %s\n", report->summary);
  if (report->table) ot_text_put(&text, report->table);
  for (int i = 0; i < report->num_findings; i++) {
    const ot_finding *const finding = &report->findings[i];
    ot_text_appendf(&text, "finding %d: %s  %s\n  %s\n", i + 1, finding->what, finding->where,
                    finding->evidence);
    if (finding->advice) ot_text_appendf(&text, "  try: %s\n", finding->advice);
  }
  return ot_text_builder_text(&text);
}
