// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "base/text.h"
#include "report/judge_page.h"
#include "report/markup.h"
#include "report/page_frame.h"

// One record, or two and their difference.
typedef struct judge_html {
  ot_text_builder *out;
  ot_arena *arena;
  const ot_judge_report *whole;  // the report whose verdict and findings are shown
  int num_reports;
  const ot_judge_report *reports[3];
  const char *names[3];  // headings of these; null: one report
  const char *text;      // the report as text
} judge_html;

// ---- verdict ----

static double largest_of(const ot_judge_report *r) {
  double largest = 0;
  for (int t = 0; t < r->num_tensors; t++) largest = fmax(largest, r->tensors[t].ratio);
  return largest;
}

static void put_tiles(const judge_html *h) {
  const ot_judge_report *const r = h->whole;
  ot_text_put(h->out, "<div class=\"tiles\">\n");
  ot_page_tile(h->out, ot_verdict_name(r->verdict), "verdict");
  ot_page_tile(h->out, ot_arena_format(h->arena, "%d", r->num_findings),
               ot_arena_format(h->arena, "finding%s", ot_text_plural(r->num_findings, "s")));
  ot_page_tile(h->out, ot_arena_format(h->arena, "%d", r->num_tensors), "gradients compared");
  if (r->num_tensors > 0)
    ot_page_tile(h->out, ot_judged_ratio_text(h->arena, largest_of(r)),
                 h->num_reports > 1 ? "own errors between both, at most" : "own errors, at most");
  ot_text_put(h->out, "</div>\n");
}

static void put_parts(const judge_html *h, int i) {
  const ot_judge_report *const r = h->reports[i];
  if (h->names[i]) ot_markup_element(h->out, "h3", h->names[i]);
  if (h->names[i]) ot_markup_element(h->out, "p class=\"dim\"", r->step);
  ot_text_put(h->out, "<div class=\"scroll\" tabindex=\"0\"><table><tbody>\n");
  for (int k = 0; k < r->num_parts; k++) {
    const ot_judged_part *const part = &r->parts[k];
    ot_text_put(h->out, part->agrees ? "<tr>" : "<tr class=\"best\">");
    ot_markup_element(h->out, "th scope=\"row\"", part->name);
    ot_markup_element(h->out, "td class=\"t\"", part->words);
    ot_text_put(h->out, part->agrees ? "<td class=\"t\">agrees</td>"
                                     : "<td class=\"t\"><b>differs</b></td>");
    ot_text_put(h->out, "</tr>\n");
  }
  ot_text_put(h->out, "</tbody></table></div>\n");
}

static void put_verdict(const judge_html *h, const char *conclusion) {
  ot_page_section(h->out, "verdict", "What was compared",
                  "How to read: an own error is what rounding alone does to this step, computed in "
                  "the types of the record; sound software is 0.5 to 1.5 of them from float64.");
  put_tiles(h);
  if (conclusion)
    ot_markup_element(h->out, "p", ot_arena_format(h->arena, "Which is right: %s.", conclusion));
  if (h->whole->open)
    ot_markup_element(h->out, "p", ot_arena_format(h->arena, "Not decided: %s", h->whole->open));
  for (int i = 0; i < h->num_reports; i++) put_parts(h, i);
  ot_page_text(h->out, "The report as text", h->text);
  ot_page_section_end(h->out);
}

// ---- findings ----

static void put_finding(const judge_html *h, const ot_judge_finding *f, int number) {
  const char *const record =
      f->record > 0 ? ot_arena_format(h->arena, " in record %d", f->record) : "";
  ot_markup_element(h->out, "h3", ot_arena_format(h->arena, "%d. %s%s", number, f->what, record));
  ot_text_put(h->out, "<table class=\"facts\"><tbody>\n");
  if (f->tensors) ot_markup_pair(h->out, "tensors", f->tensors);
  if (f->axis) ot_markup_pair(h->out, "over", f->axis);
  if (f->factor) ot_markup_pair(h->out, "factor", f->factor);
  ot_markup_pair(h->out, "evidence", f->evidence);
  if (isfinite(f->confirmed))
    ot_markup_pair(h->out, "with it",
                   ot_arena_format(h->arena, "%.2g own errors remain", f->confirmed));
  if (f->advice) ot_markup_pair(h->out, "try", f->advice);
  ot_text_put(h->out, "</tbody></table>\n");
}

static void put_findings(const judge_html *h) {
  if (h->whole->num_findings == 0) return;
  ot_page_section(h->out, "findings", "Findings",
                  "How to read: a fault is explained if the rest with it is rounding.");
  for (int i = 0; i < h->whole->num_findings; i++) put_finding(h, &h->whole->findings[i], i + 1);
  ot_page_section_end(h->out);
}

// ---- tensors ----

static void put_table(const judge_html *h, const ot_judge_report *r) {
  enum { MOST = 2000 };
  const int count = r->num_tensors < MOST ? r->num_tensors : MOST;
  ot_page_fold(h->out, "The tensors as a table, in the order of the backward pass");
  ot_text_put(h->out, "<table><thead><tr><th scope=\"col\" style=\"text-align:left\">tensor</th>");
  ot_text_put(h->out, "<th scope=\"col\">own errors</th></tr></thead><tbody>\n");
  for (int t = 0; t < count; t++) {
    ot_text_put(h->out, "<tr>");
    ot_markup_element(h->out, "th scope=\"row\"", r->tensors[t].name);
    ot_markup_element(h->out, "td", ot_judged_ratio_text(h->arena, r->tensors[t].ratio));
    ot_text_put(h->out, "</tr>\n");
  }
  ot_text_put(h->out, "</tbody></table>\n");
  if (count < r->num_tensors)
    ot_markup_element(
        h->out, "p",
        ot_arena_format(h->arena, "and %d more; --json lists all", r->num_tensors - count));
  ot_page_fold_end(h->out);
}

static void put_tensors(const judge_html *h) {
  if (h->whole->num_tensors == 0) return;
  ot_page_section(h->out, "tensors", "The error of every gradient",
                  "How to read: the distance of the recorded gradient from the recomputed one in "
                  "own errors. A fault in a backward pass colours all layers before its place; a "
                  "missing reduction colours one column; a wrong factor colours everything.");
  for (int i = 0; i < h->num_reports; i++) {
    if (h->names[i]) ot_markup_element(h->out, "h3", h->names[i]);
    ot_chart_judged_tensors(h->reports[i], h->names[i] ? h->names[i] : "Errors of all gradients",
                            h->out);
    put_table(h, h->reports[i]);
  }
  ot_page_section_end(h->out);
}

// ---- what would have shown ----

static void put_sensitivity(const judge_html *h) {
  ot_page_section(h->out, "sensitivity", "What would have shown",
                  "How to read: the smallest part of each fault that this record would have shown. "
                  "A bar beyond the dashed line is a fault that it does not show at all.");
  if (h->whole->num_sensitivities > 0) ot_chart_sensitivities(h->whole, h->out);
  static const char *const hidden[] = {
      "what record and judge share: a wrong config.json, tokenizer or data",
      "anything over many steps: schedules, the order of data, resuming",
      "faults of a size or a kernel that a reduced record does not use",
      "two faults that cancel, and a mean of means where all parts have equal numbers of targets"};
  ot_markup_element(h->out, "h3", "What one step cannot show");
  ot_markup_list(h->out, "ul", hidden, OT_COUNT(hidden));
  ot_page_section_end(h->out);
}

// ---- the page ----

static void put_navigation(const judge_html *h) {
  const struct {
    const char *id, *name;
    bool shown;
  } links[] = {{"verdict", "What was compared", true},
               {"findings", "Findings", h->whole->num_findings > 0},
               {"tensors", "Every gradient", h->whole->num_tensors > 0},
               {"sensitivity", "What would have shown", true}};
  ot_page_navigation(h->out, true);
  for (int i = 0; i < OT_COUNT(links); i++)
    if (links[i].shown) ot_page_link(h->out, links[i].id, links[i].name);
  ot_page_navigation(h->out, false);
}

static const char *heading_of(const judge_html *h) {
  const ot_judge_report *const r = h->whole;
  static const char *const words[] = {[OT_VERDICT_CLEAN] = "No finding",
                                      [OT_VERDICT_FINDING] = "A finding",
                                      [OT_VERDICT_INCONCLUSIVE] = "Not decided"};
  if (r->num_findings == 0) return words[r->verdict];
  const ot_judge_finding *const f = &r->findings[0];
  return ot_arena_format(
      h->arena, "%s%s%s%s", f->what, f->axis ? " over " : "", f->axis ? f->axis : "",
      r->num_findings > 1 ? ot_arena_format(h->arena, ", and %d more", r->num_findings - 1) : "");
}

static void put_page(const judge_html *h, const char *records, const char *conclusion) {
  ot_page_begin(h->out, ot_arena_format(h->arena, "Orthant judge %s", records), heading_of(h),
                ot_arena_format(h->arena, "%s; %s", records, h->whole->step));
  put_navigation(h);
  put_verdict(h, conclusion);
  put_findings(h);
  put_tensors(h);
  put_sensitivity(h);
  ot_text_put(h->out,
              "</main>\n<footer>\n<p>The step was computed again from the record, in float64 or, "
              "for records in bf16, in float32, by an implementation that shares nothing with the "
              "software that recorded it.</p>\n</footer>\n</body>\n</html>\n");
}

void ot_judge_html(const ot_judge_report *report, const char *record, ot_text_builder *out) {
  const judge_html h = {.out = out,
                        .arena = out->arena,
                        .whole = report,
                        .num_reports = 1,
                        .reports = {report},
                        .text = ot_judge_report_print(report)};
  put_page(&h, record, NULL);
}

void ot_judged_pair_html(const ot_judged_pair *pair, ot_text_builder *out) {
  const judge_html h = {.out = out,
                        .arena = out->arena,
                        .whole = &pair->difference,
                        .num_reports = 3,
                        .reports = {&pair->records[0], &pair->records[1], &pair->difference},
                        .names = {ot_arena_format(out->arena, "Record 1: %s", pair->paths[0]),
                                  ot_arena_format(out->arena, "Record 2: %s", pair->paths[1]),
                                  "Between both records"},
                        .text = ot_judged_pair_print(pair)};
  put_page(&h, ot_arena_format(out->arena, "%s and %s", pair->paths[0], pair->paths[1]),
           pair->conclusion);
}
