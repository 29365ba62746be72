// SPDX-License-Identifier: Apache-2.0
// The text report from top to bottom: the job, the plans and what they assume, the reasons, the
// limits of any plan.
#include "report/plan_report.h"

#include <string.h>

#include "advise/explain_crossing.h"
#include "answer/plan_cost.h"
#include "base/quantity.h"
#include "base/text.h"
#include "describe/pipeline_rules.h"

enum { WIDTH = 100 };

typedef struct report {
  const ot_plan_page *page;
  ot_report_form form;
  ot_text_builder *out;
  ot_arena *arena;  // of `out`
} report;

// Appends `text` wrapped at spaces; later lines are indented to its first word.
static void wrap(report *r, const char *lead, const char *text) {
  const int indent = (int)strlen(lead);
  ot_text_put(r->out, lead);
  int column = indent;
  for (const char *at = text; *at != '\0';) {
    const int word = (int)strcspn(at, " ");
    if (column > indent && column + 1 + word > WIDTH) {
      ot_text_appendf(r->out, "\n%*s", indent, "");
      column = indent;
    }
    if (column > indent) ot_text_put(r->out, " ");
    ot_text_append(r->out, at, word);
    column += word + (column > indent);
    at += word + (at[word] == ' ');
  }
  ot_text_put(r->out, "\n");
}

static void line(report *r, const char *label, const char *text) {
  wrap(r, ot_arena_format(r->arena, "  %-18s ", label), text);
}

// A heading after an empty line.
static void heading(report *r, const char *text) {
  ot_text_appendf(r->out, "\n%s%s%s\n", r->form.bold ? OT_TEXT_BOLD : "", text,
                  r->form.bold ? OT_TEXT_PLAIN : "");
}

// ---- the job ----

static void put_job(report *r) {
  const ot_job *const job = r->page->job;
  ot_arena *const a = r->arena;
  const double tokens = (double)job->global_batch_size * (double)job->sequence_length;
  const bool mixed = ot_cluster_is_mixed(job->cluster);
  ot_text_appendf(r->out, "%s on %s: %d device%s%s %s, %s a step (%lld x %lld), %s, engine %s\n",
                  r->page->model_name, job->cluster->name, ot_job_all_devices(job),
                  ot_text_plural(ot_job_all_devices(job), "s"), mixed ? ":" : " of",
                  ot_explain_devices(job, a),
                  ot_arena_format(a, "%s tokens", ot_figure_count(a, tokens)),
                  (long long)job->global_batch_size, (long long)job->sequence_length,
                  job->recipe.name, job->engine->name);
  if (r->page->num_plans > 0 && r->page->plans[0].warning)
    wrap(r, "warning: ", r->page->plans[0].warning);
}

// Prints the values that the user left open: a line each, or all in one.
static void put_assumed(report *r) {
  const ot_plan_page *const p = r->page;
  ot_text_builder all = {.arena = r->arena};
  for (int i = 0; i < p->num_notes; i++) {
    ot_text_appendf(&all, "%s%s", i > 0 ? "; " : "", p->notes[i]);
    if (!r->form.brief) wrap(r, i == 0 ? "assumed: " : "         ", p->notes[i]);
  }
  if (r->form.brief && p->num_notes > 0) wrap(r, "assumed: ", ot_text_builder_text(&all));
}

static void put_margin(report *r) {
  const ot_job *const job = r->page->job;
  const double capacity = (double)ot_device_capacity(&job->cluster->device);
  ot_arena *const a = r->arena;
  if (job->memory_margin == 0) return;
  wrap(r, "memory margin: ",
       ot_cluster_is_mixed(job->cluster)
           ? ot_arena_format(a, "%s of a plan's memory (--memory-margin)",
                             ot_figure_share(a, job->memory_margin))
           : ot_arena_format(a, "%s of a plan's memory, so plans need at most %s (--memory-margin)",
                             ot_figure_share(a, job->memory_margin),
                             ot_figure_bytes(a, capacity / (1 + job->memory_margin))));
}

// Prints the basis of the answer.
static void put_notes(report *r) {
  const ot_plan_page *const p = r->page;
  if (!r->form.brief) ot_text_put(r->out, "\n");
  put_assumed(r);
  if (!r->form.brief) put_margin(r);
  if (p->basis_note) wrap(r, "basis: ", p->basis_note);
  if (p->num_plans > 0 && p->plans[0].beyond_note) wrap(r, "plan 1: ", p->plans[0].beyond_note);
}

// ---- independent of the plan ----

static void put_model_totals(report *r) {
  const ot_model_totals *const b = r->page->totals;
  const ot_recipe *const recipe = &r->page->job->recipe;
  ot_arena *const a = r->arena;
  const char *const active =
      b->active_parameters < b->parameters
          ? ot_arena_format(a, ", %s active", ot_figure_count(a, (double)b->active_parameters))
          : "";
  heading(r, "state and work");
  line(r, "parameters",
       ot_arena_format(a, "%lld (%s%s)", (long long)b->parameters,
                       ot_figure_count(a, (double)b->parameters), active));
  line(r, "state",
       ot_arena_format(a, "%s: %g bytes each, weights %g, gradients %g, optimizer %g",
                       ot_figure_bytes(a, (double)b->state_bytes), b->bytes_per_parameter,
                       recipe->weight_bytes, recipe->gradient_bytes,
                       recipe->master_bytes + b->moment_bytes_per_parameter));
  line(r, "at least",
       ot_arena_format(a, "%lld device%s to hold the state, before activations",
                       (long long)b->min_devices_for_state,
                       ot_text_plural(b->min_devices_for_state, "s")));
  line(r, "work",
       ot_arena_format(a, "%s a token, forward and backward",
                       ot_figure_flops(a, b->flops_per_token)));
}

static void put_crossover(report *r) {
  const ot_limits *const l = r->page->limits;
  ot_arena *const a = r->arena;
  const ot_token_floor *const f = &l->floor;
  const char *const alone =
      r->page->job->cluster->num_levels > 1
          ? ot_arena_format(a, " (%s if each device used only its own link)",
                            ot_figure_count(a, (double)l->crossover_flat_devices))
          : "";
  line(
      r, "sharded weights",
      ot_arena_format(a,
                      "zero 3 alone is communication-bound, by bandwidth alone, above %s devices "
                      "with this batch and %s with the critical one%s, or below %s tokens a device "
                      "and micro-batch",
                      ot_figure_count(a, (double)l->crossover_devices),
                      ot_figure_count(a, (double)l->crossover_critical_devices), alone,
                      ot_figure_count(a, f->forward > f->backward ? f->forward : f->backward)));
}

static void put_limits(report *r) {
  const ot_limits *const l = r->page->limits;
  ot_arena *const a = r->arena;
  heading(r, ot_arena_format(
                 a, "limits, at %s/s per device (kernel rate of the %s; %s/s over the whole step)",
                 ot_figure_flops(a, l->flops_per_s),
                 r->page->num_plans > 0 ? "best plan" : "nearest plan",
                 ot_figure_flops(a, l->step_flops_per_s)));
  line(r, "batch",
       ot_arena_format(a, "critical batch %s tokens: one sequence each for up to %s devices",
                       ot_figure_count(a, l->critical_batch_tokens),
                       ot_figure_count(a, (double)l->batch_floor_devices)));
  const bool alike = !ot_cluster_is_mixed(r->page->job->cluster);
  if (r->page->job->devices > 1 && alike) put_crossover(r);
  if (r->page->job->devices > 1 && alike) {
    line(r, "tensor parallelism",
         ot_arena_format(a, "communication-bound above tp %s", ot_figure_count(a, l->tensor_ways)));
  }
}

// ---- plans ----

static double exposed_of(const ot_estimate *e) {
  double s = 0;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) s += e->exposed_s[i];
  return s;
}

// A line of its own if states are sharded over only a part of dp.
static void put_domains(report *r, const ot_candidate *c) {
  char dp[64];
  if (c->zero == 0 || c->dp_shard == c->dp || r->form.brief) return;
  ot_candidate_print_dp(c, dp, sizeof dp);
  ot_text_appendf(r->out, "      dp %s\n", dp);
}

static void put_row(report *r, const char *name, const ot_estimate *e) {
  const ot_candidate *const c = &e->candidate;
  ot_arena *const a = r->arena;
  const double used = (double)(e->memory.reserved + e->memory.context);
  const bool bold = r->form.bold && ot_text_equal(name, "1");
  char batch[64];
  ot_candidate_print_batch(c, batch, sizeof batch);
  ot_text_appendf(r->out, "%s  %-3s%3d%4d%4d%4d%4d %5d%5d %9s  %-11s %-9s %8s%7s%7s%8s%5s%s%s\n",
                  bold ? OT_TEXT_BOLD : "", name, c->tp, c->pp, c->vpp, c->cp, c->ep, c->dp,
                  c->zero, batch, ot_pipeline_name(c->pipeline), ot_recompute_names[c->recompute],
                  ot_figure_seconds(a, e->step_s), ot_figure_share(a, e->mfu),
                  ot_figure_share(a, e->bubble_fraction),
                  ot_figure_share(a, exposed_of(e) / e->step_s),
                  ot_arena_format(a, "%.0f%%", 100 * used / (double)e->memory.capacity),
                  e->fits ? "" : "!", bold ? OT_TEXT_PLAIN : "");
  put_domains(r, c);
  const char *const crossing = ot_explain_crossing(r->page->job, e, a);
  if (crossing) wrap(r, "      ", crossing);
}

static void put_legend(report *r) {
  const ot_search *const s = r->page->search;
  if (r->form.brief) return;
  wrap(r, "  ",
       "batch 16 x 1: 16 micro-batches of 1 sequence for each rank of dp; exposed: communication "
       "not hidden by compute; mem: of the fullest device");
  wrap(r, "  ",
       ot_arena_format(r->arena,
                       "%lld configurations: %lld simulated, %lld invalid, %lld cannot fit, %lld "
                       "cannot win",
                       (long long)s->num_candidates, (long long)s->num_simulated,
                       (long long)s->num_rejected[OT_REJECTED_RULE],
                       (long long)s->num_rejected[OT_REJECTED_MEMORY],
                       (long long)s->num_rejected[OT_REJECTED_SLOWER]));
}

// In 4 of 5 cases, why more than usual, and which plans the difference does not separate.
static void put_doubt(report *r, int shown) {
  const ot_page_plan *const best = &r->page->plans[0];
  ot_arena *const a = r->arena;
  ot_text_builder why = {.arena = a}, equal = {.arena = a};
  for (int i = 0; i < best->doubt.num_reasons; i++) {
    ot_text_appendf(&why, "%s%s", i > 0 ? ", " : " (", best->doubt.reason[i]);
  }
  const double width = 100 * (ot_interval_80(1, best->doubt.step_variance).high - 1);
  if (why.length > 0) ot_text_appendf(&why, ": +- %.0f %%)", width);
  wrap(r, "  ",
       ot_arena_format(a, "plan 1 in 4 of 5 cases: step %s, memory %s%s",
                       ot_page_step_range(best, a), ot_page_memory_range(best, a),
                       why.length > 0 ? ot_text_builder_text(&why) : ""));
  for (int i = 1; i < shown; i++) {
    if (r->page->plans[i].equal)
      ot_text_appendf(&equal, "%s %d", equal.length > 0 ? "," : "", i + 1);
  }
  if (equal.length == 0) return;
  wrap(r, "  ",
       ot_arena_format(a, "cannot be told from plan 1 (measure them to decide):%s",
                       ot_text_builder_text(&equal)));
}

static void put_plans(report *r) {
  const ot_plan_page *const p = r->page;
  const int shown = r->form.brief && r->form.rows < p->num_plans ? r->form.rows : p->num_plans;
  if (!r->form.brief) {
    heading(r, ot_arena_format(r->arena,
                               "plans, %s (mfu: model FLOPs, with the causal half of attention)",
                               p->order));
  }
  ot_text_appendf(r->out, "  %-3s%3s%4s%4s%4s%4s %5s%5s %9s  %-11s %-9s %8s%7s%7s%8s%5s\n", "",
                  "tp", "pp", "vpp", "cp", "ep", "dp", "zero", "batch", "schedule", "recompute",
                  "step", "mfu", "bubble", "exposed", "mem");
  for (int i = 0; i < shown; i++) {
    put_row(r, ot_arena_format(r->arena, "%d", i + 1), p->plans[i].estimate);
  }
  if (p->imported) put_row(r, "own", p->imported->estimate);
  for (int i = 0; i < p->num_compared; i++) {
    put_row(r, ot_arena_format(r->arena, "%c", 'A' + i % 26), p->compared[i].plan.estimate);
  }
  put_legend(r);
  for (int i = 0; i < p->num_compared; i++) {
    wrap(r, "  ", ot_arena_format(r->arena, "%c: %s", 'A' + i % 26, p->compared[i].name));
  }
  if (p->simpler) wrap(r, "  ", p->simpler);
  if (p->uneven) wrap(r, "  ", p->uneven);
  if (p->num_plans > 0) put_doubt(r, shown);
}

// The splits of the devices between model and teacher that were the fastest so far when they were
// searched.
static void put_teacher(report *r) {
  const ot_teacher_split *const t = r->page->teacher;
  ot_arena *const a = r->arena;
  if (!t || r->page->num_plans == 0) return;
  const ot_estimate *const best = r->page->plans[0].estimate;
  const int all = ot_job_all_devices(&t->job);
  heading(r, ot_arena_format(a, "the teacher, of %s parameters",
                             ot_figure_count(a, (double)t->price.parameters)));
  for (int i = 0; i < t->num_choices; i++) {
    const int ranks = t->choices[i].ranks;
    const bool chosen = ranks == ot_run_teacher_ranks(&t->run);
    if (t->choices[i].step_s == 0 && !chosen) continue;
    const double step_s = chosen ? best->step_s : t->choices[i].step_s;
    line(r, ranks == 0 ? "next to the model" : ot_arena_format(a, "on %d of %d", ranks, all),
         ot_arena_format(a, "step %s%s", ot_figure_seconds(a, step_s),
                         chosen ? ot_arena_format(a, ": plan 1, which waits %s for it",
                                                  ot_figure_seconds(a, best->teacher_s))
                                : ""));
  }
  if (t->num_choices > 1) {
    wrap(
        r, "  ",
        ot_arena_format(a, "%d splits of the devices searched; the others are slower or do not fit",
                        t->num_choices));
  }
}

// The first rejected candidate of each kind.
static void put_rejections(report *r) {
  static const struct {
    ot_rejection_kind kind;
    const char *name;
  } kinds[] = {{OT_REJECTED_MEMORY, "cannot fit"}, {OT_REJECTED_SLOWER, "cannot win"}};
  const ot_search *const s = r->page->search;
  bool titled = false;
  for (int k = 0; k < OT_COUNT(kinds); k++) {
    for (int i = 0; i < s->num_rejections; i++) {
      char split[256];
      if (s->rejections[i].kind != kinds[k].kind) continue;
      ot_candidate_print(&s->rejections[i].candidate, split, sizeof split);
      if (!titled) heading(r, "rejected, for example");
      titled = true;
      line(r, kinds[k].name, ot_arena_format(r->arena, "%s: %s", split, s->rejections[i].reason));
      break;
    }
  }
}

// ---- the whole run ----

// The costs of the run with each plan.
static void put_cost(report *r) {
  const ot_plan_page *const p = r->page;
  ot_arena *const a = r->arena;
  if (p->price <= 0) return;
  line(r, "cost", ot_plan_cost_text(p, &p->plans[0], a));
  const double kwh = ot_plan_cost_of(p, &p->plans[0]).kwh;
  if (kwh > 0) {
    line(r, "energy",
         ot_arena_format(a, "%s, devices alone at their rated power or limit",
                         ot_figure_kwh(a, kwh)));
  }
  ot_text_builder others = {.arena = a};
  for (int i = 1; i < p->num_plans; i++) {
    const double dollars = ot_plan_cost_of(p, &p->plans[i]).dollars;
    ot_text_appendf(&others, "%splan %d %s", i > 1 ? ", " : "", i + 1,
                    ot_figure_dollars(a, dollars));
  }
  if (p->num_plans > 1) line(r, "other plans", ot_text_builder_text(&others));
}

static void put_failures(report *r) {
  const ot_goodput *const g = r->page->goodput;
  ot_arena *const a = r->arena;
  if (!g) return;
  line(r, "with failures",
       ot_arena_format(a, "%s: goodput %s at Llama 3's rates, one failure in %s, docs/goodput.md",
                       ot_figure_time(a, g->elapsed_s), ot_figure_share(a, g->productive),
                       ot_figure_time(a, g->mtbf_s)));
  line(r, "checkpoints",
       ot_arena_format(a, "every %s, each stalls the run for %s", ot_figure_time(a, g->interval_s),
                       ot_figure_time(a, g->stall_s)));
}

static void put_run(report *r) {
  const ot_plan_page *const p = r->page;
  ot_arena *const a = r->arena;
  if (p->num_plans == 0) return;
  heading(r, "the run with plan 1");
  line(r, "length",
       ot_arena_format(a, "%s tokens = %lld steps: %s", ot_figure_count(a, p->job->tokens),
                       (long long)p->steps,
                       ot_figure_time(a, (double)p->steps * p->plans[0].estimate->step_s)));
  put_failures(r);
  if (p->deadline) line(r, "deadline", p->deadline->text);
  put_cost(r);
}

// ---- reasons ----

static void put_reasons(report *r) {
  const ot_plan_page *const p = r->page;
  if (p->num_plans == 0) return;
  heading(r, "why plan 1");
  for (int i = 0; i < p->plans[0].why.num; i++) wrap(r, "  - ", p->plans[0].why.text[i]);
  if (p->num_plans > 1) heading(r, "the other plans compared with plan 1 (in brackets)");
  for (int i = 1; i < p->num_plans; i++) {
    const ot_reasons *const why = &p->plans[i].why;
    for (int j = 0; j < why->num; j++) {
      wrap(r, j == 0 ? ot_arena_format(r->arena, "  %-2d", i + 1) : "    ", why->text[j]);
    }
  }
  if (!p->imported) return;
  heading(r, "your own compared with plan 1 (in brackets)");
  for (int i = 0; i < p->imported->why.num; i++) wrap(r, "  - ", p->imported->why.text[i]);
}

// Each of --compare with plan 1, and with the first of them.
static void put_compared(report *r) {
  const ot_plan_page *const p = r->page;
  for (int i = 0; i < p->num_compared && p->num_plans > 0; i++) {
    const ot_page_compared *const c = &p->compared[i];
    heading(r, ot_arena_format(r->arena, "%s compared with plan 1 (in brackets)", c->name));
    for (int j = 0; j < c->plan.why.num; j++) wrap(r, "  - ", c->plan.why.text[j]);
    if (c->first.num == 0) continue;
    heading(r, ot_arena_format(r->arena, "%s compared with %s (in brackets)", c->name,
                               p->compared[0].name));
    for (int j = 0; j < c->first.num; j++) wrap(r, "  - ", c->first.text[j]);
  }
}

static void put_remedies(report *r) {
  const ot_plan_page *const p = r->page;
  if (p->num_remedies == 0) return;
  heading(r, "nothing fits; each of these changes would fit");
  for (int i = 0; i < p->num_remedies; i++) wrap(r, "  - ", p->remedies[i]);
}

void ot_plan_report(const ot_plan_page *page, const ot_report_form *form, ot_text_builder *out) {
  report r = {page, *form, out, out->arena};
  if (page->calibration) ot_calibration_print(page->calibration, out);
  put_job(&r);
  if (page->num_plans > 0 || page->imported || page->num_compared > 0) put_plans(&r);
  put_remedies(&r);
  put_notes(&r);
  if (form->brief) return;
  put_teacher(&r);
  put_run(&r);
  put_reasons(&r);
  put_compared(&r);
  put_model_totals(&r);
  put_limits(&r);
  put_rejections(&r);
}
