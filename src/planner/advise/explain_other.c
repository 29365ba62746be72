// SPDX-License-Identifier: Apache-2.0
// Compares a plan with the best one: its differences, then each term of the step by size.
#include "advise/explain.h"
#include "advise/what_if.h"
#include "base/quantity.h"
#include "base/sort.h"
#include "base/text_builder.h"
#include "describe/pipeline_rules.h"
#include "estimate/step_terms.h"

typedef struct term {
  const char *name;
  double delta_s;  // more than the best
} term;

// ---- differences ----

static void put_number(ot_text_builder *text, const char *name, int64_t other, int64_t best) {
  if (other == best) return;
  ot_text_appendf(text, "%s%s %lld (%lld)", text->length > 0 ? ", " : "", name, (long long)other,
                  (long long)best);
}

static void put_word(ot_text_builder *text, const char *name, const char *other, const char *best) {
  ot_text_appendf(text, "%s%s %s (%s)", text->length > 0 ? ", " : "", name, other, best);
}

static void put_differences(const ot_candidate *other, const ot_candidate *best,
                            ot_text_builder *text) {
  put_number(text, "tp", other->tp, best->tp);
  put_number(text, "pp", other->pp, best->pp);
  put_number(text, "vpp", other->vpp, best->vpp);
  put_number(text, "cp", other->cp, best->cp);
  put_number(text, "ep", other->ep, best->ep);
  put_number(text, "etp", other->etp, best->etp);
  put_number(text, "no sequence parallelism", other->no_sequence_parallel,
             best->no_sequence_parallel);
  put_number(text, "dp", other->dp, best->dp);
  if (other->dp == best->dp) put_number(text, "dp_shard", other->dp_shard, best->dp_shard);
  put_number(text, "zero", other->zero, best->zero);
  put_number(text, "micro-batch", other->micro_batch_size, best->micro_batch_size);
  if (other->pipeline != best->pipeline) {
    put_word(text, "schedule", ot_pipeline_name(other->pipeline), ot_pipeline_name(best->pipeline));
  }
  if (other->recompute != best->recompute || other->modules != best->modules) {
    char theirs[OT_MODULES_BYTES], ours[OT_MODULES_BYTES];
    ot_candidate_print_recompute(other, theirs, sizeof theirs);
    ot_candidate_print_recompute(best, ours, sizeof ours);
    put_word(text, "recompute", theirs, ours);
  }
}

// ---- their cost ----

static void fill_terms(const ot_estimate *other, const ot_estimate *best, term *terms) {
  ot_step_term theirs[OT_STEP_TERMS], ours[OT_STEP_TERMS];
  ot_step_terms(other, theirs);
  ot_step_terms(best, ours);
  for (int i = 0; i < OT_STEP_TERMS; i++)
    terms[i] = (term){ours[i].name, theirs[i].seconds - ours[i].seconds};
}

static double size_of(double x) { return x < 0 ? -x : x; }

static int larger_first(const void *a, const void *b, const void *context) {
  (void)context;
  const double x = size_of(((const term *)a)->delta_s), y = size_of(((const term *)b)->delta_s);
  return x > y ? -1 : x < y;
}

static const char *signed_seconds(ot_arena *arena, double seconds) {
  return ot_arena_format(arena, "%s%s", seconds < 0 ? "" : "+", ot_figure_seconds(arena, seconds));
}

const char *ot_explain_terms(const ot_estimate *other, const ot_estimate *best, int most,
                             ot_arena *arena) {
  term terms[OT_STEP_TERMS];
  fill_terms(other, best, terms);
  ot_sort(terms, OT_STEP_TERMS, sizeof *terms, (ot_ordering){larger_first, NULL}, arena);
  ot_text_builder text = {.arena = arena};
  for (int i = 0; i < OT_STEP_TERMS && i < most; i++) {
    if (size_of(terms[i].delta_s) < 1e-3 * best->step_s) break;
    ot_text_appendf(&text, "%s%s %s", text.length > 0 ? ", " : "", terms[i].name,
                    signed_seconds(arena, terms[i].delta_s));
  }
  return ot_text_builder_text(&text);
}

static const char *memory_of(const ot_estimate *other, const ot_estimate *best, ot_arena *arena) {
  const double here = (double)(other->memory.reserved + other->memory.context);
  const double there = (double)(best->memory.reserved + best->memory.context);
  return ot_arena_format(arena, "memory %s (%s)%s", ot_figure_bytes(arena, here),
                         ot_figure_bytes(arena, there),
                         other->fits ? "" : ": exceeds device memory");
}

void ot_explain_other(const ot_explanation *e, const ot_estimate *other, ot_arena *arena,
                      ot_reasons *out) {
  const ot_estimate *const best = e->best;
  ot_text_builder text = {.arena = arena};
  put_differences(&other->candidate, &best->candidate, &text);
  out->num = 0;
  out->text = ot_arena_array(arena, 4, sizeof *out->text);
  const double lost_s = other->step_s - best->step_s;
  const bool same = lost_s == 0 && other->memory.reserved == best->memory.reserved;
  if (text.length == 0 && same) {
    out->text[out->num++] = "the same plan";
    return;
  }
  // A file of --compare may say more of the step than a candidate does.
  if (text.length == 0) ot_text_put(&text, "the same degrees, other layers of stages or settings");
  out->text[out->num++] =
      ot_arena_format(arena, "%s: %s a step (%+.1f%%)", ot_text_builder_text(&text),
                      signed_seconds(arena, lost_s), 100 * lost_s / best->step_s);
  const char *const terms = ot_explain_terms(other, best, OT_STEP_TERMS, arena);
  if (terms[0] != '\0') out->text[out->num++] = terms;
  out->text[out->num++] = memory_of(other, best, arena);
  if (other->candidate.pipeline != OT_PIPELINE_ZB_H2) return;
  const ot_what_if what_if = {.estimator = e->estimator, .job = e->job, .best = other};
  out->text[out->num++] = ot_arena_format(arena, "%s%s", ot_explain_barrier,
                                          ot_what_if_pipeline(&what_if, OT_PIPELINE_ZB_H1, arena));
}
