// SPDX-License-Identifier: Apache-2.0
// Prices of the blocks of a candidate: graph of one layer of each kind, its segments, each priced
// once. Candidates that differ in what blocks do not see share theirs; graphs are shared by all
// that split a micro-batch alike. Only figures are kept.
#include "describe/groups.h"
#include "plan/expert_prices.h"
#include "plan/phase_price.h"
#include "schedule/layout.h"
#include "schedule/segment.h"

// ---- what prices depend on ----

static bool splits_backward(ot_pipeline kind) {
  return kind == OT_PIPELINE_ZB_H1 || kind == OT_PIPELINE_ZB_H2 || kind == OT_PIPELINE_ZB_V;
}

static ot_candidate key_of(const ot_candidate *candidate) {
  const bool folded = candidate->pipeline == OT_PIPELINE_ZB_V && candidate->pp > 1;
  ot_candidate key = *candidate;
  key.vpp = 1;
  key.micro_batches = 0;
  key.pipeline = folded                                 ? OT_PIPELINE_ZB_V
                 : splits_backward(candidate->pipeline) ? OT_PIPELINE_ZB_H1
                                                        : OT_PIPELINE_1F1B;
  return key;
}

bool ot_estimator_reshards(const ot_estimator *e, int block) {
  return e->job.run ? ot_run_reshard(e->job.run, block) : e->job.engine->reshard_after_forward;
}

int ot_estimator_prefetch(const ot_estimator *e) {
  return e->job.run ? e->job.run->parallel.prefetch : 1;
}

static void find_shapes(const ot_estimator *e, const ot_mesh *mesh, ot_arena *scratch,
                        ot_prices *p) {
  int *const ranks = ot_arena_array(scratch, mesh->ranks, sizeof(int));
  const int64_t kv_heads = e->job.model->num_kv_heads;
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
    const int size = ot_group_ranks(mesh, (ot_group_kind)kind, kv_heads, 0, ranks);
    p->shape[kind] = (ot_group_shape){
        .size = size, .first = ranks[0], .stride = size > 1 ? ranks[1] - ranks[0] : 1};
  }
}

// ---- graphs ----

ot_graph_request ot_prices_graph(const ot_estimator *e, const ot_candidate *c, const ot_run *run,
                                 bool whole) {
  const int64_t rows = c->micro_batch_size * e->job.sequence_length / (whole ? 1 : c->cp);
  const ot_engine *const engine = e->job.engine;
  return (ot_graph_request){
      .model = &e->layers,
      .mode = OT_MODE_TRAIN,
      .micro_batch_size = c->micro_batch_size,
      .sequence_length = e->job.sequence_length,
      .compute = run->precision.compute == OT_F64 ? OT_F64 : OT_F32,
      .storage = run->precision.params,
      .head_chunk_rows = e->own                 ? 0
                         : engine->chunked_loss ? engine->loss_rows
                                                : rows,
      .threads = 1,
      .split = whole ? (ot_split){0}
                     : (ot_split){.tp = c->tp, .cp = c->cp, .context = run->parallel.context},
  };
}

static bool same_graph(const ot_graph_request *a, const ot_graph_request *b) {
  return a->micro_batch_size == b->micro_batch_size && a->split.tp == b->split.tp &&
         a->split.cp == b->split.cp && a->split.context == b->split.context &&
         a->storage == b->storage && a->compute == b->compute;
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

static bool reads_base(const ot_segment *segment, ot_base base) {
  for (int i = 0; segment && i < segment->num_tasks; i++) {
    for (int k = 0; k < OT_MAX_INPUTS; k++) {
      if (segment->tasks[i].in[k].base == base) return true;
    }
  }
  return false;
}

static bool writes_gradients(const ot_segment *segment) {
  for (int i = 0; segment && i < segment->num_tasks; i++) {
    for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
      const ot_base base = segment->tasks[i].out[k].base;
      if (base == OT_BASE_GRADIENT || base == OT_BASE_TIED_GRADIENT) return true;
    }
  }
  return false;
}

// Attention alone, forward, once more.
static ot_status price_attention(const ot_estimator *e, const ot_prices *p,
                                 const ot_segment *forward, ot_phase_price *out) {
  *out = (ot_phase_price){0};
  for (int i = 0; forward && i < forward->num_tasks; i++) {
    const ot_op_kind op = forward->tasks[i].op;
    ot_price price;
    if (op != OT_OP_ATTENTION && op != OT_OP_ATTENTION_BLOCK) continue;
    OT_TRY(ot_price_task(&e->simulation, p->shape, &forward->tasks[i], &price));
    out->compute_s += ot_price_total_s(&e->simulation, price);
  }
  out->total_s = out->compute_s;
  return OT_OK;
}

// What is made again before the backward. Other software makes all of the layer again
// (Megatron-LM's full recompute, torch.utils.checkpoint), or the core of attention (Korthikanti et
// al. 2022), or a share of the layer (torchtitan).
static ot_status price_recompute(const ot_estimator *e, const ot_prices *p,
                                 const ot_block_phases *from, ot_phase_price *out) {
  const bool layer = from->storage->program->input >= 0 && from->storage->program->output >= 0;
  if (e->own) return ot_phase_price_build(e, p, from->recompute, out);
  *out = (ot_phase_price){0};
  if (!layer || p->key.recompute == OT_RECOMPUTE_NONE) return OT_OK;
  const double share = e->job.engine->selective_share;
  if (p->key.recompute == OT_RECOMPUTE_SELECTIVE && share == 0) {
    return price_attention(e, p, from->forward[0], out);
  }
  ot_phase_price forward;
  OT_TRY(ot_phase_price_build(e, p, from->forward[0], &forward));
  ot_phase_price_add(out, &forward, p->key.recompute == OT_RECOMPUTE_SELECTIVE ? share : 1);
  return OT_OK;
}

static ot_status price_work(const ot_estimator *e, const ot_prices *p, const ot_block_phases *from,
                            ot_block_price *to) {
  ot_phase_price again;
  OT_TRY(price_recompute(e, p, from, &again));
  for (int later = 0; later < 2; later++) {
    ot_phase_price *const backward = &to->work[OT_WORK_BACKWARD][later];
    OT_TRY(ot_phase_price_build(e, p, from->forward[later], &to->work[OT_WORK_FORWARD][later]));
    OT_TRY(ot_phase_price_build(e, p, from->backward[later], backward));
    OT_TRY(ot_phase_price_build(e, p, from->weight[later], &to->work[OT_WORK_WEIGHT][later]));
    ot_phase_price_add(backward, &again, 1);
  }
  to->recompute_s = again.compute_s;
  to->recompute_total_s = again.total_s;
  const ot_segment *const segments[OT_WORKS] = {from->forward[0], from->backward[0],
                                                from->weight[0]};
  for (int w = 0; w < OT_WORKS; w++) {
    const ot_segment *const before = w == OT_WORK_BACKWARD ? from->recompute : NULL;
    to->reads[w] = reads_base(segments[w], OT_BASE_WEIGHT) || reads_base(before, OT_BASE_WEIGHT);
    to->reads_tied[w] = reads_base(segments[w], OT_BASE_TIED) || reads_base(before, OT_BASE_TIED);
  }
  to->writes_in_forward = writes_gradients(from->forward[0]);
  return OT_OK;
}

static void count_flops(const ot_block_phases *from, ot_block_price *to) {
  const ot_segment *const segments[] = {from->forward[0], from->recompute, from->backward[0],
                                        from->weight[0]};
  for (int s = 0; s < OT_COUNT(segments); s++) {
    for (int i = 0; segments[s] && i < segments[s]->num_tasks; i++) {
      const ot_cost cost = ot_task_cost(&segments[s]->tasks[i]);
      to->matrix_flops += cost.matrix_flops;
      if (s != 1) to->model_flops += cost.matrix_flops - cost.repeated_flops;
    }
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

// What is kept for products of W alone: 8-bit recipes keep it as they multiply it.
static int64_t product_bytes(const ot_storage *storage) {
  const ot_program *const program = storage->program;
  int64_t bytes = 0;
  for (int i = 0; i < program->num_ops; i++) {
    const int value = program->ops[i].in[1];
    if (program->ops[i].kind != OT_OP_LINEAR_DW || value < 0) continue;
    const ot_base base = storage->place[OT_SIDE_BACKWARD][value].base;
    const bool kept = base == OT_BASE_SLOT || base == OT_BASE_SLOT_LONG;
    if (kept && !ot_program_reads(program, value, OT_PART_INPUT)) {
      bytes += ot_type_bytes(&program->values[value].type);
    }
  }
  return bytes;
}

static void count_bytes(const ot_block_phases *from, ot_block_price *to) {
  const ot_segment *const works[] = {from->forward[0],  from->forward[1],  from->recompute,
                                     from->backward[0], from->backward[1], from->weight[0],
                                     from->weight[1]};
  const ot_segment *const updates[] = {from->norm, from->update};
  const ot_segment *const moves[] = {from->reduce[0][0], from->reduce[0][1], from->reduce[1][0],
                                     from->reduce[1][1], from->gather,       from->spread};
  const ot_program *const program = from->storage->program;
  to->elements = from->bucket->elements;
  to->piece_elements = from->bucket->piece_elements;
  to->work_scratch = most_scratch(works, OT_COUNT(works));
  to->update_scratch = most_scratch(updates, OT_COUNT(updates));
  to->staging = most_scratch(moves, OT_COUNT(moves));
  for (int i = 0; i < OT_SLOT_CLASSES; i++) to->slot_bytes[i] = from->storage->slot_bytes[i];
  for (int i = 0; i < OT_SCRATCH_GROUPS; i++) {
    const int64_t bytes = from->storage->scratch_bytes[i];
    if (bytes > to->transient_bytes) to->transient_bytes = bytes;
  }
  to->product_bytes = product_bytes(from->storage);
  to->has_input = program->input >= 0;
  to->has_d_output = program->d_output >= 0;
  to->weights_read_in = ot_program_reads(program, program->input, OT_PART_WEIGHT);
}

// What a rank holds of the experts, and what sending to them takes.
static ot_status add_experts(const ot_estimator *e, const ot_prices *p, int kind,
                             ot_block_price *to) {
  to->expert_elements = ot_expert_elements(e, &p->key, kind);
  to->elements -= (int64_t)(to->expert_elements * (p->key.ep - 1));
  return ot_expert_prices_add(e, p, kind, to);
}

// ---- the whole ----

static ot_status price_kinds(ot_estimator *e, const ot_step_phases *phases, ot_arena *scratch,
                             ot_prices *p) {
  p->kind = ot_arena_array(e->arena, e->num_kinds, sizeof *p->kind);
  for (int i = 0; i < e->num_kinds; i++) {
    count_bytes(&phases->blocks[i], &p->kind[i]);
    count_flops(&phases->blocks[i], &p->kind[i]);
    OT_TRY(price_work(e, p, &phases->blocks[i], &p->kind[i]));
    if (!e->own) OT_TRY(add_experts(e, p, i, &p->kind[i]));
  }
  return ot_sum_prices_build(e, phases, scratch, p);
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

// Other software that makes only attention again keeps what this program would keep without.
static ot_recompute policy_of(const ot_estimator *e, const ot_candidate *c) {
  return !e->own && c->recompute == OT_RECOMPUTE_SELECTIVE ? OT_RECOMPUTE_NONE : c->recompute;
}

static ot_status build(ot_estimator *e, const ot_candidate *key, ot_prices *p) {
  ot_arena scratch = ot_arena_pool_begin(&e->pool);
  ot_run_lists lists;
  ot_run run;
  ot_mesh mesh;
  ot_graph *graph;
  ot_step_phases phases;
  *p = (ot_prices){.key = *key, .ranks = e->job.devices, .split = splits_backward(key->pipeline)};
  p->tied = e->job.model->tie_word_embeddings;
  p->tied_apart = p->tied && key->pp > 1 && key->pipeline != OT_PIPELINE_ZB_V;
  p->sequence_parallel = e->own || (e->job.engine->sequence_parallel && !key->no_sequence_parallel);
  ot_candidate_run(&e->job, key, &lists, &run);
  if (!e->own) run.parallel.ep = 1;
  e->simulation.expert_ranks = e->own ? 1 : key->ep;
  lists.recompute = policy_of(e, key);
  OT_TRY(ot_mesh_build(&run.parallel, key->tp * key->cp * key->dp * key->pp, &mesh));
  find_shapes(e, &mesh, &scratch, p);
  const ot_graph_request request = ot_prices_graph(e, key, &run, false);
  OT_TRY(ot_graph_find(e, &request, &graph));
  const ot_schedule_request wanted = {
      .graphs = {[OT_MODE_TRAIN] = graph}, .run = &run, .mesh = &mesh};
  const ot_step_shape shape = {.split = p->split, .tied_apart = p->tied_apart};
  ot_step_phases_build(&wanted, shape, &scratch, &phases);
  const int cut = key->zero > 0 ? key->dp_shard * key->cp : 1;
  p->shards = e->own ? phases.shards : cut > 1;
  p->gathers = e->own ? phases.gathers : cut > 1 && key->zero == 3;
  p->each_micro_batch = e->own
                            ? phases.each_micro_batch
                            : cut > 1 && key->zero >= 2 && e->job.engine->reduce_each_micro_batch;
  count_step(e, graph, p);
  return price_kinds(e, &phases, &scratch, p);
}

ot_status ot_prices_find(ot_estimator *e, const ot_candidate *candidate, ot_prices **out) {
  const ot_candidate key = key_of(candidate);
  for (int64_t i = 0; i < e->num_prices; i++) {
    *out = e->prices[i];
    if (ot_candidate_compare(&e->prices[i]->key, &key) == 0) return OT_OK;
  }
  ot_prices *const made = ot_arena_array(e->arena, 1, sizeof *made);
  OT_TRY(build(e, &key, made));
  e->prices =
      ot_arena_grow(e->arena, e->prices, e->num_prices, &e->prices_capacity, sizeof(ot_prices *));
  e->prices[e->num_prices++] = made;
  *out = made;
  return OT_OK;
}
