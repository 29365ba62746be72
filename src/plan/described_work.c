// SPDX-License-Identifier: Apache-2.0
// What a micro-batch takes in a framework in addition to the ops of the built blocks: what it
// recomputes, and experts spread over ep. A rank then holds a part of the experts, multiplies as
// many rows in fewer and larger groups (simulate/price_kernel.c), and sends rows to where their
// experts are and back. Routing is taken to be even, as published runs force it to be.
//
// A row is sent once to each domain that has an expert of its token, and from there once to each
// rank that has one (DeepSeek-AI 2024, DeepEP). Of k choices among n places, n (1 - (1 - 1/n)^k)
// are different.
#include "base/extremes.h"
#include "plan/described.h"
#include "plan/phase_price.h"

// ---- recompute ----

static bool is_activation(const ot_task *task) {
  return task->op == OT_OP_GLU || task->op == OT_OP_ACTIVATION;
}

static bool is_product(const ot_task *task) {
  return task->op == OT_OP_LINEAR || task->op == OT_OP_GROUPED_LINEAR;
}

// Whether task i is the last product before an activation.
static bool feeds_activation(const ot_segment *forward, int i) {
  if (!is_product(&forward->tasks[i])) return false;
  for (i++; i < forward->num_tasks && !is_product(&forward->tasks[i]); i++) {
    if (is_activation(&forward->tasks[i])) return true;
  }
  return false;
}

static bool is_remade(const ot_segment *forward, int i, unsigned parts) {
  const ot_task *const task = &forward->tasks[i];
  switch (task->op) {
    case OT_OP_ATTENTION:
    case OT_OP_ATTENTION_BLOCK:
      return parts == 0 || (parts & OT_REMADE_ATTENTION);
    case OT_OP_RMSNORM:
    case OT_OP_LAYERNORM:
      return parts & OT_REMADE_NORMS;
    default:
      if (is_activation(task)) return parts & OT_REMADE_ACTIVATION;
      return (parts & OT_REMADE_WIDE) && feeds_activation(forward, i);
  }
}

// The parts of a block that the engine makes again, forward, once more.
static ot_status price_parts(const ot_estimator *e, const ot_prices *p, const ot_segment *forward,
                             ot_phase_price *out) {
  *out = (ot_phase_price){0};
  for (int i = 0; forward && i < forward->num_tasks; i++) {
    ot_price price;
    if (!is_remade(forward, i, e->job.engine->remade)) continue;
    OT_TRY(ot_price_task(&e->simulation, p->shape, &forward->tasks[i], &price));
    const double times = ot_price_times(&e->simulation, forward, i);
    out->compute_s += times * ot_price_total_s(&e->simulation, price);
  }
  out->total_s = out->compute_s;
  return OT_OK;
}

// All of the layer (Megatron-LM's full recompute, torch.utils.checkpoint), or the core of attention
// (Korthikanti et al. 2022) or other parts that the engine names, or a share of the layer
// (torchtitan).
ot_status ot_described_recompute(const ot_estimator *e, const ot_prices *p,
                                 const ot_block_phases *from, ot_phase_price *out) {
  const bool layer = from->storage->program->input >= 0 && from->storage->program->output >= 0;
  *out = (ot_phase_price){0};
  if (!layer || p->key.recompute == OT_RECOMPUTE_NONE) return OT_OK;
  const double share = e->job.engine->selective_share;
  if (p->key.recompute == OT_RECOMPUTE_SELECTIVE && share == 0) {
    return price_parts(e, p, from->forward[0], out);
  }
  ot_phase_price forward;
  OT_TRY(ot_phase_price_build(e, p, from->forward[0], &forward));
  ot_phase_price_add(out, &forward, p->key.recompute == OT_RECOMPUTE_SELECTIVE ? share : 1);
  return OT_OK;
}

// ---- experts ----

static bool has_experts(const ot_estimator *e, int kind) {
  const int layer = kind - 1;
  return layer >= 0 && layer < e->layers.num_layers && e->layers.moe.num_experts > 0 &&
         e->layers.moe.layer[layer];
}

double ot_described_expert_elements(const ot_estimator *e, const ot_candidate *c, int kind) {
  enum { PROJECTIONS = 3 };  // gate, up, down
  if (!has_experts(e, kind)) return 0;
  const ot_model *const model = e->job.model;
  return (double)model->moe.num_experts / c->ep * PROJECTIONS * (double)model->moe.expert_size *
         (double)model->hidden_size;
}

void ot_described_expert_share(const ot_estimator *e, const ot_candidate *c, int kind,
                               ot_block_price *to) {
  to->expert_elements = ot_described_expert_elements(e, c, kind);
  to->buckets.elements -= (int64_t)(to->expert_elements * (c->ep - 1));
}

ot_group_shape ot_described_expert_replicas(const ot_candidate *c) {
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

ot_status ot_described_experts(const ot_estimator *e, const ot_prices *p, int kind,
                               ot_block_price *to) {
  const ot_candidate *const c = &p->key;
  if (!has_experts(e, kind)) return OT_OK;
  ot_described_expert_share(e, c, kind, to);
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
