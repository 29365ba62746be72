// SPDX-License-Identifier: Apache-2.0
// Charts of one plan: its stages, its replayed step, the same plan on other numbers of devices.
#include "advise/calibrate.h"
#include "advise/scaling_curve.h"
#include "base/math.h"
#include "base/number.h"
#include "describe/cluster_keys.h"
#include "estimate/step_terms.h"
#include "web/web_parts.h"

// A whole number of the request, or `fallback`.
static int number_of(const ot_node *request, const char *key, int fallback) {
  const ot_node *const node = ot_node_child(request, key);
  int64_t value;
  if (!node || !node->text || !ot_number_parse_size(node->text, &value)) return fallback;
  return value < 0 || value > INT32_MAX ? fallback : (int)value;
}

// The plan `index` of the page, or the nearest configuration.
static const ot_candidate *candidate_of(const ot_web *web, const ot_node *request) {
  const ot_search *const s = web->page.search;
  const int index = number_of(request, "index", 0);
  if (s->num_plans == 0) return &s->nearest.candidate;
  return &s->plans[index < s->num_plans ? index : 0].candidate;
}

// ---- stages ----

static void put_work(const char *key, const ot_work_estimate *work, ot_json_writer *w) {
  ot_json_object(w, key);
  ot_json_real(w, "total", work->total_s);
  ot_json_real(w, "compute", work->compute_s);
  ot_json_real(w, "launches", work->host_s);
  for (int i = 0; i < OT_TIMELINE_AXES; i++) {
    ot_json_real(w, ot_timeline_axis_name((ot_timeline_axis)i), work->exposed_s[i]);
  }
  ot_json_end(w);
}

static ot_status put_chunks(ot_web *web, const ot_candidate *c, ot_json_writer *w) {
  ot_chunk_estimate *chunks;
  int count;
  OT_TRY(ot_estimate_chunk_works(web->page.estimator, c, &web->call, &chunks, &count));
  ot_json_array(w, "chunks");
  for (int i = 0; i < count; i++) {
    ot_json_object(w, NULL);
    ot_json_integer(w, "stage", chunks[i].stage);
    ot_json_integer(w, "first_block", chunks[i].first_block);
    ot_json_integer(w, "blocks", chunks[i].num_blocks);
    ot_json_real(w, "matrix_flops", chunks[i].matrix_flops);
    ot_json_real(w, "recompute", chunks[i].recompute_s);
    put_work("forward", &chunks[i].work[OT_WORK_FORWARD], w);
    put_work("backward", &chunks[i].work[OT_WORK_BACKWARD], w);
    put_work("weight", &chunks[i].work[OT_WORK_WEIGHT], w);
    ot_json_end(w);
  }
  ot_json_end(w);
  return OT_OK;
}

static void put_terms(const ot_estimate *e, ot_json_writer *w) {
  ot_step_term terms[OT_STEP_TERMS];
  ot_step_terms(e, terms);
  ot_json_array(w, "terms");
  for (int i = 0; i < OT_STEP_TERMS; i++) {
    ot_json_object(w, NULL);
    ot_json_text(w, "name", terms[i].name);
    ot_json_text(w, "meaning", terms[i].meaning);
    ot_json_real(w, "seconds", terms[i].seconds);
    ot_json_end(w);
  }
  ot_json_end(w);
}

ot_status ot_web_stages(ot_web *web, const ot_node *request, ot_json_writer *w) {
  const ot_candidate *const c = candidate_of(web, request);
  ot_stage_estimate *stages;
  ot_estimate estimate;
  OT_TRY(ot_estimate_build(web->page.estimator, c, &estimate));
  OT_TRY(ot_estimate_stages(web->page.estimator, c, &web->call, &stages));
  ot_json_object(w, "estimate");
  ot_estimate_write_json(web->page.job, &estimate, w);
  ot_web_put_range(web->page.job, &estimate, w);
  ot_json_end(w);
  put_terms(&estimate, w);
  ot_json_array(w, "stages");
  for (int i = 0; i < c->pp; i++) {
    ot_json_object(w, NULL);
    ot_json_integer(w, "first_block", stages[i].first_block);
    ot_json_integer(w, "blocks", stages[i].num_blocks);
    ot_json_real(w, "forward", stages[i].forward_s);
    ot_json_real(w, "backward", stages[i].backward_s);
    ot_memory_write_json(&stages[i].memory, w);
    ot_json_end(w);
  }
  ot_json_end(w);
  return put_chunks(web, c, w);
}

// ---- timeline ----

// The most actions that the page draws.
enum { MOST_ACTIONS = 60000 };

ot_status ot_web_timeline(ot_web *web, const ot_node *request, ot_json_writer *w) {
  const ot_candidate *const c = candidate_of(web, request);
  const int64_t count = 3 * (int64_t)c->pp * c->vpp * c->micro_batches;
  ot_replayed_step step = {0};
  const bool small = count <= MOST_ACTIONS;
  if (small) OT_TRY(ot_estimate_replay(web->page.estimator, c, &web->call, &step));
  ot_json_boolean(w, "complete", small);
  ot_json_real(w, "total", step.total_s);
  ot_json_text(w, "fields", "stage, chunk, micro_batch, kind, start, end");
  ot_json_array(w, "actions");
  for (int64_t i = 0; i < step.num_actions; i++) {
    const ot_replayed_action *const a = &step.actions[i];
    ot_json_array(w, NULL);
    ot_json_integer(w, NULL, a->stage);
    ot_json_integer(w, NULL, a->chunk);
    ot_json_integer(w, NULL, a->micro_batch);
    ot_json_integer(w, NULL, a->kind);
    ot_json_real(w, NULL, a->start_s);
    ot_json_real(w, NULL, a->end_s);
    ot_json_end(w);
  }
  ot_json_end(w);
  return OT_OK;
}

// ---- other numbers of devices ----

ot_status ot_web_devices(ot_web *web, const ot_node *request, ot_json_writer *w) {
  ot_scaling *const scaling = ot_arena_take(&web->call, sizeof *scaling);
  OT_TRY(ot_scaling_build(web->page.job, candidate_of(web, request),
                          ot_estimator_scratch(web->page.estimator), scaling));
  ot_json_array(w, "points");
  for (int i = 0; i < scaling->num; i++) {
    ot_json_object(w, NULL);
    ot_json_integer(w, "devices", scaling->devices[i]);
    ot_estimate_write_json(web->page.job, &scaling->estimate[i], w);
    ot_web_put_range(web->page.job, &scaling->estimate[i], w);
    put_terms(&scaling->estimate[i], w);
    ot_json_end(w);
  }
  ot_json_end(w);
  return OT_OK;
}

// ---- the crossover of sharded weights ----

// Computation and traffic on `devices`; the cluster grows as needed.
static void put_crossover(const ot_web *web, const ot_gather_traffic *traffic, double tokens,
                          int devices, ot_json_writer *w) {
  ot_cluster cluster;
  if (ot_cluster_resize(web->page.job->cluster, devices, &cluster) != OT_OK) return;
  const ot_sharded_step shared = ot_sharded_step_of(traffic, &cluster, tokens, devices, false);
  const ot_sharded_step flat = ot_sharded_step_of(traffic, &cluster, tokens, devices, true);
  ot_json_object(w, NULL);
  ot_json_integer(w, "devices", devices);
  ot_json_real(w, "forward", shared.forward_s);
  ot_json_real(w, "backward", shared.backward_s);
  ot_json_real(w, "gather", shared.gather_s);
  ot_json_real(w, "reduce", shared.reduce_s);
  ot_json_real(w, "flat_gather", flat.gather_s);
  ot_json_real(w, "flat_reduce", flat.reduce_s);
  ot_json_end(w);
}

// `tokens`: of a step, default the job's; `dense`: every device multiplies by all parameters.
ot_status ot_web_crossover(ot_web *web, const ot_node *request, ot_json_writer *w) {
  enum { MOST_DEVICES = 1 << 20 };
  const ot_job *const job = web->page.job;
  const ot_limits *const limits = web->page.limits;
  const ot_limits_request of = {
      .job = job, .totals = web->page.totals, .flops_per_s = limits->flops_per_s};
  ot_gather_traffic traffic = ot_limits_traffic(&of);
  const double all = (double)web->page.totals->parameters;
  const double active = (double)web->page.totals->active_parameters;
  if (number_of(request, "dense", 0)) traffic.parameters *= active / all;
  const double own = (double)job->global_batch_size * (double)job->sequence_length;
  const bool critical = number_of(request, "critical", 0) != 0;
  const double tokens = critical ? limits->critical_batch_tokens : own;
  ot_json_real(w, "tokens", tokens);
  ot_json_real(w, "crossover", ot_crossover_devices(&traffic, job->cluster, tokens, false));
  ot_json_real(w, "crossover_flat", ot_crossover_devices(&traffic, job->cluster, tokens, true));
  ot_json_array(w, "points");
  for (int n = 1; n <= MOST_DEVICES && n <= tokens; n *= 2) {
    put_crossover(web, &traffic, tokens, n, w);
  }
  ot_json_end(w);
  return OT_OK;
}

// ---- what would fit ----

ot_status ot_web_remedies(ot_web *web, const ot_node *request, ot_json_writer *w) {
  (void)request;
  ot_json_array(w, "remedies");
  for (int i = 0; i < web->page.num_remedies; i++) {
    const ot_remedy *const change = &web->page.changes[i];
    ot_json_object(w, NULL);
    ot_json_text(w, "freed", change->freed);
    ot_json_text(w, "precision", change->precision);
    ot_json_integer(w, "devices", change->devices);
    ot_estimate_write_json(web->page.job, &change->plan, w);
    ot_json_end(w);
  }
  ot_json_end(w);
  return OT_OK;
}

// ---- a measured step ----

// `seconds` of the plan `index`, measured: the cluster that explains them.
ot_status ot_web_calibrate(ot_web *web, const ot_node *request, ot_json_writer *w) {
  const ot_node *const given = ot_node_child(request, "seconds");
  double seconds = 0;
  ot_estimate estimate;
  OT_CHECK(given && given->text && ot_number_parse(given->text, false, &seconds) && seconds > 0,
           OT_USAGE, "calibrate: the measured seconds of a step are missing");
  OT_TRY(ot_estimate_build(web->page.estimator, candidate_of(web, request), &estimate));
  ot_calibration *const calibration = ot_arena_take(&web->call, sizeof *calibration);
  calibration->count = 1;
  ot_calibrating_row_find(web->page.job, &estimate, ot_log(seconds / estimate.step_s),
                          &calibration->rows[0]);
  ot_calibration_find(calibration);
  ot_cluster cluster = *web->request.question.cluster;
  ot_calibration_apply(calibration, &cluster);
  ot_json_real(w, "compute", calibration->compute);
  ot_json_real(w, "exposed", calibration->exposed);
  ot_json_real(w, "residual", calibration->rows[0].residual);
  ot_node_write_json(ot_cluster_write(&cluster, &web->call), "cluster", w);
  return OT_OK;
}

// ---- files ----

ot_status ot_web_emit(ot_web *web, const ot_node *request, ot_json_writer *w) {
  const ot_node *const name = ot_node_child(request, "kind");
  const char *const text = name && name->text ? name->text : "";
  int64_t length = 0;
  while (text[length] != '\0') length++;
  ot_software software = OT_SOFTWARE_NONE;
  const ot_emit_kind kind = ot_emit_find(text, length, &software);
  ot_plan_page page = web->page;
  const int index = number_of(request, "index", 0);
  OT_CHECK(kind != OT_EMIT_KINDS, OT_USAGE, "emit: there is no kind \"%s\"", text);
  OT_CHECK(index < page.num_plans, OT_USAGE, "emit: there is no plan %d", index + 1);
  OT_TRY(ot_emit_check(kind, software, page.job->engine));
  page.plans += index;
  ot_text_builder out = {.arena = &web->call};
  OT_TRY(ot_plan_emit(&page, kind, &out));
  ot_json_text(w, "text", ot_text_builder_text(&out));
  return OT_OK;
}
