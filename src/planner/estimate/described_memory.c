// SPDX-License-Identifier: Apache-2.0
// Memory of a described framework: the tensors that the derived backward reads, without those that
// its compiler recomputes, times the micro-batches in flight, plus the framework's own buffers.
// Totals that frameworks round up somewhere are estimated on the high side.
#include "base/extremes.h"
#include "estimate/framework.h"

// ---- saved activations of a block ----

typedef struct keeper {
  const ot_estimator *estimator;
  const ot_prices *prices;
  const ot_model *model;    // one layer of each kind
  const ot_engine *engine;  //
  int layer;                // of `model`; -1: the block is not a layer
  double rows;              // tokens of a micro-batch on this rank
  double bytes;             // per element
  double tp;                // ranks that share a GEMM
  double whole;             // share of the activations between GEMMs on a rank
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

// Width of the MLP summed over the experts of a token.
static double mlp_width(const keeper *k) {
  const ot_moe *const moe = &k->model->moe;
  if (moe->num_experts == 0 || !moe->layer[k->layer]) return (double)k->model->intermediate_size;
  return (double)(moe->experts_per_token * moe->expert_size + moe->shared_size);
}

// Models of the GPT family have dropout; those with RMSNorm (Touvron et al. 2023) are trained
// without it.
static bool drops_out(const keeper *k) {
  return k->engine->dropout && k->model->norm == OT_NORM_LAYERNORM;
}

// torch.compile's partitioner (functorch/compile min_cut_rematerialization_partition) saves the
// outputs of GEMMs and attention, and recomputes norms and elementwise operators.
static double dropped_of(const keeper *k) {
  const double norms = 2 * (double)k->model->hidden_size * k->whole;
  return k->rows * k->bytes * (norms + mlp_width(k) / k->tp);
}

// torchtitan's selective checkpointing by op (parallelize_llama.py) saves the outputs of attention
// and of every second GEMM, in the order q, k, v, o, gate, up, down.
static double kept_by_op(const keeper *k) {
  const ot_model *const m = k->model;
  const double query = (double)(m->num_heads * m->head_dim);
  const double key = (double)(m->num_kv_heads * m->head_dim), mlp = mlp_width(k);
  const double whole = (double)m->hidden_size * (m->gated_mlp ? 2 : 1);  // input, and down's output
  return k->rows * (k->bytes * (whole * k->whole + (2 * query + key + mlp) / k->tp) +
                    4 * (double)m->num_heads / k->tp);
}

// The share of its bytes that a tensor loses in 8 bits.
static double narrowed(const keeper *k) { return 1 - 1 / k->bytes; }

// The bytes that a block keeps from F to the end of its backward.
static double kept_in_block(const ot_estimator *estimator, const ot_prices *prices, int kind) {
  const keeper k = keeper_of(estimator, prices, kind);
  const ot_block_price *const price = &prices->kind[kind];
  const ot_recompute recompute = prices->key.recompute;
  const bool by_op = recompute == OT_RECOMPUTE_SELECTIVE && !prices->key.modules;
  if (k.layer >= 0 && by_op && k.engine->selective_share > 0) {
    return kept_by_op(&k);
  }
  double bytes = 0;
  for (int i = 0; i < OT_SLOT_WEIGHT; i++) bytes += (double)price->memory.slot_bytes[i];
  if (price->memory.has_input) bytes += (double)prices->hidden_bytes;
  // GEMMs in 8 bits have a copy of attention's output of their own.
  const bool narrow = estimator->job.recipe.products == OT_F8;
  bytes -=
      (double)(price->padding_bytes + (narrow ? price->product_bytes / 2 : price->trimmed_bytes));
  if (k.engine->fp8_activation_inputs) bytes -= (double)price->gated_bytes * narrowed(&k);
  if (k.layer < 0) {
    // The mask of the embedding's dropout.
    return kind == 0 && drops_out(&k) ? bytes + k.rows * (double)k.model->hidden_size * k.whole
                                      : bytes;
  }
  const bool drops = k.engine->drops_elementwise && recompute == OT_RECOMPUTE_NONE;
  return drops ? bytes - dropped_of(&k) : bytes;
}

static bool recomputes_attention(const ot_candidate *key) {
  if (key->recompute != OT_RECOMPUTE_SELECTIVE) return false;
  return !key->modules || (key->modules & OT_MODULE_SET(OT_MODULE_CORE_ATTN));
}

// Korthikanti et al. 2022, table 2: of 34 sbh, 2 are dropout masks, and 10 are not sharded without
// sequence parallelism; 2 of these are the layer's input, which is counted in full already.
static double kept_more(const ot_estimator *estimator, const ot_prices *prices, int kind) {
  const keeper k = keeper_of(estimator, prices, kind);
  const double row = k.rows * (double)k.model->hidden_size;
  double bytes = 0;
  if (k.engine->kernels.attention == OT_ATTENTION_UNFUSED && !recomputes_attention(&prices->key)) {
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

// ---- one stage ----

typedef struct counter {
  const ot_replay_request *request;
  const ot_prices *prices;
  const ot_estimator *estimator;
  const ot_candidate *candidate;
  int stage;
  ot_memory_estimate *out;
} counter;

static int kind_of(const counter *c, int block) { return c->prices->blocks->kind_of[block]; }

static bool runs(const counter *c, int block) {
  return c->request->cut->stage_of[block] == c->stage;
}

static double elements_of(const counter *c, int block) {
  return (double)c->prices->kind[kind_of(c, block)].buckets.elements;
}

static bool is_layer(const counter *c, int block) {
  return block > 0 && block < c->prices->blocks->num_blocks - 1;
}

static double rows_of(const counter *c) {
  const double tokens =
      (double)c->candidate->micro_batch_size * (double)c->estimator->job.sequence_length;
  return tokens / c->candidate->cp;
}

// ---- states ----

static void count_states(counter *c) {
  const ot_recipe *const recipe = &c->estimator->job.recipe;
  const int zero = c->candidate->zero;
  const double pieces = zero > 0 ? c->candidate->dp_shard * c->candidate->cp : 1;
  const double expert_pieces =
      zero > 0 ? ot_described_expert_replicas(c->estimator, c->candidate).size : 1;
  double n = 0, held = 0;  // elements of a rank: before, after ZeRO sharding
  for (int i = 0; i < c->prices->blocks->num_blocks; i++) {
    const bool copy =
        i == 0 && c->prices->tied_across_stages && runs(c, c->prices->blocks->num_blocks - 1);
    if (!runs(c, i) && !copy) continue;
    const double experts = c->prices->kind[kind_of(c, i)].expert_elements;
    n += elements_of(c, i);
    held += (elements_of(c, i) - experts) / pieces + experts / expert_pieces;
  }
  const ot_engine *const engine = c->estimator->job.engine;
  const bool sums = c->candidate->dp * c->candidate->cp > 1;
  const double copies = (sums && zero < 2 ? n * engine->copy_bytes : 0) +
                        (zero == 1 || zero == 2 ? held * engine->step_bytes : 0);
  c->out->weights = (int64_t)((zero == 3 ? held : n) * recipe->weight_bytes);
  c->out->gradients = (int64_t)((zero >= 2 ? held : n) * recipe->gradient_bytes + copies);
  c->out->optimizer = (int64_t)(held * (recipe->master_bytes + recipe->moment_bytes));
}

// Gathered weights of the current unit and the next one, or of those used again soon, where the
// forward turns back. Embedding and head belong to the outermost unit, which stays gathered (torch
// FSDP's root), as does the gradient of the larger of the two. Plus the full gradient of a layer,
// with its copy in communication format.
static void count_gathered(counter *c) {
  const ot_recipe *const recipe = &c->estimator->job.recipe;
  double layer = 0, ends = 0, all = 0, largest = 0;
  if (c->candidate->zero < 3 || c->candidate->dp_shard * c->candidate->cp == 1) return;
  for (int i = 0; i < c->prices->blocks->num_blocks; i++) {
    if (!runs(c, i)) continue;
    const double n = elements_of(c, i);
    all += n;
    if (n > largest) largest = n;
    if (!is_layer(c, i)) ends += n;
    if (is_layer(c, i) && n > layer) layer = n;
  }
  const ot_engine *const engine = c->estimator->job.engine;
  const double live = ot_smaller((double)engine->live_elements, all - ends);
  const double near = ot_larger(2 * layer, live);
  const bool kept = !engine->reshard_after_forward;
  c->out->gathered =
      (int64_t)((kept ? all : near + ends) * recipe->gather_bytes + largest * recipe->gather_bytes +
                layer * (recipe->gather_bytes + recipe->reduce_bytes));
}

// ---- activations ----

// Activation bytes of one micro-batch.
static double kept_of(const counter *c, int block) {
  const int kind = kind_of(c, block);
  const double bytes = kept_in_block(c->estimator, c->prices, kind);
  const bool again = c->candidate->recompute == OT_RECOMPUTE_FULL;
  if (!is_layer(c, block) || again) return bytes;
  return bytes + kept_more(c->estimator, c->prices, kind);
}

// Bytes that a chunk saves of a micro-batch in addition to its blocks: the activation it sent.
static double sent_of(const counter *c, int chunk) {
  const bool sends = chunk + 1 < c->request->flow->num_chunks;
  return sends && c->estimator->job.engine->keeps_outputs ? (double)c->prices->hidden_bytes : 0;
}

// Whether action `i` of a stage is an I whose W directly follows it: both are one backward then,
// which keeps nothing for W (torch.distributed.pipelining).
static bool is_whole(const ot_pipeline_flow *flow, int rank, int i) {
  if (i < 0 || i + 1 >= flow->num_of_rank[rank]) return false;
  const ot_flow_action *const a = &flow->actions[flow->of_rank[rank][i]];
  const ot_flow_action *const next = &flow->actions[flow->of_rank[rank][i + 1]];
  return a->work == OT_WORK_BACKWARD && next->work == OT_WORK_WEIGHT && next->chunk == a->chunk &&
         next->micro_batch == a->micro_batch;
}

// Bytes of each chunk and micro-batch: from F to the end of its backward, of these until I alone,
// and from an I to a W that is apart. Operands of GEMMs in 8 bits are saved in 8 bits.
typedef struct chunk_bytes {
  double kept, early, late;
  double block;  // of `kept`, the largest block
} chunk_bytes;

static void add_block(const counter *c, int block, chunk_bytes *to) {
  const ot_block_price *const price = &c->prices->kind[kind_of(c, block)];
  const double narrow = c->estimator->job.recipe.products == OT_F8 ? 0.5 : 1;
  const int64_t *const slot = price->memory.slot_bytes;
  const double kept = kept_of(c, block);
  to->kept += kept;
  to->block = ot_larger(to->block, kept);
  to->early += ot_larger(0, (double)(slot[OT_SLOT_SHORT] - price->padding_bytes));
  to->late += narrow * (double)slot[OT_SLOT_WEIGHT];
}

static chunk_bytes *bytes_of_chunks(const counter *c, ot_arena *arena) {
  const ot_replay_request *const request = c->request;
  chunk_bytes *const of = ot_arena_array(arena, request->flow->num_chunks, sizeof *of);
  for (int i = 0; i < c->prices->blocks->num_blocks; i++) {
    add_block(c, i, &of[request->cut->chunk_of[i]]);
  }
  for (int i = 0; i < request->flow->num_chunks; i++) {
    of[i].kept += sent_of(c, i);
    of[i].early = ot_smaller(of[i].early, of[i].kept);
  }
  return of;
}

// Static graphs hold one micro-batch per buffer slot, plus the one in progress; the last stage
// sends no activation on.
static void fill_buffers(const counter *c, const chunk_bytes *of, double *peak) {
  const ot_pipeline_flow *const flow = c->request->flow;
  const double places = c->estimator->job.engine->stage_buffers * flow->num_ranks + 1;
  const double held = places < flow->micro_batches ? places : flow->micro_batches;
  for (int i = 0; i + 1 < flow->num_chunks; i++) {
    const double bytes = held * of[i].kept;
    if (bytes > peak[flow->rank_of[i]]) peak[flow->rank_of[i]] = bytes;
  }
}

// The most that a pair saves in addition: layer by layer, its forward uses the memory that the
// layers of its backward release (Megatron-core's combined_1f1b.py), except that of the layer in
// progress.
static double most_of_pair(const chunk_bytes *forward, const chunk_bytes *backward) {
  return ot_larger(0, forward->kept - backward->kept) + forward->block;
}

// Peak of saved activations over a stage: the allocator reuses memory that one chunk freed for
// another.
static double peak_of_rank(const ot_pipeline_flow *flow, const chunk_bytes *of, int rank) {
  double live = 0, peak = 0;
  for (int i = 0; i < flow->num_of_rank[rank]; i++) {
    const ot_flow_action *const a = &flow->actions[flow->of_rank[rank][i]];
    const chunk_bytes *const chunk = &of[a->chunk];
    if (a->paired && !flow->split) {
      const chunk_bytes *const back = &of[flow->actions[flow->of_rank[rank][++i]].chunk];
      peak = ot_larger(peak, live + most_of_pair(chunk, back));
      live += chunk->kept - back->kept;
      continue;
    }
    const bool apart = flow->split && !is_whole(flow, rank, i) && !is_whole(flow, rank, i - 1);
    if (a->work == OT_WORK_FORWARD) live += chunk->kept;
    if (a->work == OT_WORK_BACKWARD && apart) live += chunk->late;
    peak = ot_larger(peak, live);
    if (a->work == OT_WORK_BACKWARD && !flow->split) live -= chunk->kept;
    if (a->work == OT_WORK_BACKWARD && apart) live -= chunk->early;
    if (a->work == OT_WORK_WEIGHT) live -= chunk->kept;
    if (a->work == OT_WORK_WEIGHT && apart) live -= chunk->late - chunk->early;
  }
  return peak;
}

void ot_described_peaks(const ot_replay_request *request, ot_arena *arena, double *peak) {
  const ot_pipeline_flow *const flow = request->flow;
  const counter c = {.request = request,
                     .prices = request->prices,
                     .estimator = request->estimator,
                     .candidate = request->candidate};
  const chunk_bytes *const of = bytes_of_chunks(&c, arena);
  for (int rank = 0; rank < flow->num_ranks; rank++) peak[rank] = peak_of_rank(flow, of, rank);
  if (c.estimator->job.engine->stage_buffers > 0) fill_buffers(&c, of, peak);
}

// ---- buffers ----

// Temporaries of the largest layer; with recompute, all that is recomputed of it.
static double transients_of(const counter *c) {
  double most = 0;
  int kind = 0;
  for (int i = 0; i < c->prices->blocks->num_blocks; i++) {
    if (!runs(c, i) || !is_layer(c, i)) continue;
    const double bytes = (double)c->prices->kind[kind_of(c, i)].transient_bytes;
    if (bytes <= most) continue;
    most = bytes;
    kind = kind_of(c, i);
  }
  const bool again = most > 0 && c->candidate->recompute == OT_RECOMPUTE_FULL;
  return again ? most + kept_more(c->estimator, c->prices, kind) : most;
}

static double logits_of(const counter *c) {
  const ot_engine *const engine = c->estimator->job.engine;
  if (!runs(c, c->prices->blocks->num_blocks - 1)) return 0;
  const double rows = engine->chunked_loss && (double)engine->loss_rows < rows_of(c)
                          ? (double)engine->loss_rows
                          : rows_of(c);
  return engine->loss_logit_bytes * rows * (double)c->estimator->job.model->vocab_size /
         c->candidate->tp;
}

static void count_buffers(counter *c) {
  const ot_engine *const engine = c->estimator->job.engine;
  const bool sums = c->candidate->dp * c->candidate->cp > 1;
  const double transients = transients_of(c), logits = logits_of(c);
  double bytes = transients > logits ? transients : logits;
  const bool stages = c->request->flow->num_ranks > 1;
  if (stages && engine->stage_buffers > 0) bytes *= 2;
  if (stages) bytes += 4.0 * (double)c->prices->hidden_bytes;
  if (sums && engine->copies_gradients) bytes += (double)engine->bucket_bytes;
  c->out->buffers = (int64_t)bytes;
}

static void count_stage(counter *c, double kept) {
  ot_memory_estimate *const out = c->out;
  count_states(c);
  count_gathered(c);
  count_buffers(c);
  out->activations = (int64_t)kept;
  out->peak = out->weights + out->gradients + out->optimizer + out->activations + out->gathered +
              out->buffers;
}

void ot_described_memory(const ot_replay_request *request, ot_arena *arena,
                         ot_memory_estimate *out) {
  double *const peak = ot_arena_array(arena, request->stages->num_ranks, sizeof *peak);
  ot_described_peaks(request, arena, peak);
  for (int stage = 0; stage < request->stages->num_ranks; stage++) {
    counter c = {.request = request,
                 .prices = request->prices,
                 .estimator = request->estimator,
                 .candidate = request->candidate,
                 .stage = stage,
                 .out = &out[stage]};
    count_stage(&c, peak[stage]);
  }
}

// ---- bounds ----

// Activations saved at one moment, and temporaries of layers. Best-fit placement of a larger
// micro-batch may waste a little that a smaller one does not.
void ot_described_bound_slots(const ot_estimator *e, const ot_prices *prices, int kind,
                              int64_t *slot_bytes, int64_t *scratch_bytes) {
  const bool layer = kind > 0 && kind < prices->blocks->num_kinds - 1;
  for (int i = 0; i < OT_SLOT_CLASSES; i++) slot_bytes[i] = 0;
  slot_bytes[OT_SLOT_SHORT] = (int64_t)kept_in_block(e, prices, kind);
  *scratch_bytes = layer ? prices->kind[kind].transient_bytes / 8 * 7 : 0;
}
