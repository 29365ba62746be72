// SPDX-License-Identifier: Apache-2.0
// Sums of gradients, gathers of weights and the update of a framework: bytes by recipe and engine.
#include "plan/described.h"

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

static bool shards_states(const ot_candidate *c) { return c->zero > 0 && c->dp_shard * c->cp > 1; }

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
      &(ot_collective){shards_states(c) ? OT_OP_REDUCE_SCATTER : OT_OP_ALL_REDUCE, shape, bytes, 0},
      &s));
  OT_TRY(collective_s(e, &(ot_collective){OT_OP_ALL_REDUCE, others, bytes / shape.size, 0},
                      &across_s));
  const double copy_s =
      copies ? pass_s(e, elements * (recipe->gradient_bytes + recipe->reduce_bytes)) : 0;
  for (int i = 0; i < 4; i++) {
    to->reduce_s[i / 2][i % 2] += copy_s + messages * (s + (i % 2 == 1 ? across_s : 0));
  }
  if (!shards_states(c)) return OT_OK;
  const ot_collective gather = {OT_OP_ALL_GATHER, shape, elements * recipe->gather_bytes, 0};
  OT_TRY(collective_s(e, &gather, &s));
  to->gather_s += s;
  return OT_OK;
}

static ot_status price_sums(const ot_estimator *e, const ot_candidate *c, ot_block_price *to) {
  const ot_group_shape dense[2] = {
      shard_shape(c),
      {.size = c->zero > 0 ? c->dp / c->dp_shard : 1, .stride = c->tp * c->cp * c->dp_shard}};
  const ot_group_shape experts[2] = {ot_described_expert_replicas(c), {.size = 1, .stride = 1}};
  OT_TRY(add_sums(e, c, (double)to->buckets.elements - to->expert_elements, dense, to));
  return to->expert_elements > 0 ? add_sums(e, c, to->expert_elements, experts, to) : OT_OK;
}

static void price_update(const ot_estimator *e, const ot_candidate *c, ot_block_price *to) {
  const ot_recipe *const recipe = &e->job.recipe;
  const ot_engine *const engine = e->job.engine;
  const double elements = (double)to->buckets.elements;
  const double dense = (elements - to->expert_elements) / shard_shape(c).size;
  const double experts = to->expert_elements / ot_described_expert_replicas(c).size;
  const double piece = shards_states(c) ? dense + experts : elements;
  const double kept = recipe->gradient_bytes + recipe->weight_bytes +
                      2 * (recipe->master_bytes + recipe->moment_bytes) +
                      (recipe->master_bytes > 0 ? 0 : recipe->weight_bytes);
  const double moved =
      engine->update_bytes > 0 ? engine->update_bytes : kept + recipe->gradient_bytes;
  const double update_s = pass_s(e, piece * moved + elements * engine->zero_bytes);
  to->update = (ot_phase_price){.total_s = update_s, .compute_s = update_s};
}

// Of a bucket of to->buckets.elements, of which to->expert_elements are experts.
static ot_status price_bucket(const ot_estimator *e, const ot_candidate *c, ot_block_price *to) {
  OT_TRY(price_sums(e, c, to));
  price_update(e, c, to);
  return OT_OK;
}

// All blocks alike.
static void set_shards(const ot_estimator *e, const ot_candidate *c, ot_block_price *to) {
  const bool sharded = shards_states(c);
  to->shards = sharded;
  to->buckets.gathers = sharded && c->zero == 3;
  to->buckets.each_micro_batch = sharded && c->zero >= 2 && e->job.engine->reduce_each_micro_batch;
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

ot_status ot_described_sums(const ot_estimator *e, const ot_step_phases *phases, ot_arena *scratch,
                            ot_prices *p) {
  (void)phases;
  (void)scratch;
  for (int i = 0; i < p->blocks->num_kinds; i++) {
    set_shards(e, &p->key, &p->kind[i]);
    ot_described_expert_share(e, &p->key, i, &p->kind[i]);
    OT_TRY(price_bucket(e, &p->key, &p->kind[i]));
  }
  return price_meeting(e, p);
}

ot_status ot_described_bound_sums(const ot_estimator *e, const ot_candidate *c, double n,
                                  ot_shard_bound *out) {
  const ot_engine *const engine = e->job.engine;
  // Experts are summed over fewer ranks: as many of them as there may be.
  const double experts = ot_described_expert_elements(e, c, (int)e->layers.num_layers);
  ot_block_price price = {.buckets.elements = (int64_t)n,
                          .expert_elements = experts < n ? experts : n};
  OT_TRY(price_bucket(e, c, &price));
  out->reduce_s = price.reduce_s[0][1];
  if (shards_states(c) && c->zero >= 2 && engine->reduce_each_micro_batch) {
    out->reduce_each_s = price.reduce_s[0][0];
  }
  out->end_s = price.update.total_s;
  if (c->zero == 3) out->gather_s = price.gather_s;
  if (c->zero < 3 && !engine->overlap_update_gather) out->end_s += price.gather_s;
  return OT_OK;
}
