// SPDX-License-Identifier: Apache-2.0
// The estimator prices the blocks for a run that sets only what shards a micro-batch; only the few
// figures that bounds need are kept.
#include "base/extremes.h"
#include "describe/expert_load.h"
#include "describe/pipeline_rules.h"
#include "estimate/crossing_estimate.h"
#include "estimate/teacher_cost.h"
#include "search/bound_stage.h"
#include "search/space.h"

// The bound adds terms in another order than the estimate: this factor covers the rounding.
static const double rounding = 1 - 0x1p-40;

// ---- blocks ----

static void add_block(const ot_estimator *e, const ot_prices *prices, int kind,
                      ot_block_bound *out) {
  const ot_block_price *const price = &prices->kind[kind];
  *out = (ot_block_bound){.experts = prices->blocks->experts[kind],
                          .elements = price->buckets.elements,
                          .input_bytes = price->memory.has_input ? prices->hidden_bytes : 0,
                          .weight_pass_reads_input = price->memory.weight_pass_reads_input};
  for (int w = 0; w < OT_WORKS; w++) {
    const double saved_s = price->hidden_s[w] - price->slower_s[w];
    out->work_s[w] =
        ot_smaller(price->work[w][0].total_s, price->work[w][1].total_s) - ot_larger(saved_s, 0);
  }
  out->back_s = out->work_s[OT_WORK_BACKWARD] - price->recompute_total_s;
  e->framework->bound_slots(e, prices, kind, out->slot_bytes, &out->scratch_bytes);
}

static void lower(double value, bool known, double *least) {
  *least = known ? ot_smaller(*least, value) : value;
}

// Over all kinds of layers. One block of experts may lie between two blocks of the dense view.
static void find_extremes(int num_kinds, ot_work_bound *work) {
  double forward_s[2] = {0}, back_s[2] = {0};
  bool known[2] = {false};
  for (int i = 1; i < num_kinds - 1; i++) {
    const ot_block_bound *const block = &work->kind[i];
    const int view = block->experts;
    const double elements = (double)block->elements;
    forward_s[view] = ot_larger(forward_s[view], block->work_s[OT_WORK_FORWARD]);
    back_s[view] = ot_larger(back_s[view], block->work_s[OT_WORK_BACKWARD]);
    lower(elements, known[view], &work->elements[view]);
    for (int w = 0; w < OT_WORKS; w++) {
      lower(block->work_s[w], known[view], &work->least_s[view][w]);
    }
    const double passing_s = block->work_s[OT_WORK_FORWARD] + (work->split ? 0 : block->back_s);
    const double all_s = block->work_s[OT_WORK_FORWARD] + block->work_s[OT_WORK_BACKWARD] +
                         block->work_s[OT_WORK_WEIGHT];
    lower(passing_s, known[view], &work->least_passing_s[view]);
    if (passing_s > 0) work->most_work[view] = ot_larger(work->most_work[view], all_s / passing_s);
    known[view] = true;
  }
  work->forward_s = forward_s[0] + forward_s[1];
  work->back_s = back_s[0] + back_s[1];
}

static ot_work_bound *make_work(const ot_estimator *e, const ot_prices *prices) {
  ot_work_bound *const made = ot_arena_array(e->arena, 1, sizeof *made);
  const int kinds = prices->blocks->num_kinds;
  made->kind = ot_arena_array(e->arena, kinds, sizeof *made->kind);
  made->split = prices->split;
  for (int i = 0; i < kinds; i++) add_block(e, prices, i, &made->kind[i]);
  find_extremes(kinds, made);
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

ot_status ot_shard_bound_build(const ot_estimator *e, const ot_candidate *c,
                               const double elements[2], ot_shard_bound *out) {
  *out = (ot_shard_bound){.regathers = all_reshard(e)};
  for (int v = 0; v < 2; v++) {
    if (elements[v] == 0) continue;
    OT_TRY(e->framework->bound_sums(e, c, v == 1, elements[v], &out->view[v]));
  }
  return OT_OK;
}

static void lower_to(double other, double *value) {
  if (other < *value) *value = other;
}

void ot_shard_bound_merge(const ot_shard_bound *other, ot_shard_bound *out) {
  for (int v = 0; v < 2; v++) {
    const ot_sum_bound *const from = &other->view[v];
    ot_sum_bound *const to = &out->view[v];
    lower_to(from->reduce_s, &to->reduce_s);
    lower_to(from->reduce_each_s, &to->reduce_each_s);
    lower_to(from->gradient_gather_s, &to->gradient_gather_s);
    lower_to(from->gather_s, &to->gather_s);
    lower_to(from->end_s, &to->end_s);
    lower_to(from->reduce_load_s, &to->reduce_load_s);
    lower_to(from->reduce_each_load_s, &to->reduce_each_load_s);
    lower_to(from->gather_load_s, &to->gather_load_s);
  }
}

// ---- bounds of a candidate ----

static int64_t reserved_of(const ot_estimator *e, int64_t peak) {
  return (int64_t)((double)peak * (1 + e->job.engine->allocator_slack));
}

int64_t ot_bound_used(const ot_estimator *estimator, int64_t peak) {
  const ot_device_kind *const device = &estimator->cluster.device;
  return reserved_of(estimator, peak) + ot_engine_context_bytes(estimator->job.engine, device);
}

bool ot_bound_fits(const ot_estimator *estimator, int64_t peak) {
  return ot_crossing_has_room(estimator, reserved_of(estimator, peak));
}

ot_status ot_bound_elements(ot_estimator *e, const ot_candidate *candidate, double elements[2]) {
  const ot_work_bound *work;
  ot_candidate priced = *candidate;
  priced.micro_batch_size = e->job.global_batch_size;
  priced.cp = 1;
  OT_TRY(find_work(e, &priced, &work));
  for (int v = 0; v < 2; v++) elements[v] = work->elements[v];
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
  if (depth == OT_BOUND_PLAIN) {
    priced.recompute = OT_RECOMPUTE_NONE;
    priced.modules = 0;
  }
  *scale = (double)c->micro_batch_size * priced.cp / ((double)e->job.global_batch_size * c->cp);
  return priced;
}

// Chunks of a stage, at most, where every schedule of `scope` passes the stages in order, in rounds
// of at most one micro-batch for each; else 0.
static int most_chunks(const ot_estimator *e, const ot_candidate *c, ot_bound_scope scope) {
  const ot_pipeline_rules *const rules = ot_pipeline_rules_of(c->pipeline);
  if (c->pp == 1 || rules->folded || (scope == OT_SCOPE_SPLIT && rules->splits)) return 0;
  int first = 1, chunks = 1;
  if (scope == OT_SCOPE_ONE) {
    chunks = ot_pipeline_chunks(c->pipeline, c->pp, c->vpp);
  } else if (scope == OT_SCOPE_SPLIT || rules->max_chunks != 1) {
    ot_space_chunks(&e->job, OT_PIPELINE_INTERLEAVED, c->pp, &first, &chunks);
  }
  const bool whole = ot_pipeline_round(c->pp, (int)c->micro_batches) <= c->pp;
  return chunks == 1 || whole ? chunks : 0;
}

// Lower bound over the stages of b->candidate with its partition.
static ot_status bound_cut(ot_estimator *e, ot_bound_depth depth, ot_bounder *b) {
  OT_TRY(ot_stage_partition_find(e, b->candidate, &b->cut));
  b->stages = &b->cut->stages;
  if (depth < OT_BOUND_ORDER) {
    ot_bound_cut(b);
    return OT_OK;
  }
  OT_TRY(ot_flow_find(e, b->candidate, b->stages, &b->flow));
  ot_arena scratch = ot_arena_pool_begin(&e->scratch);
  ot_bound_stages(b, &scratch);
  return OT_OK;
}

// Stages and replicas on devices of different kinds have different shares of the blocks: the time
// is bounded by all the work, the memory by the mean.
static ot_status bound_crossing(ot_estimator *e, const ot_candidate *priced, ot_bounder *b) {
  ot_bound_mean(b, true, 0);
  b->end_s = 0;
  return ot_crossing_bound(e, b->candidate, priced, b->scale, &b->met_s);
}

static ot_status bound_candidate(ot_estimator *e, const ot_bound_request *request,
                                 const ot_candidate *priced, ot_bounder *b) {
  const ot_candidate *const c = b->candidate;
  if (c->crosses) return bound_crossing(e, priced, b);
  if (request->depth >= OT_BOUND_CUT) return bound_cut(e, request->depth, b);
  ot_bound_mean(b, request->scope == OT_SCOPE_SPLIT, most_chunks(e, c, request->scope));
  return OT_OK;
}

ot_status ot_bound_build(ot_estimator *e, const ot_bound_request *request, ot_estimate_bound *out) {
  const ot_candidate *const c = request->candidate;
  ot_shard_bound shards;
  ot_bounder b;
  ot_bounder_begin(e, c, &b);
  b.shards = request->shards;
  const ot_candidate priced = priced_at(e, c, request->depth, &b.scale);
  OT_TRY(find_work(e, &priced, &b.work));
  if (!b.shards) {
    OT_TRY(ot_shard_bound_build(e, c, b.work->elements, &shards));
    b.shards = &shards;
  }
  OT_TRY(bound_candidate(e, request, &priced, &b));
  const double least = e->job.correction ? e->job.correction->least : 1;
  const double s = (ot_larger(b.met_s, request->work_s) + b.end_s) * rounding;
  const double peak = request->depth == OT_BOUND_PLAIN ? 0 : b.peak;
  *out = (ot_estimate_bound){.step_s = ot_crossing_step_s(e, s), .peak = (int64_t)peak};
  OT_TRY(ot_teacher_cost_bound(e, c, out));
  out->step_s *= least;
  return OT_OK;
}
