// SPDX-License-Identifier: Apache-2.0
// Combines costs, partition, pipeline schedule, replay and memory of a candidate into its estimate.
#include "plan/estimate.h"

#include "describe/pipeline_rules.h"
#include "plan/calibrate.h"
#include "plan/framework.h"

// ---- the estimator ----

static void find_kinds(ot_estimator *e) {
  const ot_model *const model = e->job.model;
  const int layers = (int)model->num_layers;
  int *const of_kind = ot_arena_array(e->arena, layers, sizeof(int));
  int *const kind_of = ot_arena_array(e->arena, layers, sizeof(int));
  int kinds = 0;
  for (int i = 0; i < layers; i++) {
    int kind = 0;
    while (kind < kinds && !ot_model_same_layer(model, of_kind[kind], i)) kind++;
    if (kind == kinds) of_kind[kinds++] = i;
    kind_of[i] = kind;
  }
  ot_model_take_layers(model, of_kind, kinds, &e->layers);
  ot_block_list_build(e, kind_of, &(ot_split){0}, &e->joined);
  ot_block_list_build(e, kind_of, &(ot_split){.separate_expert_block = true}, &e->apart);
}

static ot_status find_machine(ot_estimator *e) {
  const ot_cluster *const cluster = e->job.cluster;
  const int asked = e->job.run ? e->job.run->threads : 0;
  const int threads = ot_cluster_threads(cluster, e->job.devices, asked);
  const ot_kernel_style *const style = ot_engine_style(e->job.engine, &cluster->device);
  e->threads = style && asked == 0 ? 1 : threads;
  OT_TRY(ot_cluster_share(cluster, e->job.devices, threads, &e->cluster));
  e->simulation = ot_simulation_of(&e->cluster, style, e->job.recipe.products);
  e->simulation.expert_biases = e->job.model->moe.biases;
  e->simulation.stretch = e->job.stretch;
  return ot_price_check(&e->simulation);
}

ot_status ot_estimator_build(const ot_job *job, ot_arena *arena, ot_estimator **out) {
  OT_TRY(ot_job_check(job));
  ot_estimator *const e = ot_arena_array(arena, 1, sizeof *e);
  e->job = *job;
  e->arena = arena;
  e->pool.parent = arena;
  e->ends = ot_arena_array(arena, 1, sizeof *e->ends);
  e->framework = ot_framework_of(job->engine);
  find_kinds(e);
  OT_TRY(find_machine(e));
  *out = e;
  return OT_OK;
}

// ---- one candidate ----

// A single stage that gathers or reduces bucket by bucket does the same in each micro-batch but the
// first and the last. PLAYED micro-batches are replayed, and PLAYED_MORE to know the time of one.
enum { REPLAYED = 8, REPLAYED_MORE = 2 };

// Prepares the replay and the memory estimate of `micro_batches` of `candidate`.
static ot_status prepare_some(ot_estimator *e, const ot_candidate *candidate, int64_t micro_batches,
                              ot_replay_request *request) {
  ot_prices *prices;
  *request = (ot_replay_request){.estimator = e, .candidate = candidate};
  OT_TRY(ot_prices_find(e, candidate, &prices));
  request->prices = prices;
  OT_TRY(ot_stage_partition_find(e, candidate, &request->cut));
  request->stages = &request->cut->stages;
  ot_candidate some = *candidate;
  some.micro_batches = micro_batches;
  return ot_flow_find(e, &some, request->stages, &request->flow);
}

static ot_status prepare(ot_estimator *e, const ot_candidate *candidate,
                         ot_replay_request *request) {
  return prepare_some(e, candidate, candidate->micro_batches, request);
}

// Whether the first PLAYED micro-batches represent all.
static ot_status is_periodic(ot_estimator *e, const ot_candidate *candidate, bool *periodic) {
  ot_prices *prices;
  OT_TRY(ot_prices_find(e, candidate, &prices));
  *periodic = candidate->pp == 1 && !ot_pipeline_rules_of(candidate->pipeline)->fills &&
              candidate->micro_batches > REPLAYED + REPLAYED_MORE &&
              (prices->gathers || prices->each_micro_batch);
  return OT_OK;
}

// Time without waiting.
static double busy_s(const ot_stage_replay *replay) { return replay->total_s - replay->bubble_s; }

static void take_replay(const ot_stage_replay *replay, ot_estimate *out) {
  out->step_s = replay->total_s;
  out->compute_s = replay->compute_s;
  out->recompute_s = replay->recompute_s;
  out->update_s = replay->update_s;
  out->bubble_s = replay->bubble_s;
  out->host_s = replay->host_s;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) out->exposed_s[i] = replay->exposed_s[i];
  out->bubble_fraction = replay->bubble_s / out->step_s;
}

static void count_flops(const ot_replay_request *r, ot_estimate *out) {
  const ot_estimator *const e = r->estimator;
  const ot_candidate *const c = r->candidate;
  const ot_block_list *const blocks = r->prices->blocks;
  double hardware = 0, model = 0;
  for (int i = 0; i < blocks->num_blocks; i++) {
    hardware += r->prices->kind[blocks->kind_of[i]].matrix_flops;
    model += r->prices->kind[blocks->kind_of[i]].model_flops;
  }
  const double times = (double)c->micro_batches * c->dp * c->cp * c->tp;
  const double peak = e->cluster.device.flops[e->job.recipe.products] > 0
                          ? e->cluster.device.flops[e->job.recipe.products]
                          : e->cluster.device.flops[OT_F32];
  const double tokens = (double)e->job.global_batch_size * (double)e->job.sequence_length;
  out->hardware_flops = hardware * times;
  out->model_flops = model * times;
  out->tokens_per_s = tokens / out->step_s;
  if (peak <= 0) return;
  out->mfu = out->model_flops / out->step_s / (peak * e->job.devices);
  out->hfu = out->hardware_flops / out->step_s / (peak * e->job.devices);
}

// Memory of each stage, `out` [stages].
static void find_memory(const ot_replay_request *r, ot_arena *arena, ot_memory_estimate *out) {
  const ot_estimator *const e = r->estimator;
  const int stages = r->stages->num_ranks;
  for (int i = 0; i < stages; i++) {
    out[i] = (ot_memory_estimate){.stage = i,
                                  .capacity = ot_device_capacity(&e->cluster.device),
                                  .allowed = ot_estimator_memory(e)};
  }
  e->framework->count_memory(r, arena, out);
  for (int i = 0; i < stages; i++) {
    ot_memory_estimate *const m = &out[i];
    m->reserved = (int64_t)((double)m->peak * (1 + e->job.engine->allocator_slack));
    m->context = ot_engine_context_bytes(e->job.engine, &e->cluster.device);
  }
}

static void find_fullest(const ot_replay_request *r, ot_arena *arena, ot_memory_estimate *out) {
  const int stages = r->stages->num_ranks;
  ot_memory_estimate *const all = ot_arena_array(arena, stages, sizeof *all);
  find_memory(r, arena, all);
  *out = all[0];
  for (int i = 1; i < stages; i++) {
    if (all[i].peak > out->peak) *out = all[i];
  }
}

void ot_replay_outline(ot_replay_request *r, ot_arena *arena) {
  const ot_prices *const prices = r->prices;
  const ot_block_list *const blocks = prices->blocks;
  const int stages = r->stages->num_ranks;
  bool *const reshards = ot_arena_array(arena, blocks->num_blocks, sizeof *reshards);
  r->outline = (ot_outline_request){
      .stages = r->stages,
      .buckets = ot_arena_array(arena, blocks->num_blocks, sizeof *r->outline.buckets),
      .reshards = reshards,
      .num_blocks = blocks->num_blocks,
      .prefetch = ot_estimator_prefetch(r->estimator),
      .tied_block = prices->tied ? 0 : -1,
      .tied_user = prices->tied ? blocks->num_blocks - 1 : -1};
  for (int i = 0; i < blocks->num_blocks; i++) {
    r->outline.buckets[i] = &prices->kind[blocks->kind_of[i]].buckets;
    reshards[i] = ot_estimator_reshards(r->estimator, blocks->place_of[i]);
  }
  if (!prices->gathers && !prices->each_micro_batch) return;
  r->outlines = ot_arena_array(arena, stages, sizeof *r->outlines);
  for (int i = 0; i < stages; i++) {
    r->outline.stage = i;
    ot_step_outline_build(&r->outline, r->flow, arena, &r->outlines[i]);
  }
}

// Adds the time of `times` more micro-batches to `replay`, from a replay of PLAYED_MORE more.
static void extend(ot_stage_replay *replay, const ot_stage_replay *more, double times) {
  const double n = times / REPLAYED_MORE;
  replay->total_s += n * (more->total_s - replay->total_s);
  replay->compute_s += n * (more->compute_s - replay->compute_s);
  replay->update_s += n * (more->update_s - replay->update_s);
  replay->bubble_s += n * (more->bubble_s - replay->bubble_s);
  replay->host_s += n * (more->host_s - replay->host_s);
  replay->recompute_s += n * (more->recompute_s - replay->recompute_s);
  for (int i = 0; i < OT_TIMELINE_AXES; i++) {
    replay->exposed_s[i] += n * (more->exposed_s[i] - replay->exposed_s[i]);
  }
}

static ot_status estimate_periodic(ot_estimator *e, const ot_candidate *candidate,
                                   ot_estimate *out) {
  ot_replay_request some, more;
  ot_stage_replay replay, longer;
  OT_TRY(prepare_some(e, candidate, REPLAYED, &some));
  OT_TRY(prepare_some(e, candidate, REPLAYED + REPLAYED_MORE, &more));
  ot_arena scratch = ot_arena_pool_begin(&e->pool);
  ot_replay_outline(&some, &scratch);
  ot_replay_outline(&more, &scratch);
  OT_TRY(ot_step_replay(&some, &scratch, &replay));
  OT_TRY(ot_step_replay(&more, &scratch, &longer));
  extend(&replay, &longer, (double)(candidate->micro_batches - REPLAYED));
  take_replay(&replay, out);
  count_flops(&some, out);
  find_fullest(&some, &scratch, &out->memory);
  out->fits = out->memory.reserved + out->memory.context <= out->memory.allowed;
  return OT_OK;
}

// Estimates memory first; replays the step if it fits or if `always`.
static ot_status estimate(ot_estimator *e, const ot_candidate *candidate, bool always,
                          ot_estimate *out) {
  ot_replay_request request;
  OT_TRY(prepare(e, candidate, &request));
  ot_arena scratch = ot_arena_pool_begin(&e->pool);
  ot_replay_outline(&request, &scratch);
  find_fullest(&request, &scratch, &out->memory);
  out->fits = out->memory.reserved + out->memory.context <= out->memory.allowed;
  if (!out->fits && !always) return OT_OK;
  ot_stage_replay *const replays =
      ot_arena_array(&scratch, request.stages->num_ranks, sizeof *replays);
  OT_TRY(ot_step_replay(&request, &scratch, replays));
  const ot_stage_replay *busiest = replays;
  for (int i = 1; i < request.stages->num_ranks; i++) {
    if (busy_s(&replays[i]) > busy_s(busiest)) busiest = &replays[i];
  }
  take_replay(busiest, out);
  count_flops(&request, out);
  return OT_OK;
}

// ---- correction by measured steps ----

static double correction_of(const ot_estimator *e, const ot_candidate *candidate) {
  const ot_estimate configuration = {.candidate = *candidate};
  ot_traits traits;
  if (!e->job.calibration) return 1;
  ot_traits_find(&e->job, &configuration, &traits);
  return ot_calibration_correction(e->job.calibration, &traits).factor;
}

// All terms alike: what the measured steps say of this configuration is no property of one term.
static void correct(double factor, ot_estimate *out) {
  double *const terms[] = {&out->step_s,   &out->compute_s, &out->recompute_s,
                           &out->update_s, &out->bubble_s,  &out->host_s};
  for (int i = 0; i < OT_COUNT(terms); i++) *terms[i] *= factor;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) out->exposed_s[i] *= factor;
  out->mfu /= factor;
  out->hfu /= factor;
  out->tokens_per_s /= factor;
}

static ot_status build(ot_estimator *e, const ot_candidate *candidate, bool always,
                       ot_estimate *out) {
  bool periodic;
  *out = (ot_estimate){.candidate = *candidate};
  OT_TRY(is_periodic(e, candidate, &periodic));
  OT_TRY(periodic ? estimate_periodic(e, candidate, out) : estimate(e, candidate, always, out));
  if (e->job.calibration) correct(correction_of(e, candidate), out);
  return OT_OK;
}

ot_status ot_estimate_build(ot_estimator *estimator, const ot_candidate *candidate,
                            ot_estimate *out) {
  return build(estimator, candidate, true, out);
}

ot_status ot_estimate_fitting(ot_estimator *estimator, const ot_candidate *candidate,
                              ot_estimate *out) {
  return build(estimator, candidate, false, out);
}

ot_status ot_estimate_chunks(ot_estimator *estimator, const ot_candidate *candidate,
                             ot_arena *arena, int **out, int *num_chunks) {
  const ot_stage_partition *cut;
  OT_TRY(ot_stage_partition_find(estimator, candidate, &cut));
  const ot_stages *const stages = &cut->stages;
  const int head = cut->blocks->num_blocks - 1;
  *num_chunks = stages->num_chunks;
  *out = ot_arena_array(arena, stages->num_chunks, sizeof **out);
  for (int c = 0; c < stages->num_chunks; c++) {
    const int first = stages->first_block[c], end = stages->first_block[c + 1];
    (*out)[c] = end - first - (first == 0) - (end > head);
  }
  return OT_OK;
}

ot_status ot_estimate_stages(ot_estimator *estimator, const ot_candidate *candidate,
                             ot_arena *arena, ot_stage_estimate **out) {
  ot_replay_request request;
  OT_TRY(prepare(estimator, candidate, &request));
  const ot_stages *const stages = request.stages;
  *out = ot_arena_array(arena, stages->num_ranks, sizeof **out);
  for (int chunk = stages->num_chunks - 1; chunk >= 0; chunk--) {
    ot_stage_estimate *const stage = &(*out)[stages->rank_of[chunk]];
    stage->first_block = stages->first_block[chunk];
    stage->num_blocks += stages->first_block[chunk + 1] - stages->first_block[chunk];
    for (int i = stages->first_block[chunk]; i < stages->first_block[chunk + 1]; i++) {
      const ot_block_price *const price = &request.prices->kind[request.prices->blocks->kind_of[i]];
      stage->forward_s += price->work[OT_WORK_FORWARD][1].total_s;
      stage->backward_s +=
          price->work[OT_WORK_BACKWARD][1].total_s + price->work[OT_WORK_WEIGHT][1].total_s;
    }
  }
  ot_arena scratch = ot_arena_pool_begin(&estimator->pool);
  ot_memory_estimate *const memory = ot_arena_array(&scratch, stages->num_ranks, sizeof *memory);
  ot_replay_outline(&request, &scratch);
  find_memory(&request, &scratch, memory);
  for (int i = 0; i < stages->num_ranks; i++) (*out)[i].memory = memory[i];
  return OT_OK;
}

static void add_work(const ot_phase_price *price, ot_work_estimate *out) {
  out->total_s += price->total_s;
  out->compute_s += price->compute_s;
  out->host_s += price->host_s;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) out->exposed_s[i] += price->exposed_s[i];
}

ot_status ot_estimate_chunk_works(ot_estimator *estimator, const ot_candidate *candidate,
                                  ot_arena *arena, ot_chunk_estimate **out, int *num_chunks) {
  const ot_stage_partition *cut;
  ot_prices *prices;
  OT_TRY(ot_prices_find(estimator, candidate, &prices));
  OT_TRY(ot_stage_partition_find(estimator, candidate, &cut));
  const ot_stages *const stages = &cut->stages;
  *num_chunks = stages->num_chunks;
  *out = ot_arena_array(arena, stages->num_chunks, sizeof **out);
  for (int c = 0; c < stages->num_chunks; c++) {
    ot_chunk_estimate *const chunk = &(*out)[c];
    chunk->stage = stages->rank_of[c];
    chunk->first_block = stages->first_block[c];
    chunk->num_blocks = stages->first_block[c + 1] - stages->first_block[c];
    for (int i = stages->first_block[c]; i < stages->first_block[c + 1]; i++) {
      const ot_block_price *const price = &prices->kind[prices->blocks->kind_of[i]];
      for (int work = 0; work < OT_WORKS; work++)
        add_work(&price->work[work][1], &chunk->work[work]);
      chunk->recompute_s += price->recompute_s;
      chunk->matrix_flops += price->matrix_flops;
    }
  }
  return OT_OK;
}

ot_status ot_estimate_replay(ot_estimator *estimator, const ot_candidate *candidate,
                             ot_arena *arena, ot_replayed_step *out) {
  ot_replay_request request;
  OT_TRY(prepare(estimator, candidate, &request));
  const int64_t room = request.flow->num_actions + request.flow->num_ranks;
  *out = (ot_replayed_step){.actions = ot_arena_array(arena, room, sizeof *out->actions)};
  request.replayed = out;
  ot_arena scratch = ot_arena_pool_begin(&estimator->pool);
  ot_stage_replay *const replays =
      ot_arena_array(&scratch, request.stages->num_ranks, sizeof *replays);
  ot_replay_outline(&request, &scratch);
  OT_TRY(ot_step_replay(&request, &scratch, replays));
  const double factor = correction_of(estimator, candidate);
  out->total_s = factor * replays[0].total_s;
  for (int64_t i = 0; i < out->num_actions; i++) {
    out->actions[i].start_s *= factor;
    out->actions[i].end_s *= factor;
  }
  return OT_OK;
}
