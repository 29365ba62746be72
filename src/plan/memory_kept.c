// SPDX-License-Identifier: Apache-2.0
// What other software keeps of a micro-batch in one block: the tensors that the derived backward
// reads, less what its compiler makes again, and what eager layers keep beyond them.
#include "plan/memory.h"

typedef struct keeper {
  const ot_estimator *estimator;
  const ot_prices *prices;
  const ot_model *model;    // one layer of each kind
  const ot_engine *engine;  //
  int layer;                // of `model`; -1: the block is none
  double rows;              // of a micro-batch on this rank
  double bytes;             // of an element
  double tp;                // ranks that share products
  double whole;             // share of what is between products that a rank has
} keeper;

static keeper keeper_of(const ot_estimator *e, const ot_prices *p, int kind) {
  const double tokens = (double)p->key.micro_batch_size * (double)e->job.sequence_length;
  return (keeper){.estimator = e,
                  .prices = p,
                  .model = &e->layers,
                  .engine = e->job.engine,
                  .layer = kind > 0 && kind < p->blocks->num_kinds - 1 ? kind - 1 : -1,
                  .rows = tokens / p->key.cp,
                  .bytes = e->job.recipe.activation_bytes,
                  .tp = p->key.tp,
                  .whole = p->sequence_parallel ? 1.0 / p->key.tp : 1};
}

// Width of the MLP that a token goes through.
static double mlp_width(const keeper *k) {
  const ot_moe *const moe = &k->model->moe;
  if (moe->num_experts == 0 || !moe->layer[k->layer]) return (double)k->model->intermediate_size;
  return (double)(moe->experts_per_token * moe->expert_size + moe->shared_size);
}

// Models of the family of GPT have dropout; those with RMSNorm (Touvron et al. 2023) are trained
// without.
static bool drops_out(const keeper *k) {
  return k->engine->dropout && k->model->norm == OT_NORM_LAYERNORM;
}

// torch.compile's partitioner (functorch/compile min_cut_rematerialization_partition) keeps what
// products and attention made, and makes norms and elementwise work again.
static double dropped_of(const keeper *k) {
  const double norms = 2 * (double)k->model->hidden_size * k->whole;
  return k->rows * k->bytes * (norms + mlp_width(k) / k->tp);
}

// torchtitan's selective checkpointing by op (parallelize_llama.py): outputs of attention and of
// every second product, in the order q, k, v, o, gate, up, down.
static double kept_by_op(const keeper *k) {
  const ot_model *const m = k->model;
  const double query = (double)(m->num_heads * m->head_dim);
  const double key = (double)(m->num_kv_heads * m->head_dim), mlp = mlp_width(k);
  const double whole = (double)m->hidden_size * (m->gated_mlp ? 2 : 1);  // input, and down's output
  return k->rows * (k->bytes * (whole * k->whole + (2 * query + key + mlp) / k->tp) +
                    4 * (double)m->num_heads / k->tp);
}

double ot_memory_kept(const ot_estimator *estimator, const ot_prices *prices, int kind) {
  const keeper k = keeper_of(estimator, prices, kind);
  const ot_block_price *const price = &prices->kind[kind];
  const ot_recompute recompute = prices->key.recompute;
  if (k.layer >= 0 && recompute == OT_RECOMPUTE_SELECTIVE && k.engine->selective_share > 0) {
    return kept_by_op(&k);
  }
  double bytes = 0;
  for (int i = 0; i < OT_SLOT_CLASSES; i++) bytes += (double)price->slot_bytes[i];
  if (price->has_input) bytes += (double)prices->hidden_bytes;
  if (estimator->job.recipe.products == OT_F8) bytes -= (double)price->product_bytes / 2;
  if (k.layer < 0) {
    // The mask of the embedding's dropout.
    return kind == 0 && drops_out(&k) ? bytes + k.rows * (double)k.model->hidden_size * k.whole
                                      : bytes;
  }
  const bool drops = k.engine->drops_elementwise && recompute == OT_RECOMPUTE_NONE;
  return drops ? bytes - dropped_of(&k) : bytes;
}

// Korthikanti et al. 2022, table 2: of 34 sbh, 2 are masks of dropout, and 10 are whole without
// sequence parallelism; 2 of these are what enters the layer, whole as it stands.
double ot_memory_kept_more(const ot_estimator *estimator, const ot_prices *prices, int kind) {
  const keeper k = keeper_of(estimator, prices, kind);
  const double row = k.rows * (double)k.model->hidden_size;
  double bytes = 0;
  if (k.engine->kernels.attention == OT_ATTENTION_UNFUSED &&
      prices->key.recompute != OT_RECOMPUTE_SELECTIVE) {
    bytes += k.engine->saved_score_bytes * k.rows * (double)estimator->job.sequence_length *
             (double)k.model->num_heads / k.tp;
  }
  if (drops_out(&k)) bytes += 2 * row / k.tp;
  if (prices->sequence_parallel && k.engine->keeps_gathered) bytes += 4 * row * (1 - 1 / k.tp);
  if (!prices->sequence_parallel) bytes += 8 * row * (1 - 1 / k.tp);
  if (k.engine->keeps_activated && k.model->gated_mlp) {
    bytes += k.rows * k.bytes * mlp_width(&k) / k.tp;
  }
  return bytes;
}
