// SPDX-License-Identifier: Apache-2.0
// Combines the parts of a candidate (part_estimate.h) into its estimate, and tells of its stages,
// chunks and actions.
#include "estimate/estimate.h"

#include "base/extremes.h"
#include "estimate/part_estimate.h"
#include "estimate/teacher_cost.h"

// ---- terms ----

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
  const double peak = ot_crossing_peak_flops(e);
  const double tokens = (double)e->job.global_batch_size * (double)e->job.sequence_length;
  out->hardware_flops = hardware * times;
  out->model_flops = model * times;
  out->tokens_per_s = tokens / out->step_s;
  if (peak <= 0) return;
  out->mfu = out->model_flops / out->step_s / peak;
  out->hfu = out->hardware_flops / out->step_s / peak;
}

// ---- parts that replay a step by themselves ----

// The part waits for the others before the gradient norm, until `met_s`.
static void wait_until(double met_s, ot_part_estimate *p) {
  const ot_estimator *const e = p->part.estimator;
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

static void find_fullest(const ot_part_estimate *parts, int num_parts, ot_estimate *out) {
  out->fits = true;
  out->memory = parts[0].memory[0];
  for (int i = 0; i < num_parts; i++) {
    for (int r = 0; r < parts[i].request.stages->num_ranks; r++) {
      const ot_memory_estimate *const m = &parts[i].memory[r];
      if (ot_memory_is_fuller(m, &out->memory)) out->memory = *m;
      if (!ot_memory_has_room(m)) out->fits = false;
    }
  }
}

// A rank on which only a teacher runs.
static void compare_teacher(const ot_estimator *e, const ot_part_estimate *p, ot_estimate *out) {
  const ot_teacher_price *const teacher = &p->request.teacher;
  if (teacher->parameters == 0 || ot_run_teacher_ranks(e->job.run) == 0) return;
  ot_memory_estimate m = ot_memory_empty(e, p->request.stages->num_ranks);
  ot_memory_add_teacher(e, teacher->bytes, &m);
  if (ot_memory_is_fuller(&m, &out->memory)) out->memory = m;
  if (!ot_memory_has_room(&m)) out->fits = false;
}

// The busiest stage of all parts; others end with it.
static void find_busiest(const ot_part_estimate *parts, int num_parts, ot_estimate *out) {
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

// Estimates memory first; replays the step if it fits or if `always`.
static ot_status estimate(ot_estimator *e, const ot_candidate *candidate, bool always,
                          ot_estimate *out) {
  ot_replay_part given[OT_MOST_PARTS];
  ot_part_estimate parts[OT_MOST_PARTS];
  int num_parts;
  bool periodic = false;
  double met_s = 0;
  OT_TRY(ot_crossing_parts(e, candidate, given, &num_parts));
  for (int i = 0; i < num_parts; i++) {
    parts[i].part = given[i];
    OT_TRY(ot_part_estimate_find(&parts[i]));
    periodic = periodic || parts[i].periodic;
  }
  ot_arena scratch = ot_arena_pool_begin(&e->scratch);
  for (int i = 0; i < num_parts; i++) OT_TRY(ot_part_estimate_begin(&parts[i], &scratch));
  find_fullest(parts, num_parts, out);
  compare_teacher(e, parts, out);
  ot_crossing_report(parts, out);
  if (!out->fits && !always && !periodic) return OT_OK;
  for (int i = 0; i < num_parts; i++) {
    OT_TRY(ot_part_estimate_replay(&parts[i], &scratch));
    met_s = ot_larger(met_s, parts[i].replays[0].met_s);
  }
  for (int i = 0; i < num_parts; i++) wait_until(met_s, &parts[i]);
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

// The first part of `candidate`, which stands for all.
static ot_status prepare(ot_estimator *e, const ot_candidate *candidate, ot_replay_part *first,
                         ot_arena *scratch, ot_replay_request *request) {
  ot_replay_part parts[OT_MOST_PARTS];
  int num_parts;
  OT_TRY(ot_crossing_parts(e, candidate, parts, &num_parts));
  *first = parts[0];
  return ot_part_estimate_prepare(first, scratch, request);
}

ot_status ot_estimate_stages(ot_estimator *estimator, const ot_candidate *candidate,
                             ot_arena *arena, ot_stage_estimate **out) {
  ot_replay_part first;
  ot_arena scratch;
  ot_replay_request request;
  OT_TRY(prepare(estimator, candidate, &first, &scratch, &request));
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
  ot_part_estimate_memory(&request, &scratch, memory);
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
  ot_replay_part first;
  ot_arena scratch;
  ot_replay_request request;
  OT_TRY(prepare(estimator, candidate, &first, &scratch, &request));
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
  ot_replay_part first;
  ot_arena scratch;
  ot_replay_request request;
  OT_TRY(prepare(estimator, candidate, &first, &scratch, &request));
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
