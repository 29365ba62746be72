// SPDX-License-Identifier: Apache-2.0
// Cost of the blocks of a candidate: builds the graph of one layer of each kind and prices each of
// its segments once. Candidates share the two halves: the cost of a micro-batch depends on what
// shards a micro-batch; the cost of reductions, gathers and updates on what shards parameters. Only
// the figures are kept.
#include "base/extremes.h"
#include "describe/expert_load.h"
#include "describe/groups.h"
#include "describe/pipeline_rules.h"
#include "estimate/crossing_estimate.h"
#include "estimate/framework.h"
#include "estimate/phase_price.h"
#include "schedule/block_view.h"
#include "schedule/layout.h"
#include "schedule/segment.h"
#include "schedule/tasks.h"

// ---- keys ----

// The simplest pipeline schedule whose blocks do the same work.
static ot_pipeline simplest(ot_pipeline kind) {
  return ot_pipeline_rules_of(kind)->splits ? OT_PIPELINE_ZB_H1 : OT_PIPELINE_1F1B;
}

static ot_candidate key_of(const ot_candidate *candidate) {
  const ot_pipeline kind = candidate->pipeline;
  ot_candidate key = *candidate;
  key.vpp = 1;
  key.micro_batches = 0;
  if (!ot_pipeline_folds(kind, candidate->pp)) key.pipeline = simplest(kind);
  return key;
}

bool ot_estimator_reshards(const ot_estimator *e, int place) {
  return e->job.run ? ot_run_reshard(e->job.run, place) : e->job.engine->reshard_after_forward;
}

int ot_estimator_prefetch(const ot_estimator *e) {
  return e->job.run ? e->job.run->parallel.prefetch : 1;
}

static void find_shapes(const ot_estimator *e, const ot_mesh *mesh, ot_arena *scratch,
                        ot_prices *p) {
  const int rank = ot_estimator_rank(&p->key);
  int *const ranks = ot_arena_array(scratch, mesh->ranks, sizeof(int));
  const int64_t kv_heads = e->job.model->num_kv_heads;
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
    const int size = ot_group_ranks(mesh, (ot_group_kind)kind, kv_heads, rank, ranks);
    p->shape[kind] = (ot_group_shape){.size = size,
                                      .first = ranks[0],
                                      .stride = size > 1 ? ranks[1] - ranks[0] : 1,
                                      .near = ot_crossing_near(e, &p->key, ranks, size)};
  }
}

// ---- graphs ----

// Tokens per chunk of logits; 0: the default of the head op. With tp each chunk has its own ops, so
// a long micro-batch is priced with fewer, larger chunks: a GEMM of a sixty-fourth of it is large
// enough to reach its rate.
static int64_t loss_rows(const ot_engine *engine, int64_t rows) {
  enum { MOST_CHUNKS = 64 };
  if (!engine->chunked_loss) return rows;
  if (engine->loss_rows == 0) return 0;
  return ot_larger_whole(engine->loss_rows, (rows + MOST_CHUNKS - 1) / MOST_CHUNKS);
}

ot_graph_request ot_prices_graph(const ot_estimator *e, const ot_candidate *c, const ot_run *run,
                                 bool whole) {
  const int64_t rows = c->micro_batch_size * e->job.sequence_length / (whole ? 1 : c->cp);
  const ot_split split = ot_estimator_split(e, c, run->parallel.context);
  return (ot_graph_request){
      .model = &e->layers,
      .mode = OT_MODE_TRAIN,
      .micro_batch_size = c->micro_batch_size,
      .sequence_length = e->job.sequence_length,
      .compute = ot_run_compute(&run->precision),
      .storage = ot_run_storage(&run->precision),
      .narrow_gradients = ot_run_narrow_gradients(&run->precision),
      .narrow_moments = ot_run_narrow_moments(&run->precision),
      .optimizer = ot_optimizer_rules_of(run, true),
      .weighted_targets = ot_run_weighted_targets(run),
      .head_chunk_rows = loss_rows(e->job.engine, rows),
      .threads = e->threads,
      .backend = ot_device_kind_backend(&e->cluster.device),
      .expert_buffer = run->parallel.expert_buffer,
      .split = whole ? (ot_split){.separate_expert_block = split.separate_expert_block} : split,
  };
}

static bool same_split(const ot_split *a, const ot_split *b) {
  return a->tp == b->tp && a->cp == b->cp && a->context == b->context && a->ep == b->ep &&
         a->etp == b->etp && a->separate_expert_block == b->separate_expert_block;
}

static bool same_graph(const ot_graph_request *a, const ot_graph_request *b) {
  return a->micro_batch_size == b->micro_batch_size && same_split(&a->split, &b->split) &&
         a->storage == b->storage && a->compute == b->compute &&
         a->narrow_gradients == b->narrow_gradients && a->narrow_moments == b->narrow_moments;
}

ot_status ot_graph_find(ot_estimator *e, const ot_graph_request *request, ot_graph **out) {
  for (int64_t i = 0; i < e->num_graphs; i++) {
    *out = e->graphs[i];
    if (same_graph(&e->graphs[i]->request, request)) return OT_OK;
  }
  *out = ot_arena_array(e->arena, 1, sizeof **out);
  OT_TRY(ot_graph_build(request, e->arena, *out));
  e->graphs =
      ot_arena_grow(e->arena, e->graphs, e->num_graphs, &e->graphs_capacity, sizeof(ot_graph *));
  e->graphs[e->num_graphs++] = *out;
  return OT_OK;
}

// ---- one kind of block ----

static ot_status price_work(const ot_estimator *e, const ot_prices *p, const ot_block_phases *from,
                            ot_block_price *to) {
  ot_phase_price again;
  OT_TRY(e->framework->price_recompute(e, p, from, &again));
  for (int later = 0; later < 2; later++) {
    ot_phase_price *const backward = &to->work[OT_WORK_BACKWARD][later];
    OT_TRY(ot_phase_price_build(e, p, from->forward[later], &to->work[OT_WORK_FORWARD][later]));
    OT_TRY(ot_phase_price_build(e, p, from->backward[later], backward));
    OT_TRY(ot_phase_price_build(e, p, from->weight[later], &to->work[OT_WORK_WEIGHT][later]));
    ot_phase_price_add(backward, &again, 1);
  }
  to->recompute_s = again.compute_s;
  to->recompute_total_s = again.total_s;
  return OT_OK;
}

static ot_status price_hand_over(const ot_estimator *e, const ot_step_phases *phases,
                                 const ot_prices *p, ot_arena *scratch, ot_block_price *to) {
  if (to->memory.stack == 0) return OT_OK;
  const ot_segment copy = ot_tasks_copy_stack(phases->graph, OT_BASE_STACK, OT_BASE_STACK_OUT,
                                              to->memory.stack * p->hidden_bytes, scratch);
  return ot_phase_price_build(e, p, &copy, &to->hand_over);
}

static void count_flops(const ot_block_phases *from, ot_block_price *to) {
  const ot_segment *const segments[] = {from->forward[0], from->recompute, from->backward[0],
                                        from->weight[0]};
  for (int s = 0; s < OT_COUNT(segments); s++) {
    if (!segments[s]) continue;
    to->matrix_flops += ot_segment_flops(segments[s], false);
    if (s != 1) to->model_flops += ot_segment_flops(segments[s], true);
  }
}

static int64_t most_scratch(const ot_segment *const *segments, int count) {
  int64_t most = 0;
  for (int i = 0; i < count; i++) {
    const bool runs = segments[i] && segments[i]->num_tasks > 0;
    if (runs && segments[i]->scratch_bytes > most) most = segments[i]->scratch_bytes;
  }
  return most;
}

// Bytes of `value` if it is saved for the backward.
static int64_t saved_bytes(const ot_storage *storage, int value) {
  if (value < 0) return 0;
  const ot_base base = storage->place[OT_SIDE_BACKWARD][value].base;
  const bool saved = base == OT_BASE_SLOT || base == OT_BASE_SLOT_LONG;
  return saved ? ot_type_bytes(&storage->program->values[value].type) : 0;
}

// Bytes saved only for the weight-gradient GEMMs: 8-bit recipes save them as GEMM operands.
static int64_t product_bytes(const ot_storage *storage) {
  const ot_program *const program = storage->program;
  int64_t bytes = 0;
  for (int i = 0; i < program->num_ops; i++) {
    const ot_op_kind kind = program->ops[i].kind;
    const int value = program->ops[i].in[1];
    if (kind != OT_OP_LINEAR_DW && kind != OT_OP_GROUPED_LINEAR_DW) continue;
    if (!ot_program_reads(program, value, OT_PART_INPUT)) bytes += saved_bytes(storage, value);
  }
  return bytes;
}

// Bytes saved of gates and ups.
static int64_t gated_bytes(const ot_storage *storage) {
  int64_t bytes = 0;
  for (int i = 0; i < storage->program->num_ops; i++) {
    const ot_op *const op = &storage->program->ops[i];
    if (op->kind == OT_OP_GLU_GRAD) bytes += saved_bytes(storage, op->in[1]);
  }
  return bytes;
}

// Kernels that take narrower values than keys (FlashAttention 3, cuDNN) neither fill them up nor
// trim their output.
static void count_padding(const ot_storage *storage, ot_block_price *to) {
  for (int i = 0; i < storage->program->num_ops; i++) {
    const ot_op *const op = &storage->program->ops[i];
    const int64_t filled = op->attributes.head_dim - op->attributes.value_dim;
    if (op->part != OT_PART_FORWARD) continue;
    if (op->kind == OT_OP_LATENT_HEADS) {
      to->padding_bytes +=
          saved_bytes(storage, op->out[0]) / (3 * op->attributes.head_dim) * filled;
    }
    if (op->kind == OT_OP_VALUE_TRIM) {
      to->padding_bytes += saved_bytes(storage, op->in[0]) / op->attributes.head_dim * filled;
      to->trimmed_bytes += saved_bytes(storage, op->out[0]);
    }
  }
}

static void count_work_bytes(const ot_block_phases *from, ot_block_price *to) {
  const ot_segment *const works[] = {from->forward[0],  from->forward[1],  from->recompute,
                                     from->backward[0], from->backward[1], from->weight[0],
                                     from->weight[1]};
  to->work_scratch = most_scratch(works, OT_COUNT(works));
  for (int i = 0; i < OT_SCRATCH_GROUPS; i++) {
    const int64_t bytes = from->storage->scratch_bytes[i];
    if (bytes > to->transient_bytes) to->transient_bytes = bytes;
  }
  to->product_bytes = product_bytes(from->storage);
  to->gated_bytes = gated_bytes(from->storage);
  count_padding(from->storage, to);
  ot_block_memory_describe(from->storage->program, from->storage, &to->memory);
}

static void count_sum_bytes(const ot_block_phases *from, ot_block_price *to) {
  const ot_segment *const updates[] = {from->norm, from->update};
  const ot_segment *const moves[] = {from->reduce[0][0], from->reduce[0][1], from->reduce[1][0],
                                     from->reduce[1][1], from->gather,       from->gather_gradient};
  to->buckets = from->buckets;
  to->memory.shard_elements = from->bucket->shard_elements;
  to->memory.second_moments = from->second_moments;
  to->memory.shards = from->shards;
  to->update_scratch = most_scratch(updates, OT_COUNT(updates));
  to->staging = most_scratch(moves, OT_COUNT(moves));
}

// ---- input of both halves ----

static void begin_prices(const ot_estimator *e, const ot_candidate *c, ot_prices *p) {
  *p = (ot_prices){.key = *c,
                   .blocks = ot_estimator_blocks(e, c),
                   .ranks = e->job.devices,
                   .split = ot_pipeline_rules_of(c->pipeline)->splits};
  p->tied = e->job.model->tie_word_embeddings;
  p->tied_across_stages = p->tied && c->pp > 1 && !ot_pipeline_folds(c->pipeline, c->pp);
  const ot_candidate built = e->framework->built(c);
  p->sequence_parallel = e->job.engine->sequence_parallel && !built.no_sequence_parallel;
}

// Program and storage built from a run.
typedef struct blueprint {
  ot_arena scratch;
  ot_run_lists lists;
  ot_run run;
  ot_mesh mesh;
  ot_step_phases phases;
} blueprint;

// Builds the segments of `part` for the candidate of `p` and records its groups.
static void draw(ot_estimator *e, const ot_graph *graph, ot_step_part part, ot_prices *p,
                 blueprint *out) {
  const ot_schedule_request wanted = {.graphs = {[OT_MODE_TRAIN] = graph},
                                      .run = &out->run,
                                      .separate_recompute = e->framework->separate_recompute,
                                      .mesh = &out->mesh,
                                      .rank = ot_estimator_rank(&p->key)};
  const ot_step_shape shape = {
      .part = part, .split = p->split, .tied_across_stages = p->tied_across_stages};
  find_shapes(e, &out->mesh, &out->scratch, p);
  ot_step_phases_build(&wanted, shape, &out->scratch, &out->phases);
}

static ot_status begin_blueprint(ot_estimator *e, const ot_candidate *c, blueprint *out) {
  const ot_candidate built = e->framework->built(c);
  out->scratch = ot_arena_pool_begin(&e->scratch);
  ot_candidate_run(&e->job, &built, &out->lists, &out->run);
  e->simulation.expert_ranks = c->ep / built.ep;
  e->simulation.more_rounds =
      ot_expert_overflow_passes(&e->job.model->moe, &out->run.parallel, e->job.expert_imbalance);
  return ot_mesh_build(&out->run.parallel, c->tp * c->cp * c->dp * c->pp, &out->mesh);
}

// ---- micro-batches ----

static ot_candidate work_key_of(const ot_candidate *c) {
  return (ot_candidate){.tp = c->tp,
                        .pp = 1,
                        .vpp = 1,
                        .cp = c->cp,
                        .ep = c->ep,
                        .etp = c->etp,
                        .dp = c->ep * c->etp,
                        .dp_shard = 1,
                        .micro_batch_size = c->micro_batch_size,
                        .pipeline = simplest(c->pipeline),
                        .recompute = c->recompute,
                        .modules = c->modules,
                        .no_sequence_parallel = c->no_sequence_parallel};
}

static void count_step(const ot_estimator *e, const ot_graph *graph, ot_prices *p) {
  const int64_t rows = p->key.micro_batch_size * e->job.sequence_length / p->key.cp;
  const int pieces = p->sequence_parallel ? p->key.tp : 1;
  p->hidden_bytes =
      rows / pieces * e->job.model->hidden_size * ot_dtype_bytes(graph->request.storage);
  p->batch_bytes = ot_segment_batch_bytes(graph);
  for (int i = 0; i < graph->num_constants; i++) {
    p->constant_bytes += ot_align(ot_type_bytes(&graph->constants[i].type));
  }
}

// The graph is large; it is dropped after pricing.
static ot_status build_work(ot_estimator *e, const ot_candidate *key, ot_prices *p) {
  blueprint print;
  ot_graph graph;
  begin_prices(e, key, p);
  OT_TRY(begin_blueprint(e, key, &print));
  const ot_graph_request request = ot_prices_graph(e, key, &print.run, false);
  OT_TRY(ot_graph_build(&request, &print.scratch, &graph));
  draw(e, &graph, OT_STEP_WORK, p, &print);
  count_step(e, &graph, p);
  p->kind = ot_arena_array(e->arena, p->blocks->num_kinds, sizeof *p->kind);
  for (int i = 0; i < p->blocks->num_kinds; i++) {
    const ot_block_phases *const from = &print.phases.blocks[i];
    p->kind[i].buckets = from->buckets;
    p->kind[i].buckets.elements = ot_bucket_elements(&graph, i, 1);
    count_work_bytes(from, &p->kind[i]);
    count_flops(from, &p->kind[i]);
    OT_TRY(price_work(e, p, from, &p->kind[i]));
    OT_TRY(price_hand_over(e, &print.phases, p, &print.scratch, &p->kind[i]));
    OT_TRY(e->framework->add_missing(e, p, i, &p->kind[i]));
  }
  return OT_OK;
}

ot_status ot_work_prices_find(ot_estimator *e, const ot_candidate *candidate,
                              const ot_prices **out) {
  const ot_candidate key = work_key_of(candidate);
  const int64_t found = ot_price_list_find(&e->works, &key);
  if (found >= 0) {
    *out = e->works.prices[found];
    return OT_OK;
  }
  ot_prices *const made = ot_arena_array(e->arena, 1, sizeof *made);
  OT_TRY(build_work(e, &key, made));
  ot_price_list_add(&e->works, made, e->arena);
  *out = made;
  return OT_OK;
}

// ---- reductions, gathers, updates ----

static ot_candidate sum_key_of(const ot_candidate *c) {
  ot_candidate key = *c;
  key.vpp = 1;
  key.micro_batches = 0;
  key.micro_batch_size = 0;
  if (!ot_pipeline_folds(c->pipeline, c->pp)) key.pipeline = OT_PIPELINE_1F1B;
  key.recompute = OT_RECOMPUTE_NONE;
  key.modules = 0;
  return key;
}

// Parameters do not depend on the micro-batch: the first graph of a split serves all micro-batch
// sizes and kinds of context parallelism.
static ot_status find_split(ot_estimator *e, const ot_candidate *c, const ot_run *run,
                            ot_graph **out) {
  const ot_graph_request request = ot_prices_graph(e, c, run, false);
  for (int64_t i = 0; i < e->num_graphs; i++) {
    ot_split split = e->graphs[i]->request.split;
    split.context = request.split.context;
    *out = e->graphs[i];
    if (same_split(&split, &request.split)) return OT_OK;
  }
  return ot_graph_find(e, &request, out);
}

static ot_status build_sums(ot_estimator *e, const ot_candidate *candidate, ot_prices *p) {
  blueprint print;
  ot_graph *graph;
  begin_prices(e, candidate, p);
  OT_TRY(begin_blueprint(e, candidate, &print));
  OT_TRY(find_split(e, candidate, &print.run, &graph));
  draw(e, graph, OT_STEP_SUMS, p, &print);
  p->kind = ot_arena_array(e->arena, p->blocks->num_kinds, sizeof *p->kind);
  for (int i = 0; i < p->blocks->num_kinds; i++) {
    count_sum_bytes(&print.phases.blocks[i], &p->kind[i]);
  }
  OT_TRY(e->framework->price_sums(e, &print.phases, &print.scratch, p));
  for (int i = 0; i < p->blocks->num_kinds; i++) {
    p->gathers = p->gathers || p->kind[i].buckets.gathers;
    p->each_micro_batch = p->each_micro_batch || p->kind[i].buckets.each_micro_batch;
  }
  return OT_OK;
}

static ot_status find_sums(ot_estimator *e, const ot_candidate *candidate, const ot_prices **out) {
  const ot_candidate key = sum_key_of(candidate);
  const int64_t found = ot_price_list_find(&e->sums, &key);
  if (found >= 0) {
    *out = e->sums.prices[found];
    return OT_OK;
  }
  ot_prices *const made = ot_arena_array(e->arena, 1, sizeof *made);
  OT_TRY(build_sums(e, candidate, made));
  made->key = key;
  ot_price_list_add(&e->sums, made, e->arena);
  *out = made;
  return OT_OK;
}

// ---- both halves ----

static void join(const ot_block_price *work, const ot_block_price *sums, ot_block_price *out) {
  *out = *work;
  memcpy(out->reduce_s, sums->reduce_s, sizeof out->reduce_s);
  out->gather_s = sums->gather_s;
  out->gradient_gather_s = sums->gradient_gather_s;
  memcpy(out->reduce_load_s, sums->reduce_load_s, sizeof out->reduce_load_s);
  out->gather_load_s = sums->gather_load_s;
  out->gradient_gather_load_s = sums->gradient_gather_load_s;
  out->norm = sums->norm;
  out->update = sums->update;
  out->buckets.elements = sums->buckets.elements;
  out->memory.shard_elements = sums->memory.shard_elements;
  out->memory.second_moments = sums->memory.second_moments;
  out->memory.shards = sums->memory.shards;
  out->buckets.gathers = sums->buckets.gathers;
  out->buckets.each_micro_batch = sums->buckets.each_micro_batch;
  out->expert_elements = sums->expert_elements;
  out->update_scratch = sums->update_scratch;
  out->staging = sums->staging;
}

ot_status ot_prices_find(ot_estimator *e, const ot_candidate *candidate, ot_prices **out) {
  const ot_candidate key = key_of(candidate);
  const ot_prices *work, *sums;
  const int64_t found = ot_price_list_find(&e->prices, &key);
  if (found >= 0) {
    *out = e->prices.prices[found];
    return OT_OK;
  }
  OT_TRY(ot_work_prices_find(e, candidate, &work));
  OT_TRY(find_sums(e, candidate, &sums));
  ot_prices *const made = ot_arena_array(e->arena, 1, sizeof *made);
  *made = *sums;
  made->key = key;
  made->split = work->split;
  made->hidden_bytes = work->hidden_bytes;
  made->batch_bytes = work->batch_bytes;
  made->constant_bytes = work->constant_bytes;
  const int kinds = made->blocks->num_kinds;
  made->kind = ot_arena_array(e->arena, kinds, sizeof *made->kind);
  for (int i = 0; i < kinds; i++) join(&work->kind[i], &sums->kind[i], &made->kind[i]);
  ot_price_list_add(&e->prices, made, e->arena);
  *out = made;
  return OT_OK;
}
