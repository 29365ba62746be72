// SPDX-License-Identifier: Apache-2.0
// Blocks are priced by the estimator itself, for a run that has nothing but what cuts a
// micro-batch; only the few figures that bounds need are kept.
#include "plan/bound.h"

#include "describe/pipeline_rules.h"

static double smaller(double a, double b) { return a < b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }

// ---- blocks ----

static ot_candidate key_of(const ot_candidate *c) {
  const bool split = c->pipeline == OT_PIPELINE_ZB_H1 || c->pipeline == OT_PIPELINE_ZB_H2 ||
                     c->pipeline == OT_PIPELINE_ZB_V;
  return (ot_candidate){.tp = c->tp,
                        .pp = 1,
                        .vpp = 1,
                        .cp = c->cp,
                        .ep = c->ep,
                        .etp = c->etp,
                        .dp = c->ep * c->etp,
                        .dp_shard = 1,
                        .micro_batch_size = c->micro_batch_size,
                        .micro_batches = 1,
                        .pipeline = split ? OT_PIPELINE_ZB_H1 : OT_PIPELINE_1F1B,
                        .recompute = c->recompute,
                        .no_sequence_parallel = c->no_sequence_parallel};
}

static void take_block(const ot_estimator *e, const ot_prices *prices, int kind,
                       ot_block_bound *out) {
  const ot_block_price *const price = &prices->kind[kind];
  *out = (ot_block_bound){.elements = price->elements,
                          .scratch_bytes = e->own ? price->work_scratch : price->transient_bytes};
  for (int w = 0; w < OT_WORKS; w++) {
    out->work_s[w] = smaller(price->work[w][0].total_s, price->work[w][1].total_s);
  }
  out->back_s = out->work_s[OT_WORK_BACKWARD] - price->recompute_total_s;
  // What is kept from I to W alone may be that of one micro-batch.
  out->slot_bytes = price->slot_bytes[OT_SLOT_SHORT] + price->slot_bytes[OT_SLOT_LONG];
  if (!e->own && e->job.recipe.products == OT_F8) out->slot_bytes -= price->product_bytes / 2;
}

static ot_status make_work(ot_estimator *e, const ot_candidate *key, ot_work_bound *out) {
  *out = (ot_work_bound){.key = *key,
                         .kind = ot_arena_array(e->arena, e->num_kinds, sizeof *out->kind)};
  // The graph is dropped, room for what else is built is shared.
  if (!e->work_pool.parent) e->work_pool.parent = e->arena;
  ot_arena scratch = ot_arena_pool_begin(&e->work_pool);
  ot_estimator probe = *e;
  probe.arena = &scratch;
  probe.num_graphs = probe.graphs_capacity = probe.num_prices = probe.prices_capacity = 0;
  ot_prices *prices;
  const ot_status status = ot_prices_find(&probe, key, &prices);
  e->pool = probe.pool;
  if (status != OT_OK) return status;
  for (int i = 0; i < e->num_kinds; i++) take_block(e, prices, i, &out->kind[i]);
  return OT_OK;
}

static ot_status find_work(ot_estimator *e, const ot_candidate *candidate,
                           const ot_work_bound **out) {
  const ot_candidate key = key_of(candidate);
  for (int64_t i = 0; i < e->num_works; i++) {
    *out = e->works[i];
    if (ot_candidate_compare(&e->works[i]->key, &key) == 0) return OT_OK;
  }
  ot_work_bound *const made = ot_arena_array(e->arena, 1, sizeof *made);
  OT_TRY(make_work(e, &key, made));
  e->works =
      ot_arena_grow(e->arena, e->works, e->num_works, &e->works_capacity, sizeof(ot_work_bound *));
  e->works[e->num_works++] = made;
  *out = made;
  return OT_OK;
}

// ---- sums of blocks ----

typedef struct block_sum {
  double forward_s, back_s, before_s, all_s;  // before: all but W
  double elements, slot_bytes;
  double scratch_bytes;  // the most of one
} block_sum;

static void add_block(block_sum *sum, const ot_block_bound *block, double times) {
  const double forward_s = block->work_s[OT_WORK_FORWARD];
  const double backward_s = block->work_s[OT_WORK_BACKWARD];
  sum->forward_s += times * forward_s;
  sum->back_s += times * block->back_s;
  sum->before_s += times * (forward_s + backward_s);
  sum->all_s += times * (forward_s + backward_s + block->work_s[OT_WORK_WEIGHT]);
  sum->elements += times * (double)block->elements;
  sum->slot_bytes += times * (double)block->slot_bytes;
  sum->scratch_bytes = larger(sum->scratch_bytes, (double)block->scratch_bytes);
}

static block_sum all_blocks(const ot_estimator *e, const ot_work_bound *work) {
  block_sum sum = {0};
  for (int i = 0; i < e->num_blocks; i++) add_block(&sum, &work->kind[e->kind_of[i]], 1);
  return sum;
}

// Of each figure the least that any layer has.
static block_sum least_layer(const ot_estimator *e, const ot_work_bound *work) {
  block_sum least = {0};
  for (int k = 1; k < e->num_kinds - 1; k++) {
    block_sum one = {0};
    add_block(&one, &work->kind[k], 1);
    if (k == 1) least = one;
    least.forward_s = smaller(least.forward_s, one.forward_s);
    least.back_s = smaller(least.back_s, one.back_s);
    least.before_s = smaller(least.before_s, one.before_s);
    least.all_s = smaller(least.all_s, one.all_s);
    least.elements = smaller(least.elements, one.elements);
    least.slot_bytes = smaller(least.slot_bytes, one.slot_bytes);
    least.scratch_bytes = smaller(least.scratch_bytes, one.scratch_bytes);
  }
  return least;
}

// ---- stages ----

typedef struct bounder {
  const ot_estimator *estimator;
  const ot_candidate *candidate;
  const ot_work_bound *work;
  double scale;        // of seconds and slots, to the size of the micro-batch
  double state_bytes;  // of a parameter
  double step_s, peak;
} bounder;

static void find_state_bytes(bounder *b) {
  const ot_candidate *const c = b->candidate;
  const ot_recipe *const r = &b->estimator->job.recipe;
  const double shard = c->zero > 0 ? c->dp_shard * (b->estimator->own ? 1 : c->cp) : 1;
  b->state_bytes = r->weight_bytes / (c->zero == 3 ? shard : 1) +
                   r->gradient_bytes / (c->zero >= 2 ? shard : 1) +
                   (r->master_bytes + r->moment_bytes) / shard;
}

// A stage with `own` blocks behind `before`.
static double stage_s(const bounder *b, const block_sum *own, const block_sum *before) {
  const double m = (double)b->candidate->micro_batches;
  return before->forward_s + larger(m * own->all_s, m * own->before_s + before->back_s);
}

// `own` blocks that keep what so many micro-batches leave.
static double stage_bytes(const bounder *b, const block_sum *own, double in_flight) {
  return own->elements * b->state_bytes +
         (in_flight * own->slot_bytes + own->scratch_bytes) * b->scale;
}

// Forwards of a stage before its first backward, of orders with one chunk a stage.
static double in_flight(const ot_candidate *c, int stage) {
  const double m = (double)c->micro_batches;
  return c->pipeline == OT_PIPELINE_GPIPE ? m : smaller(m, c->pp - stage);
}

static void bound_cut(bounder *b, const ot_stages *stages) {
  const ot_estimator *const e = b->estimator;
  block_sum before = {0};
  for (int r = 0; r < stages->num_ranks; r++) {
    block_sum own = {0};
    for (int i = stages->first_block[r]; i < stages->first_block[r + 1]; i++) {
      add_block(&own, &b->work->kind[e->kind_of[i]], 1);
    }
    b->step_s = larger(b->step_s, stage_s(b, &own, &before));
    b->peak = larger(b->peak, stage_bytes(b, &own, in_flight(b->candidate, r)));
    before.forward_s += own.forward_s;
    before.back_s += own.back_s;
  }
}

// Whatever the cut. `most` layers on some stage, and on how many stages if nowhere more.
static void bound_uncut(bounder *b) {
  const ot_estimator *const e = b->estimator;
  const int pp = b->candidate->pp, layers = e->num_blocks - 2;
  const int most = (layers + pp - 1) / pp, stages = layers - pp * (most - 1);
  const block_sum all = all_blocks(e, b->work), layer = least_layer(e, b->work);
  const double m = (double)b->candidate->micro_batches;
  block_sum own = {0}, before = {0};
  own.before_s = most * layer.before_s;
  own.all_s = most * layer.all_s;
  // A chunk has a block at least, and the first is the embedding.
  const int passed = stages >= 2 ? stages - 2 : 0;
  before.forward_s = passed * layer.forward_s;
  before.back_s = passed * layer.back_s;
  const double even_s = stage_s(b, &own, &before), uneven_s = m * (most + 1) * layer.all_s;
  b->step_s = larger(m * all.all_s / pp, smaller(even_s, uneven_s));
  own.elements = most * layer.elements;
  own.slot_bytes = most * layer.slot_bytes;
  own.scratch_bytes = layer.scratch_bytes;
  const block_sum mean = {.elements = all.elements / pp, .slot_bytes = all.slot_bytes / pp};
  b->peak = larger(stage_bytes(b, &own, 1), stage_bytes(b, &mean, 1));
}

bool ot_bound_fits(const ot_estimator *estimator, int64_t peak) {
  const ot_engine *const engine = estimator->job.engine;
  const double reserved = (double)peak * (1 + engine->allocator_slack);
  return reserved + (double)engine->context_bytes <= (double)estimator->cluster.device.memory_bytes;
}

ot_status ot_bound_build(ot_estimator *e, const ot_candidate *candidate, ot_bound_depth depth,
                         ot_estimate_bound *out) {
  bounder b = {.estimator = e, .candidate = candidate, .scale = 1};
  ot_candidate priced = *candidate;
  if (depth == OT_BOUND_FLOOR) {
    priced.micro_batch_size = e->job.global_batch_size;
    priced.cp = 1;
    b.scale =
        (double)candidate->micro_batch_size / ((double)e->job.global_batch_size * candidate->cp);
  }
  OT_TRY(find_work(e, &priced, &b.work));
  find_state_bytes(&b);
  if (ot_pipeline_chunks(candidate->pipeline, candidate->pp, candidate->vpp) == 1) {
    const ot_cut *cut;
    OT_TRY(ot_cut_find(e, candidate, &cut));
    bound_cut(&b, &cut->stages);
  } else {
    bound_uncut(&b);
  }
  const double step_s = ot_price_step_s(&e->simulation, e->job.devices, b.step_s * b.scale);
  *out = (ot_estimate_bound){.step_s = step_s, .peak = (int64_t)b.peak};
  return OT_OK;
}

ot_status ot_estimate_bound_build(ot_estimator *estimator, const ot_candidate *candidate,
                                  ot_estimate_bound *out) {
  return ot_bound_build(estimator, candidate, OT_BOUND_ORDER, out);
}
