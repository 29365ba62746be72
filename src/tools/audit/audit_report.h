// SPDX-License-Identifier: Apache-2.0
// The report of an audit, as a product: a verdict, findings that name a cause and a place, and
// their figures. Insufficient evidence is inconclusive, never clean.
#pragma once

#include "base/arena.h"
#include "base/json_writer.h"
#include "judge/judge_report.h"

typedef struct ot_finding {
  const char *what;      // the cause, one word: "weights_differ"
  const char *where;     // tensor, axis, layer
  const char *evidence;  // a sentence with the measurement
  const char *advice;    // a sentence with what to try, or null
  const char *details;   // the same for programs, a JSON object, or null
} ot_finding;

typedef struct ot_audit_report {
  const char *audit;    // its name on the command line
  ot_arena *arena;      // holds all its texts
  ot_verdict verdict;   // OT_VERDICT_FINDING if and only if there are findings
  const char *summary;  // a sentence: what was compared, or why there is no conclusion
  const char *figures;  // measurements, a JSON object, or null
  const char *table;    // the same as lines of text, each ended, or null
  int num_findings;
  ot_finding *findings;  // [num_findings], most important first
  int64_t capacity;      // of findings
} ot_audit_report;

// Adds a finding, with `evidence` formatted as by ot_text_format, and sets the verdict. `what` and
// `advice` are kept, `where` is copied. The result, for adding details, is valid until the next
// call.
ot_finding *ot_audit_find(ot_audit_report *report, const char *what, const char *where,
                          const char *advice, const char *evidence, ...)
    __attribute__((format(printf, 5, 6)));

// Adds what the judge found, copied: `where` is the place of a finding that names no tensors.
void ot_audit_find_judged(ot_audit_report *report, const ot_judge_finding *found,
                          const char *where);

// Notes that something could not be checked: `why`, formatted, is appended to the summary. Without
// findings the verdict becomes inconclusive.
void ot_audit_inconclusive(ot_audit_report *report, const char *why, ...)
    __attribute__((format(printf, 2, 3)));

// {"audit","verdict","summary","findings":[{"what","where","evidence","advice","details"}],
// "figures"}, as a value of `key`.
void ot_audit_report_write(const ot_audit_report *report, ot_json_writer *json, const char *key);

// The findings alone, as values of a list.
void ot_audit_report_write_findings(const ot_audit_report *report, ot_json_writer *json);

// The report as text: several lines, each ended, in the report's arena.
const char *ot_audit_report_print(const ot_audit_report *report);
