// SPDX-License-Identifier: Apache-2.0
// Combines costs, partition, pipeline schedule, replay and memory of a candidate into its estimate.
// Where replicas are in different pools, each pool replays its own.
#include "estimate/estimate.h"

#include "base/extremes.h"
#include "describe/pipeline_rules.h"
#include "estimate/framework.h"
#include "estimate/job_check.h"
#include "estimate/pools.h"
#include "estimate/teacher_cost.h"

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
  ot_cluster pool;
  ot_cluster_pool(e->job.cluster, e->pool, &pool);
  const int asked = e->job.run ? e->job.run->threads : 0;
  const int ranks = ot_job_all_devices(&e->job);
  const int threads = ot_cluster_threads(&pool, ranks, asked);
  const ot_kernel_style *const style = ot_engine_style(e->job.engine, &pool.device);
  e->threads = style && asked == 0 ? 1 : threads;
  OT_TRY(ot_cluster_share(&pool, ranks, threads, &e->cluster));
  e->simulation = ot_simulation_of(&e->cluster, style, e->job.recipe.products);
  e->simulation.expert_biases = e->job.model->moe.biases;
  e->simulation.stretch = e->job.stretch;
  return ot_price_check(&e->simulation);
}

static ot_status build_pool(const ot_job *job, int pool, ot_estimator **pools, ot_arena *arena) {
  ot_estimator *const e = ot_arena_array(arena, 1, sizeof *e);
  e->job = *job;
  e->arena = arena;
  e->pool = pool;
  e->pools = pools;
  e->num_pools = ot_cluster_pools(job->cluster);
  e->scratch.parent = e->searches.parent = arena;
  e->ends = ot_arena_array(arena, 1, sizeof *e->ends);
  e->framework = ot_framework_of(job->engine);
  pools[pool] = e;
  find_kinds(e);
  return find_machine(e);
}

ot_status ot_estimator_build(const ot_job *job, ot_arena *arena, ot_estimator **out) {
  OT_TRY(ot_job_check(job));
  const int num_pools = ot_cluster_pools(job->cluster);
  ot_estimator **const pools = ot_arena_array(arena, num_pools, sizeof *pools);
  for (int i = 0; i < num_pools; i++) OT_TRY(build_pool(job, i, pools, arena));
  *out = pools[0];
  return OT_OK;
}

ot_arena_pool *ot_estimator_scratch(ot_estimator *estimator) { return &estimator->scratch; }

// ---- one candidate ----

// A single stage that gathers or reduces bucket by bucket does the same in each micro-batch but the
// first and the last. PLAYED micro-batches are replayed, and PLAYED_MORE to know the time of one.
enum { REPLAYED = 8, REPLAYED_MORE = 2 };

ot_status ot_replay_find_places(ot_replay_request *r, bool works, ot_arena *arena) {
  ot_estimator *const own = r->estimator->pools[r->estimator->pool];
  const ot_candidate *const c = r->candidate;
  if (c->crosses == OT_CROSSES_NOTHING) return OT_OK;
  ot_stage_place *const places = ot_arena_array(arena, c->pp, sizeof *places);
  int stage = 0;
  for (int pool = 0; stage < c->pp; pool++) {
    ot_estimator *const e = c->crosses == OT_CROSSES_PP ? own->pools[pool] : own;
    const int ranks = c->tp * c->cp * ot_pool_replicas(&e->job, c, e->pool);
    const ot_prices *prices = NULL;
    ot_prices *whole = NULL;
    if (works) OT_TRY(ot_work_prices_find(e, c, &prices));
    if (!works) OT_TRY(ot_prices_find(e, c, &whole));
    for (int i = 0; i < ot_pool_stages(&e->job, c, pool); i++) {
      places[stage++] = (ot_stage_place){e, works ? prices : whole, i * ranks};
    }
  }
  r->places = places;
  return OT_OK;
}

// Finds what the replay and the memory estimate of `micro_batches` of `candidate` need; temporaries
// are in the estimator's scratch.
static ot_status find_input(ot_estimator *e, const ot_candidate *candidate, int64_t micro_batches,
                            ot_replay_request *request) {
  ot_prices *prices;
  *request = (ot_replay_request){.estimator = e, .candidate = candidate};
  OT_TRY(ot_prices_find(e, candidate, &prices));
  request->prices = prices;
  OT_TRY(ot_teacher_cost_find(e, candidate, &request->teacher));
  OT_TRY(ot_stage_partition_find(e, candidate, &request->cut));
  request->stages = &request->cut->stages;
  ot_candidate some = *candidate;
  some.micro_batches = micro_batches;
  return ot_flow_find(e, &some, request->stages, &request->flow);
}

// Prepares the replay and the memory estimate, once the input is found: only then may `arena` be
// the estimator's scratch.
static ot_status prepare_input(ot_replay_request *request, ot_arena *arena) {
  OT_TRY(ot_replay_find_places(request, false, arena));
  ot_replay_outline(request, arena);
  return OT_OK;
}

// The candidate as pool `pool` replays it, in `own`.
static ot_status candidate_in(ot_estimator *e, const ot_candidate *candidate, int pool,
                              ot_candidate *own) {
  int64_t micro_batches[OT_MAX_POOLS];
  *own = *candidate;
  if (candidate->crosses != OT_CROSSES_DP) return OT_OK;
  OT_TRY(ot_pool_micro_batches(e, candidate, micro_batches));
  own->micro_batches = micro_batches[pool];
  return OT_OK;
}

// Finds and prepares all micro-batches of `own`, the candidate as the first pool replays it, in
// `scratch`, an arena of the estimator's scratch.
static ot_status prepare(ot_estimator *e, const ot_candidate *candidate, ot_candidate *own,
                         ot_arena *scratch, ot_replay_request *request) {
  OT_TRY(candidate_in(e, candidate, 0, own));
  OT_TRY(find_input(e, own, own->micro_batches, request));
  *scratch = ot_arena_pool_begin(&e->scratch);
  return prepare_input(request, scratch);
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

static void add_replay(const ot_stage_replay *replay, ot_estimate *out) {
  out->step_s = replay->total_s;
  out->compute_s = replay->compute_s;
  out->recompute_s = replay->recompute_s;
  out->update_s = replay->update_s;
  out->bubble_s = replay->bubble_s;
  out->host_s = replay->host_s;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) out->exposed_s[i] = replay->exposed_s[i];
  out->bubble_fraction = replay->bubble_s / out->step_s;
}

static double peak_flops(const ot_estimator *e) {
  double sum = 0;
  for (int i = 0; i < e->num_pools; i++) {
    const ot_device_kind *const device = &e->pools[i]->cluster.device;
    const double peak = device->flops[e->job.recipe.products] > 0
                            ? device->flops[e->job.recipe.products]
                            : device->flops[OT_F32];
    sum += peak * (e->num_pools > 1 ? ot_cluster_pool_devices(e->job.cluster, i)
                                    : ot_job_all_devices(&e->job));
  }
  return sum;
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
  const double times = (double)(e->job.global_batch_size / c->micro_batch_size) * c->cp * c->tp;
  const double peak = peak_flops(e);
  const double tokens = (double)e->job.global_batch_size * (double)e->job.sequence_length;
  out->hardware_flops = hardware * times;
  out->model_flops = model * times;
  out->tokens_per_s = tokens / out->step_s;
  if (peak <= 0) return;
  out->mfu = out->model_flops / out->step_s / peak;
  out->hfu = out->hardware_flops / out->step_s / peak;
}

static ot_memory_estimate memory_of(const ot_estimator *pool, int stage) {
  return (ot_memory_estimate){
      .stage = stage,
      .context = ot_engine_context_bytes(pool->job.engine, &pool->cluster.device),
      .capacity = ot_device_capacity(&pool->cluster.device),
      .allowed = ot_estimator_memory(pool)};
}

static void add_teacher(const ot_estimator *e, int64_t bytes, ot_memory_estimate *out) {
  out->teacher = bytes;
  out->peak += bytes;
  out->reserved = (int64_t)((double)out->peak * (1 + e->job.engine->allocator_slack));
}

// Memory of each stage, `out` [stages].
static void find_memory(const ot_replay_request *r, ot_arena *arena, ot_memory_estimate *out) {
  const ot_estimator *const e = r->estimator;
  const int stages = r->stages->num_ranks;
  const int head = r->stages->rank_of[r->stages->num_chunks - 1];
  const bool teaches = ot_run_teacher_ranks(e->job.run) == 0;
  for (int i = 0; i < stages; i++) out[i] = memory_of(ot_replay_place(r, i).estimator, i);
  e->framework->count_memory(r, arena, out);
  for (int i = 0; i < stages; i++) {
    add_teacher(e, teaches && i == head ? r->teacher.bytes : 0, &out[i]);
  }
}

static bool has_room(const ot_memory_estimate *m) { return m->reserved + m->context <= m->allowed; }

// Whether `a` fills a larger part of its device than `b`.
static bool is_fuller(const ot_memory_estimate *a, const ot_memory_estimate *b) {
  if (a->capacity == b->capacity) return a->peak > b->peak;
  return (double)(a->reserved + a->context) / (double)a->allowed >
         (double)(b->reserved + b->context) / (double)b->allowed;
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
  replay->met_s += n * (more->met_s - replay->met_s);
  replay->compute_s += n * (more->compute_s - replay->compute_s);
  replay->update_s += n * (more->update_s - replay->update_s);
  replay->bubble_s += n * (more->bubble_s - replay->bubble_s);
  replay->host_s += n * (more->host_s - replay->host_s);
  replay->recompute_s += n * (more->recompute_s - replay->recompute_s);
  for (int i = 0; i < OT_TIMELINE_AXES; i++) {
    replay->exposed_s[i] += n * (more->exposed_s[i] - replay->exposed_s[i]);
  }
}

// ---- parts of the cluster that replay a step by themselves ----

// All devices, or where replicas are in different pools, one of these.
typedef struct part {
  ot_candidate candidate;  // with the micro-batches of this part's replicas
  bool periodic;
  ot_replay_request request;   // of all micro-batches, or of REPLAYED
  ot_replay_request more;      // periodic: of REPLAYED_MORE more
  ot_memory_estimate *memory;  // [stages]
  ot_stage_replay *replays;    // [stages]
} part;

static ot_status find_part(ot_estimator *e, part *p) {
  OT_TRY(is_periodic(e, &p->candidate, &p->periodic));
  if (!p->periodic) return find_input(e, &p->candidate, p->candidate.micro_batches, &p->request);
  OT_TRY(find_input(e, &p->candidate, REPLAYED + REPLAYED_MORE, &p->more));
  return find_input(e, &p->candidate, REPLAYED, &p->request);
}

static ot_status begin_part(part *p, ot_arena *arena) {
  OT_TRY(prepare_input(&p->request, arena));
  p->memory = ot_arena_array(arena, p->request.stages->num_ranks, sizeof *p->memory);
  find_memory(&p->request, arena, p->memory);
  return OT_OK;
}

static ot_status replay_part(part *p, ot_arena *arena) {
  p->replays = ot_arena_array(arena, p->request.stages->num_ranks, sizeof *p->replays);
  OT_TRY(ot_step_replay(&p->request, arena, p->replays));
  if (!p->periodic) return OT_OK;
  ot_stage_replay longer;
  OT_TRY(prepare_input(&p->more, arena));
  OT_TRY(ot_step_replay(&p->more, arena, &longer));
  extend(p->replays, &longer, (double)(p->candidate.micro_batches - REPLAYED));
  return OT_OK;
}

// The part waits for the others before the gradient norm, until `met_s`.
static void wait_until(const ot_estimator *e, double met_s, part *p) {
  const double one_s = ot_price_step_s(&e->simulation, e->job.devices, 1) -
                       ot_price_step_s(&e->simulation, e->job.devices, 0);
  for (int r = 0; r < p->request.stages->num_ranks; r++) {
    ot_stage_replay *const stage = &p->replays[r];
    const double waits_s = met_s - stage->met_s;
    if (waits_s <= 0) return;
    stage->met_s = met_s;
    stage->total_s += waits_s * one_s;
    stage->bubble_s += waits_s;
    stage->exposed_s[OT_TIMELINE_WORLD] += waits_s * (one_s - 1);
  }
}

static void find_fullest(const part *parts, int num_parts, ot_estimate *out) {
  out->fits = true;
  out->memory = parts[0].memory[0];
  for (int i = 0; i < num_parts; i++) {
    for (int r = 0; r < parts[i].request.stages->num_ranks; r++) {
      const ot_memory_estimate *const m = &parts[i].memory[r];
      if (is_fuller(m, &out->memory)) out->memory = *m;
      if (!has_room(m)) out->fits = false;
    }
  }
}

// A rank on which only a teacher runs.
static void compare_teacher(const ot_estimator *e, const part *p, ot_estimate *out) {
  const ot_teacher_price *const teacher = &p->request.teacher;
  if (teacher->parameters == 0 || ot_run_teacher_ranks(e->job.run) == 0) return;
  ot_memory_estimate m = memory_of(e, p->request.stages->num_ranks);
  add_teacher(e, teacher->bytes, &m);
  if (is_fuller(&m, &out->memory)) out->memory = m;
  if (!has_room(&m)) out->fits = false;
}

// The busiest stage of all parts; others end with it.
static void find_busiest(const part *parts, int num_parts, ot_estimate *out) {
  const ot_stage_replay *busiest = parts[0].replays;
  double end_s = 0;
  for (int i = 0; i < num_parts; i++) {
    for (int r = 0; r < parts[i].request.stages->num_ranks; r++) {
      const ot_stage_replay *const stage = &parts[i].replays[r];
      if (busy_s(stage) > busy_s(busiest)) busiest = stage;
      end_s = ot_larger(end_s, stage->total_s);
    }
  }
  ot_stage_replay taken = *busiest;
  taken.bubble_s += end_s - taken.total_s;
  taken.total_s = end_s;
  add_replay(&taken, out);
}

// Writes the part of each pool to out->pools.
static void fill_pools(const ot_estimator *e, const part *parts, ot_estimate *out) {
  const ot_candidate *const c = &out->candidate;
  int stage = 0;
  for (int i = 0; i < e->num_pools && c->crosses; i++) {
    const part *const p = c->crosses == OT_CROSSES_DP ? &parts[i] : parts;
    const int first = c->crosses == OT_CROSSES_DP ? 0 : stage;
    ot_pool_estimate *const pool = &out->pools[i];
    *pool = (ot_pool_estimate){.stages = ot_pool_stages(&e->job, c, i),
                               .replicas = ot_pool_replicas(&e->job, c, i),
                               .micro_batches = p->candidate.micro_batches,
                               .memory = p->memory[first]};
    for (int r = first; r < first + pool->stages; r++) {
      pool->layers += p->request.cut->shares[r].layers;
      if (is_fuller(&p->memory[r], &pool->memory)) pool->memory = p->memory[r];
    }
    stage += pool->stages;
  }
}

// Estimates memory first; replays the step if it fits or if `always`.
static ot_status estimate(ot_estimator *e, const ot_candidate *candidate, bool always,
                          ot_estimate *out) {
  part parts[OT_MAX_POOLS];
  const int num_parts = candidate->crosses == OT_CROSSES_DP ? e->num_pools : 1;
  bool periodic = false;
  double met_s = 0;
  for (int i = 0; i < num_parts; i++) {
    OT_TRY(candidate_in(e, candidate, i, &parts[i].candidate));
    OT_TRY(find_part(e->pools[i], &parts[i]));
    periodic = periodic || parts[i].periodic;
  }
  ot_arena scratch = ot_arena_pool_begin(&e->scratch);
  for (int i = 0; i < num_parts; i++) OT_TRY(begin_part(&parts[i], &scratch));
  find_fullest(parts, num_parts, out);
  compare_teacher(e, parts, out);
  fill_pools(e, parts, out);
  if (!out->fits && !always && !periodic) return OT_OK;
  for (int i = 0; i < num_parts; i++) {
    OT_TRY(replay_part(&parts[i], &scratch));
    met_s = ot_larger(met_s, parts[i].replays[0].met_s);
  }
  for (int i = 0; i < num_parts; i++) wait_until(e->pools[i], met_s, &parts[i]);
  find_busiest(parts, num_parts, out);
  ot_teacher_cost_add(&e->job, &parts[0].request.teacher, out);
  count_flops(&parts[0].request, out);
  return OT_OK;
}

// ---- correction by measured steps ----

static double correction_of(const ot_estimator *e, const ot_candidate *candidate) {
  const ot_step_correction *const c = e->job.correction;
  return c ? c->factor(c->context, &e->job, candidate) : 1;
}

// All terms alike: what the measured steps say of this configuration is no property of one term.
static void correct(double factor, ot_estimate *out) {
  double *const terms[] = {&out->step_s,   &out->compute_s, &out->recompute_s, &out->update_s,
                           &out->bubble_s, &out->host_s,    &out->teacher_s};
  for (int i = 0; i < OT_COUNT(terms); i++) *terms[i] *= factor;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) out->exposed_s[i] *= factor;
  out->mfu /= factor;
  out->hfu /= factor;
  out->tokens_per_s /= factor;
}

static ot_status build(ot_estimator *e, const ot_candidate *candidate, bool always,
                       ot_estimate *out) {
  *out = (ot_estimate){.candidate = *candidate};
  OT_TRY(estimate(e, candidate, always, out));
  if (e->job.correction) correct(correction_of(e, candidate), out);
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
  ot_candidate own;
  ot_arena scratch;
  ot_replay_request request;
  OT_TRY(prepare(estimator, candidate, &own, &scratch, &request));
  const ot_stages *const stages = request.stages;
  *out = ot_arena_array(arena, stages->num_ranks, sizeof **out);
  for (int chunk = stages->num_chunks - 1; chunk >= 0; chunk--) {
    ot_stage_estimate *const stage = &(*out)[stages->rank_of[chunk]];
    stage->first_block = stages->first_block[chunk];
    stage->num_blocks += stages->first_block[chunk + 1] - stages->first_block[chunk];
    for (int i = stages->first_block[chunk]; i < stages->first_block[chunk + 1]; i++) {
      const ot_prices *const prices = ot_replay_place(&request, stages->rank_of[chunk]).prices;
      const ot_block_price *const price = &prices->kind[prices->blocks->kind_of[i]];
      stage->forward_s += price->work[OT_WORK_FORWARD][1].total_s;
      stage->backward_s +=
          price->work[OT_WORK_BACKWARD][1].total_s + price->work[OT_WORK_WEIGHT][1].total_s;
    }
  }
  ot_memory_estimate *const memory = ot_arena_array(&scratch, stages->num_ranks, sizeof *memory);
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
  ot_candidate own;
  ot_arena scratch;
  ot_replay_request request;
  OT_TRY(prepare(estimator, candidate, &own, &scratch, &request));
  const ot_stages *const stages = request.stages;
  *num_chunks = stages->num_chunks;
  *out = ot_arena_array(arena, stages->num_chunks, sizeof **out);
  for (int c = 0; c < stages->num_chunks; c++) {
    ot_chunk_estimate *const chunk = &(*out)[c];
    const ot_prices *const prices = ot_replay_place(&request, stages->rank_of[c]).prices;
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
  ot_candidate own;
  ot_arena scratch;
  ot_replay_request request;
  OT_TRY(prepare(estimator, candidate, &own, &scratch, &request));
  const int64_t room = request.flow->num_actions + request.flow->num_ranks;
  *out = (ot_replayed_step){.actions = ot_arena_array(arena, room, sizeof *out->actions)};
  request.replayed = out;
  ot_stage_replay *const replays =
      ot_arena_array(&scratch, request.stages->num_ranks, sizeof *replays);
  OT_TRY(ot_step_replay(&request, &scratch, replays));
  const double factor = correction_of(estimator, candidate);
  out->total_s = factor * replays[0].total_s;
  for (int64_t i = 0; i < out->num_actions; i++) {
    out->actions[i].start_s *= factor;
    out->actions[i].end_s *= factor;
  }
  return OT_OK;
}
