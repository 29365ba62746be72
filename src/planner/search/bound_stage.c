// SPDX-License-Identifier: Apache-2.0
// Sums over the blocks of a stage, from which follow the time of its work, of its lanes, and its
// memory.
#include "search/bound_stage.h"

#include "base/extremes.h"
#include "describe/pipeline_rules.h"

// ---- totals over blocks ----

typedef struct block_sum {
  double forward_s, back_s, before_s, all_s;  // before: all but W
  double elements[2];                         // of the dense view, and of the expert view
  double largest[2];                          // the largest of them in one layer's block
  double scratch_bytes;                       // largest of one block
  double blocks[2];                           // of layers, by view
} block_sum;

static void add_sum(const block_sum *other, block_sum *sum) {
  sum->forward_s += other->forward_s;
  sum->back_s += other->back_s;
  sum->before_s += other->before_s;
  sum->all_s += other->all_s;
  for (int i = 0; i < 2; i++) {
    sum->blocks[i] += other->blocks[i];
    sum->elements[i] += other->elements[i];
    sum->largest[i] = ot_larger(sum->largest[i], other->largest[i]);
  }
  sum->scratch_bytes = ot_larger(sum->scratch_bytes, other->scratch_bytes);
}

// `count` copies of the same blocks.
static block_sum times(block_sum sum, double count) {
  sum.forward_s *= count;
  sum.back_s *= count;
  sum.before_s *= count;
  sum.all_s *= count;
  for (int i = 0; i < 2; i++) {
    sum.blocks[i] *= count;
    sum.elements[i] *= count;
  }
  return sum;
}

static block_sum sum_of(const ot_block_bound *block, bool layer) {
  const double forward_s = block->work_s[OT_WORK_FORWARD];
  const double backward_s = block->work_s[OT_WORK_BACKWARD];
  block_sum sum = {.forward_s = forward_s,
                   .back_s = block->back_s,
                   .before_s = forward_s + backward_s,
                   .all_s = forward_s + backward_s + block->work_s[OT_WORK_WEIGHT],
                   .scratch_bytes = (double)block->scratch_bytes};
  sum.blocks[block->experts] = layer;
  sum.elements[block->experts] = (double)block->elements;
  sum.largest[block->experts] = layer ? (double)block->elements : 0;
  return sum;
}

static void add_times(const ot_block_bound *block, double count, bool layers, block_sum *out) {
  const block_sum sum = times(sum_of(block, layers), count);
  if (count > 0) add_sum(&sum, out);
}

// ---- memory ----

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

void ot_bounder_begin(const ot_estimator *e, const ot_candidate *c, ot_bounder *b) {
  *b = (ot_bounder){.estimator = e, .candidate = c, .blocks = ot_estimator_blocks(e, c)};
  for (int i = 0; i < 2; i++) {
    b->state_bytes[i] = state_bytes_of(e, c, i == 1);
    b->pool_bytes[i] = pool_bytes_of(e, c, i == 1);
  }
}

// Micro-batches whose activations a chunk saves at the same time. Schedules with one chunk a stage:
// forwards before the first backward. Interleaved: the first pass ends in the last chunk.
static double in_flight(const ot_bounder *b, int chunk) {
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
static double kept_bytes(const ot_bounder *b, int chunk, const ot_block_bound *block, bool first) {
  const int64_t *const slot = block->slot_bytes;
  if (!b->estimator->framework->has_places) {
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

// Adds up the blocks of a chunk; returns the activation bytes that it saves.
static double sum_chunk(const ot_bounder *b, int chunk, block_sum *out) {
  const ot_block_list *const blocks = b->blocks;
  const int *const count = &b->cut->count[chunk * blocks->num_kinds];
  const ot_block_bound *const first =
      &b->work->kind[blocks->kind_of[b->stages->first_block[chunk]]];
  double kept = kept_bytes(b, chunk, first, true) - kept_bytes(b, chunk, first, false);
  for (int k = 0; k < blocks->num_kinds; k++) {
    if (count[k] == 0) continue;
    add_times(&b->work->kind[k], count[k], k > 0 && k < blocks->num_kinds - 1, out);
    kept += count[k] * kept_bytes(b, chunk, &b->work->kind[k], false);
  }
  return kept;
}

// Collectives of the blocks of a stage.
typedef struct stage_traffic {
  double gather_s;  // of all gathers of weights
  double stay;      // passes that need none
  double inner;     // layers that two others of their chunk follow in the backward
} stage_traffic;

// Chunks of a stage, and those of them with blocks in the expert view.
typedef struct chunk_count {
  double all, experts;
} chunk_count;

// Two successive passes over the same block gather its weights once. If the schedule is ignored,
// the bound assumes that between all passes.
static void add_traffic(const ot_bounder *b, chunk_count chunks, const block_sum *own, double stay,
                        stage_traffic *out) {
  const ot_sum_bound *const view = b->shards->view;
  const double passes = 2 * (double)b->candidate->micro_batches;
  const double layers = own->blocks[0], most = chunks.all * (passes - 1);
  const double once_s = own->blocks[0] * view[0].gather_s + own->blocks[1] * view[1].gather_s;
  const double more_s = ot_larger(0, view[1].gather_s - view[0].gather_s);
  const double longest_s = view[0].gather_s + chunks.experts / chunks.all * more_s;
  out->inner += layers > 2 * chunks.all ? layers - 2 * chunks.all : 0;
  if (!b->shards->regathers) {
    out->gather_s += once_s;
    return;
  }
  const double stays = b->flow ? stay : most;
  out->stay += stays;
  out->gather_s += ot_larger(once_s, passes * once_s - stays * longest_s);
}

static void add_chunk_traffic(const ot_bounder *b, int chunk, const block_sum *own,
                              stage_traffic *out) {
  const ot_pipeline_flow *const flow = b->flow;
  const bool one = b->stages->first_block[chunk + 1] - b->stages->first_block[chunk] == 1;
  const double stay = flow->turns[chunk] + (one ? flow->repeats[chunk] : 0);
  add_traffic(b, (chunk_count){1, own->blocks[1] > 0}, own, stay, out);
}

// Seconds by which concurrent collectives slow down kernels.
static double overlapped_s(const ot_bounder *b, double work_s, double load_s) {
  return ot_price_overlap_slowdown_s(&b->estimator->simulation, work_s, load_s);
}

// Upper bound of the duration of kernels that run concurrently with collectives.
static double slowest_s(const ot_bounder *b, double work_s) {
  return work_s + overlapped_s(b, work_s, work_s);
}

// Exposed collectives of a stage that waits for them block by block: a gather starts one block
// ahead, and gradients that are reduced at once have two buffers. Unscaled.
static double waits_s(const ot_bounder *b, const block_sum *own, const stage_traffic *traffic) {
  const double m = (double)b->candidate->micro_batches;
  const double forward_s = slowest_s(b, b->work->forward_s * b->scale);
  const double back_s = slowest_s(b, b->work->back_s * b->scale);
  const ot_engine *const engine = b->estimator->job.engine;
  const double gather_s = b->shards->view[0].gather_s;
  double s = 0, longest_s = back_s;
  if (b->shards->regathers && engine->overlap_gather && ot_estimator_prefetch(b->estimator) == 1) {
    const double before_s = ot_larger(0, gather_s - forward_s);
    const double after_s = ot_larger(0, gather_s - back_s);
    s = ot_larger(0, m * own->blocks[0] * (before_s + after_s) - traffic->stay * before_s);
    longest_s = ot_larger(back_s, gather_s);
  }
  if (!engine->overlap_reduce || b->flow->split) return s;
  return s + m * traffic->inner * ot_larger(0, b->shards->view[0].reduce_each_s - longest_s);
}

// Seconds added to the kernels of a stage; before: to all but W.
typedef struct stage_slowdown {
  double before_s, all_s;
} stage_slowdown;

// Blocks of a view that run concurrently with all-gathers of weights and reductions of gradients:
// in all micro-batches, or in the last one. Where weights stay gathered, one pass fewer is slowed
// down.
static stage_slowdown slowdown_in(const ot_bounder *b, double blocks, int v, double stay) {
  const ot_engine *const engine = b->estimator->job.engine;
  const ot_sum_bound *const shards = &b->shards->view[v];
  const double *const least_s = b->work->least_s[v];
  const double m = (double)b->candidate->micro_batches;
  const bool split = b->work->split, again = b->shards->regathers;
  const double forward_s = least_s[OT_WORK_FORWARD] * b->scale;
  const double back_s = least_s[OT_WORK_BACKWARD] * b->scale;
  const double summing_s = split ? least_s[OT_WORK_WEIGHT] * b->scale : back_s;
  const double gather_s = engine->overlap_gather ? shards->gather_load_s : 0;
  const double each_s = engine->overlap_reduce ? shards->reduce_each_load_s : 0;
  const double last_s = engine->overlap_reduce ? shards->reduce_load_s : 0;
  const double both_s = again && !split ? gather_s : 0;  // both in one pass
  const double pass_s = overlapped_s(b, forward_s, gather_s) +
                        (again && split ? overlapped_s(b, back_s, gather_s) : 0);
  const double most_s = again ? overlapped_s(b, ot_larger(forward_s, back_s), gather_s) : 0;
  const double gathered_s = blocks * (again ? m : 1) * pass_s - stay * most_s;
  const double summed_s = blocks * ((m - 1) * overlapped_s(b, summing_s, both_s + each_s) +
                                    overlapped_s(b, summing_s, both_s + last_s));
  return (stage_slowdown){.before_s = ot_larger(0, gathered_s + (split ? 0 : summed_s)),
                          .all_s = ot_larger(0, gathered_s + summed_s)};
}

static stage_slowdown slowdown_of(const ot_bounder *b, const block_sum *own,
                                  const stage_traffic *traffic) {
  stage_slowdown sum = {0};
  for (int v = 0; v < 2; v++) {
    if (own->blocks[v] == 0) continue;
    const stage_slowdown slow = slowdown_in(b, own->blocks[v], v, traffic->stay);
    sum.before_s += slow.before_s;
    sum.all_s += slow.all_s;
  }
  return sum;
}

// Seconds until the stage has done its own work, and until the last micro-batch has returned
// through the stages before it.
typedef struct stage_time {
  double own_s, back_s;
} stage_time;

// Exposed reductions run between blocks, each after its block, or after all work.
static stage_time busy_s(const ot_bounder *b, const block_sum *own, const block_sum *before,
                         const stage_traffic *traffic, double reduce_s) {
  const ot_engine *const engine = b->estimator->job.engine;
  const ot_sum_bound *const shards = &b->shards->view[0];
  const double m = (double)b->candidate->micro_batches;
  const stage_slowdown slow = slowdown_of(b, own, traffic);
  const double gather_s = engine->overlap_gather ? 0 : traffic->gather_s;
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
  return (stage_time){first_s + own_s, first_s + back_s};
}

// The same with the exposed collectives.
static double waited_for_s(const ot_bounder *b, const block_sum *own, const block_sum *before,
                           const stage_traffic *traffic) {
  const double m = (double)b->candidate->micro_batches;
  return (before->forward_s + m * own->before_s) * b->scale +
         slowdown_of(b, own, traffic).before_s + waits_s(b, own, traffic);
}

// Seconds from the start of the step to the first reduction of a stage. `done`: backwards before
// those of the last micro-batch, which F of all micro-batches precede.
static double first_reduction_s(const ot_bounder *b, const block_sum *own, const block_sum *before,
                                const block_sum *done) {
  const bool each = b->shards->view[0].reduce_each_s + b->shards->view[1].reduce_each_s > 0;
  const double m = (double)b->candidate->micro_batches;
  const double s = before->forward_s + (each ? 1 : m) * own->forward_s;
  return b->scale * (s + (each ? 0 : done->all_s - done->forward_s));
}

// Bound of a stage with `own` blocks, after `before`.
static stage_time bound_stage(ot_bounder *b, const block_sum *own, const block_sum *before,
                              const block_sum *done, const stage_traffic *traffic) {
  const double m = (double)b->candidate->micro_batches;
  double reduce_s = 0, end_s = 0;
  for (int v = 0; v < 2; v++) {
    const ot_sum_bound *const sums = &b->shards->view[v];
    const double last_s = sums->reduce_s + sums->gradient_gather_s;
    reduce_s += own->blocks[v] * ((m - 1) * sums->reduce_each_s + last_s);
    end_s += own->blocks[v] * sums->end_s;
  }
  const stage_time busy = busy_s(b, own, before, traffic, reduce_s);
  const double total_s = ot_larger(busy.own_s, busy.back_s);
  // W may fill the time in which the stage waits.
  const double waited_s = b->flow ? waited_for_s(b, own, before, traffic) : 0;
  const double lane_s = first_reduction_s(b, own, before, done) + reduce_s;
  b->met_s = ot_larger(
      b->met_s, ot_larger(ot_larger(total_s, waited_s), ot_larger(lane_s, traffic->gather_s)));
  b->end_s = ot_larger(b->end_s, end_s);
  return busy;
}

// Bytes of the states of these blocks, of their saved activations, and of the temporaries of their
// kernels and reductions.
static double bytes_of(const ot_bounder *b, const block_sum *own, double kept) {
  double bytes = 0;
  for (int i = 0; i < 2; i++) {
    bytes += own->elements[i] * b->state_bytes[i] + own->largest[i] * b->pool_bytes[i];
  }
  return bytes + (kept + own->scratch_bytes) * b->scale;
}

// All micro-batches pass a chunk one after the other: the first after its forward through all
// earlier chunks, the last before its backward through them.
static void bound_chunk(ot_bounder *b, const block_sum *chunk, const block_sum *before) {
  const double m = (double)b->candidate->micro_batches;
  const double s = before->forward_s + m * chunk->before_s + before->back_s;
  b->met_s = ot_larger(b->met_s, s * b->scale);
}

// Sum of `count` [num_kinds] blocks of each kind; returns the activation bytes that a micro-batch
// saves of them.
static double sum_counts(const ot_bounder *b, const int *count, block_sum *out) {
  const int kinds = b->blocks->num_kinds;
  double slots = 0;
  *out = (block_sum){0};
  for (int k = 0; k < kinds; k++) {
    if (count[k] == 0) continue;
    add_times(&b->work->kind[k], count[k], k > 0 && k < kinds - 1, out);
    slots += count[k] * slots_of(&b->work->kind[k]);
  }
  return slots;
}

// Among stages with the same blocks, the last one ends last, and the first one saves most
// activations.
static void bound_alike(ot_bounder *b, const ot_like_stages *alike) {
  const int kinds = b->blocks->num_kinds;
  const ot_stage_partition *const cut = b->cut;
  const ot_stage_share *const first = &cut->shares[alike->first];
  const ot_stage_share *const last = &cut->shares[alike->last];
  block_sum own, before, done;
  const double slots = sum_counts(b, last->count, &own);
  const double last_slots = sum_counts(b, &cut->count[last->last_chunk * kinds], &done);
  sum_counts(b, &cut->passed[last->first_chunk * kinds], &before);
  // The last chunk of a stage ends its backwards first.
  done = times(done, (double)b->candidate->micro_batches - 1);
  stage_traffic traffic = {0};
  const chunk_count chunks = {(double)b->stages->num_chunks / b->stages->num_ranks,
                              last->expert_chunks};
  add_traffic(b, chunks, &own, 0, &traffic);
  bound_stage(b, &own, &before, &done, &traffic);
  const double kept = in_flight(b, first->first_chunk) * (slots - last_slots) +
                      in_flight(b, first->last_chunk) * last_slots;
  b->peak = ot_larger(b->peak, bytes_of(b, &own, kept));
}

void ot_bound_cut(ot_bounder *b) {
  const int kinds = b->blocks->num_kinds;
  for (int i = 0; i < b->cut->num_alike; i++) bound_alike(b, &b->cut->alike[i]);
  for (int i = 0; i < b->cut->num_ends; i++) {
    block_sum chunk, before;
    sum_counts(b, &b->cut->count[b->cut->ends[i] * kinds], &chunk);
    sum_counts(b, &b->cut->passed[b->cut->ends[i] * kinds], &before);
    bound_chunk(b, &chunk, &before);
  }
}

void ot_bound_stages(ot_bounder *b, ot_arena *scratch) {
  const ot_stages *const stages = b->stages;
  block_sum *const own = ot_arena_array(scratch, stages->num_ranks, sizeof *own);
  block_sum *const before = ot_arena_array(scratch, stages->num_ranks, sizeof *before);
  double *const kept = ot_arena_array(scratch, stages->num_ranks, sizeof *kept);
  stage_traffic *const traffic = ot_arena_array(scratch, stages->num_ranks, sizeof *traffic);
  block_sum *const done = ot_arena_array(scratch, stages->num_ranks, sizeof *done);
  block_sum passed = {0};
  for (int c = 0; c < stages->num_chunks; c++) {
    const int rank = stages->rank_of[c];
    block_sum chunk = {0};
    kept[rank] += sum_chunk(b, c, &chunk);
    // Neighbouring chunks on one stage (of a V) send each other nothing.
    if (own[rank].all_s == 0) before[rank] = passed;
    add_sum(&chunk, &own[rank]);
    add_chunk_traffic(b, c, &chunk, &traffic[rank]);
    bound_chunk(b, &chunk, &passed);
    const block_sum backwards = times(chunk, b->flow->before_last[c]);
    add_sum(&backwards, &done[rank]);
    add_sum(&chunk, &passed);
  }
  for (int r = 0; r < stages->num_ranks; r++) {
    bound_stage(b, &own[r], &before[r], &done[r], &traffic[r]);
    b->peak = ot_larger(b->peak, bytes_of(b, &own[r], kept[r]));
  }
}

// Backwards of all chunks of a stage before the first one of the last micro-batch, at least.
static double least_done(const ot_bounder *b, bool any) {
  const ot_candidate *const c = b->candidate;
  const ot_pipeline_rules *const rules = ot_pipeline_rules_of(c->pipeline);
  const double m = (double)c->micro_batches;
  const int round = ot_pipeline_round(c->pp, (int)c->micro_batches);
  if (c->pp == 1) return m - 1;
  if (any ? rules->splits : rules->folded) return 0;  // of a V, those of one chunk alone
  return (any || rules->in_rounds) && round > 0 ? m - round : m - 1;
}

// The least share of a block's work in a step that a micro-batch takes to the next stage and back.
static double passing_share(const ot_bounder *b, const block_sum *own) {
  const ot_engine *const engine = b->estimator->job.engine;
  const double m = (double)b->candidate->micro_batches;
  double most = 0;
  for (int v = 0; v < 2; v++) {
    if (own->blocks[v] == 0) continue;
    const ot_sum_bound *const sums = &b->shards->view[v];
    const double passing_s = b->work->least_passing_s[v] * b->scale;
    double more_s = slowdown_in(b, 1, v, 0).all_s;
    if (!engine->overlap_gather) more_s += 2 * m * sums->gather_s;
    if (!engine->overlap_reduce)
      more_s += (m - 1) * sums->reduce_each_s + sums->reduce_s + sums->gradient_gather_s;
    if (passing_s <= 0) return 0;
    most = ot_larger(most, m * b->work->most_work[v] + more_s / passing_s);
  }
  return most > 0 ? 1 / most : 0;
}

static double power(double x, int n) {
  double result = 1;
  for (; n > 0; n /= 2, x *= x) result *= n % 2 == 1 ? x : 1;
  return result;
}

// The weighted means of bound.h. `mean_s`: of the stages, each of `own` blocks. The embedding is in
// the first stage, of the least weight.
static void bound_passage(ot_bounder *b, const block_sum *own, double mean_s, int chunks) {
  const int p = b->candidate->pp;
  const double f = passing_share(b, own), q = f * (p - 1) / chunks;
  double all = (1 + q) / (1 + q / 2), first = 1 / (1 + q / 2);
  if (f * p < 0x1p-8) return;
  if (chunks == 1) {
    all = p * f / (1 - power(1 - f, p));
    first = all * power(1 - f, p - 1);
  }
  const block_sum embedding = sum_of(&b->work->kind[0], false);
  const double embedding_s = (double)b->candidate->micro_batches * embedding.all_s * b->scale;
  b->met_s = ot_larger(b->met_s, all * mean_s - (all - first) * embedding_s / p);
}

// The mean over all stages is a lower bound of the fullest one: sums, and maxima of sums, are
// convex in the share of a stage. A chunk may be one block. Each micro-batch passes forward and
// backward through all blocks.
void ot_bound_mean(ot_bounder *b, bool any, int chunks) {
  const ot_block_list *const blocks = b->blocks;
  const double share = 1.0 / b->candidate->pp;
  block_sum all = {0};
  double kept = 0;
  for (int k = 0; k < blocks->num_kinds; k++) {
    const ot_block_bound *const block = &b->work->kind[k];
    add_times(block, blocks->count[k], k > 0 && k < blocks->num_kinds - 1, &all);
    kept += blocks->count[k] * slots_of(block);
  }
  block_sum own = times(all, share);
  const block_sum done = times(own, least_done(b, any));
  stage_traffic traffic = {0};
  own.scratch_bytes = own.largest[0] = own.largest[1] = 0;
  double parts = own.blocks[0] + own.blocks[1];
  if (chunks > 0) parts = ot_smaller(parts, chunks);
  add_traffic(b, (chunk_count){parts, own.blocks[1] > 0 ? parts : 0}, &own, 0, &traffic);
  const stage_time busy = bound_stage(b, &own, &(block_sum){0}, &done, &traffic);
  if (chunks > 0) bound_passage(b, &own, b->work->split ? busy.own_s : busy.back_s, chunks);
  b->met_s = ot_larger(b->met_s, (all.forward_s + all.back_s) * b->scale);
  b->peak = bytes_of(b, &own, kept * share);
}
