// SPDX-License-Identifier: Apache-2.0
// Cells are texts; table heads are fixed lists next to the functions that fill the rows.
#include "answer/plan_cost.h"
#include "base/quantity.h"
#include "describe/pipeline_rules.h"
#include "report/markup.h"
#include "report/plan_html_parts.h"

// ---- rows ----

static void put_head(ot_text_builder *out, const char *const *names) {
  ot_text_put(out, "<table><thead><tr>");
  for (int i = 0; names[i]; i++) ot_markup_element(out, "th scope=\"col\"", names[i]);
  ot_text_put(out, "</tr></thead><tbody>\n");
}

static void put_foot(ot_text_builder *out) { ot_text_put(out, "</tbody></table>\n"); }

static void begin_row(ot_text_builder *out, const char *class, const char *name) {
  ot_text_appendf(out, "<tr%s%s%s>", class ? " class=\"" : "", class ? class : "",
                  class ? "\"" : "");
  ot_markup_element(out, "th scope=\"row\"", name);
}

static void end_row(ot_text_builder *out) { ot_text_put(out, "</tr>\n"); }

static void cell(ot_text_builder *out, const char *text) { ot_markup_element(out, "td", text); }

static void cell_whole(ot_text_builder *out, int64_t value) {
  cell(out, ot_arena_format(out->arena, "%lld", (long long)value));
}

// Zero is a dot, so that other values stand out.
static void cell_seconds(ot_text_builder *out, double seconds) {
  cell(out, seconds > 0 ? ot_figure_seconds(out->arena, seconds) : "·");
}

static void cell_bytes(ot_text_builder *out, double bytes) {
  cell(out, bytes > 0 ? ot_figure_bytes(out->arena, bytes) : "·");
}

// ---- plans ----

static void put_plan(ot_text_builder *out, const char *class, const char *name,
                     const ot_estimate *e) {
  const ot_candidate *const c = &e->candidate;
  const double used = (double)(e->memory.reserved + e->memory.context);
  const int64_t degrees[] = {c->tp, c->pp, c->vpp, c->cp, c->ep};
  char dp[64], batch[64];
  ot_candidate_print_dp(c, dp, sizeof dp);
  ot_candidate_print_batch(c, batch, sizeof batch);
  begin_row(out, class, name);
  for (int i = 0; i < OT_COUNT(degrees); i++) cell_whole(out, degrees[i]);
  cell(out, dp);
  cell_whole(out, c->zero);
  cell(out, batch);
  ot_markup_element(out, "td class=\"t\"", ot_pipeline_name(c->pipeline));
  ot_markup_element(out, "td class=\"t\"", ot_recompute_names[c->recompute]);
  cell_seconds(out, e->step_s);
  cell(out, ot_figure_share(out->arena, e->mfu));
  cell(out, ot_arena_format(out->arena, "%s, %.0f%%%s", ot_figure_bytes(out->arena, used),
                            100 * used / (double)e->memory.capacity, e->fits ? "" : ", too much"));
  cell_seconds(out, e->bubble_s);
  for (int i = 0; i < OT_TIMELINE_AXES; i++) cell_seconds(out, e->exposed_s[i]);
  end_row(out);
}

void ot_html_plan_table(const ot_plan_page *page, ot_text_builder *out) {
  static const char *const names[] = {"",           "tp",        "pp",
                                      "vpp",        "cp",        "ep",
                                      "dp",         "zero",      "micro-batches",
                                      "pipeline",   "recompute", "step",
                                      "MFU",        "memory",    "bubble",
                                      "exposed tp", "cp",        "ep",
                                      "pp",         "dp",        "world",
                                      NULL};
  put_head(out, names);
  for (int i = 0; i < page->num_plans; i++) {
    put_plan(out, i == 0 ? "best" : NULL, ot_arena_format(out->arena, "%d", i + 1),
             page->plans[i].estimate);
  }
  if (page->imported) put_plan(out, NULL, "file", page->imported->estimate);
  put_foot(out);
}

// ---- stages ----

void ot_html_memory_table(const ot_page_plan *plan, ot_text_builder *out) {
  ot_page_term terms[OT_MEMORY_TERMS];
  ot_page_memory_terms(&plan->estimate->memory, terms);
  ot_text_put(out, "<table><thead><tr><th scope=\"col\"></th>");
  for (int i = 0; i < OT_MEMORY_TERMS; i++) {
    ot_markup_element(out, "th scope=\"col\"", terms[i].name);
  }
  ot_text_put(out, "<th scope=\"col\">together</th></tr></thead><tbody>\n");
  for (int stage = 0; stage < plan->estimate->candidate.pp; stage++) {
    const ot_memory_estimate *const m = &plan->stages[stage].memory;
    ot_page_memory_terms(m, terms);
    begin_row(out, NULL, ot_arena_format(out->arena, "stage %d", stage));
    for (int i = 0; i < OT_MEMORY_TERMS; i++) cell_bytes(out, terms[i].value);
    cell_bytes(out, (double)(m->reserved + m->context));
    end_row(out);
  }
  put_foot(out);
}

void ot_html_stage_table(const ot_page_plan *plan, ot_text_builder *out) {
  static const char *const names[] = {"", "blocks", "forward of a micro-batch", "backward", NULL};
  put_head(out, names);
  for (int i = 0; i < plan->estimate->candidate.pp; i++) {
    const ot_stage_estimate *const stage = &plan->stages[i];
    begin_row(out, NULL, ot_arena_format(out->arena, "stage %d", i));
    cell_whole(out, stage->num_blocks);
    cell_seconds(out, stage->forward_s);
    cell_seconds(out, stage->backward_s);
    end_row(out);
  }
  put_foot(out);
}

// ---- devices ----

void ot_html_scaling_table(const ot_scaling *scaling, ot_text_builder *out) {
  ot_page_term terms[OT_STEP_TERMS];
  ot_text_put(out, "<table><thead><tr><th scope=\"col\">devices</th><th scope=\"col\">step</th>");
  if (scaling->num > 0) ot_page_step_terms(&scaling->estimate[0], terms);
  for (int i = 0; i < (scaling->num > 0 ? OT_STEP_TERMS : 0); i++) {
    ot_markup_element(out, "th scope=\"col\"", terms[i].name);
  }
  ot_text_put(out, "<th scope=\"col\">MFU</th></tr></thead><tbody>\n");
  for (int i = 0; i < scaling->num; i++) {
    const ot_estimate *const e = &scaling->estimate[i];
    ot_page_step_terms(e, terms);
    begin_row(out, NULL, ot_arena_format(out->arena, "%d", scaling->devices[i]));
    cell_seconds(out, e->step_s);
    for (int k = 0; k < OT_STEP_TERMS; k++) cell_seconds(out, terms[k].value);
    cell(out, ot_figure_share(out->arena, e->mfu));
    end_row(out);
  }
  put_foot(out);
}

// ---- facts ----

void ot_html_model_totals(const ot_plan_page *page, ot_text_builder *out) {
  const ot_model_totals *const b = page->totals;
  const ot_recipe *const r = &page->job->recipe;
  ot_arena *const a = out->arena;
  ot_text_put(out, "<table class=\"facts\"><tbody>\n");
  ot_markup_pair(out, "parameters",
                 ot_arena_format(a, "%s (%lld)", ot_figure_count(a, (double)b->parameters),
                                 (long long)b->parameters));
  if (b->active_parameters < b->parameters) {
    ot_markup_pair(out, "active per token", ot_figure_count(a, (double)b->active_parameters));
  }
  ot_markup_pair(out, "bytes a parameter",
                 ot_arena_format(a, "%g = %g weight + %g gradient + %g master + %g moments",
                                 b->bytes_per_parameter, r->weight_bytes, r->gradient_bytes,
                                 r->master_bytes, b->moment_bytes_per_parameter));
  ot_markup_pair(out, "states of the model",
                 ot_arena_format(a, "%s: weights %s, gradients %s, optimizer %s",
                                 ot_figure_bytes(a, (double)b->state_bytes),
                                 ot_figure_bytes(a, (double)b->weight_bytes),
                                 ot_figure_bytes(a, (double)b->gradient_bytes),
                                 ot_figure_bytes(a, (double)b->optimizer_bytes)));
  ot_markup_pair(out, "devices to hold them",
                 ot_arena_format(a, "at least %lld, before any activation",
                                 (long long)b->min_devices_for_state));
  ot_markup_pair(
      out, "work of a token",
      ot_arena_format(a, "%s, forward and backward", ot_figure_flops(a, b->flops_per_token)));
  if (page->price > 0 && page->num_plans > 0) {
    ot_markup_pair(out, "cost of the run", ot_plan_cost_text(page, &page->plans[0], a));
  }
  ot_text_put(out, "</tbody></table>\n");
}

static void put_crossover(const ot_limits *l, ot_text_builder *out) {
  ot_arena *const a = out->arena;
  ot_markup_pair(
      out, "weights sharded over all devices",
      ot_arena_format(a,
                      "communication-bound, by bandwidth alone, above %s devices with this batch; "
                      "above %s with the critical batch; above %s if each device used only its own "
                      "link",
                      ot_figure_count(a, (double)l->crossover_devices),
                      ot_figure_count(a, (double)l->crossover_critical_devices),
                      ot_figure_count(a, (double)l->crossover_flat_devices)));
  ot_markup_pair(out, "also with fewer tokens than",
                 ot_arena_format(a, "%.0f a device and micro-batch forward, %.0f backward",
                                 l->floor.forward, l->floor.backward));
  ot_markup_pair(
      out, "unsharded weights on each device",
      ot_arena_format(a, "reductions of gradients are communication-bound above %s devices",
                      ot_figure_count(a, (double)l->crossover_replicated_devices)));
  ot_markup_pair(out, "tensor parallelism",
                 ot_arena_format(a, "communication-bound above tp %.1f", l->tensor_ways));
}

void ot_html_limits(const ot_plan_page *page, ot_text_builder *out) {
  const ot_limits *const l = page->limits;
  ot_arena *const a = out->arena;
  ot_text_put(out, "<table class=\"facts\"><tbody>\n");
  ot_markup_pair(
      out, "speed of a device",
      ot_arena_format(a, "%s/s while kernels run, %s/s over the whole step",
                      ot_figure_flops(a, l->flops_per_s), ot_figure_flops(a, l->step_flops_per_s)));
  if (l->critical_batch_tokens > 0) {
    ot_markup_pair(out, "critical batch",
                   ot_arena_format(a,
                                   "%s tokens: one sequence each for %s devices; a larger batch "
                                   "does not save steps in proportion",
                                   ot_figure_count(a, l->critical_batch_tokens),
                                   ot_figure_count(a, (double)l->batch_floor_devices)));
  }
  if (page->job->devices > 1 && !ot_cluster_is_mixed(page->job->cluster)) put_crossover(l, out);
  ot_text_put(out, "</tbody></table>\n");
}

static void put_rejections(const ot_search *s, ot_text_builder *out) {
  ot_text_put(out, "<ul>\n");
  for (int i = 0; i < s->num_rejections; i++) {
    char split[256];
    ot_candidate_print(&s->rejections[i].candidate, split, sizeof split);
    ot_text_put(out, "<li>");
    ot_markup_element(out, "span class=\"dim\"", split);
    ot_text_put(out, ": ");
    ot_markup_text(out, s->rejections[i].reason);
    ot_text_put(out, "</li>\n");
  }
  ot_text_put(out, "</ul>\n");
}

void ot_html_search(const ot_plan_page *page, ot_text_builder *out) {
  const ot_search *const s = page->search;
  ot_markup_element(
      out, "p",
      ot_arena_format(out->arena,
                      "%lld configurations: %lld simulated, %lld invalid, %lld too large for "
                      "memory, %lld slower by their lower bound.",
                      (long long)s->num_candidates, (long long)s->num_simulated,
                      (long long)s->num_rejected[OT_REJECTED_RULE],
                      (long long)s->num_rejected[OT_REJECTED_MEMORY],
                      (long long)s->num_rejected[OT_REJECTED_SLOWER]));
  if (s->num_rejections > 0) put_rejections(s, out);
}
