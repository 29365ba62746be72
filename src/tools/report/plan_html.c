// SPDX-License-Identifier: Apache-2.0
// The page from top to bottom: best plan, its memory and timeline, other numbers of devices, the
// other plans and why they are slower, limits, rejected candidates, the run.
#include "advise/explain_crossing.h"
#include "base/quantity.h"
#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "report/markup.h"
#include "report/page_frame.h"
#include "report/plan_html_parts.h"
#include "report/plan_report.h"

typedef struct html {
  const ot_plan_page *page;
  const ot_page_plan *best;  // null: nothing fits
  ot_text_builder *out;
  ot_arena *arena;  // of `out`
} html;

// ---- head ----

static void put_head(const html *h) {
  const ot_job *const job = h->page->job;
  const char *const title = ot_arena_format(
      h->arena, "%s on %d x %s", h->page->model_name, job->devices,
      job->cluster->device.name && !ot_cluster_is_mixed(job->cluster) ? job->cluster->device.name
                                                                      : job->cluster->name);
  const double tokens = (double)job->global_batch_size * (double)job->sequence_length;
  ot_page_begin(
      h->out, ot_arena_format(h->arena, "Orthant plan: %s", title), title,
      ot_arena_format(h->arena,
                      "%lld sequences of %lld tokens a step (%s tokens), precision %s, engine %s, "
                      "cluster %s",
                      (long long)job->global_batch_size, (long long)job->sequence_length,
                      ot_figure_count(h->arena, tokens), job->recipe.name, job->engine->name,
                      job->cluster->name));
}

static void put_navigation(const html *h) {
  static const struct {
    const char *id, *name;
    bool needs_plan;
  } links[] = {{"summary", "Summary", false},
               {"compared", "Compared", true},
               {"memory", "Memory", true},
               {"timeline", "Timeline", true},
               {"devices", "More devices", true},
               {"plans", "Plans", true},
               {"why", "Why", true},
               {"state", "State", false},
               {"limits", "Limits", false},
               {"rejected", "Rejected", false},
               {"run", "Run it", true}};
  ot_page_navigation(h->out, true);
  for (int i = 0; i < OT_COUNT(links); i++) {
    if (links[i].needs_plan && !h->best) continue;
    if (h->page->num_compared == 0 && ot_text_equal(links[i].id, "compared")) continue;
    ot_page_link(h->out, links[i].id, links[i].name);
  }
  ot_page_navigation(h->out, false);
}

// ---- summary ----

static void put_run_tile(const html *h, const ot_estimate *e) {
  const double tokens = h->page->job->tokens;
  if (tokens <= 0 || e->tokens_per_s <= 0) return;
  const double days = tokens / e->tokens_per_s / 86400;
  const double hours = days * 24 * h->page->job->devices;
  ot_page_tile(
      h->out, ot_arena_format(h->arena, days < 10 ? "%.2f days" : "%.0f days", days),
      ot_arena_format(h->arena, "for %s tokens, %s device hours, no failures",
                      ot_figure_count(h->arena, tokens), ot_figure_count(h->arena, hours)));
}

static void put_tiles(const html *h) {
  const ot_estimate *const e = h->best->estimate;
  const ot_memory_estimate *const m = &e->memory;
  const double used = (double)(m->reserved + m->context);
  ot_arena *const a = h->arena;
  ot_text_put(h->out, "<div class=\"tiles\">\n");
  ot_page_tile(h->out, ot_figure_seconds(a, e->step_s),
               ot_arena_format(a, "a step; %s in 4 of 5 cases", ot_page_step_range(h->best, a)));
  ot_page_tile(h->out, ot_figure_share(a, e->mfu), "MFU (causal attention)");
  ot_page_tile(h->out, ot_arena_format(a, "%s/s", ot_figure_count(a, e->tokens_per_s)),
               ot_arena_format(a, "tokens, %s/s on each device",
                               ot_figure_count(a, e->tokens_per_s / h->page->job->devices)));
  ot_page_tile(h->out, ot_arena_format(a, "%.0f%%", 100 * used / (double)m->capacity),
               ot_arena_format(a, "of memory, %s of %s", ot_figure_bytes(a, used),
                               ot_figure_bytes(a, (double)m->capacity)));
  ot_page_tile(h->out, ot_figure_share(a, e->bubble_fraction), "pipeline bubble");
  put_run_tile(h, e);
  ot_text_put(h->out, "</div>\n");
}

static void put_chip(const html *h, const char *name, const char *value) {
  ot_text_put(h->out, "<li>");
  ot_markup_text(h->out, name);
  ot_text_put(h->out, " ");
  ot_markup_element(h->out, "b", value);
  ot_text_put(h->out, "</li>\n");
}

static void put_chips(const html *h) {
  const ot_candidate *const c = &h->best->estimate->candidate;
  const struct {
    const char *name;
    int value;
  } degrees[] = {{"tp", c->tp}, {"pp", c->pp}, {"vpp", c->vpp}, {"cp", c->cp}, {"ep", c->ep}};
  char dp[64], batch[64];
  ot_candidate_print_dp(c, dp, sizeof dp);
  ot_candidate_print_batch(c, batch, sizeof batch);
  ot_text_put(h->out, "<ul class=\"chips\">\n");
  for (int i = 0; i < OT_COUNT(degrees); i++) {
    put_chip(h, degrees[i].name, ot_arena_format(h->arena, "%d", degrees[i].value));
  }
  put_chip(h, "dp", dp);
  put_chip(h, "zero", ot_arena_format(h->arena, "%d", c->zero));
  put_chip(h, "micro-batches", batch);
  put_chip(h, "pipeline", ot_pipeline_name(c->pipeline));
  put_chip(h, "recompute", ot_recompute_names[c->recompute]);
  const char *const crossing = ot_explain_crossing(h->page->job, h->best->estimate, h->arena);
  if (crossing) put_chip(h, "pools", crossing);
  ot_text_put(h->out, "</ul>\n");
}

static void put_caveat(const html *h, const char *text) {
  if (!text) return;
  ot_markup_element(h->out, "p class=\"dim\"", text);
  ot_text_put(h->out, "\n");
}

static void put_refusal(const html *h) {
  const ot_estimate *const nearest = &h->page->search->nearest;
  const ot_memory_estimate *const m = &nearest->memory;
  char split[256];
  ot_candidate_print(&nearest->candidate, split, sizeof split);
  ot_page_section(h->out, "summary", "No plan fits", NULL);
  ot_markup_element(h->out, "p",
                    ot_arena_format(h->arena, "The nearest takes %s a device: %s.",
                                    ot_figure_need(h->arena, (double)(m->reserved + m->context),
                                                   (double)ot_memory_limit(m)),
                                    split));
  put_caveat(h, h->page->basis_note);
  if (h->page->num_remedies > 0) {
    ot_text_put(h->out, "<p>Each of these fits:</p>\n");
    ot_markup_list(h->out, "ul", h->page->remedies, h->page->num_remedies);
  }
  ot_page_section_end(h->out);
}

static void put_summary(const html *h) {
  if (!h->best) {
    put_refusal(h);
    return;
  }
  ot_page_section(
      h->out, "summary",
      h->page->simpler ? "The simplest of the fastest plans" : "The fastest plan that fits", NULL);
  put_chips(h);
  put_tiles(h);
  put_caveat(h, h->page->basis_note);
  put_caveat(h, h->best->beyond_note);
  put_caveat(h, h->best->warning);
  ot_text_put(h->out, "<figure>\n");
  ot_markup_element(h->out, "figcaption",
                    "How to read: the bar is one step of the busiest stage; blue is compute, the "
                    "other colours are waiting times, recompute and the optimizer update.");
  ot_chart_terms(h->best->estimate, h->out);
  ot_text_put(h->out, "</figure>\n");
  ot_page_section_end(h->out);
}

// ---- charts ----

static void put_memory(const html *h) {
  ot_page_section(
      h->out, "memory", "Memory of each stage",
      "How to read: a bar is the peak memory of one device of a stage; it must end left "
      "of the dashed line. The list gives the fullest stage.");
  ot_text_put(h->out, "<figure>\n");
  ot_chart_memory(h->best, h->out);
  ot_page_fold(h->out, "Figures as a table");
  ot_html_memory_table(h->best, h->out);
  ot_page_fold_end(h->out);
  ot_text_put(h->out, "</figure>\n");
  ot_page_section_end(h->out);
}

static ot_status put_timeline(const html *h) {
  const ot_candidate *const candidate = &h->best->estimate->candidate;
  ot_replayed_step step;
  OT_TRY(ot_estimate_replay(h->page->estimator, candidate, h->arena, &step));
  ot_page_section(
      h->out, "timeline", "One step, stage by stage",
      "How to read: time runs to the right, a row is a stage, a number is a micro-batch; "
      "lighter shades are later chunks of the stage. Grey between blocks is waiting.");
  ot_text_put(h->out, "<figure>\n");
  ot_chart_timeline(candidate, &step, h->out);
  ot_page_fold(h->out, "Stages as a table");
  ot_html_stage_table(h->best, h->out);
  ot_page_fold_end(h->out);
  ot_text_put(h->out, "</figure>\n");
  ot_page_section_end(h->out);
  return OT_OK;
}

static ot_status put_devices(const html *h) {
  ot_scaling *const scaling = ot_arena_array(h->arena, 1, sizeof *scaling);
  OT_TRY(ot_scaling_build(h->page->job, &h->best->estimate->candidate,
                          ot_estimator_scratch(h->page->estimator), scaling));
  const ot_scaling_chart chart = {.scaling = scaling,
                                  .devices = h->page->job->devices,
                                  .global_batch_size = h->page->job->global_batch_size};
  ot_page_section(
      h->out, "devices", "The same batch on more or fewer devices",
      "How to read: the plan with more or less data parallelism. At the crossover, where "
      "compute (blue) falls below a waiting time, further devices mostly wait. Pipeline "
      "schedules that need more micro-batches than remain are priced as 1f1b.");
  ot_text_put(h->out, "<figure>\n");
  ot_chart_scaling(&chart, h->out);
  ot_page_fold(h->out, "Figures as a table");
  ot_html_scaling_table(scaling, h->out);
  ot_page_fold_end(h->out);
  ot_text_put(h->out, "</figure>\n");
  ot_page_section_end(h->out);
  return OT_OK;
}

// ---- plans and reasons ----

static void put_plans(const html *h) {
  ot_page_section(h->out, "plans", ot_arena_format(h->arena, "Plans, %s", h->page->order),
                  "How to read: each row is a parallel configuration; times are those of one step, "
                  "memory is that of the fullest device.");
  ot_text_put(h->out, "<div class=\"scroll\" tabindex=\"0\">\n");
  ot_html_plan_table(h->page, h->out);
  ot_text_put(h->out, "</div>\n");
  ot_page_section_end(h->out);
}

static void put_other(const html *h, const char *name, const ot_page_plan *plan) {
  ot_markup_element(h->out, "h3", name);
  char split[256];
  ot_candidate_print(&plan->estimate->candidate, split, sizeof split);
  ot_markup_element(h->out, "p class=\"dim\"", split);
  ot_markup_list(h->out, "ul", plan->why.text, plan->why.num);
}

static void put_why(const html *h) {
  ot_page_section(h->out, "why", "Why this plan", NULL);
  ot_markup_list(h->out, "ol", h->best->why.text, h->best->why.num);
  if (h->page->imported) put_other(h, "Why not the configuration of the file", h->page->imported);
  for (int i = 1; i < h->page->num_plans; i++) {
    put_other(h, ot_arena_format(h->arena, "Why not number %d", i + 1), &h->page->plans[i]);
  }
  ot_page_section_end(h->out);
}

static void put_rejected(const html *h) {
  ot_page_section(h->out, "rejected", "Rejected configurations", NULL);
  ot_html_search(h->page, h->out);
  ot_page_section_end(h->out);
}

static void put_run(const html *h) {
  ot_text_builder yaml = {.arena = h->arena};
  ot_node_print_yaml(ot_plan_sections(h->page, &h->best->estimate->candidate, h->arena), 0, &yaml);
  ot_page_section(h->out, "run", "Sections of RUN.yaml", NULL);
  ot_text_put(h->out, "<pre>");
  // Line by line, because escaping turns newlines into blanks.
  const char *at = ot_text_builder_text(&yaml);
  while (*at != '\0') {
    int64_t length = 0;
    while (at[length] != '\0' && at[length] != '\n') length++;
    ot_markup_text(h->out, ot_arena_text(h->arena, at, length));
    ot_text_put(h->out, "\n");
    at += length + (at[length] == '\n');
  }
  ot_text_put(h->out, "</pre>\n");
  ot_page_section_end(h->out);
}

static void put_facts(const html *h) {
  ot_page_section(h->out, "state", "State and work", "Memory and compute of the whole model.");
  ot_html_model_totals(h->page, h->out);
  ot_page_section_end(h->out);
  ot_page_section(h->out, "limits", "Limits", "These hold for every plan.");
  ot_html_limits(h->page, h->out);
  ot_page_section_end(h->out);
}

static void put_foot(const html *h) {
  ot_text_put(h->out, "</main>\n<footer>\n");
  if (h->page->num_notes > 0) {
    ot_text_put(h->out, "<p>Assumed:</p>\n");
    ot_markup_list(h->out, "ul", h->page->notes, h->page->num_notes);
  }
  ot_text_put(h->out,
              "<p>Predicted by simulating steps, not measured. MFU is model FLOPs, with the causal "
              "half of attention, over the dense peak of the precision. Units are powers of 1000. "
              "Waiting times are those that no compute hides.</p>\n</footer>\n"
              "</body>\n</html>\n");
}

ot_status ot_plan_html(const ot_plan_page *page, ot_text_builder *out) {
  const html h = {.page = page,
                  .best = page->num_plans > 0 ? &page->plans[0] : NULL,
                  .out = out,
                  .arena = out->arena};
  put_head(&h);
  put_navigation(&h);
  put_summary(&h);
  if (h.best) {
    if (page->num_compared > 0) ot_html_compared(page, out);
    put_memory(&h);
    OT_TRY(put_timeline(&h));
    OT_TRY(put_devices(&h));
    put_plans(&h);
    put_why(&h);
  }
  put_facts(&h);
  put_rejected(&h);
  if (h.best) put_run(&h);
  put_foot(&h);
  return OT_OK;
}
