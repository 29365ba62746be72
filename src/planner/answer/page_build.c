// SPDX-License-Identifier: Apache-2.0
// Assembles the page of a plan from search, limits, explanations and goodput.
#include <string.h>

#include "advise/calibrate.h"
#include "answer/question.h"
#include "base/quantity.h"
#include "base/text_builder.h"
#include "describe/run_keys.h"
#include "estimate/job_check.h"

// State while a page is built.
typedef struct builder {
  const ot_plan_build *build;
  const ot_question *question;
  int top;  // plans kept
  const ot_job *job;
  ot_arena *arena;
  ot_search *search;
  ot_other_plans *others;  // null without a plan, and in a brief answer
  ot_plan_page *page;
} builder;

// ---- the search ----

enum { SIMPLE_PLANS = 32 };  // among which --simple chooses

static ot_status search(builder *b) {
  const ot_search_request request = {
      .job = b->job,
      .top = b->question->simple && b->top < SIMPLE_PLANS ? SIMPLE_PLANS : b->top,
      .plans_only = b->build->brief,
      .progress = b->build->progress,
      .progress_context = b->build->progress_context,
      .distinct = !b->question->variants,
      .estimator = b->page->estimator};
  ot_search *const s = b->search;
  OT_TRY(ot_search_build(&request, b->arena, s));
  b->page->search = s;
  if (s->num_plans > 0 || s->num_rejected[OT_REJECTED_MEMORY] > 0) return OT_OK;
  OT_CHECK(s->num_rejections > 0, OT_USAGE, "plan: no configuration of %d devices is valid",
           b->job->devices);
  return ot_fail(OT_USAGE, "%s", s->rejections[0].reason);
}

// ---- a live teacher ----

// From here on the job is that of the best split between the model and its teacher.
static ot_status split(builder *b) {
  const ot_plan_request *const request = b->build->request;
  if (!ot_job_has_teacher(b->job)) return OT_OK;
  const ot_node *const section = ot_run_teacher_section(request->settings);
  const bool given = ot_setting_is_given(ot_node_child(section, "teacher_ranks"));
  ot_teacher_split *const made = ot_arena_array(b->arena, 1, sizeof *made);
  OT_TRY(ot_teacher_split_build(b->job, given, ot_estimator_scratch(b->page->estimator), b->arena,
                                made));
  b->page->teacher = made;
  b->page->run = &made->run;
  b->page->job = b->job = &made->job;
  return ot_estimator_build(b->job, b->arena, &b->page->estimator);
}

// ---- machines whose ranks share cores ----

// The estimator of the job with the kernel slowdown of `candidate`, whose ranks share cores.
static ot_status build_stretched(const builder *b, const ot_candidate *candidate,
                                 ot_estimator **out) {
  ot_job *const job = ot_arena_array(b->arena, 1, sizeof *job);
  *job = *b->job;
  OT_TRY(ot_estimator_stretch(b->page->estimator, candidate, &job->stretch));
  return ot_estimator_build(job, b->arena, out);
}

// The search assumes that all ranks share cores equally; the slowdown of a plan is known only from
// the simulation of its run. Everything reported on the best plan uses its own slowdown.
static ot_status refine(builder *b) {
  ot_search *const s = b->search;
  if (!b->job->run || b->job->cluster->measured.cores == 0) return OT_OK;
  for (int i = 0; i < s->num_plans; i++) {
    ot_estimator *estimator;
    ot_estimate refined;
    OT_TRY(build_stretched(b, &s->plans[i].candidate, &estimator));
    OT_TRY(ot_estimate_build(estimator, &s->plans[i].candidate, &refined));
    int at = i;
    for (; at > 0 && refined.step_s < s->plans[at - 1].step_s; at--)
      s->plans[at] = s->plans[at - 1];
    s->plans[at] = refined;
    if (at == 0) b->page->estimator = estimator;
  }
  return OT_OK;
}

// ---- plans that cannot be told apart ----

// Adds a plan to those of the search, unless it is one of them.
static void add_plan(const builder *b, const ot_estimate *plan) {
  ot_search *const s = b->search;
  int at = s->num_plans;
  for (int i = 0; i < s->num_plans; i++) {
    if (ot_candidate_compare(&s->plans[i].candidate, &plan->candidate) == 0) return;
  }
  ot_estimate *const all = ot_arena_array(b->arena, s->num_plans + 1, sizeof *all);
  memcpy(all, s->plans, (size_t)s->num_plans * sizeof *all);
  for (; at > 0 && all[at - 1].step_s > plan->step_s; at--) all[at] = all[at - 1];
  all[at] = *plan;
  s->plans = all;
  s->num_plans++;
}

// Where the software takes the chunks of the fastest plan as a list: the fastest plan with equal
// ones. It is one of the plans if it takes at most `most_s`, else a line states what it takes.
static ot_status find_even(builder *b, double most_s) {
  static const double far = 1.25;
  const ot_estimate fastest = b->search->plans[0];
  ot_job job = *b->job;
  ot_search found;
  if (!ot_candidate_lists_layers(b->job, &fastest.candidate)) return OT_OK;
  job.even_chunks = true;
  ot_arena_pool scratch = {.parent = b->arena};
  const ot_search_request request = {.job = &job,
                                     .top = 1,
                                     .plans_only = true,
                                     .below_s = far * fastest.step_s,
                                     .estimator = b->page->estimator,
                                     .scratch = &scratch};
  OT_TRY(ot_search_build(&request, b->arena, &found));
  if (found.num_plans > 0 && found.plans[0].step_s <= most_s) {
    add_plan(b, &found.plans[0]);
    return OT_OK;
  }
  const bool known = found.num_plans > 0;
  const double even_s = known ? found.plans[0].step_s : request.below_s;
  const char *const cost =
      known ? ot_arena_format(b->arena, "the best plan with equal chunks takes %s, %.1f%% more",
                              ot_figure_seconds(b->arena, even_s),
                              100 * (even_s / fastest.step_s - 1))
            : ot_arena_format(b->arena, "no plan with equal chunks takes less than %s",
                              ot_figure_seconds(b->arena, even_s));
  b->page->uneven = ot_arena_format(
      b->arena, "the chunks of plan 1 are a list of their layers (--emit megatron writes it): %s%s",
      cost, known ? " than the fastest" : "");
  return OT_OK;
}

// Doubt knows nothing of chunks: the limit alone decides on a plan that spares their list.
static bool is_as_good(const builder *b, const ot_estimate *e, const ot_estimate *fastest) {
  const bool lists = ot_candidate_lists_layers(b->job, &fastest->candidate);
  if (lists && !ot_candidate_lists_layers(b->job, &e->candidate)) return true;
  return ot_doubt_equal(b->job, e, fastest);
}

// Puts the simplest of the plans that cannot be told from the fastest first: of those whose
// predictions nearly agree, with --simple also of those that are a little slower.
static ot_status prefer_simple(builder *b) {
  static const double tie = 1.01, simple = 1.05;
  ot_search *const s = b->search;
  if (s->num_plans == 0) return OT_OK;
  const double most_s = (b->question->simple ? simple : tie) * s->plans[0].step_s;
  int first = 0;
  OT_TRY(find_even(b, most_s));
  for (int i = 1; i < s->num_plans; i++) {
    const ot_estimate *const e = &s->plans[i];
    if (e->step_s > most_s) break;
    if (!is_as_good(b, e, &s->plans[0])) continue;
    if (ot_candidate_compare_effort(b->job, &e->candidate, &s->plans[first].candidate) < 0)
      first = i;
  }
  if (first > 0) {
    const ot_estimate chosen = s->plans[first];
    const char *const second = b->top > 1 ? ", plan 2" : "";
    b->page->simpler = ot_arena_format(
        b->arena,
        "plan 1 is the simplest of those that cannot be told from the fastest%s (%+.1f%%)", second,
        100 * (chosen.step_s / s->plans[0].step_s - 1));
    b->page->order = "simplest first, then fastest";
    for (int i = first; i > 0; i--) s->plans[i] = s->plans[i - 1];
    s->plans[0] = chosen;
  }
  if (s->num_plans > b->top) s->num_plans = b->top;
  return OT_OK;
}

// ---- other plans ----

// The fastest plan of a part: the one that the search found, or one that is shown, whose time is
// the refined one.
static ot_status settle_other(const builder *b, const ot_search_part *part,
                              ot_search_found *found) {
  ot_estimator *estimator = b->page->estimator;
  ot_estimate *const plan = &found->plan;
  const bool settled = plan->step_s <= found->least_s;
  if (plan->step_s == 0) return OT_OK;
  if (b->job->run && b->job->cluster->measured.cores > 0) {
    OT_TRY(build_stretched(b, &plan->candidate, &estimator));
    OT_TRY(ot_estimate_build(estimator, &plan->candidate, plan));
  }
  for (int i = 0; i < b->search->num_plans; i++) {
    const ot_estimate *const shown = &b->search->plans[i];
    if (ot_search_part_has(part, &shown->candidate) && shown->step_s <= plan->step_s)
      *plan = *shown;
  }
  if (settled) found->least_s = plan->step_s;
  return OT_OK;
}

static ot_status find_others(builder *b) {
  if (b->search->num_plans == 0 || b->build->brief) return OT_OK;
  ot_other_plans *const others = b->others = ot_arena_array(b->arena, 1, sizeof *others);
  ot_other_plans_choose(b->job, &b->search->plans[0], others);
  OT_TRY(ot_search_parts(b->search, others->part, others->num, others->below_s, others->found));
  for (int i = 0; i < others->num; i++)
    OT_TRY(settle_other(b, &others->part[i], &others->found[i]));
  return OT_OK;
}

// ---- basis ----

static void build_basis(builder *b) {
  static const char *const notes[OT_BASIS_COUNT] = {
      [OT_BASIS_UNKNOWN] = "the cluster does not state the origin of its constants",
      [OT_BASIS_EXTRAPOLATED] = "constants were fitted to runs on other devices of its generation",
      [OT_BASIS_GUESSED] = "constants were not fitted to runs on such devices",
      [OT_BASIS_MEASURED] = "constants were measured on this machine by `orthant bench`",
      [OT_BASIS_QUICK] =
          "constants were measured on this machine in seconds (`orthant bench --quick`)",
      [OT_BASIS_CALIBRATED] = "constants were corrected by measured steps (--calibrate)",
  };
  const ot_cluster *const cluster = b->job->cluster;
  const char *const note = notes[cluster->basis];
  b->page->basis = ot_cluster_basis_name(cluster->basis);
  if (!note) return;
  b->page->basis_note = ot_arena_format(
      b->arena, "%s: %s%s%s", b->page->basis, note,
      cluster->assumed ? "; the cluster does not state, and these are assumed: " : "",
      cluster->assumed ? cluster->assumed : "");
}

// ---- limits ----

// At the rates of the best plan, or of the nearest configuration.
static void build_limits(builder *b) {
  const ot_search *const s = b->search;
  const ot_estimate *const e = s->num_plans > 0 ? &s->plans[0] : &s->nearest;
  ot_limits_request request = {
      .job = b->job,
      .totals = &b->build->request->totals,
      .flops_per_s = b->job->cluster->device.flops[b->job->recipe.products],
      .critical_batch_tokens = (double)b->question->critical_batch_tokens};
  if (e->compute_s > 0) {
    request.flops_per_s = e->hardware_flops / b->job->devices / e->compute_s;
    request.step_flops_per_s = e->model_flops / b->job->devices / e->step_s;
  }
  ot_limits *const limits = ot_arena_array(b->arena, 1, sizeof *limits);
  ot_limits_build(&request, limits);
  b->page->limits = limits;
}

// ---- plans ----

static ot_explanation explanation_of(const builder *b) {
  return (ot_explanation){.job = b->job,
                          .totals = b->page->totals,
                          .limits = b->page->limits,
                          .best = &b->search->plans[0],
                          .estimator = b->build->brief ? NULL : b->page->estimator,
                          .others = b->others,
                          .plans = b->search->plans,
                          .num_plans = b->search->num_plans};
}

static void find_beyond(builder *b, ot_page_plan *plan) {
  ot_text_builder text = {.arena = b->arena};
  ot_explain_beyond(b->job, &plan->estimate->candidate, b->arena, &plan->beyond);
  for (int i = 0; i < plan->beyond.num; i++) {
    ot_text_appendf(&text, "%s%s", i > 0 ? ", " : "beyond published runs: ", plan->beyond.text[i]);
  }
  if (text.length > 0) plan->beyond_note = ot_text_builder_text(&text);
}

// After measured steps their nearness decides how uncertain a plan is.
static void doubt_corrected(const ot_job *job, const ot_estimate *estimate, ot_doubt *out) {
  out->step_variance = ot_calibration_variance(job->correction->context, job, estimate);
  out->num_reasons = 0;
}

// No published run reached this MFU; a cluster whose figures say so is probably described wrongly.
// The peak of a CPU is a product that it has computed.
static ot_status doubt_mfu(const builder *b, const ot_estimate *estimate, ot_page_plan *out) {
  static const double most_mfu = 0.8;
  const ot_cluster *const cluster = b->job->cluster;
  const char *const type = ot_dtype_name(b->job->recipe.products);
  const bool measured = ot_device_is_host(&cluster->device) && cluster->measured.num_kernels > 0;
  if (estimate->mfu > 1) {
    ot_fail(
        OT_USAGE,
        "cluster %s: flops_%s=%g is less than a plan reaches with its other figures (MFU %.0f %%)",
        cluster->name, type, cluster->device.flops[b->job->recipe.products], 100 * estimate->mfu);
    return ot_fail_hint(OT_USAGE,
                        "flops_%s is the dense peak of one device; check the efficiencies "
                        "and the steps of --calibrate, too",
                        type);
  }
  if (estimate->mfu <= most_mfu || measured) return OT_OK;
  out->warning = ot_arena_format(
      b->arena,
      "MFU %.0f %% is more than any published run reached: check flops_%s and the efficiencies of "
      "cluster %s",
      100 * estimate->mfu, type, cluster->name);
  out->doubt.reason[out->doubt.num_reasons++] = "MFU above 80 %";
  return OT_OK;
}

// `estimator`: the one that made `estimate`.
static ot_status build_plan(builder *b, ot_estimator *estimator, const ot_estimate *estimate,
                            ot_page_plan *out) {
  const ot_explanation explanation = explanation_of(b);
  ot_stage_estimate *stages;
  OT_TRY(ot_estimate_stages(estimator, &estimate->candidate, b->arena, &stages));
  *out = (ot_page_plan){.estimate = estimate, .stages = stages};
  find_beyond(b, out);
  ot_doubt_find(&(ot_doubt_request){.job = b->job, .candidate = &estimate->candidate}, &out->doubt);
  if (b->job->correction) doubt_corrected(b->job, estimate, &out->doubt);
  OT_TRY(doubt_mfu(b, estimate, out));
  if (b->search->num_plans == 0) return OT_OK;
  out->equal = ot_doubt_equal(b->job, estimate, explanation.best);
  if (estimate == explanation.best) {
    ot_explain_best(&explanation, b->arena, &out->why);
  } else {
    ot_explain_other(&explanation, estimate, b->arena, &out->why);
  }
  return OT_OK;
}

static ot_status build_plans(builder *b) {
  const int n = b->search->num_plans;
  ot_page_plan *const plans = ot_arena_array(b->arena, n, sizeof *plans);
  for (int i = 0; i < n; i++)
    OT_TRY(build_plan(b, b->page->estimator, &b->search->plans[i], &plans[i]));
  b->page->num_plans = n;
  b->page->plans = plans;
  return OT_OK;
}

// An estimator with what the file of `own` says in addition to degrees.
static ot_status estimator_of(const builder *b, const ot_plan_compared *own, ot_estimator **out) {
  *out = b->page->estimator;
  if (!own->engine && !own->run && own->num_chunks == 0 && !b->page->teacher) return OT_OK;
  ot_job *const job = ot_arena_array(b->arena, 1, sizeof *job);
  *job = b->build->request->job;
  job->chunk_layers = own->layers;
  job->num_chunks = own->num_chunks;
  if (own->engine) job->engine = own->engine;
  if (own->run) {
    job->run = own->run;
    job->devices = ot_job_all_devices(&b->build->request->job) - ot_run_teacher_ranks(own->run);
    job->recipe = ot_recipe_of_run(&own->run->precision);
  }
  return ot_estimator_build(job, b->arena, out);
}

static ot_status build_imported(builder *b) {
  const ot_plan_compared *const own = b->build->request->own;
  if (!own) return OT_OK;
  ot_page_plan *const plan = ot_arena_array(b->arena, 1, sizeof *plan);
  ot_estimate *const estimate = ot_arena_array(b->arena, 1, sizeof *estimate);
  if (ot_candidate_check(&b->build->request->job, &own->candidate) != OT_OK) {
    return ot_fail_hint(OT_USAGE, "this is what --from describes; change --gpus or the batch");
  }
  ot_estimator *estimator;
  OT_TRY(estimator_of(b, own, &estimator));
  OT_TRY(ot_estimate_build(estimator, &own->candidate, estimate));
  OT_TRY(build_plan(b, estimator, estimate, plan));
  b->page->imported = plan;
  return OT_OK;
}

// The configurations of --compare, with plan 1 and with the first of them.
static ot_status build_compared(builder *b) {
  const ot_plan_request *const request = b->build->request;
  const int n = request->num_compared;
  ot_page_compared *const all = ot_arena_array(b->arena, n + 1, sizeof *all);
  ot_estimate *const estimates = ot_arena_array(b->arena, n + 1, sizeof *estimates);
  for (int i = 0; i < n; i++) {
    const ot_plan_compared *const own = &request->compared[i];
    ot_estimator *estimator;
    all[i].name = own->name;
    OT_TRY(estimator_of(b, own, &estimator));
    OT_TRY(ot_estimate_build(estimator, &own->candidate, &estimates[i]));
    OT_TRY(build_plan(b, estimator, &estimates[i], &all[i].plan));
    if (i == 0) continue;
    const ot_explanation first = {.job = b->job,
                                  .totals = b->page->totals,
                                  .limits = b->page->limits,
                                  .best = &estimates[0],
                                  .estimator = b->page->estimator};
    ot_explain_other(&first, &estimates[i], b->arena, &all[i].first);
  }
  b->page->num_compared = n;
  b->page->compared = all;
  return OT_OK;
}

// ---- the run ----

// Failure rates are those of data centres, so they do not apply to this machine. A checkpoint holds
// everything but gradients.
static ot_status build_goodput(builder *b) {
  const ot_job *const job = b->job;
  const ot_model_totals *const totals = b->page->totals;
  const double tokens = (double)job->global_batch_size * (double)job->sequence_length;
  b->page->steps = (int64_t)((job->tokens + tokens - 1) / tokens);
  if (b->search->num_plans == 0 || job->cluster->device.threads > 0) return OT_OK;
  const double bytes = (double)(totals->weight_bytes + totals->optimizer_bytes);
  ot_goodput_request request = ot_goodput_defaults(ot_job_all_devices(job), bytes);
  request.train_s = (double)b->page->steps * b->search->plans[0].step_s;
  ot_goodput *const goodput = ot_arena_array(b->arena, 1, sizeof *goodput);
  OT_TRY(ot_goodput_build(&request, goodput));
  b->page->goodput = goodput;
  return OT_OK;
}

static ot_status build_remedies(builder *b) {
  if (b->search->num_plans > 0 || b->build->brief) return OT_OK;
  ot_remedies *const remedies = ot_arena_array(b->arena, 1, sizeof *remedies);
  OT_TRY(ot_remedies_build(b->job, ot_estimator_scratch(b->page->estimator), b->arena, remedies));
  b->page->num_remedies = remedies->num;
  b->page->remedies = remedies->text;
  b->page->changes = remedies->change;
  return OT_OK;
}

ot_status ot_plan_page_build(const ot_plan_build *build, ot_arena *arena, ot_plan_page *out) {
  const ot_plan_request *const request = build->request;
  *out = (ot_plan_page){.job = &request->job,
                        .model_name = request->model_name,
                        .model_source = request->model_source,
                        .run = request->has_run ? &request->run : NULL,
                        .settings = request->has_run ? request->settings : NULL,
                        .totals = &request->totals,
                        .price = request->question.price,
                        .order = "fastest first",
                        .num_notes = request->num_notes,
                        .notes = request->notes};
  builder b = {.build = build,
               .question = &request->question,
               .top = build->brief ? 1 : request->question.top,
               .job = &request->job,
               .arena = arena,
               .page = out};
  b.search = ot_arena_array(arena, 1, sizeof *b.search);
  OT_TRY(ot_estimator_build(b.job, arena, &out->estimator));
  OT_TRY(split(&b));
  OT_TRY(search(&b));
  OT_TRY(refine(&b));
  OT_TRY(prefer_simple(&b));
  OT_TRY(find_others(&b));
  build_basis(&b);
  build_limits(&b);
  OT_TRY(build_plans(&b));
  OT_TRY(build_imported(&b));
  OT_TRY(build_compared(&b));
  OT_TRY(build_goodput(&b));
  return build_remedies(&b);
}
