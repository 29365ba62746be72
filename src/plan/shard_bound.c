// SPDX-License-Identifier: Apache-2.0
// Of this program what reduce.c and update.c do, by their groups; of other software its prices.
#include "plan/shard_bound.h"

#include "plan/expert_prices.h"
#include "plan/phase_price.h"

// AdamW reads and writes both moments, in fp32.
enum { MOMENT_BYTES = 16 };

static ot_status collective_s(const ot_estimator *e, ot_op_kind op, ot_group_shape shape,
                              double bytes, double *sum_s) {
  ot_price price;
  if (shape.size <= 1) return OT_OK;
  OT_TRY(ot_price_collective(&e->simulation, &(ot_collective){op, shape, bytes, 0}, &price));
  *sum_s += price.device_s;
  return OT_OK;
}

// Bytes of an element that travels as `bytes` say; a run may choose narrower types.
static double narrow(const ot_estimator *e, double bytes) {
  return e->job.run || bytes < 4 ? 2 : 4;
}

static ot_status build_own(const ot_estimator *e, const ot_candidate *c, double n,
                           ot_shard_bound *out) {
  const int pieces = c->zero > 0 ? c->dp_shard : c->dp, inside = c->tp * c->cp;
  const ot_group_shape shard = {.size = pieces, .stride = inside};
  const ot_group_shape others = {.size = c->dp / pieces, .stride = inside * pieces};
  const ot_group_shape context = {.size = c->cp, .stride = c->tp};
  const double wire = n * narrow(e, e->job.recipe.reduce_bytes);
  const double weights = n * narrow(e, e->job.recipe.weight_bytes);
  const double kept = n * narrow(e, e->job.recipe.gradient_bytes);
  double scatter_s = 0, gather_s = 0;
  OT_TRY(collective_s(e, OT_OP_REDUCE_SCATTER, shard, wire, &scatter_s));
  OT_TRY(collective_s(e, OT_OP_ALL_REDUCE, context, kept / pieces, &out->reduce_s));
  OT_TRY(collective_s(e, OT_OP_ALL_REDUCE, others, kept / pieces, &out->reduce_s));
  if (c->zero == 0) OT_TRY(collective_s(e, OT_OP_ALL_GATHER, shard, kept, &out->spread_s));
  if (c->zero > 0) OT_TRY(collective_s(e, OT_OP_ALL_GATHER, shard, weights, &gather_s));
  out->reduce_s += scatter_s;
  out->reduce_each_s = c->zero >= 2 ? scatter_s : 0;
  *(c->zero == 3 ? &out->gather_s : &out->end_s) += gather_s;
  const double updated = c->zero > 0 ? n / pieces : n;
  out->end_s += ot_price_pass(&e->simulation, updated * MOMENT_BYTES).device_s;
  return OT_OK;
}

static ot_status build_other(const ot_estimator *e, const ot_candidate *c, double n,
                             ot_shard_bound *out) {
  const ot_engine *const engine = e->job.engine;
  const bool cut = c->zero > 0 && c->dp_shard * c->cp > 1;
  // Experts are summed over fewer ranks: as many of them as there may be.
  const double experts = ot_expert_elements(e, c, (int)e->layers.num_layers);
  ot_block_price price = {.buckets.elements = (int64_t)n,
                          .expert_elements = experts < n ? experts : n};
  OT_TRY(ot_bucket_price_build(e, c, &price));
  out->reduce_s = price.reduce_s[0][1];
  if (cut && c->zero >= 2 && engine->reduce_each_micro_batch) {
    out->reduce_each_s = price.reduce_s[0][0];
  }
  out->end_s = price.update.total_s;
  if (c->zero == 3) out->gather_s = price.gather_s;
  if (c->zero < 3 && !engine->overlap_update_gather) out->end_s += price.gather_s;
  return OT_OK;
}

// A run may say it block by block.
static bool all_reshard(const ot_estimator *e) {
  for (int i = 0; i < (int)e->job.model->num_layers; i++) {
    if (!ot_estimator_reshards(e, 1 + i)) return false;
  }
  return true;
}

ot_status ot_shard_bound_build(const ot_estimator *e, const ot_candidate *c, double elements,
                               ot_shard_bound *out) {
  *out = (ot_shard_bound){.regathers = all_reshard(e)};
  return e->own ? build_own(e, c, elements, out) : build_other(e, c, elements, out);
}

static void take_smaller(double other, double *value) {
  if (other < *value) *value = other;
}

void ot_shard_bound_merge(const ot_shard_bound *other, ot_shard_bound *out) {
  take_smaller(other->reduce_s, &out->reduce_s);
  take_smaller(other->reduce_each_s, &out->reduce_each_s);
  take_smaller(other->spread_s, &out->spread_s);
  take_smaller(other->gather_s, &out->gather_s);
  take_smaller(other->end_s, &out->end_s);
}
