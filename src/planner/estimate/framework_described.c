// SPDX-License-Identifier: Apache-2.0
// Frameworks described by an engine file. Blocks are built as Orthant would build them, but with
// all experts on each rank; differences of the framework are added to or subtracted from their
// cost.
#include "base/extremes.h"
#include "describe/parallel_check.h"
#include "describe/pipeline_rules.h"
#include "estimate/crossing_estimate.h"
#include "estimate/framework.h"
#include "estimate/phase_price.h"
#include "software/ability_check.h"

// ---- checks ----

static ot_status check_job(const ot_job *job) {
  const char *const name = job->engine->name;
  OT_CHECK(job->model->residuals.block_size == 0, OT_USAGE,
           "plan: engine %s does not support attention_residuals: block (try engine=orthant)",
           name);
  OT_CHECK(job->expert_imbalance <= 1, OT_USAGE,
           "plan: expert_imbalance of engine %s is not priced (try engine=orthant)", name);
  OT_CHECK(job->given.etp <= 1, OT_USAGE, "plan: etp=%d of engine %s is not priced (try etp=1)",
           job->given.etp, name);
  return OT_OK;
}

// Whether ep is compatible with the model and the other degrees.
static ot_status check_experts(const ot_job *job, const ot_candidate *c) {
  const int64_t experts = job->model->moe.num_experts;
  const int64_t ranks = (int64_t)c->tp * c->cp * c->dp;
  OT_CHECK(c->ep == 1 || experts > 0, OT_USAGE, "plan: ep=%d, but the model has no experts", c->ep);
  OT_CHECK(c->ep == 1 || (experts % c->ep == 0 && ranks % c->ep == 0), OT_USAGE,
           "plan: ep=%d does not divide both the %lld experts and the %lld ranks of a stage", c->ep,
           (long long)experts, (long long)ranks);
  return OT_OK;
}

// Applies the training rules to the dense model. Other frameworks may give a chunk to the embedding
// or the head alone.
static ot_status check_run(const ot_job *job, const ot_candidate *candidate, ot_run *run) {
  OT_TRY(ot_ability_check(job->engine, candidate));
  OT_TRY(check_experts(job, candidate));
  run->model.num_layers += 2;
  run->parallel.ep = run->parallel.etp = 1;
  OT_TRY(ot_parallel_check(run));
  run->parallel.etp = candidate->etp;
  return ot_run_check_ranks(run, job->devices);
}

// ---- candidate and partition ----

static const ot_module_set attention = OT_MODULE_SET(OT_MODULE_CORE_ATTN);

// The engine file states what selective recompute covers, unless modules are given. The output of
// attention is saved for the GEMM that reads it (Megatron-LM's checkpoint of core_attn).
static ot_candidate built(const ot_candidate *candidate) {
  ot_candidate dense = *candidate;
  dense.ep = dense.etp = 1;
  dense.modules &= ~attention;
  if (dense.recompute == OT_RECOMPUTE_SELECTIVE && !dense.modules) {
    dense.recompute = OT_RECOMPUTE_NONE;
  }
  return dense;
}

// Chunks have equal numbers of layers; embedding and head go to the first and the last chunk. If
// the layers do not divide evenly, both count as one layer (Megatron-DeepSpeed; Megatron-core's
// account_for_embedding_in_pipeline_split), and the remainder goes to the first chunks.
static void split_evenly(int layers, int chunks, int *first) {
  const bool even = layers % chunks == 0;
  const int whole = even ? layers : layers + 2;
  for (int c = 0; c <= chunks; c++) {
    const int before = whole / chunks * c + (c < whole % chunks ? c : whole % chunks);
    first[c] = even && c > 0 ? before + 1 : before;
  }
  first[chunks] = layers + 2;
}

// nanotron (models/base.py): a stage takes blocks until their cost exceeds its even share. The cost
// is that of the weight GEMMs, 0 for an embedding. Each stage gets at least one block.
static void split_by_cost(const ot_model *model, int stages, int *first) {
  const int layers = (int)model->num_layers;
  const double width = (double)model->hidden_size;
  const double layer = width * (4.0 * (double)(model->num_heads * model->head_dim) +
                                3.0 * (double)model->intermediate_size);
  const double all = layers * layer + width * (double)model->vocab_size;
  int block = 0;
  for (int stage = 0; stage < stages; stage++) {
    first[stage] = block;
    const int last = layers + 2 - (stages - stage - 1);
    do block++;
    while (block < last && (block - 1) * layer <= all * (stage + 1) / stages);
  }
  first[stages] = layers + 2;
}

// The embedding goes to the first chunk, the head to the last.
static void split_as_given(const int *layers, int chunks, int *first) {
  for (int c = 0; c < chunks; c++) first[c + 1] = first[c] + layers[c] + (c == 0);
  first[chunks]++;
}

static ot_status partition(ot_estimator *e, const ot_candidate *c, ot_run *run,
                           ot_stage_partition *out) {
  const int num_blocks = out->blocks->num_blocks;
  const int chunks = c->pp * ot_pipeline_chunks(c->pipeline, c->pp, c->vpp);
  OT_CHECK(chunks <= num_blocks, OT_USAGE,
           "plan: pp=%d with %d chunks in total exceeds the model's %d blocks", c->pp, chunks,
           num_blocks);
  int *const first = ot_arena_array(e->arena, chunks + 1, sizeof *first);
  if (e->job.num_chunks == chunks) {
    split_as_given(e->job.chunk_layers, chunks, first);
  } else if (e->job.engine->stages_by_cost && chunks == c->pp) {
    split_by_cost(e->job.model, chunks, first);
  } else {
    split_evenly(num_blocks - 2, chunks, first);
  }
  out->stages = (ot_stages){.num_ranks = c->pp,
                            .num_chunks = chunks,
                            .first_block = first,
                            .rank_of = ot_stages_assign(&run->parallel, chunks, e->arena)};
  return OT_OK;
}

// ---- recompute ----

static bool is_attention(const ot_task *task) {
  return task->op == OT_OP_ATTENTION || task->op == OT_OP_ATTENTION_BLOCK;
}

static ot_status add_attention(const ot_estimator *e, const ot_prices *p, const ot_segment *forward,
                               ot_phase_price *out) {
  for (int i = 0; forward && i < forward->num_tasks; i++) {
    ot_price price;
    if (!is_attention(&forward->tasks[i])) continue;
    OT_TRY(ot_price_task(&e->simulation, p->shape, &forward->tasks[i], &price));
    const double s =
        ot_price_times(&e->simulation, forward, i) * ot_price_total_s(&e->simulation, price);
    out->compute_s += s;
    out->total_s += s;
  }
  return OT_OK;
}

// The whole layer (Megatron-LM's full recompute, torch.utils.checkpoint), given modules, the
// attention core (Korthikanti et al. 2022), or a share of the layer (torchtitan).
static ot_status price_recompute(const ot_estimator *e, const ot_prices *p,
                                 const ot_block_phases *from, ot_phase_price *out) {
  const bool layer = from->storage->program->input >= 0 && from->storage->program->output >= 0;
  *out = (ot_phase_price){0};
  if (!layer || p->key.recompute == OT_RECOMPUTE_NONE) return OT_OK;
  const bool full = p->key.recompute == OT_RECOMPUTE_FULL;
  const ot_module_set modules = p->key.modules;
  const double share = modules ? 0 : e->job.engine->selective_share;
  if (modules & ~attention) OT_TRY(ot_phase_price_build(e, p, from->recompute, out));
  const bool attends = modules ? (modules & attention) != 0 : share == 0;
  if (!full && attends) return add_attention(e, p, from->forward[0], out);
  ot_phase_price forward;
  OT_TRY(ot_phase_price_build(e, p, from->forward[0], &forward));
  ot_phase_price_add(out, &forward, full ? 1 : share);
  return OT_OK;
}

// ---- experts ----

// A rank holds a share of the experts, multiplies the same number of tokens in fewer and larger
// groups (simulate/price_kernel.c), and sends tokens to their experts and back by all-to-all.
// Routing is assumed even, as published runs force it to be.

static bool has_experts(const ot_estimator *e, int kind) {
  const int layer = kind - 1;
  return layer >= 0 && layer < e->layers.num_layers && e->layers.moe.num_experts > 0 &&
         e->layers.moe.layer[layer];
}

// Elements of routed experts on one rank in blocks of kind `kind`; 0 if they have none.
static double expert_elements(const ot_estimator *e, const ot_candidate *c, int kind) {
  enum { PROJECTIONS = 3 };  // gate, up, down
  if (!has_experts(e, kind)) return 0;
  const ot_model *const model = e->job.model;
  return (double)model->moe.num_experts / c->ep * PROJECTIONS * (double)model->moe.expert_size *
         (double)model->hidden_size;
}

// `to` has all experts: subtracts the elements of those that other ranks hold.
static void share_experts(const ot_estimator *e, const ot_candidate *c, int kind,
                          ot_block_price *to) {
  to->expert_elements = expert_elements(e, c, kind);
  to->buckets.elements -= (int64_t)(to->expert_elements * (c->ep - 1));
}

ot_group_shape ot_described_expert_replicas(const ot_estimator *e, const ot_candidate *c) {
  return ot_crossing_shape(e, c, (ot_group_shape){c->tp * c->cp * c->dp / c->ep, 0, c->ep, 0});
}

// A token is sent once to each domain that holds one of its experts, and from there once to each
// such rank (DeepSeek-AI 2024, DeepEP). k choices among n ranks hit n (1 - (1 - 1/n)^k) different
// ones.
static double places_of_token(int places, int64_t choices) {
  double missed = 1;
  for (int64_t i = 0; i < choices; i++) missed *= 1 - 1.0 / places;
  return places * (1 - missed);
}

// The most domains that hold experts of one token: routing may be limited to some groups of experts
// (DeepSeek-AI 2024, DeepSeek-V3, sec. 2.1.2), which are placed on as few domains as possible.
static int most_domains(const ot_moe *moe, int domains) {
  if (moe->num_groups <= 1) return domains;
  const int64_t each = ot_larger_whole(1, domains / moe->num_groups);
  return (int)ot_smaller_whole(domains, each * moe->groups_per_token);
}

// Sends `row_bytes` per token to each of its target ranks, `stride` ranks apart, among `reached` of
// which its experts are.
static ot_status price_sent(const ot_estimator *e, const ot_group_shape *places, int reached,
                            double row_bytes, ot_price *out) {
  const int64_t choices = e->job.model->moe.experts_per_token;
  const double rows =
      e->job.engine->sends_copies ? (double)choices : places_of_token(reached, choices);
  const ot_collective sent = {.op = OT_OP_ALL_TO_ALL, .shape = *places, .bytes = row_bytes * rows};
  return ot_price_collective(&e->simulation, &sent, out);
}

static void add_exposed(const ot_estimator *e, ot_phase_price *work, ot_price sent) {
  const double s = ot_price_total_s(&e->simulation, sent);
  work->total_s += s;
  work->exposed_s[OT_TIMELINE_EP] += s;
}

// In a pair the kernels of both passes hide the tokens of both (DeepSeek-AI 2024, sec. 3.2.1).
static void price_pair(const ot_estimator *e, ot_price forward, ot_price backward,
                       ot_block_price *to) {
  double compute_s = 0;
  for (int w = 0; w < OT_WORKS; w++) compute_s += to->work[w][1].compute_s;
  const double sent_s[] = {ot_price_total_s(&e->simulation, forward),
                           ot_price_total_s(&e->simulation, backward)};
  const double all_s = sent_s[0] + sent_s[1];
  if (!ot_engine_pairs(e->job.engine) || all_s <= 0) return;
  const double share = ot_smaller(all_s, compute_s) / all_s;
  const double load_s = (forward.load_s + backward.load_s) * share;
  const double slower_s = ot_price_overlap_slowdown_s(&e->simulation, compute_s, load_s);
  for (int w = 0; w < OT_WORK_WEIGHT; w++) {
    to->hidden_s[w] = sent_s[w] * share;
    to->slower_s[w] = slower_s * sent_s[w] / all_s;
  }
}

// Adds a pass over `bytes` to the traffic of the layer's ops.
static void add_pass(const ot_estimator *e, ot_phase_price *work, double bytes) {
  const double s = ot_price_pass(&e->simulation, bytes).device_s;
  work->compute_s += s;
  work->total_s += s;
}

// Memory traffic without an op in the graph: received tokens are read and written once more in
// dispatch and combine; biases are added to all tokens that leave experts.
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

static ot_price times(ot_price price, double count) {
  return (ot_price){.device_s = count * price.device_s, .load_s = count * price.load_s};
}

static ot_price sum_of(ot_price a, ot_price b) {
  return (ot_price){.device_s = a.device_s + b.device_s, .load_s = a.load_s + b.load_s};
}

// Both ways of all tokens of a rank, of `bytes`: within domains and between them at the same time.
static ot_status price_dispatch(const ot_estimator *e, const ot_candidate *c, double bytes,
                                ot_price *out) {
  const int domain = e->cluster.num_levels > 1 ? e->cluster.level[0].size : c->ep;
  const int inside = c->ep < domain ? c->ep : domain, domains = c->ep / inside;
  const ot_group_shape within = {.size = inside, .stride = 1};
  const ot_group_shape between = {.size = domains, .stride = inside};
  ot_price near, far;
  OT_TRY(price_sent(e, &within, inside, bytes, &near));
  OT_TRY(price_sent(e, &between, most_domains(&e->job.model->moe, domains), bytes, &far));
  out->device_s = 2 * ot_larger(near.device_s, far.device_s);
  out->load_s = ot_smaller(out->device_s, 2 * (near.load_s + far.load_s));
  out->host_s = 0;
  return OT_OK;
}

// Gate and up are written in 8 bits in the forward and back in the backward, each in a pass of its
// own (Megatron-core's fused_bias_swiglu.py), unless kernels include the casts.
static void add_casts(const ot_estimator *e, ot_block_price *to) {
  const ot_engine *const engine = e->job.engine;
  if (!engine->fp8_activation_inputs || engine->kernels.fused_experts) return;
  const double bytes = (double)to->gated_bytes * (1 + 1 / e->job.recipe.activation_bytes);
  for (int i = 0; i < 4; i++) {
    add_pass(e, &to->work[i / 2 ? OT_WORK_BACKWARD : OT_WORK_FORWARD][i % 2], bytes);
  }
}

static ot_status add_missing(const ot_estimator *e, const ot_prices *p, int kind,
                             ot_block_price *to) {
  const ot_candidate *const c = &p->key;
  add_casts(e, to);
  if (!has_experts(e, kind)) return OT_OK;
  share_experts(e, c, kind, to);
  const double tokens = (double)c->micro_batch_size * (double)e->job.sequence_length /
                        (c->cp * (p->sequence_parallel ? c->tp : 1));
  add_passes(e, c, tokens, to);
  if (c->ep == 1) return OT_OK;
  const double bytes = tokens * (double)e->job.model->hidden_size * e->job.recipe.activation_bytes;
  ot_price sent;
  OT_TRY(price_dispatch(e, c, bytes, &sent));
  // Tokens in 8 bits on the way to their experts are half the bytes of one of two ways.
  const bool narrow = e->job.engine->fp8_dispatch && e->job.recipe.products == OT_F8;
  const ot_price once = times(sent, narrow ? 0.75 : 1);
  const bool again =
      c->recompute == OT_RECOMPUTE_FULL || (c->modules & OT_MODULE_SET(OT_MODULE_MOE));
  const ot_price back = again ? sum_of(sent, once) : sent;
  price_pair(e, once, back, to);
  for (int later = 0; later < 2; later++) {
    add_exposed(e, &to->work[OT_WORK_FORWARD][later], once);
    add_exposed(e, &to->work[OT_WORK_BACKWARD][later], back);
  }
  if (again) to->recompute_total_s += once.device_s;
  return OT_OK;
}

// ---- reductions, gathers, update: bytes by recipe and engine ----

// Seconds as one lane spends them; of these, out->load_s.
static ot_status price_whole(const ot_estimator *e, const ot_collective *collective,
                             ot_price *out) {
  OT_TRY(ot_price_collective(&e->simulation, collective, out));
  *out = (ot_price){.device_s = ot_price_total_s(&e->simulation, *out), .load_s = out->load_s};
  return OT_OK;
}

static double pass_s(const ot_estimator *e, double bytes) {
  return bytes <= 0 ? 0 : ot_price_total_s(&e->simulation, ot_price_pass(&e->simulation, bytes));
}

// Ranks that hold shards of a bucket, including cp ranks (Megatron-LM's distributed optimizer,
// torch FSDP's mesh). Without sharding, the ranks of the all-reduce.
static ot_group_shape shard_shape(const ot_estimator *e, const ot_candidate *c) {
  const int dp = c->zero > 0 ? c->dp_shard : c->dp;
  return ot_crossing_shape(e, c, (ot_group_shape){.size = dp * c->cp, .stride = c->tp});
}

// A bucket may hold several blocks, or a block fill several buckets: assumes equally full buckets.
static double per_block(const ot_estimator *e, double bytes, int ranks, double *messages) {
  const ot_engine *const engine = e->job.engine;
  const double least = (double)engine->bucket_rank_bytes * ranks;
  const double given = (double)engine->bucket_bytes;
  const double bucket = given > 0 && given < least ? least : given;
  *messages = bucket > 0 ? bytes / bucket : 1;
  return bucket > 0 ? bucket : bytes;
}

static bool shards_states(const ot_candidate *c) { return c->zero > 0 && c->dp_shard * c->cp > 1; }

// Adds the cost of reductions and gathers of `elements` among the ranks of shapes[0], which hold
// shards, and of shapes[1], which replicate them.
static ot_status add_sums(const ot_estimator *e, const ot_candidate *c, double elements,
                          const ot_group_shape shapes[2], ot_block_price *to) {
  const ot_recipe *const recipe = &e->job.recipe;
  const ot_group_shape shape = shapes[0], others = shapes[1];
  const bool copies = e->job.engine->copies_gradients && shape.size * others.size > 1;
  double messages;
  ot_price sum, across, gathered;
  const double bytes = per_block(e, elements * recipe->reduce_bytes, shape.size, &messages);
  OT_TRY(price_whole(
      e,
      &(ot_collective){shards_states(c) ? OT_OP_REDUCE_SCATTER : OT_OP_ALL_REDUCE, shape, bytes, 0},
      &sum));
  OT_TRY(
      price_whole(e, &(ot_collective){OT_OP_ALL_REDUCE, others, bytes / shape.size, 0}, &across));
  const double copy_s =
      copies ? pass_s(e, elements * (recipe->gradient_bytes + recipe->reduce_bytes)) : 0;
  for (int i = 0; i < 4; i++) {
    const double last = i % 2 == 1 ? 1 : 0;
    to->reduce_s[i / 2][i % 2] += copy_s + messages * (sum.device_s + last * across.device_s);
    to->reduce_load_s[i / 2][i % 2] += copy_s + messages * (sum.load_s + last * across.load_s);
  }
  if (!shards_states(c)) return OT_OK;
  const ot_collective gather = {OT_OP_ALL_GATHER, shape, elements * recipe->gather_bytes, 0};
  OT_TRY(price_whole(e, &gather, &gathered));
  to->gather_s += gathered.device_s;
  to->gather_load_s += gathered.load_s;
  return OT_OK;
}

static ot_status price_reductions(const ot_estimator *e, const ot_candidate *c,
                                  ot_block_price *to) {
  const ot_group_shape copies = {.size = c->zero > 0 ? c->dp / c->dp_shard : 1,
                                 .stride = c->tp * c->cp * c->dp_shard};
  const ot_group_shape dense[2] = {shard_shape(e, c), ot_crossing_shape(e, c, copies)};
  const ot_group_shape experts[2] = {ot_described_expert_replicas(e, c), {.size = 1, .stride = 1}};
  OT_TRY(add_sums(e, c, (double)to->buckets.elements - to->expert_elements, dense, to));
  return to->expert_elements > 0 ? add_sums(e, c, to->expert_elements, experts, to) : OT_OK;
}

static void price_update(const ot_estimator *e, const ot_candidate *c, ot_block_price *to) {
  const ot_recipe *const recipe = &e->job.recipe;
  const ot_engine *const engine = e->job.engine;
  const double elements = (double)to->buckets.elements;
  const double dense = (elements - to->expert_elements) / shard_shape(e, c).size;
  const double experts = to->expert_elements / ot_described_expert_replicas(e, c).size;
  const double piece = shards_states(c) ? dense + experts : elements;
  const double kept = recipe->gradient_bytes + recipe->weight_bytes +
                      2 * (recipe->master_bytes + recipe->moment_bytes) +
                      (recipe->master_bytes > 0 ? 0 : recipe->weight_bytes);
  const double moved =
      engine->update_bytes > 0 ? engine->update_bytes : kept + recipe->gradient_bytes;
  const double update_s = pass_s(e, piece * moved + elements * engine->zero_bytes);
  to->update = (ot_phase_price){.total_s = update_s, .compute_s = update_s};
}

// Cost of a bucket of to->buckets.elements, of which to->expert_elements belong to experts.
static ot_status price_bucket(const ot_estimator *e, const ot_candidate *c, ot_block_price *to) {
  OT_TRY(price_reductions(e, c, to));
  price_update(e, c, to);
  return OT_OK;
}

// The same for all blocks.
static void set_shards(const ot_estimator *e, const ot_candidate *c, ot_block_price *to) {
  const bool sharded = shards_states(c);
  to->memory.shards = sharded;
  to->buckets.gathers = sharded && c->zero == 3;
  to->buckets.each_micro_batch = sharded && c->zero >= 2 && e->job.engine->reduce_each_micro_batch;
}

static ot_status price_meeting(const ot_estimator *e, ot_prices *p) {
  ot_price price;
  const ot_collective norm = {OT_OP_ALL_REDUCE, p->shape[OT_GROUP_WORLD], 8, 0};
  OT_TRY(price_whole(e, &norm, &price));
  p->clip = (ot_phase_price){.total_s = price.device_s};
  p->clip.exposed_s[OT_TIMELINE_WORLD] = price.device_s;
  if (!p->tied_across_stages) return OT_OK;
  const ot_collective tie = {OT_OP_ALL_REDUCE, p->shape[OT_GROUP_TIED],
                             (double)p->kind[0].buckets.elements * e->job.recipe.reduce_bytes, 0};
  OT_TRY(price_whole(e, &tie, &price));
  p->tie_s = price.device_s;
  return OT_OK;
}

static ot_status price_sums(const ot_estimator *e, const ot_step_phases *phases, ot_arena *scratch,
                            ot_prices *p) {
  (void)phases;
  (void)scratch;
  for (int i = 0; i < p->blocks->num_kinds; i++) {
    set_shards(e, &p->key, &p->kind[i]);
    share_experts(e, &p->key, i, &p->kind[i]);
    OT_TRY(price_bucket(e, &p->key, &p->kind[i]));
  }
  return price_meeting(e, p);
}

static ot_status bound_sums(const ot_estimator *e, const ot_candidate *c, bool in_experts, double n,
                            ot_sum_bound *out) {
  const ot_engine *const engine = e->job.engine;
  if (in_experts) return OT_OK;
  // Expert gradients are reduced over fewer ranks: assumes the largest possible number of experts.
  const double experts = expert_elements(e, c, (int)e->layers.num_layers);
  ot_block_price price = {.buckets.elements = (int64_t)n,
                          .expert_elements = experts < n ? experts : n};
  OT_TRY(price_bucket(e, c, &price));
  out->reduce_s = price.reduce_s[0][1];
  out->reduce_load_s = price.reduce_load_s[0][1];
  if (shards_states(c) && c->zero >= 2 && engine->reduce_each_micro_batch) {
    out->reduce_each_s = price.reduce_s[0][0];
    out->reduce_each_load_s = price.reduce_load_s[0][0];
  }
  out->end_s = price.update.total_s;
  if (c->zero == 3) out->gather_s = price.gather_s;
  if (c->zero == 3) out->gather_load_s = price.gather_load_s;
  if (c->zero < 3 && !engine->overlap_update_gather) out->end_s += price.gather_s;
  return OT_OK;
}

static double bound_shards(const ot_estimator *e, const ot_candidate *c, bool experts) {
  (void)experts;
  if (c->zero == 0) return 1;
  const double stage = (double)c->dp * c->cp * c->tp;
  return e->job.model->moe.num_experts > 0 ? stage : (double)c->dp_shard * c->cp;
}

const ot_framework ot_framework_described = {
    .check_job = check_job,
    .check_run = check_run,
    .built = built,
    .partition = partition,
    .separate_recompute = true,
    .price_recompute = price_recompute,
    .add_missing = add_missing,
    .price_sums = price_sums,
    .bound_sums = bound_sums,
    .count_memory = ot_described_memory,
    .bound_slots = ot_described_bound_slots,
    .bound_shards = bound_shards,
};
