// SPDX-License-Identifier: Apache-2.0
#include "estimate/part_estimate.h"

#include "describe/pipeline_rules.h"
#include "estimate/framework.h"
#include "estimate/teacher_cost.h"

// A single stage that gathers or reduces bucket by bucket does the same in each micro-batch but the
// first and the last. REPLAYED micro-batches are replayed, and REPLAYED_MORE to know the time of
// one.
enum { REPLAYED = 8, REPLAYED_MORE = 2 };

// ---- input ----

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

// Prepares the replay and the memory estimate, once the input is found: only then may `arena` be
// the estimator's scratch.
static ot_status prepare_input(ot_replay_request *request, ot_arena *arena) {
  OT_TRY(ot_crossing_places(request, false, arena));
  ot_replay_outline(request, arena);
  return OT_OK;
}

// Whether the first REPLAYED micro-batches represent all.
static ot_status is_periodic(ot_estimator *e, const ot_candidate *candidate, bool *periodic) {
  ot_prices *prices;
  OT_TRY(ot_prices_find(e, candidate, &prices));
  *periodic = candidate->pp == 1 && !ot_pipeline_rules_of(candidate->pipeline)->fills &&
              candidate->micro_batches > REPLAYED + REPLAYED_MORE &&
              (prices->gathers || prices->each_micro_batch);
  return OT_OK;
}

ot_status ot_part_estimate_find(ot_part_estimate *p) {
  ot_estimator *const e = p->part.estimator;
  const ot_candidate *const c = &p->part.candidate;
  OT_TRY(is_periodic(e, c, &p->periodic));
  if (!p->periodic) return find_input(e, c, c->micro_batches, &p->request);
  OT_TRY(find_input(e, c, REPLAYED + REPLAYED_MORE, &p->more));
  return find_input(e, c, REPLAYED, &p->request);
}

ot_status ot_part_estimate_prepare(const ot_replay_part *part, ot_arena *scratch,
                                   ot_replay_request *request) {
  OT_TRY(find_input(part->estimator, &part->candidate, part->candidate.micro_batches, request));
  *scratch = ot_arena_pool_begin(&part->estimator->scratch);
  return prepare_input(request, scratch);
}

// ---- memory ----

ot_memory_estimate ot_memory_empty(const ot_estimator *e, int stage) {
  return (ot_memory_estimate){.stage = stage,
                              .context = ot_engine_context_bytes(e->job.engine, &e->cluster.device),
                              .capacity = ot_device_capacity(&e->cluster.device),
                              .allowed = ot_estimator_memory(e)};
}

void ot_memory_add_teacher(const ot_estimator *e, int64_t bytes, ot_memory_estimate *out) {
  out->teacher = bytes;
  out->peak += bytes;
  out->reserved = (int64_t)((double)out->peak * (1 + e->job.engine->allocator_slack));
}

void ot_part_estimate_memory(const ot_replay_request *r, ot_arena *arena, ot_memory_estimate *out) {
  const ot_estimator *const e = r->estimator;
  const int stages = r->stages->num_ranks;
  const int head = r->stages->rank_of[r->stages->num_chunks - 1];
  const bool teaches = ot_run_teacher_ranks(e->job.run) == 0;
  for (int i = 0; i < stages; i++) out[i] = ot_memory_empty(ot_replay_place(r, i).estimator, i);
  e->framework->count_memory(r, arena, out);
  for (int i = 0; i < stages; i++) {
    ot_memory_add_teacher(e, teaches && i == head ? r->teacher.bytes : 0, &out[i]);
  }
}

bool ot_memory_has_room(const ot_memory_estimate *m) {
  return m->reserved + m->context <= m->allowed;
}

bool ot_memory_is_fuller(const ot_memory_estimate *a, const ot_memory_estimate *b) {
  if (a->capacity == b->capacity) return a->peak > b->peak;
  return (double)(a->reserved + a->context) / (double)a->allowed >
         (double)(b->reserved + b->context) / (double)b->allowed;
}

ot_status ot_part_estimate_begin(ot_part_estimate *p, ot_arena *arena) {
  OT_TRY(prepare_input(&p->request, arena));
  p->memory = ot_arena_array(arena, p->request.stages->num_ranks, sizeof *p->memory);
  ot_part_estimate_memory(&p->request, arena, p->memory);
  return OT_OK;
}

// ---- time ----

// Adds the time of `times` more micro-batches to `replay`, from a replay of REPLAYED_MORE more.
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

ot_status ot_part_estimate_replay(ot_part_estimate *p, ot_arena *arena) {
  p->replays = ot_arena_array(arena, p->request.stages->num_ranks, sizeof *p->replays);
  OT_TRY(ot_step_replay(&p->request, arena, p->replays));
  if (!p->periodic) return OT_OK;
  ot_stage_replay longer;
  OT_TRY(prepare_input(&p->more, arena));
  OT_TRY(ot_step_replay(&p->more, arena, &longer));
  extend(p->replays, &longer, (double)(p->part.candidate.micro_batches - REPLAYED));
  return OT_OK;
}
