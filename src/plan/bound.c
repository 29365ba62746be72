// SPDX-License-Identifier: Apache-2.0
// The estimator prices the blocks for a run that sets only what shards a micro-batch; only the few
// figures that bounds need are kept.
#include "plan/bound.h"

#include "base/extremes.h"
#include "base/text.h"
#include "describe/expert_load.h"
#include "describe/pipeline_rules.h"
#include "plan/calibrate.h"
#include "plan/pools.h"
#include "schedule/step_plan.h"

// The bound adds terms in another order than the estimate: this factor covers the rounding.
static const double rounding = 1 - 0x1p-40;

// ---- blocks ----

static void take_block(const ot_estimator *e, const ot_prices *prices, int kind,
                       ot_block_bound *out) {
  const ot_block_price *const price = &prices->kind[kind];
  *out = (ot_block_bound){.experts = prices->blocks->experts[kind],
                          .elements = price->buckets.elements,
                          .input_bytes = price->memory.has_input ? prices->hidden_bytes : 0,
                          .weight_pass_reads_input = price->memory.weight_pass_reads_input};
  for (int w = 0; w < OT_WORKS; w++) {
    out->work_s[w] = ot_smaller(price->work[w][0].total_s, price->work[w][1].total_s);
  }
  out->back_s = out->work_s[OT_WORK_BACKWARD] - price->recompute_total_s;
  e->framework->bound_slots(e, prices, kind, out->slot_bytes, &out->scratch_bytes);
}

// Over all kinds of layers. One block of experts may lie between two blocks of the dense view.
static void take_extremes(int num_kinds, ot_work_bound *work) {
  double forward_s[2] = {0}, back_s[2] = {0};
  work->layer_elements = (double)work->kind[1].elements;
  for (int w = 0; w < OT_WORKS; w++) work->least_s[w] = work->kind[1].work_s[w];
  for (int i = 1; i < num_kinds - 1; i++) {
    const ot_block_bound *const block = &work->kind[i];
    const int view = block->experts;
    forward_s[view] = ot_larger(forward_s[view], block->work_s[OT_WORK_FORWARD]);
    back_s[view] = ot_larger(back_s[view], block->work_s[OT_WORK_BACKWARD]);
    if (view == 1) continue;
    work->layer_elements = ot_smaller(work->layer_elements, (double)block->elements);
    for (int w = 0; w < OT_WORKS; w++) {
      work->least_s[w] = ot_smaller(work->least_s[w], block->work_s[w]);
    }
  }
  work->forward_s = forward_s[0] + forward_s[1];
  work->back_s = back_s[0] + back_s[1];
}

static ot_work_bound *make_work(const ot_estimator *e, const ot_prices *prices) {
  ot_work_bound *const made = ot_arena_array(e->arena, 1, sizeof *made);
  const int kinds = prices->blocks->num_kinds;
  made->kind = ot_arena_array(e->arena, kinds, sizeof *made->kind);
  made->split = prices->split;
  for (int i = 0; i < kinds; i++) take_block(e, prices, i, &made->kind[i]);
  take_extremes(kinds, made);
  return made;
}

static ot_status find_work(ot_estimator *e, const ot_candidate *candidate,
                           const ot_work_bound **out) {
  const ot_prices *prices;
  OT_TRY(ot_work_prices_find(e, candidate, &prices));
  const int64_t index = ot_price_list_find(&e->works, &prices->key);
  while (e->bounds_capacity <= index) {
    e->bounds = ot_arena_grow(e->arena, e->bounds, e->bounds_capacity, &e->bounds_capacity,
                              sizeof *e->bounds);
  }
  if (!e->bounds[index]) e->bounds[index] = make_work(e, prices);
  *out = e->bounds[index];
  return OT_OK;
}

// ---- resharding of weights ----

// A run may set it per block.
static bool all_reshard(const ot_estimator *e) {
  for (int i = 0; i < (int)e->job.model->num_layers; i++) {
    if (!ot_estimator_reshards(e, 1 + i)) return false;
  }
  return true;
}

ot_status ot_shard_bound_build(const ot_estimator *e, const ot_candidate *c, double elements,
                               ot_shard_bound *out) {
  *out = (ot_shard_bound){.regathers = all_reshard(e)};
  return e->framework->bound_sums(e, c, elements, out);
}

static void take_smaller(double other, double *value) {
  if (other < *value) *value = other;
}

void ot_shard_bound_merge(const ot_shard_bound *other, ot_shard_bound *out) {
  take_smaller(other->reduce_s, &out->reduce_s);
  take_smaller(other->reduce_each_s, &out->reduce_each_s);
  take_smaller(other->gradient_gather_s, &out->gradient_gather_s);
  take_smaller(other->gather_s, &out->gather_s);
  take_smaller(other->end_s, &out->end_s);
  take_smaller(other->reduce_load_s, &out->reduce_load_s);
  take_smaller(other->reduce_each_load_s, &out->reduce_each_load_s);
  take_smaller(other->gather_load_s, &out->gather_load_s);
}

// ---- totals over blocks ----

typedef struct block_sum {
  double forward_s, back_s, before_s, all_s;  // before: all but W
  double elements[2];                         // of the dense view, and of the expert view
  double largest[2];                          // the largest of them in one layer's block
  double scratch_bytes;                       // largest of one block
  double layers;                              // in the dense view
} block_sum;

static void add_sum(const block_sum *other, block_sum *sum) {
  sum->forward_s += other->forward_s;
  sum->back_s += other->back_s;
  sum->before_s += other->before_s;
  sum->all_s += other->all_s;
  for (int i = 0; i < 2; i++) {
    sum->elements[i] += other->elements[i];
    sum->largest[i] = ot_larger(sum->largest[i], other->largest[i]);
  }
  sum->scratch_bytes = ot_larger(sum->scratch_bytes, other->scratch_bytes);
  sum->layers += other->layers;
}

// `count` copies of the same blocks.
static block_sum times(block_sum sum, double count) {
  sum.forward_s *= count;
  sum.back_s *= count;
  sum.before_s *= count;
  sum.all_s *= count;
  for (int i = 0; i < 2; i++) sum.elements[i] *= count;
  sum.layers *= count;
  return sum;
}

static block_sum sum_of(const ot_block_bound *block, bool layer) {
  const double forward_s = block->work_s[OT_WORK_FORWARD];
  const double backward_s = block->work_s[OT_WORK_BACKWARD];
  block_sum sum = {.forward_s = forward_s,
                   .back_s = block->back_s,
                   .before_s = forward_s + backward_s,
                   .all_s = forward_s + backward_s + block->work_s[OT_WORK_WEIGHT],
                   .scratch_bytes = (double)block->scratch_bytes,
                   .layers = layer && !block->experts};
  sum.elements[block->experts] = (double)block->elements;
  sum.largest[block->experts] = layer ? (double)block->elements : 0;
  return sum;
}

// ---- stages ----

typedef struct bounder {
  const ot_estimator *estimator;
  const ot_candidate *candidate;
  const ot_shard_bound *shards;
  const ot_work_bound *work;
  const ot_block_list *blocks;
  const ot_stages *stages;       // null: ignore which stage has which block
  const ot_pipeline_flow *flow;  // null: ignore the pipeline schedule
  double scale;                  // of seconds and saved activations, to the micro-batch size
  double state_bytes[2];         // per parameter of the dense view, and of the expert view
  double pool_bytes[2];          // per parameter of the largest block, in addition to its states
  double met_s, end_s;           // last stage has its reductions; the longest update
  double peak;
} bounder;

static double state_bytes_of(const ot_estimator *e, const ot_candidate *c, bool experts) {
  const ot_recipe *const r = &e->job.recipe;
  const double shard = e->framework->bound_shards(e, c, experts);
  return r->weight_bytes / (c->zero == 3 ? shard : 1) +
         r->gradient_bytes / (c->zero >= 2 ? shard : 1) +
         (r->master_bytes + r->moment_bytes * ot_job_moments(&e->job) / 2) / shard;
}

// Buffers of gathered weights (at least one of a size) and of gradients in flight (at least two).
static double pool_bytes_of(const ot_estimator *e, const ot_candidate *c, bool experts) {
  const ot_recipe *const r = &e->job.recipe;
  if (!e->framework->has_places || e->framework->bound_shards(e, c, experts) <= 1) return 0;
  const double sums = c->micro_batches > 1 ? 2 : 1;
  return (c->zero == 3 ? r->gather_bytes : 0) + (c->zero >= 2 ? sums * r->gradient_bytes : 0);
}

// Micro-batches whose activations a chunk saves at the same time. Schedules with one chunk a stage:
// forwards before the first backward. Interleaved: the first pass ends in the last chunk.
static double in_flight(const bounder *b, int chunk) {
  const ot_candidate *const c = b->candidate;
  const double m = (double)c->micro_batches;
  const ot_pipeline_rules *const rules = ot_pipeline_rules_of(c->pipeline);
  const int pp = b->stages->num_ranks, chunks = b->stages->num_chunks;
  if (pp == 1) return 1;
  if (rules->fills) return m;
  if (chunks == pp) return ot_smaller(m, pp - chunk);
  return rules->in_rounds && chunk < chunks - pp ? ot_smaller(m, pp) : 1;
}

static double slots_of(const ot_block_bound *block) {
  return (double)(block->slot_bytes[OT_SLOT_SHORT] + block->slot_bytes[OT_SLOT_LONG]);
}

// Activation bytes that a chunk saves of a block: with buffer slots, the slots for the largest
// number of micro-batches in flight; without slots, the largest amount saved at one moment.
static double kept_bytes(const bounder *b, int chunk, const ot_block_bound *block, bool first) {
  const int64_t *const slot = block->slot_bytes;
  if (!b->flow || !b->estimator->framework->has_places) {
    return in_flight(b, chunk) * slots_of(block);
  }
  const ot_saved_kind in = first                            ? OT_SAVED_INPUT
                           : block->weight_pass_reads_input ? OT_SAVED_LONG
                                                            : OT_SAVED_SHORT;
  return (double)(slot[OT_SLOT_SHORT] * b->flow->most[OT_SAVED_SHORT][chunk] +
                  slot[OT_SLOT_LONG] * b->flow->most[OT_SAVED_LONG][chunk] +
                  slot[OT_SLOT_WEIGHT] * b->flow->most[OT_SAVED_WEIGHT][chunk] +
                  block->input_bytes * b->flow->most[in][chunk]);
}

// Adds up the blocks of a chunk; returns the activation bytes that it saves. Equal blocks after the
// first one are counted together.
static double sum_chunk(const bounder *b, int chunk, block_sum *out) {
  const ot_block_list *const blocks = b->blocks;
  const int first = b->stages->first_block[chunk], end = b->stages->first_block[chunk + 1];
  double kept = 0;
  for (int i = first; i < end;) {
    const int kind = blocks->kind_of[i];
    int next = i + 1;
    while (i > first && next < end && blocks->kind_of[next] == kind) next++;
    const ot_block_bound *const block = &b->work->kind[kind];
    const block_sum sum = times(sum_of(block, i > 0 && i < blocks->num_blocks - 1), next - i);
    add_sum(&sum, out);
    kept += (next - i) * kept_bytes(b, chunk, block, i == first);
    i = next;
  }
  return kept;
}

// Collectives of the layers of a stage.
typedef struct stage_traffic {
  double gathers;  // of weights, in layers
  double stay;     // passes that need none
  double inner;    // layers that two others of their chunk follow in the backward
} stage_traffic;

// Two successive passes over the same block gather its weights once. If the schedule is ignored,
// the bound assumes that between all passes.
static void add_traffic(const bounder *b, double chunks, double layers, double stay,
                        stage_traffic *out) {
  const double passes = 2 * (double)b->candidate->micro_batches;
  const double most = chunks * (passes - 1);
  out->inner += layers > 2 * chunks ? layers - 2 * chunks : 0;
  if (!b->shards->regathers) {
    out->gathers += layers;
    return;
  }
  const double stays = b->flow ? stay : most;
  out->stay += stays;
  out->gathers += ot_larger(layers, passes * layers - stays);
}

static void add_chunk_traffic(const bounder *b, int chunk, double layers, stage_traffic *out) {
  const ot_pipeline_flow *const flow = b->flow;
  const bool one = b->stages->first_block[chunk + 1] - b->stages->first_block[chunk] == 1;
  const double stay = flow ? flow->turns[chunk] + (one ? flow->repeats[chunk] : 0) : 0;
  add_traffic(b, 1, layers, stay, out);
}

// Seconds by which concurrent collectives slow down kernels.
static double overlapped_s(const bounder *b, double work_s, double load_s) {
  return ot_price_overlap_slowdown_s(&b->estimator->simulation, work_s, load_s);
}

// Upper bound of the duration of kernels that run concurrently with collectives.
static double slowest_s(const bounder *b, double work_s) {
  return work_s + overlapped_s(b, work_s, work_s);
}

// Exposed collectives of a stage that waits for them block by block: a gather starts one block
// ahead, and gradients that are reduced at once have two buffers. Unscaled.
static double waits_s(const bounder *b, const block_sum *own, const stage_traffic *traffic) {
  const double m = (double)b->candidate->micro_batches;
  const double forward_s = slowest_s(b, b->work->forward_s * b->scale);
  const double back_s = slowest_s(b, b->work->back_s * b->scale);
  const ot_engine *const engine = b->estimator->job.engine;
  const double gather_s = b->shards->gather_s;
  double s = 0, longest_s = back_s;
  if (b->shards->regathers && engine->overlap_gather && ot_estimator_prefetch(b->estimator) == 1) {
    const double before_s = ot_larger(0, gather_s - forward_s);
    const double after_s = ot_larger(0, gather_s - back_s);
    s = ot_larger(0, m * own->layers * (before_s + after_s) - traffic->stay * before_s);
    longest_s = ot_larger(back_s, gather_s);
  }
  if (!engine->overlap_reduce || b->flow->split) return s;
  return s + m * traffic->inner * ot_larger(0, b->shards->reduce_each_s - longest_s);
}

// Seconds added to the kernels of a stage; before: to all but W.
typedef struct stage_slowdown {
  double before_s, all_s;
} stage_slowdown;

// Layers that run concurrently with all-gathers of weights and reductions of gradients: in all
// micro-batches, or in the last one. Where weights stay gathered, one pass fewer is slowed down.
static stage_slowdown slowdown_of(const bounder *b, const block_sum *own,
                                  const stage_traffic *traffic) {
  const ot_engine *const engine = b->estimator->job.engine;
  const ot_shard_bound *const shards = b->shards;
  const double m = (double)b->candidate->micro_batches;
  const bool split = b->work->split, again = shards->regathers;
  const double forward_s = b->work->least_s[OT_WORK_FORWARD] * b->scale;
  const double back_s = b->work->least_s[OT_WORK_BACKWARD] * b->scale;
  const double summing_s = split ? b->work->least_s[OT_WORK_WEIGHT] * b->scale : back_s;
  const double gather_s = engine->overlap_gather ? shards->gather_load_s : 0;
  const double each_s = engine->overlap_reduce ? shards->reduce_each_load_s : 0;
  const double last_s = engine->overlap_reduce ? shards->reduce_load_s : 0;
  const double both_s = again && !split ? gather_s : 0;  // both in one pass
  const double pass_s = overlapped_s(b, forward_s, gather_s) +
                        (again && split ? overlapped_s(b, back_s, gather_s) : 0);
  const double most_s = again ? overlapped_s(b, ot_larger(forward_s, back_s), gather_s) : 0;
  const double gathered_s = own->layers * (again ? m : 1) * pass_s - traffic->stay * most_s;
  const double summed_s = own->layers * ((m - 1) * overlapped_s(b, summing_s, both_s + each_s) +
                                         overlapped_s(b, summing_s, both_s + last_s));
  return (stage_slowdown){.before_s = ot_larger(0, gathered_s + (split ? 0 : summed_s)),
                          .all_s = ot_larger(0, gathered_s + summed_s)};
}

// Seconds until the stage has done its own work and the last micro-batch has returned through the
// stages before it. Exposed reductions run between blocks, each after its block, or after all work.
static double busy_s(const bounder *b, const block_sum *own, const block_sum *before,
                     const stage_traffic *traffic, double reduce_s) {
  const ot_engine *const engine = b->estimator->job.engine;
  const ot_shard_bound *const shards = b->shards;
  const double m = (double)b->candidate->micro_batches;
  const stage_slowdown slow = slowdown_of(b, own, traffic);
  const double gather_s = engine->overlap_gather ? 0 : traffic->gathers * shards->gather_s;
  const double first_s = before->forward_s * b->scale + gather_s;
  double own_s = m * own->all_s * b->scale + slow.all_s;
  double back_s = (m * own->before_s + before->back_s) * b->scale + slow.before_s;
  if (!engine->overlap_reduce) {
    const bool between = shards->reduce_each_s > 0 && !b->work->split;
    const double last_s =
        ot_larger(shards->reduce_s, shards->reduce_each_s) + shards->gradient_gather_s;
    own_s += reduce_s;
    back_s += between ? ot_larger(0, reduce_s - last_s) : 0;
  }
  return first_s + ot_larger(own_s, back_s);
}

// The same with the exposed collectives.
static double waited_for_s(const bounder *b, const block_sum *own, const block_sum *before,
                           const stage_traffic *traffic) {
  const double m = (double)b->candidate->micro_batches;
  return (before->forward_s + m * own->before_s) * b->scale +
         slowdown_of(b, own, traffic).before_s + waits_s(b, own, traffic);
}

// Bound of a stage with `own` blocks, after `before`.
static void bound_stage(bounder *b, const block_sum *own, const block_sum *before,
                        const stage_traffic *traffic) {
  const double m = (double)b->candidate->micro_batches;
  const double gather_s = traffic->gathers * b->shards->gather_s;
  const double last_s = b->shards->reduce_s + b->shards->gradient_gather_s;
  const double reduce_s = own->layers * ((m - 1) * b->shards->reduce_each_s + last_s);
  const double total_s = busy_s(b, own, before, traffic, reduce_s);
  // W may fill the time in which the stage waits.
  const double waited_s = b->flow ? waited_for_s(b, own, before, traffic) : 0;
  // With one chunk a stage, all backwards but the last precede the first reduction.
  const bool one = b->stages && b->stages->num_chunks == b->stages->num_ranks;
  const double first_s = one ? before->forward_s + (m - 1) * own->all_s + own->forward_s : 0;
  const double lane_s = b->shards->reduce_each_s > 0 ? reduce_s : first_s * b->scale + reduce_s;
  b->met_s =
      ot_larger(b->met_s, ot_larger(ot_larger(total_s, waited_s), ot_larger(lane_s, gather_s)));
  b->end_s = ot_larger(b->end_s, own->layers * b->shards->end_s);
}

// Bytes of the states of these blocks, of their saved activations, and of the temporaries of their
// kernels and reductions.
static double bytes_of(const bounder *b, const block_sum *own, double kept) {
  double bytes = 0;
  for (int i = 0; i < 2; i++) {
    bytes += own->elements[i] * b->state_bytes[i] + own->largest[i] * b->pool_bytes[i];
  }
  return bytes + (kept + own->scratch_bytes) * b->scale;
}

// All micro-batches pass a chunk one after the other: the first after its forward through all
// earlier chunks, the last before its backward through them.
static void bound_chunk(bounder *b, const block_sum *chunk, const block_sum *before) {
  const double m = (double)b->candidate->micro_batches;
  const double s = before->forward_s + m * chunk->before_s + before->back_s;
  b->met_s = ot_larger(b->met_s, s * b->scale);
}

static void add_times(const ot_block_bound *block, double count, bool layers, block_sum *out) {
  const block_sum sum = times(sum_of(block, layers), count);
  if (count > 0) add_sum(&sum, out);
}

// Where all layers are equal and the schedule is ignored: from the numbers of layers.
static void bound_shares(bounder *b, const ot_stage_partition *cut) {
  const ot_block_bound *const first = &b->work->kind[0], *const layer = &b->work->kind[1],
                              *const head = &b->work->kind[2];
  const int chunks = b->stages->num_chunks;
  for (int r = 0; r < b->stages->num_ranks; r++) {
    const ot_stage_share *const share = &cut->shares[r];
    const bool begins = share->first_chunk == 0, ends = share->last_chunk == chunks - 1;
    block_sum own = {0}, before = {0};
    add_times(layer, share->layers, true, &own);
    add_times(layer, share->layers_before, true, &before);
    add_times(first, begins, false, &own);
    add_times(first, !begins, false, &before);
    add_times(head, ends, false, &own);
    stage_traffic traffic = {0};
    add_traffic(b, (double)chunks / b->stages->num_ranks, share->layers, 0, &traffic);
    bound_stage(b, &own, &before, &traffic);
    const double early = in_flight(b, share->first_chunk), late = in_flight(b, share->last_chunk);
    const bool one = share->first_chunk == share->last_chunk;
    const double kept =
        slots_of(layer) *
            (early * (share->layers - share->last_layers) + late * share->last_layers) +
        (begins ? slots_of(first) * (one ? late : early) : 0) + (ends ? slots_of(head) * late : 0);
    b->peak = ot_larger(b->peak, bytes_of(b, &own, kept));
  }
  // The last chunk runs one micro-batch after the other.
  block_sum last = {0}, before = {0};
  const ot_stage_share *const share = &cut->shares[b->stages->rank_of[chunks - 1]];
  add_times(head, 1, false, &last);
  add_times(layer, share->last_layers, true, &last);
  add_times(layer, b->blocks->num_blocks - 2 - share->last_layers, true, &before);
  add_times(first, chunks > 1, false, &before);
  bound_chunk(b, &last, &before);
}

static void bound_stages(bounder *b, ot_arena *scratch) {
  const ot_stages *const stages = b->stages;
  block_sum *const own = ot_arena_array(scratch, stages->num_ranks, sizeof *own);
  block_sum *const before = ot_arena_array(scratch, stages->num_ranks, sizeof *before);
  double *const kept = ot_arena_array(scratch, stages->num_ranks, sizeof *kept);
  stage_traffic *const traffic = ot_arena_array(scratch, stages->num_ranks, sizeof *traffic);
  block_sum passed = {0};
  for (int c = 0; c < stages->num_chunks; c++) {
    const int rank = stages->rank_of[c];
    block_sum chunk = {0};
    kept[rank] += sum_chunk(b, c, &chunk);
    // Neighbouring chunks on one stage (zb-v) send each other nothing.
    if (own[rank].all_s == 0) before[rank] = passed;
    add_sum(&chunk, &own[rank]);
    add_chunk_traffic(b, c, chunk.layers, &traffic[rank]);
    bound_chunk(b, &chunk, &passed);
    add_sum(&chunk, &passed);
  }
  for (int r = 0; r < stages->num_ranks; r++) {
    bound_stage(b, &own[r], &before[r], &traffic[r]);
    b->peak = ot_larger(b->peak, bytes_of(b, &own[r], kept[r]));
  }
}

// The mean over all stages is a lower bound of the fullest one: sums, and maxima of sums, are
// convex in the share of a stage. A chunk may be one block. Each micro-batch passes forward and
// backward through all blocks.
static void bound_mean(bounder *b) {
  const ot_block_list *const blocks = b->blocks;
  const double share = 1.0 / b->candidate->pp;
  block_sum all = {0};
  double kept = 0;
  for (int i = 0; i < blocks->num_blocks; i++) {
    const ot_block_bound *const block = &b->work->kind[blocks->kind_of[i]];
    add_times(block, 1, i > 0 && i < blocks->num_blocks - 1, &all);
    kept += slots_of(block);
  }
  block_sum own = times(all, share);
  stage_traffic traffic = {0};
  own.scratch_bytes = own.largest[0] = own.largest[1] = 0;
  add_traffic(b, own.layers, own.layers, 0, &traffic);
  bound_stage(b, &own, &(block_sum){0}, &traffic);
  b->met_s = ot_larger(b->met_s, (all.forward_s + all.back_s) * b->scale);
  b->peak = bytes_of(b, &own, kept * share);
}

int64_t ot_bound_used(const ot_estimator *estimator, int64_t peak) {
  const ot_engine *const engine = estimator->job.engine;
  const int64_t reserved = (int64_t)((double)peak * (1 + engine->allocator_slack));
  return reserved + ot_engine_context_bytes(engine, &estimator->cluster.device);
}

bool ot_bound_fits(const ot_estimator *estimator, int64_t peak) {
  for (int i = 0; i < estimator->num_pools; i++) {
    const ot_estimator *const pool = estimator->pools[i];
    if (ot_bound_used(pool, peak) <= ot_estimator_memory(pool)) return true;
  }
  return false;
}

ot_status ot_bound_elements(ot_estimator *e, const ot_candidate *candidate, double *elements) {
  const ot_work_bound *work;
  ot_candidate priced = *candidate;
  priced.micro_batch_size = e->job.global_batch_size;
  priced.cp = 1;
  OT_TRY(find_work(e, &priced, &work));
  *elements = work->layer_elements;
  return OT_OK;
}

// Whether a micro-batch of the whole batch may need overflow passes where `c` needs none: a buffer
// that is short by less than one token is rounded up and then holds all tokens.
static bool rounds_differ(const ot_estimator *e, const ot_candidate *c) {
  const ot_moe *const moe = &e->job.model->moe;
  if (e->job.expert_imbalance <= 1 || moe->num_experts == 0) return false;
  if (moe->routing != OT_MOE_DROPLESS) return true;
  const double buffer = e->job.run ? e->job.run->parallel.expert_buffer : OT_EXPERT_BUFFER;
  const double rows = (double)c->micro_batch_size * (double)e->job.sequence_length / c->cp / c->tp;
  const double even = rows * (double)moe->experts_per_token;
  const double missing = even * (ot_expert_load_max(moe, c->ep) - buffer);
  return missing > 0 && missing < 1;
}

// The candidate whose block costs bound those of `c`, and the share of them that `c` has at least.
static ot_candidate priced_at(const ot_estimator *e, const ot_candidate *c, ot_bound_depth depth,
                              double *scale) {
  ot_candidate priced = *c;
  *scale = 1;
  if (depth > OT_BOUND_CONTEXT || rounds_differ(e, c)) return priced;
  priced.micro_batch_size = e->job.global_batch_size;
  if (depth < OT_BOUND_PLAIN) priced.cp = 1;
  if (depth == OT_BOUND_PLAIN) priced.recompute = OT_RECOMPUTE_NONE;
  *scale = (double)c->micro_batch_size * priced.cp / ((double)e->job.global_batch_size * c->cp);
  return priced;
}

// Lower bound over the stages of b->candidate with its partition.
static ot_status bound_cut(ot_estimator *e, ot_bound_depth depth, bounder *b) {
  const ot_stage_partition *cut;
  OT_TRY(ot_stage_partition_find(e, b->candidate, &cut));
  b->stages = &cut->stages;
  if (depth == OT_BOUND_ORDER) OT_TRY(ot_flow_find(e, b->candidate, b->stages, &b->flow));
  ot_arena scratch = ot_arena_pool_begin(&e->scratch);
  if (!b->flow && b->blocks->num_kinds == 3) {
    bound_shares(b, cut);
  } else {
    bound_stages(b, &scratch);
  }
  return OT_OK;
}

ot_status ot_bound_build(ot_estimator *e, const ot_bound_request *request, ot_estimate_bound *out) {
  const ot_candidate *const c = request->candidate;
  ot_shard_bound shards;
  bounder b = {.estimator = e,
               .candidate = c,
               .shards = request->shards,
               .blocks = ot_estimator_blocks(e, c)};
  const ot_candidate priced = priced_at(e, c, request->depth, &b.scale);
  OT_TRY(find_work(e, &priced, &b.work));
  for (int i = 0; i < 2; i++) {
    b.state_bytes[i] = state_bytes_of(e, c, i == 1);
    b.pool_bytes[i] = pool_bytes_of(e, c, i == 1);
  }
  if (!b.shards) {
    OT_TRY(ot_shard_bound_build(e, c, b.work->layer_elements, &shards));
    b.shards = &shards;
  }
  const bool mixed = e->num_pools > 1;
  if (request->depth == OT_BOUND_MEAN || mixed) {
    bound_mean(&b);
  } else {
    OT_TRY(bound_cut(e, request->depth, &b));
  }
  const double least = e->job.calibration ? ot_calibration_least(e->job.calibration) : 1;
  if (mixed) OT_TRY(ot_pools_bound(e, c, &priced, b.scale, &b.met_s));
  const double end_s = mixed ? 0 : b.end_s;
  const double s = (ot_larger(b.met_s, request->work_s) + end_s) * rounding;
  double step_s = 1e300;
  for (int i = 0; i < e->num_pools; i++) {
    const ot_simulation *const pool = &e->pools[i]->simulation;
    step_s = ot_smaller(step_s, least * ot_price_step_s(pool, e->job.devices, s));
  }
  const double peak = request->depth == OT_BOUND_PLAIN ? 0 : b.peak;
  *out = (ot_estimate_bound){.step_s = step_s, .peak = (int64_t)peak};
  return OT_OK;
}

ot_status ot_estimate_bound_build(ot_estimator *estimator, const ot_candidate *candidate,
                                  ot_estimate_bound *out) {
  const ot_bound_request request = {.candidate = candidate, .depth = OT_BOUND_ORDER};
  return ot_bound_build(estimator, &request, out);
}
