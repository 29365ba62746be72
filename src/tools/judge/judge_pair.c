// SPDX-License-Identifier: Apache-2.0
#include "judge/judge_pair.h"

#include <math.h>

#include "base/extremes.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "host/heap.h"
#include "judge/pair_parts.h"
#include "judge/same_step.h"

// ---- reading ----

static ot_status check_same_step(const ot_judged_pass *p) {
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  const ot_step_record first = {&p->judgings[0].step, &p->judgings[0].recorded};
  const ot_step_record second = {&p->judgings[1].step, &p->judgings[1].recorded};
  const ot_status status = ot_same_step_check(&first, &second, &scratch);
  ot_heap_release(&heap);
  return status;
}

static bool same_mesh(const ot_recorded_step *a, const ot_recorded_step *b) {
  bool same = a->world == b->world && a->num_axes == b->num_axes;
  for (int i = 0; same && i < a->num_axes; i++)
    same = a->axes[i].size == b->axes[i].size && ot_text_equal(a->axes[i].name, b->axes[i].name);
  return same;
}

static ot_status measure(ot_judged_pass *p, const ot_judge_request requests[2],
                         ot_judged_pair *pair) {
  p->count = 2;
  for (int i = 0; i < 2; i++) {
    pair->records[i] = (ot_judge_report){.arena = pair->difference.arena};
    p->judgings[i] = (ot_judging){
        .request = &requests[i], .arena = pair->difference.arena, .report = &pair->records[i]};
    OT_TRY(ot_judging_open(&p->judgings[i]));
  }
  OT_TRY(check_same_step(p));
  p->same_batches = ot_same_batches(&p->judgings[0].recorded, &p->judgings[1].recorded);
  OT_TRY(ot_judged_pass_measure(p));
  for (int i = 0; i < 2; i++) OT_TRY(ot_judging_conclude(&p->judgings[i]));
  return OT_OK;
}

// ---- gradients ----

// The error of the tensor `name`, found from index `*from` on; `*from` becomes the next index.
static double ratio_of(const ot_judge_report *record, const char *name, int *from) {
  while (*from < record->num_tensors && !ot_text_equal(record->tensors[*from].name, name)) ++*from;
  OT_ASSERT(*from < record->num_tensors);
  return record->tensors[(*from)++].ratio;
}

static void list_tensors(const ot_judged_pass *p, ot_judged_pair *pair) {
  const ot_evidence *const e = &p->between;
  int from[2] = {0};
  ot_judge_add_tensors(&pair->difference, e);
  pair->compared = ot_arena_array(e->arena, e->num_tensors + 1, sizeof *pair->compared);
  for (int t = 0; t < e->num_tensors; t++) {
    pair->compared[t].elements = p->differing[t];
    if (p->differing[t] == 0) pair->difference.tensors[t].ratio = 0;
    for (int i = 0; i < 2; i++)
      pair->compared[t].ratio[i] = ratio_of(&pair->records[i], e->tensors[t].name, &from[i]);
  }
}

// The tensor with the largest difference; -1: there is none.
static int find_largest(const ot_judge_report *difference) {
  int largest = -1;
  for (int t = 0; t < difference->num_tensors; t++) {
    if (largest < 0 || difference->tensors[t].ratio > difference->tensors[largest].ratio)
      largest = t;
  }
  return largest;
}

static double largest_ratio(const comparison *c) {
  return c->largest < 0 ? 0 : c->report->tensors[c->largest].ratio;
}

static void compare_gradients(const comparison *c) {
  const ot_judged_pair *const pair = c->pair;
  const int count = c->report->num_tensors;
  int same = 0;
  for (int t = 0; t < count; t++) same += pair->compared[t].elements == 0;
  if (count == 0) return;
  if (same == count) {
    ot_judge_add_part(c->report, "gradient", true, "%d tensors: same bits", same);
    return;
  }
  ot_judge_add_part(c->report, "gradient", !c->beyond,
                    "%d tensors, %d of them with the same bits; up to %.3g x own error apart",
                    count, same, largest_ratio(c));
  if (c->beyond)
    ot_judge_add_part(c->report, "largest", false, "%s: %.3g and %.3g x own error",
                      c->report->tensors[c->largest].name, pair->compared[c->largest].ratio[0],
                      pair->compared[c->largest].ratio[1]);
}

// ---- the verdict ----

// Whether both are runs of one program.
static bool is_repeated(const ot_judged_pair *pair) {
  return pair->same_layout && pair->same_types && pair->same_software;
}

// Whether the findings of a record name what is wrong with its gradients.
static bool is_named(const ot_judge_report *record) {
  for (int i = 0; i < record->num_findings; i++) {
    if (isfinite(record->findings[i].confirmed)) return true;
  }
  return false;
}

static bool *list_members(const comparison *c) {
  bool *const members = ot_arena_array(c->arena, c->report->num_tensors + 1, sizeof *members);
  for (int t = 0; t < c->report->num_tensors; t++)
    members[t] = c->report->tensors[t].ratio > OT_RATIO_FINE;
  return members;
}

// Neither a fault of one of the records nor one of the difference explains it.
static void find_unexplained(const comparison *c) {
  const bool repeats = is_repeated(c->pair);
  const char *const tensors = ot_words_of_tensors(&c->pass->between, list_members(c), c->arena);
  if (ot_judging_may_reroute(ot_judged_pass_coarser(c->pass))) {
    ot_judge_leave_open(c->report,
                        "%s: up to %.3g x own error apart, which other choices of experts explain, "
                        "too (record in fp32)",
                        tensors, largest_ratio(c));
    return;
  }
  if (largest_ratio(c) < OT_RATIO_FINDING) {
    ot_judge_leave_open(c->report, "%s: up to %.2g x own error apart without an explanation",
                        tensors, largest_ratio(c));
    return;
  }
  ot_judge_finding *const f = ot_judge_find(c->report, repeats ? "not_repeatable" : "difference");
  f->tensors = tensors;
  f->evidence = ot_arena_format(
      c->arena, "%s differ by up to %.3g x own error, and no named fault explains it",
      repeats ? "two runs with the same layout and software" : "the records", largest_ratio(c));
  f->advice = repeats ? "look for sums in any order (atomics), buffers that are read before they "
                        "are complete, and collectives that nothing waits for"
                      : "record both in fp32 to decide";
}

// A fault that neither record shows alone.
static void find_structure(const comparison *c, const ot_attribution *a) {
  const ot_judging *const j = ot_judged_pass_coarser(c->pass);
  const char *const tensors = ot_words_of_tensors(&c->pass->between, a->members, c->arena);
  for (int i = 0; i < a->count; i++) {
    const ot_hypothesis *const h = &j->hypotheses[a->vectors[i] - OT_EVIDENCE_HYPOTHESES];
    ot_judge_finding *const f = ot_judge_find(c->report, h->fault);
    f->tensors = tensors;
    f->factor = ot_arena_format(c->arena, "%.4g", a->factor[i]);
    f->evidence = ot_arena_format(
        c->arena, "%s: record 2 less record 1 is %.4f +- %.2g times this; neither shows it alone",
        h->sentence, a->factor[i], a->spread[i]);
    f->advice = h->advice;
    f->confirmed = a->rest;
  }
  if (a->scale == 1) return;
  ot_judge_finding *const f = ot_judge_find(
      c->report, a->num_members == c->report->num_tensors ? "factor" : "factor_on_some");
  f->tensors = tensors;
  f->factor = ot_arena_format(c->arena, "%.5g", a->scale);
  f->evidence =
      ot_arena_format(c->arena, "gradients of record 2 are %.6g times those of record 1", a->scale);
  f->confirmed = a->rest;
}

static bool differs(const ot_judge_report *record, const char *part) {
  for (int i = 0; i < record->num_parts; i++) {
    if (ot_text_equal(record->parts[i].name, part)) return !record->parts[i].agrees;
  }
  return false;
}

// A record whose gradients depart explains the difference by its own findings, unless it is a run
// of the same program as the other one and nothing names what is wrong.
static void explain(const comparison *c) {
  const ot_judged_pair *const pair = c->pair;
  bool departs = false, named = false;
  for (int i = 0; i < 2; i++) {
    const ot_judge_report *const record = &pair->records[i];
    if (!differs(record, "gradient") && !differs(record, "replicas")) continue;
    departs = true;
    named = named || is_named(record);
  }
  if (!c->beyond || named || (departs && !is_repeated(pair))) return;
  bool structure = false;
  for (int i = 0; i < c->found.count && !departs; i++) {
    const ot_attribution *const a = &c->found.list[i];
    if (a->count == 0 && a->scale == 1) continue;
    find_structure(c, a);
    structure = true;
  }
  if (!structure && largest_ratio(c) > OT_RATIO_FINE) find_unexplained(c);
}

// The findings of the records are also those of the pair.
static void add_findings(const comparison *c) {
  for (int i = 0; i < 2; i++) {
    const ot_judge_report *const from = &c->pair->records[i];
    for (int k = 0; k < from->num_findings; k++) {
      ot_judge_finding *const f = ot_judge_find(c->report, from->findings[k].what);
      *f = from->findings[k];
      f->record = i + 1;
    }
    if (from->open) ot_judge_leave_open(c->report, "record %d: %s", i + 1, from->open);
  }
}

// " (missing_reduction over tp, norm)".
static void list_faults(const ot_judge_report *record, ot_text_builder *out) {
  for (int i = 0; i < record->num_findings; i++) {
    const ot_judge_finding *const f = &record->findings[i];
    ot_text_appendf(out, "%s%s%s%s", i > 0 ? ", " : " (", f->what, f->axis ? " over " : "",
                    f->axis ? f->axis : "");
  }
  if (record->num_findings > 0) ot_text_put(out, ")");
}

static void conclude(const comparison *c) {
  static const char *const words[] = {[OT_VERDICT_CLEAN] = "agrees with",
                                      [OT_VERDICT_FINDING] = "departs from",
                                      [OT_VERDICT_INCONCLUSIVE] = "is not decided against"};
  ot_text_builder text = {.arena = c->arena};
  for (int i = 0; i < 2; i++) {
    const ot_judge_report *const record = &c->pair->records[i];
    ot_text_appendf(&text, "%srecord %d %s %s", i > 0 ? "; " : "", i + 1, words[record->verdict],
                    i > 0 ? "it" : "the recomputed step");
    list_faults(record, &text);
  }
  if (c->pair->departs[0] && c->pair->departs[1] && !c->beyond)
    ot_text_put(&text, ", in the same way");
  c->pair->conclusion = ot_text_builder_text(&text);
}

// Two runs of one program: the same values, or others within rounding or beyond it.
static void compare_runs(const comparison *c) {
  const ot_judged_pair *const pair = c->pair;
  if (!is_repeated(pair) || c->report->num_tensors == 0) return;
  ot_judge_add_part(c->report, "repeats", pair->same_values || !c->beyond,
                    "the same layout, types and software: %s",
                    pair->same_values ? "same bits"
                    : c->beyond       ? "other bits, beyond rounding"
                                      : "other bits, within rounding; not repeatable");
}

static const char *step_in_words(const ot_judged_pair *pair) {
  static const char *const same[] = {"another", "the same"};
  return ot_arena_format(
      pair->difference.arena, "two records of one step: %s layout, %s software%s",
      same[pair->same_layout], same[pair->same_software], pair->same_types ? "" : ", other types");
}

static ot_status compare(ot_judged_pass *p, ot_judged_pair *pair) {
  const ot_judging *const a = &p->judgings[0], *const b = &p->judgings[1];
  const ot_judging *const coarser = ot_judged_pass_coarser(p);
  comparison c = {p, pair, &pair->difference, pair->difference.arena, {0}, 0, false};
  pair->same_layout = same_mesh(&a->step, &b->step) && p->same_batches;
  pair->same_types = a->type == b->type;
  pair->same_software = ot_text_equal(a->step.software, b->step.software);
  pair->same_values = true;
  list_tensors(p, pair);
  ot_judging_clear_inert(coarser, &p->between);
  c.found = ot_attribute_errors(&p->between, coarser->hypotheses);
  c.largest = find_largest(c.report);
  c.beyond = c.found.count > 0 || largest_ratio(&c) > OT_RATIO_FINE;
  for (int t = 0; t < c.report->num_tensors; t++)
    pair->same_values = pair->same_values && pair->compared[t].elements == 0;
  for (int i = 0; i < 2; i++) pair->departs[i] = pair->records[i].verdict == OT_VERDICT_FINDING;
  compare_gradients(&c);
  ot_compare_loss(&c);
  ot_compare_norm(&c);
  OT_TRY(ot_compare_weights(&c));
  compare_runs(&c);
  explain(&c);
  add_findings(&c);
  pair->difference.step = step_in_words(pair);
  pair->difference.num_sensitivities = coarser->report->num_sensitivities;
  pair->difference.sensitivities = coarser->report->sensitivities;
  conclude(&c);
  return OT_OK;
}

ot_status ot_judge_pair(const ot_judge_request *request, const char *other, ot_arena *arena,
                        ot_judged_pair *out) {
  ot_judged_pass *const p = ot_arena_take(arena, sizeof *p);
  ot_judge_request *const requests = ot_arena_array(arena, 2, sizeof *requests);
  requests[0] = requests[1] = *request;
  requests[1].record = other;
  *out = (ot_judged_pair){.paths = {request->record, other}, .difference = {.arena = arena}};
  OT_TRY(measure(p, requests, out));
  return compare(p, out);
}
