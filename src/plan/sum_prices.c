// SPDX-License-Identifier: Apache-2.0
// Sums of gradients, gathers of weights, norm and update: the segments of this program, or bytes by
// recipe and engine.
#include "base/extremes.h"
#include "ops/catalog.h"
#include "plan/expert_prices.h"
#include "plan/phase_price.h"

// ---- of this program ----

static ot_status total_of(const ot_estimator *e, const ot_prices *p, const ot_segment *segment,
                          double *total_s) {
  ot_phase_price price;
  OT_TRY(ot_phase_price_build(e, p, segment, &price));
  *total_s = price.total_s;
  return OT_OK;
}

static ot_status price_segments(const ot_estimator *e, const ot_prices *p,
                                const ot_block_phases *from, ot_block_price *to) {
  for (int i = 0; i < 4; i++) {
    OT_TRY(total_of(e, p, from->reduce[i / 2][i % 2], &to->reduce_s[i / 2][i % 2]));
  }
  OT_TRY(total_of(e, p, from->gather, &to->gather_s));
  OT_TRY(total_of(e, p, from->spread, &to->spread_s));
  OT_TRY(ot_phase_price_build(e, p, from->norm, &to->norm));
  return ot_phase_price_build(e, p, from->update, &to->update);
}

static int64_t scratch_of(const ot_segment *segment) {
  return segment && segment->num_tasks > 0 ? segment->scratch_bytes : 0;
}

// The most elements of the tied table that a rank has a piece of: ranks of tp differ by a row of
// the vocabulary, and pieces in how much of them is of the table.
static int64_t most_tied(const ot_step_phases *phases) {
  const ot_graph *const graph = phases->graph;
  const int64_t piece = phases->blocks[0].bucket->piece_elements;
  int64_t begin = 0, end = 0, most = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    if (graph->parameters[i].tied_to < 0) continue;
    const ot_parameter *const owner = &graph->parameters[graph->parameters[i].tied_to];
    begin = owner->offset;
    end = begin + graph->share.widest_vocab * owner->cols;
  }
  for (int64_t first = begin / piece * piece; first < end; first += piece) {
    const int64_t from = ot_larger_whole(first, begin), to = ot_smaller_whole(first + piece, end);
    most = ot_larger_whole(most, to - from);
  }
  return most;
}

// What the sum of both uses needs beside it, on the rank that sums most.
static int64_t tie_bytes(const ot_step_phases *phases) {
  if (!phases->tie || phases->tie->num_tasks == 0) return 0;
  const ot_task *const task = &phases->tie->tasks[0];
  ot_op_types types = {.in = {task->in[0].type, task->in[1].type}, .out = {task->out[0].type}};
  types.in[0].dim[0] = types.out[0].dim[0] = most_tied(phases);
  if (ot_type_present(&types.in[1])) types.in[1].dim[0] = types.in[0].dim[0];
  return ot_op_workspace(task->op, &task->attributes, &types);
}

static ot_status price_tied(const ot_estimator *e, const ot_step_phases *phases, ot_prices *p) {
  for (int i = 0; i < 4; i++) {
    const ot_segment *const segment = phases->tied_reduce[i / 2][i % 2];
    OT_TRY(total_of(e, p, segment, &p->tied_reduce_s[i / 2][i % 2]));
    p->tied_staging = ot_larger_whole(p->tied_staging, scratch_of(segment));
  }
  OT_TRY(total_of(e, p, phases->tie, &p->tie_s));
  *(p->tied_apart ? &p->tie_staging : &p->tie_scratch) = tie_bytes(phases);
  return ot_phase_price_build(e, p, phases->tied_update, &p->tied_update);
}

static ot_status price_frame(const ot_estimator *e, const ot_step_phases *phases, ot_arena *scratch,
                             ot_prices *p) {
  int parts = 0;
  const ot_block_list *const blocks = p->blocks;
  for (int i = 0; i < blocks->num_blocks; i++) parts += phases->blocks[blocks->kind_of[i]].parts;
  p->norm_slots = (int64_t)parts * phases->schedule.slots_per_part;
  ot_segment frame[2];
  ot_step_phases_frame(phases, blocks->num_blocks, parts, scratch, frame);
  p->frame_scratch = ot_larger_whole(frame[0].scratch_bytes, frame[1].scratch_bytes);
  OT_TRY(ot_phase_price_build(e, p, &frame[0], &p->begin));
  return ot_phase_price_build(e, p, &frame[1], &p->clip);
}

// ---- of other software ----

static ot_status collective_s(const ot_estimator *e, const ot_collective *collective,
                              double *total_s) {
  ot_price price;
  OT_TRY(ot_price_collective(&e->simulation, collective, &price));
  *total_s = ot_price_total_s(&e->simulation, price);
  return OT_OK;
}

static double pass_s(const ot_estimator *e, double bytes) {
  return bytes <= 0 ? 0 : ot_price_total_s(&e->simulation, ot_price_pass(&e->simulation, bytes));
}

// Those who hold pieces of a bucket: cp ranks are among them (Megatron-LM's distributed optimizer,
// torch FSDP's mesh). Without pieces, those who sum all of it.
static ot_group_shape shard_shape(const ot_candidate *c) {
  const int dp = c->zero > 0 ? c->dp_shard : c->dp;
  return (ot_group_shape){.size = dp * c->cp, .stride = c->tp};
}

// A bucket takes many blocks, or a block many buckets: as if all buckets were as full.
static double per_block(const ot_estimator *e, double bytes, int ranks, double *messages) {
  const ot_engine *const engine = e->job.engine;
  const double least = (double)engine->bucket_rank_bytes * ranks;
  const double given = (double)engine->bucket_bytes;
  const double bucket = given > 0 && given < least ? least : given;
  *messages = bucket > 0 ? bytes / bucket : 1;
  return bucket > 0 ? bucket : bytes;
}

static bool cuts_states(const ot_candidate *c) { return c->zero > 0 && c->dp_shard * c->cp > 1; }

// Adds what sums of `elements` take, and gathers of them, among the ranks of shapes[0], which hold
// pieces, and of shapes[1].
static ot_status add_sums(const ot_estimator *e, const ot_candidate *c, double elements,
                          const ot_group_shape shapes[2], ot_block_price *to) {
  const ot_recipe *const recipe = &e->job.recipe;
  const ot_group_shape shape = shapes[0], others = shapes[1];
  const bool copies = e->job.engine->copies_gradients && shape.size * others.size > 1;
  double messages, s, across_s;
  const double bytes = per_block(e, elements * recipe->reduce_bytes, shape.size, &messages);
  OT_TRY(collective_s(
      e,
      &(ot_collective){cuts_states(c) ? OT_OP_REDUCE_SCATTER : OT_OP_ALL_REDUCE, shape, bytes, 0},
      &s));
  OT_TRY(collective_s(e, &(ot_collective){OT_OP_ALL_REDUCE, others, bytes / shape.size, 0},
                      &across_s));
  const double copy_s =
      copies ? pass_s(e, elements * (recipe->gradient_bytes + recipe->reduce_bytes)) : 0;
  for (int i = 0; i < 4; i++) {
    to->reduce_s[i / 2][i % 2] += copy_s + messages * (s + (i % 2 == 1 ? across_s : 0));
  }
  if (!cuts_states(c)) return OT_OK;
  const ot_collective gather = {OT_OP_ALL_GATHER, shape, elements * recipe->gather_bytes, 0};
  OT_TRY(collective_s(e, &gather, &s));
  to->gather_s += s;
  return OT_OK;
}

static ot_status price_sums(const ot_estimator *e, const ot_candidate *c, ot_block_price *to) {
  const ot_group_shape dense[2] = {
      shard_shape(c),
      {.size = c->zero > 0 ? c->dp / c->dp_shard : 1, .stride = c->tp * c->cp * c->dp_shard}};
  const ot_group_shape experts[2] = {ot_expert_replicas(c), {.size = 1, .stride = 1}};
  OT_TRY(add_sums(e, c, (double)to->buckets.elements - to->expert_elements, dense, to));
  return to->expert_elements > 0 ? add_sums(e, c, to->expert_elements, experts, to) : OT_OK;
}

static void price_update(const ot_estimator *e, const ot_candidate *c, ot_block_price *to) {
  const ot_recipe *const recipe = &e->job.recipe;
  const ot_engine *const engine = e->job.engine;
  const double elements = (double)to->buckets.elements;
  const double dense = (elements - to->expert_elements) / shard_shape(c).size;
  const double experts = to->expert_elements / ot_expert_replicas(c).size;
  const double piece = cuts_states(c) ? dense + experts : elements;
  const double kept = recipe->gradient_bytes + recipe->weight_bytes +
                      2 * (recipe->master_bytes + recipe->moment_bytes) +
                      (recipe->master_bytes > 0 ? 0 : recipe->weight_bytes);
  const double moved =
      engine->update_bytes > 0 ? engine->update_bytes : kept + recipe->gradient_bytes;
  const double update_s = pass_s(e, piece * moved + elements * engine->zero_bytes);
  to->update = (ot_phase_price){.total_s = update_s, .compute_s = update_s};
}

ot_status ot_bucket_price_build(const ot_estimator *e, const ot_candidate *candidate,
                                ot_block_price *to) {
  OT_TRY(price_sums(e, candidate, to));
  price_update(e, candidate, to);
  return OT_OK;
}

static ot_status price_meeting(const ot_estimator *e, ot_prices *p) {
  double s;
  const ot_collective norm = {OT_OP_ALL_REDUCE, p->shape[OT_GROUP_WORLD], 8, 0};
  OT_TRY(collective_s(e, &norm, &s));
  p->clip = (ot_phase_price){.total_s = s};
  p->clip.exposed_s[OT_TIMELINE_WORLD] = s;
  if (!p->tied_apart) return OT_OK;
  const ot_collective tie = {OT_OP_ALL_REDUCE, p->shape[OT_GROUP_TIED],
                             (double)p->kind[0].buckets.elements * e->job.recipe.reduce_bytes, 0};
  return collective_s(e, &tie, &p->tie_s);
}

// ---- both ----

ot_status ot_sum_prices_build(const ot_estimator *e, const ot_step_phases *phases,
                              ot_arena *scratch, ot_prices *prices) {
  for (int i = 0; i < prices->blocks->num_kinds; i++) {
    ot_block_price *const to = &prices->kind[i];
    if (e->own) {
      OT_TRY(price_segments(e, prices, &phases->blocks[i], to));
      continue;
    }
    OT_TRY(ot_bucket_price_build(e, &prices->key, to));
  }
  if (!e->own) return price_meeting(e, prices);
  OT_TRY(price_tied(e, phases, prices));
  return price_frame(e, phases, scratch, prices);
}
