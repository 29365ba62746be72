// SPDX-License-Identifier: Apache-2.0
// From a question to a job. Defaults derive from what is given, and a note states each of them.
#include "answer/question.h"

#include "advise/doubt.h"
#include "advise/limits.h"
#include "base/backend_rules.h"
#include "base/extremes.h"
#include "base/quantity.h"
#include "base/text.h"
#include "describe/measured_keys.h"
#include "estimate/crossing.h"
#include "estimate/job_check.h"
#include "ops/attention.h"

// Hoffmann et al. 2022 (arXiv 2203.15556), table 3: about twenty tokens for each parameter.
static const double tokens_per_parameter = 20;

enum { MOST_NOTES = 16 };  // in addition to those of the question

void ot_plan_request_note(ot_plan_request *request, const char *text) {
  OT_ASSERT(request->num_notes < request->max_notes);
  request->notes[request->num_notes++] = text;
}

// ---- cluster ----

// Adds or removes accelerators over the outermost links; a measured machine, whose ranks are
// threads, shares its cores among `devices` ranks.
static ot_status resize(const ot_cluster *cluster, int devices, ot_cluster *out) {
  const int threads = cluster->device.threads;
  if (ot_cluster_has_hosts(cluster)) return ot_cluster_share(cluster, devices, threads, out);
  if (threads > 0) {
    const int each = cluster->num_devices * threads / devices;
    return ot_cluster_share(cluster, devices, each > 1 ? each : 1, out);
  }
  return ot_cluster_resize(cluster, devices, out);
}

static ot_status size_cluster(ot_plan_request *r, ot_arena *arena) {
  r->cluster = *r->question.cluster;
  const int given = r->question.devices, all = r->cluster.num_devices;
  const char *const doubt = ot_measured_warning(&r->cluster, arena);
  if (doubt) ot_plan_request_note(r, doubt);
  if (given > 0) OT_TRY(resize(r->question.cluster, given, &r->cluster));
  if (given > all) {
    ot_plan_request_note(
        r, ot_arena_format(arena, "cluster %s describes %d devices; %d are priced as more of them",
                           r->cluster.name, all, given));
  }
  const bool described = r->cluster.device.threads == 0 && !ot_cluster_is_mixed(&r->cluster);
  if (given == 0 && described && !ot_cluster_basis_measured(r->cluster.basis)) {
    ot_plan_request_note(
        r, ot_arena_format(arena, "all %d devices that cluster %s describes, without --gpus",
                           r->cluster.num_devices, r->cluster.name));
  }
  r->job.cluster = &r->cluster;
  r->job.devices = r->cluster.num_devices;
  return OT_OK;
}

// ---- engine ----

// Plans of Orthant for devices that it has no kernels for are plans of what nothing runs.
static void note_device(ot_plan_request *r, ot_arena *arena) {
  const ot_vendor vendor = r->cluster.device.vendor;
  const bool runs = ot_device_may_train(&r->cluster.device);
  if (r->job.engine != &ot_engine_orthant || runs) return;
  ot_plan_request_note(
      r, ot_arena_format(arena, "Orthant does not run on %s: --engine %s prices software that does",
                         r->cluster.device.name, vendor == OT_VENDOR_GOOGLE ? "jax" : "NAME"));
}

// A GPU has no attention kernel for wider heads; train refuses them there.
static void note_heads(ot_plan_request *r, ot_arena *arena) {
  const ot_device_kind *const device = &r->cluster.device;
  const int64_t head = r->run.model.head_dim;
  const int64_t widest = ot_backend_rules_of(ot_device_kind_backend(device))->widest_head;
  const bool refused = widest > 0 && head > widest;
  if (r->job.engine != &ot_engine_orthant || !refused) return;
  ot_plan_request_note(
      r, ot_arena_format(arena,
                         "Orthant has no attention kernels for heads of %lld on %s (at most %lld): "
                         "--engine NAME prices software that has them",
                         (long long)head, device->name, (long long)widest));
}

// ---- precision ----

static const char *default_recipe(ot_plan_request *r, ot_arena *arena) {
  const ot_engine *const engine = r->job.engine;
  if (engine != &ot_engine_orthant) return engine->recipe;
  const bool narrow = r->cluster.device.flops[OT_BF16] > 0;
  if (!narrow) {
    ot_plan_request_note(
        r,
        ot_arena_format(arena, "precision fp32: %s has no rate of bf16 products", r->cluster.name));
  }
  return narrow ? "bf16" : "fp32";
}

static ot_status choose_precision(ot_plan_request *r, ot_arena *arena) {
  const char *const given = r->question.precision;
  const char *const name = given ? given : default_recipe(r, arena);
  const ot_recipe *const recipe = ot_recipe_find(name);
  OT_CHECK(recipe, OT_USAGE, "engine %s: there is no recipe called \"%s\"; one of %s",
           r->job.engine->name, name,
           ot_key_choices(ot_schema_find(&ot_question_schema, 0, "precision"), arena));
  r->job.recipe = *recipe;
  if (r->question.moment_bytes > 0) r->job.recipe.moment_bytes = r->question.moment_bytes;
  if (r->question.gather_bytes > 0) r->job.recipe.gather_bytes = r->question.gather_bytes;
  return OT_OK;
}

ot_status ot_plan_request_begin(const ot_question *question, ot_arena *arena,
                                ot_plan_request *out) {
  const int max_notes = MOST_NOTES + question->num_notes;
  *out = (ot_plan_request){.question = *question,
                           .max_notes = max_notes,
                           .notes = ot_arena_array(arena, max_notes, sizeof *out->notes)};
  for (int i = 0; i < question->num_notes; i++) ot_plan_request_note(out, question->notes[i]);
  out->job = (ot_job){.engine = question->engine, .given = question->given};
  OT_TRY(size_cluster(out, arena));
  note_device(out, arena);
  return choose_precision(out, arena);
}

ot_node *ot_plan_request_precision(const ot_plan_request *request, ot_arena *arena) {
  const ot_run_precision p = ot_recipe_precision(&request->job.recipe);
  const struct {
    const char *key;
    ot_dtype type;
  } types[] = {{"compute", p.compute}, {"params", p.params},   {"gradients", p.gradients},
               {"master", p.master},   {"moments", p.moments}, {"reduce", p.reduce}};
  ot_node *const out = ot_node_create(arena, OT_NODE_MAP);
  for (int i = 0; i < OT_COUNT(types); i++) {
    ot_node_put(arena, out, types[i].key, ot_node_text(arena, ot_dtype_name(types[i].type)));
  }
  return out;
}

// ---- load of experts, sequence length, tokens, batch ----

static void set_imbalance(ot_plan_request *r, ot_arena *arena) {
  ot_job *const job = &r->job;
  job->expert_imbalance = r->question.expert_imbalance;
  if (job->expert_imbalance <= 1 || job->model->moe.num_experts == 0) return;
  ot_plan_request_note(
      r, ot_arena_format(arena, "the busiest rank of ep has %g times the mean of rows",
                         job->expert_imbalance));
}

// `train` refuses such a run.
static void note_positions(ot_plan_request *r, ot_arena *arena) {
  const int64_t length = r->job.sequence_length, most = r->run.model.max_positions;
  if (length <= most) return;
  ot_plan_request_note(
      r, ot_arena_format(arena,
                         "sequence length %lld is beyond the %lld positions of the model: training "
                         "needs --set model.max_position_embeddings=%lld",
                         (long long)length, (long long)most, (long long)length));
}

static void set_sequence(ot_plan_request *r, ot_arena *arena) {
  ot_job *const job = &r->job;
  job->sequence_length = r->question.sequence_length;
  if (job->sequence_length > 0) {
    note_positions(r, arena);
    return;
  }
  job->sequence_length = r->run.data.sequence_length;
  ot_plan_request_note(
      r, ot_arena_format(arena, "sequence length %lld", (long long)job->sequence_length));
}

static void set_tokens(ot_plan_request *r, ot_arena *arena) {
  ot_job *const job = &r->job;
  job->tokens = (double)r->question.tokens;
  if (job->tokens > 0) return;
  job->tokens = tokens_per_parameter * (double)r->totals.active_parameters;
  ot_plan_request_note(r,
                       ot_arena_format(arena, "a run of %s tokens, %g a parameter",
                                       ot_figure_count(arena, job->tokens), tokens_per_parameter));
}

// The most sequences within the critical batch that are a power of two times the odd part of the
// devices, so that they split evenly; no more than can be asked for.
static int64_t batch_within(double sequences, int devices) {
  const double most = ot_smaller(sequences, OT_QUESTION_MOST);
  int64_t batch = devices;
  while (batch % 2 == 0) batch /= 2;
  while (2 * (double)batch <= most) batch *= 2;
  return batch;
}

static void set_batch(ot_plan_request *r, ot_arena *arena) {
  ot_job *const job = &r->job;
  job->global_batch_size = r->question.global_batch_size;
  if (job->global_batch_size > 0) return;
  const double measured = (double)r->question.critical_batch_tokens;
  const double critical = measured > 0 ? measured : ot_critical_batch_tokens(job->tokens);
  job->global_batch_size = batch_within(critical / (double)job->sequence_length, job->devices);
  ot_plan_request_note(
      r,
      ot_arena_format(arena, "global batch %lld sequences, within the critical batch of %s tokens",
                      (long long)job->global_batch_size, ot_figure_count(arena, critical)));
}

static void set_margin(ot_plan_request *r) {
  const double given = r->question.memory_margin;
  ot_job *const job = &r->job;
  job->memory_margin = given == 0 ? ot_doubt_memory_margin(job) : ot_larger(given, 0);
}

// Ranks that a teacher has for itself are of the same devices.
static ot_status set_teacher(ot_plan_request *r, ot_arena *arena) {
  ot_job *const job = &r->job;
  const bool live = ot_run_has_live_teacher(&r->run);
  OT_TRY(ot_run_check_teacher_ranks(&r->run, OT_USAGE, job->devices, "device", "--gpus"));
  job->devices -= ot_run_teacher_ranks(&r->run);
  if (live && !ot_cluster_is_mixed(job->cluster)) job->teacher = r->teacher;
  const char *const what = live ? "what the teacher needs" : "what the teacher's server needs";
  if (ot_run_has_answering_teacher(&r->run) && !job->teacher)
    ot_plan_request_note(r, ot_arena_format(arena, "%s is in no price", what));
  if (!ot_run_teacher_judges(&r->run)) return OT_OK;
  ot_plan_request_note(r,
                       "reverse_kl: the text that the model writes, and its copy that writes it, "
                       "are in no price");
  return OT_OK;
}

// Formulas of a quick measurement hold near the sizes that it had time for.
static ot_status check_quick(const ot_job *job) {
  static const double most = 64;  // times the work of the largest product
  const ot_measured_machine *const m = &job->cluster->measured;
  const ot_model *const model = job->model;
  const double rows = (double)job->sequence_length, columns = (double)model->intermediate_size,
               depth = (double)model->hidden_size;
  const ot_measured_product *largest = NULL;
  double work = 0;
  for (int64_t i = 0; i < m->num_products; i++) {
    const ot_measured_product *const p = &m->products[i];
    const double own = (double)p->rows * (double)p->columns * (double)p->depth;
    if (own > work) largest = p;
    work = ot_larger(own, work);
  }
  if (job->cluster->basis != OT_BASIS_QUICK || rows * columns * depth <= most * work) return OT_OK;
  ot_fail(
      OT_USAGE,
      "cluster %s: `orthant bench --quick` measured products up to %lld x %lld x %lld; those of "
      "this job have %.0f x %.0f x %.0f",
      job->cluster->name, largest ? (long long)largest->rows : 0,
      largest ? (long long)largest->columns : 0, largest ? (long long)largest->depth : 0, rows,
      columns, depth);
  return ot_fail_hint(OT_USAGE, "run `orthant bench` again, without --quick");
}

// Applies the changes that --set made to the precision; for other software, to the moments of the
// optimizer alone.
static void adjust_precision(ot_plan_request *r) {
  const ot_run_precision *const set = &r->run.precision;
  ot_job *const job = &r->job;
  if (job->engine == &ot_engine_orthant) {
    job->recipe = ot_recipe_of_run(set);
  } else if (set->moments == OT_BF16) {
    job->recipe.moment_bytes = 2 * (double)ot_dtype_bytes(OT_BF16);
  }
}

ot_status ot_plan_request_end(ot_arena *arena, ot_plan_request *request) {
  ot_job *const job = &request->job;
  ot_run *const run = &request->run;
  const bool orthant = job->engine == &ot_engine_orthant;
  job->model = &run->model;
  if (!request->has_run) run->precision = ot_recipe_precision(&job->recipe);
  adjust_precision(request);
  note_heads(request, arena);
  set_imbalance(request, arena);
  set_sequence(request, arena);
  ot_model_totals_build(job, &request->totals);
  set_tokens(request, arena);
  set_batch(request, arena);
  set_margin(request);
  if (request->has_run) {
    run->data.sequence_length = job->sequence_length;
    run->batch = (ot_run_batch){.global_batch_size = job->global_batch_size, .micro_batch_size = 1};
    if (orthant) job->run = run;
    OT_TRY(ot_run_check(run));
    if (orthant) OT_TRY(set_teacher(request, arena));
  }
  OT_TRY(check_quick(job));
  OT_TRY(ot_job_check(job));
  if (!request->own) return OT_OK;
  ot_candidate *const own = &request->own->candidate;
  ot_candidate_cross(job, own);
  own->micro_batches = ot_candidate_micro_batches(job, own);
  return OT_OK;
}
