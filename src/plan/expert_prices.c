// SPDX-License-Identifier: Apache-2.0
// A row is sent once to each domain that has an expert of its token, and from there once to each
// rank that has one (DeepSeek-AI 2024, DeepEP). Of k choices among n places, n (1 - (1 - 1/n)^k)
// are different.
#include "plan/expert_prices.h"

#include "base/extremes.h"

static bool has_experts(const ot_estimator *e, int kind) {
  const int layer = kind - 1;
  return layer >= 0 && layer < e->layers.num_layers && e->layers.moe.num_experts > 0 &&
         e->layers.moe.layer[layer];
}

double ot_expert_elements(const ot_estimator *e, const ot_candidate *c, int kind) {
  enum { PROJECTIONS = 3 };  // gate, up, down
  if (!has_experts(e, kind)) return 0;
  const ot_model *const model = e->job.model;
  return (double)model->moe.num_experts / c->ep * PROJECTIONS * (double)model->moe.expert_size *
         (double)model->hidden_size;
}

ot_group_shape ot_expert_replicas(const ot_candidate *c) {
  return (ot_group_shape){.size = c->tp * c->cp * c->dp / c->ep, .stride = c->ep};
}

static double places_of_token(int places, int64_t choices) {
  double missed = 1;
  for (int64_t i = 0; i < choices; i++) missed *= 1 - 1.0 / places;
  return places * (1 - missed);
}

// Sends `row_bytes` for each token to its places, `stride` ranks apart.
static ot_status send_s(const ot_estimator *e, const ot_group_shape *places, double row_bytes,
                        double *s) {
  const int64_t choices = e->job.model->moe.experts_per_token;
  const ot_collective sent = {.op = OT_OP_ALL_TO_ALL,
                              .shape = *places,
                              .bytes = row_bytes * places_of_token(places->size, choices)};
  ot_price price;
  OT_TRY(ot_price_collective(&e->simulation, &sent, &price));
  *s = ot_price_total_s(&e->simulation, price);
  return OT_OK;
}

// Beside the work of another micro-batch, what is longer than that is seen, and slows it down.
static void add_exposed(const ot_estimator *e, ot_phase_price *work, double s) {
  const double hidden_s = e->job.engine->overlap_expert ? ot_smaller(s, work->compute_s) : 0;
  const double slower_s = ot_price_beside_s(&e->simulation, work->compute_s, hidden_s);
  work->total_s += s - hidden_s + slower_s;
  work->compute_s += slower_s;
  work->exposed_s[OT_TIMELINE_EP] += s - hidden_s;
}

// Moves `bytes` beside what the ops of the layer move.
static void add_pass(const ot_estimator *e, ot_phase_price *work, double bytes) {
  const double s = ot_price_pass(&e->simulation, bytes).device_s;
  work->compute_s += s;
  work->total_s += s;
}

// What the graph has no ops for. Rows that are received are read and written once more, there and
// back; biases go over all rows that experts put out.
static void add_passes(const ot_estimator *e, const ot_candidate *c, double tokens,
                       ot_block_price *to) {
  const ot_moe *const moe = &e->job.model->moe;
  const ot_engine *const engine = e->job.engine;
  const double width = (double)e->job.model->hidden_size;
  const double received = tokens * width * e->job.recipe.activation_bytes *
                          places_of_token(c->ep, moe->experts_per_token);
  for (int i = 0; i < 4; i++) {
    ot_phase_price *const work = &to->work[i / 2 ? OT_WORK_BACKWARD : OT_WORK_FORWARD][i % 2];
    if (engine->sorts_received && c->ep > 1) add_pass(e, work, 4 * received);
    if (!moe->biases) continue;
    add_pass(e, work,
             engine->expert_bias_bytes[i / 2] * tokens * (double)moe->experts_per_token * width);
  }
}

ot_status ot_expert_prices_add(const ot_estimator *e, const ot_prices *p, int kind,
                               ot_block_price *to) {
  const ot_candidate *const c = &p->key;
  if (!has_experts(e, kind)) return OT_OK;
  const double tokens = (double)c->micro_batch_size * (double)e->job.sequence_length /
                        (c->cp * (p->sequence_parallel ? c->tp : 1));
  add_passes(e, c, tokens, to);
  if (c->ep == 1) return OT_OK;
  const double bytes = tokens * (double)e->job.model->hidden_size * e->job.recipe.activation_bytes;
  const int domain = e->cluster.num_levels > 1 ? e->cluster.level[0].size : c->ep;
  const int inside = c->ep < domain ? c->ep : domain;
  double near_s, far_s;
  OT_TRY(send_s(e, &(ot_group_shape){.size = inside, .stride = 1}, bytes, &near_s));
  OT_TRY(send_s(e, &(ot_group_shape){.size = c->ep / inside, .stride = inside}, bytes, &far_s));
  const double s = 2 * (near_s > far_s ? near_s : far_s);  // there and back
  const bool again = c->recompute == OT_RECOMPUTE_FULL;
  for (int later = 0; later < 2; later++) {
    add_exposed(e, &to->work[OT_WORK_FORWARD][later], s);
    add_exposed(e, &to->work[OT_WORK_BACKWARD][later], again ? 2 * s : s);
  }
  if (again && !e->job.engine->overlap_expert) to->recompute_total_s += s;
  return OT_OK;
}

ot_status ot_expert_check(const ot_job *job, const ot_candidate *c) {
  const int64_t experts = job->model->moe.num_experts;
  const int64_t ranks = (int64_t)c->tp * c->cp * c->dp;
  OT_CHECK(c->ep == 1 || experts > 0, OT_USAGE, "plan: ep=%d, but the model has no experts", c->ep);
  OT_CHECK(c->ep == 1 || (experts % c->ep == 0 && ranks % c->ep == 0), OT_USAGE,
           "plan: ep=%d divides not both the %lld experts and the %lld ranks of a stage", c->ep,
           (long long)experts, (long long)ranks);
  return OT_OK;
}
