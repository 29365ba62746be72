// SPDX-License-Identifier: Apache-2.0
// Searches jobs that differ from the given one in one value.
#include "advise/remedy.h"

#include "base/text.h"
#include "estimate/framework.h"
#include "estimate/job_check.h"
#include "software/ability_check.h"

enum { MOST_DEVICES = 1 << 24, MOST_TIMES = 4096 };

// A value that a job may fix.
typedef enum value {
  VALUE_RECOMPUTE,
  VALUE_MICRO_BATCH,
  VALUE_ZERO,
  VALUE_TP,
  VALUE_PP,
  VALUE_CP,
  VALUE_EP,
  VALUE_DP,
  VALUE_PIPELINE,
  VALUE_VPP,
  VALUES,
} value;

static const char *const names[VALUES] = {
    "recompute", "micro-batch-size", "zero", "tp", "pp", "cp", "ep", "dp", "pipeline", "vpp"};

// Frees a value; false if it was not fixed.
static bool set_free(ot_candidate *given, value v) {
  const ot_candidate before = *given;
  switch (v) {
    case VALUE_RECOMPUTE:
      given->recompute = (ot_recompute)-1;
      given->modules = 0;
      return (int)before.recompute >= 0;
    case VALUE_MICRO_BATCH:
      given->micro_batch_size = 0;
      return before.micro_batch_size > 0;
    case VALUE_ZERO:
      given->zero = -1;
      return before.zero >= 0;
    case VALUE_TP:
      given->tp = 0;
      return before.tp > 0;
    case VALUE_PP:
      given->pp = 0;
      return before.pp > 0;
    case VALUE_CP:
      given->cp = 0;
      return before.cp > 0;
    case VALUE_EP:
      given->ep = 0;
      return before.ep > 0;
    case VALUE_DP:
      given->dp = 0;
      return before.dp > 0;
    case VALUE_PIPELINE:
      given->pipeline = (ot_pipeline)-1;
      return (int)before.pipeline >= 0;
    case VALUE_VPP:
      given->vpp = 0;
      return before.vpp > 0;
    case VALUES:
      break;
  }
  OT_UNREACHABLE();
}

// Memory of the remedies, and of one search after the other.
typedef struct finder {
  ot_arena *arena;
  ot_arena_pool *scratch;
  ot_remedies *out;
} finder;

// The best plan of `job`, if any.
static ot_status first_plan(const finder *f, const ot_job *job, const ot_estimate **plan) {
  const ot_search_request request = {
      .job = job, .top = 1, .plans_only = true, .scratch = f->scratch};
  ot_search search;
  *plan = NULL;
  OT_TRY(ot_search_build(&request, f->arena, &search));
  if (search.num_plans > 0) *plan = &search.plans[0];
  return OT_OK;
}

static void add(const finder *f, const ot_remedy *change) {
  ot_remedies *const out = f->out;
  char split[256];
  ot_candidate_print(&change->plan.candidate, split, sizeof split);
  OT_ASSERT(out->num < OT_REMEDIES);
  out->change[out->num] = *change;
  out->text[out->num++] =
      change->freed ? ot_arena_format(f->arena, "without --%s: %s", change->freed, split)
      : change->precision
          ? ot_arena_format(f->arena, "with --precision %s: %s", change->precision, split)
          : ot_arena_format(f->arena, "with %d devices: %s", change->devices, split);
}

static ot_status try_freeing(const finder *f, const ot_job *job) {
  for (int v = 0; v < VALUES; v++) {
    ot_job freed = *job;
    const ot_estimate *plan;
    if (!set_free(&freed.given, (value)v)) continue;
    // The remaining degrees may not divide the devices.
    if (ot_job_check(&freed) != OT_OK || ot_ability_check_job(&freed) != OT_OK) continue;
    OT_TRY(first_plan(f, &freed, &plan));
    if (plan) add(f, &(ot_remedy){.freed = names[v], .devices = job->devices, .plan = *plan});
  }
  return OT_OK;
}

static double state_bytes(const ot_recipe *r) {
  return r->weight_bytes + r->gradient_bytes + r->master_bytes + r->moment_bytes;
}

// Whether the software of the job trains with the recipe called `name`. Moments in bf16 alone are
// a recipe of Orthant.
static bool trains(const ot_job *job, const char *name) {
  const ot_software software = job->engine->software;
  if (job->engine == &ot_engine_orthant) return true;
  return ot_text_equal(name, "bf16") && software != OT_SOFTWARE_NONE &&
         software != OT_SOFTWARE_TORCHTITAN;
}

static ot_status try_precisions(const finder *f, const ot_job *job) {
  static const char *const recipes[] = {"bf16", "bf16-bf16-moments"};
  for (int i = 0; i < OT_COUNT(recipes); i++) {
    const ot_recipe *const recipe = ot_recipe_find(recipes[i]);
    ot_job narrower = *job;
    ot_run run;
    const ot_estimate *plan;
    if (!trains(job, recipes[i]) || state_bytes(recipe) >= state_bytes(&job->recipe)) continue;
    if (job->cluster->device.flops[recipe->products] <= 0) continue;
    narrower.recipe = *recipe;
    if (job->run) {
      run = *job->run;
      run.precision = ot_recipe_precision(recipe);
      narrower.run = &run;
    }
    if (ot_job_check(&narrower) != OT_OK || ot_ability_check_job(&narrower) != OT_OK) continue;
    OT_TRY(first_plan(f, &narrower, &plan));
    if (plan) add(f, &(ot_remedy){.precision = recipes[i], .devices = job->devices, .plan = *plan});
  }
  return OT_OK;
}

static ot_status try_more_devices(const finder *f, const ot_job *job) {
  // Ranks of a machine share its cores: it has no more devices.
  if (job->cluster->device.threads > 0) return OT_OK;
  for (int64_t times = 2; times <= MOST_TIMES; times *= 2) {
    const int64_t devices = job->devices * times;
    ot_cluster cluster;
    ot_job larger = *job;
    const ot_estimate *plan;
    if (devices > MOST_DEVICES) return OT_OK;
    if (ot_cluster_resize(job->cluster, (int)devices, &cluster) != OT_OK) return OT_OK;
    larger.cluster = &cluster;
    larger.devices = (int)devices;
    larger.given.dp = 0;
    if (ot_ability_check_job(&larger) != OT_OK) return OT_OK;
    OT_TRY(first_plan(f, &larger, &plan));
    if (!plan) continue;
    add(f, &(ot_remedy){.devices = (int)devices, .plan = *plan});
    return OT_OK;
  }
  return OT_OK;
}

ot_status ot_remedies_build(const ot_job *job, ot_arena_pool *scratch, ot_arena *arena,
                            ot_remedies *out) {
  const finder f = {.arena = arena, .scratch = scratch, .out = out};
  *out = (ot_remedies){0};
  OT_TRY(try_freeing(&f, job));
  OT_TRY(try_precisions(&f, job));
  return try_more_devices(&f, job);
}
