// SPDX-License-Identifier: Apache-2.0
// What an audit says, as a product: a verdict, findings that name a mechanism and a place, and the
// figures they rest on. "Not enough to go on" is inconclusive, never clean.
#pragma once

#include "base/arena.h"
#include "base/json_writer.h"

typedef enum ot_verdict {
  OT_VERDICT_CLEAN,
  OT_VERDICT_FINDING,
  OT_VERDICT_INCONCLUSIVE,
} ot_verdict;

typedef struct ot_finding {
  const char *what;      // the mechanism, one word: "weights_differ"
  const char *where;     // tensor, axis, layer
  const char *evidence;  // a sentence with what was measured
  const char *advice;    // what to try, a sentence, or null
  const char *details;   // the same for programs, one JSON object, or null
} ot_finding;

typedef struct ot_audit_report {
  const char *audit;    // its name on the command line
  ot_arena *arena;      // that all its texts live in
  ot_verdict verdict;   // OT_VERDICT_FINDING exactly where there are findings
  const char *summary;  // a sentence: what was looked at, or why nothing can be said
  const char *figures;  // what was measured, one JSON object, or null
  const char *table;    // the same as lines of text, each ended, or null
  int num_findings;
  ot_finding *findings;  // [num_findings], the most telling first
  int64_t capacity;      // of findings
} ot_audit_report;

// Adds a finding, whose evidence is formatted as ot_text_format does, and makes the verdict one.
// `what` and `advice` are kept, `where` is copied. The result, to add details to, is good until the
// next one.
ot_finding *ot_audit_find(ot_audit_report *report, const char *what, const char *where,
                          const char *advice, const char *evidence, ...)
    __attribute__((format(printf, 5, 6)));

// Notes that something the audit is for could not be looked at: `why`, formatted, which follows the
// summary. Without findings the verdict is inconclusive.
void ot_audit_leave_open(ot_audit_report *report, const char *why, ...)
    __attribute__((format(printf, 2, 3)));

// {"audit","verdict","summary","findings":[{"what","where","evidence","advice","details"}],
// "figures"}, as a value of `key`.
void ot_audit_report_write(const ot_audit_report *report, ot_json_writer *json, const char *key);

// The findings alone, as values of a list.
void ot_audit_report_write_findings(const ot_audit_report *report, ot_json_writer *json);

// The same for people: several lines, each ended, in the report's arena.
const char *ot_audit_report_print(const ot_audit_report *report);

// "clean", "finding", "inconclusive".
const char *ot_verdict_name(ot_verdict verdict);
