// SPDX-License-Identifier: Apache-2.0
// Prices of the blocks of a candidate: graph of one layer of each kind, its segments, each priced
// once. Candidates that differ in what blocks do not see share theirs; graphs are shared by all
// that split a micro-batch alike.
#include "describe/groups.h"
#include "describe/pipeline_rules.h"
#include "ops/catalog.h"
#include "plan/phase_price.h"
#include "schedule/update.h"

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

static void find_shapes(const ot_estimator *e, ot_prices *p) {
  int *const ranks = ot_arena_array(e->arena, p->mesh.ranks, sizeof(int));
  const int kv_heads = (int)e->job.model->num_kv_heads;
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
    const int size = ot_group_ranks(&p->mesh, (ot_group_kind)kind, kv_heads, 0, ranks);
    p->shape[kind] = (ot_group_shape){
        .size = size, .first = ranks[0], .stride = size > 1 ? ranks[1] - ranks[0] : 1};
  }
}

// ---- graphs ----

static bool has_sequence_parallel(const ot_estimator *e, const ot_candidate *c) {
  return c->tp > 1 && e->job.engine->sequence_parallel && !c->no_sequence_parallel;
}

static ot_graph_request graph_request(const ot_estimator *e, const ot_candidate *c,
                                      const ot_run *run, bool whole) {
  const int64_t rows = c->micro_batch_size * e->job.sequence_length / c->cp;
  return (ot_graph_request){
      .model = &e->layers,
      .mode = OT_MODE_TRAIN,
      .micro_batch_size = c->micro_batch_size,
      .sequence_length = e->job.sequence_length,
      .compute = run->precision.compute == OT_F64 ? OT_F64 : OT_F32,
      .storage = run->precision.params,
      .head_chunk_rows = e->own                        ? 0
                         : e->job.engine->chunked_loss ? e->job.engine->loss_rows
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

static ot_status find_graph(ot_estimator *e, const ot_graph_request *request, ot_graph **out) {
  for (int64_t i = 0; i < e->num_graphs; i++) {
    if (!same_graph(&e->graphs[i]->request, request)) continue;
    *out = e->graphs[i];
    return OT_OK;
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

static ot_status price_work(const ot_estimator *e, const ot_prices *p, const ot_block_phases *from,
                            ot_block_price *to) {
  ot_phase_price again;
  OT_TRY(ot_phase_price_build(e, p, from->recompute, &again));
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
    const bool back = w == OT_WORK_BACKWARD;
    to->reads[w] = reads_base(segments[w], OT_BASE_WEIGHT) ||
                   (back && reads_base(from->recompute, OT_BASE_WEIGHT));
    to->reads_tied[w] = reads_base(segments[w], OT_BASE_TIED) ||
                        (back && reads_base(from->recompute, OT_BASE_TIED));
  }
  to->writes_in_forward = writes_gradients(from->forward[0]);
  to->weights_read_in =
      ot_program_reads(from->storage->program, from->storage->program->input, OT_PART_WEIGHT);
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

// ---- sums, gathers, updates: of this program ----

static ot_status total_of(const ot_estimator *e, const ot_prices *p, const ot_segment *segment,
                          double *total_s) {
  ot_phase_price price;
  OT_TRY(ot_phase_price_build(e, p, segment, &price));
  *total_s = price.total_s;
  return OT_OK;
}

static ot_status price_segments(const ot_estimator *e, const ot_prices *p,
                                const ot_block_phases *from, ot_block_price *to) {
  for (int i = 0; i < 4; i++) {
    OT_TRY(total_of(e, p, from->reduce[i / 2][i % 2], &to->reduce_s[i / 2][i % 2]));
  }
  OT_TRY(total_of(e, p, from->gather, &to->gather_s));
  OT_TRY(total_of(e, p, from->spread, &to->spread_s));
  OT_TRY(ot_phase_price_build(e, p, from->norm, &to->norm));
  return ot_phase_price_build(e, p, from->update, &to->update);
}

static ot_status price_tied(const ot_estimator *e, ot_prices *p) {
  const ot_step_phases *const phases = &p->phases;
  for (int i = 0; i < 4; i++) {
    OT_TRY(total_of(e, p, phases->tied_reduce[i / 2][i % 2], &p->tied_reduce_s[i / 2][i % 2]));
  }
  OT_TRY(total_of(e, p, phases->tie, &p->tie_s));
  return ot_phase_price_build(e, p, phases->tied_update, &p->tied_update);
}

static ot_status price_frame(ot_estimator *e, ot_prices *p) {
  ot_segment frame[2];
  ot_step_phases_frame(&p->phases, e->num_blocks, e->num_parts, e->arena, frame);
  p->frame_scratch_bytes = frame[0].scratch_bytes > frame[1].scratch_bytes ? frame[0].scratch_bytes
                                                                           : frame[1].scratch_bytes;
  OT_TRY(ot_phase_price_build(e, p, &frame[0], &p->begin));
  return ot_phase_price_build(e, p, &frame[1], &p->clip);
}

// ---- the same of other software, from bytes ----

static ot_status collective_s(const ot_estimator *e, ot_op_kind op, ot_group_shape shape,
                              double bytes, double *total_s) {
  const ot_collective collective = {.op = op, .shape = shape, .bytes = bytes};
  ot_price price;
  OT_TRY(ot_price_collective(&e->simulation, &collective, &price));
  *total_s = ot_price_total_s(&e->simulation, price);
  return OT_OK;
}

// Those who hold pieces of a bucket: cp ranks are among them (Megatron-LM's distributed optimizer,
// torch FSDP's mesh).
static ot_group_shape shard_shape(const ot_candidate *c, bool shards) {
  const int dp = shards ? c->dp_shard : c->dp;
  return (ot_group_shape){.size = dp * c->cp, .stride = c->tp};
}

static ot_status price_bytes(const ot_estimator *e, const ot_prices *p, ot_block_price *to) {
  const ot_candidate *const c = &p->key;
  const ot_recipe *const recipe = &e->job.recipe;
  const bool shards = c->zero > 0 && c->dp_shard * c->cp > 1;
  const ot_group_shape shape = shard_shape(c, c->zero > 0);
  const ot_group_shape others = {.size = c->zero > 0 ? c->dp / c->dp_shard : 1,
                                 .stride = c->tp * c->cp * c->dp_shard};
  const double n = (double)to->elements;
  double s = 0, across_s = 0;
  OT_TRY(collective_s(e, shards ? OT_OP_REDUCE_SCATTER : OT_OP_ALL_REDUCE, shape,
                      n * recipe->reduce_bytes, &s));
  OT_TRY(
      collective_s(e, OT_OP_ALL_REDUCE, others, n / shape.size * recipe->reduce_bytes, &across_s));
  for (int i = 0; i < 4; i++) to->reduce_s[i / 2][i % 2] = s + (i % 2 == 1 ? across_s : 0);
  if (shards)
    OT_TRY(collective_s(e, OT_OP_ALL_GATHER, shape, n * recipe->gather_bytes, &to->gather_s));
  const double piece = shards ? n / shape.size : n;
  const double states = recipe->gradient_bytes + recipe->weight_bytes +
                        2 * (recipe->master_bytes + recipe->moment_bytes) +
                        (recipe->master_bytes > 0 ? 0 : recipe->weight_bytes);
  const double update_s =
      ot_price_total_s(&e->simulation, ot_price_pass(&e->simulation, piece * states));
  const double norm_s = ot_price_total_s(
      &e->simulation, ot_price_pass(&e->simulation, piece * recipe->gradient_bytes +
                                                        n * e->job.engine->zero_bytes));
  to->update = (ot_phase_price){.total_s = update_s, .compute_s = update_s};
  to->norm = (ot_phase_price){.total_s = norm_s, .compute_s = norm_s};
  return OT_OK;
}

static ot_status price_meeting(const ot_estimator *e, ot_prices *p) {
  const ot_group_shape world = p->shape[OT_GROUP_WORLD];
  double s;
  OT_TRY(collective_s(e, OT_OP_ALL_REDUCE, world, 8, &s));
  p->clip = (ot_phase_price){.total_s = s};
  p->clip.exposed_s[OT_TIMELINE_WORLD] = s;
  return OT_OK;
}

// ---- the whole ----

static ot_status price_kinds(ot_estimator *e, ot_prices *p) {
  p->kind = ot_arena_array(e->arena, e->num_kinds, sizeof *p->kind);
  for (int i = 0; i < e->num_kinds; i++) {
    const ot_block_phases *const from = &p->phases.blocks[i];
    ot_block_price *const to = &p->kind[i];
    to->elements = from->bucket->elements;
    to->parts = from->parts;
    OT_TRY(price_work(e, p, from, to));
    count_flops(from, to);
    if (e->own) {
      OT_TRY(price_segments(e, p, from, to));
    } else {
      OT_TRY(price_bytes(e, p, to));
    }
  }
  return OT_OK;
}

static void count_parts(ot_estimator *e, const ot_prices *p) {
  e->num_parts = 0;
  for (int i = 0; i < e->num_blocks; i++) e->num_parts += p->phases.blocks[e->kind_of[i]].parts;
}

static ot_status build(ot_estimator *e, const ot_candidate *key, ot_prices *p) {
  *p = (ot_prices){.key = *key};
  ot_candidate_run(&e->job, key, &p->lists, &p->run);
  OT_TRY(ot_mesh_build(&p->run.parallel, e->job.devices, &p->mesh));
  find_shapes(e, p);
  const ot_graph_request request = graph_request(e, key, &p->run, false);
  ot_graph *graph;
  OT_TRY(find_graph(e, &request, &graph));
  const ot_schedule_request wanted = {
      .graphs = {[OT_MODE_TRAIN] = graph}, .run = &p->run, .mesh = &p->mesh};
  p->tied = e->job.model->tie_word_embeddings;
  p->tied_apart = p->tied && key->pp > 1 && key->pipeline != OT_PIPELINE_ZB_V;
  const ot_step_shape shape = {.split = splits_backward(key->pipeline),
                               .tied_apart = p->tied_apart};
  ot_step_phases_build(&wanted, shape, e->arena, &p->phases);
  count_parts(e, p);
  p->sequence_parallel = e->own || has_sequence_parallel(e, key);
  const int64_t rows = key->micro_batch_size * e->job.sequence_length / key->cp;
  p->hidden_bytes = rows / (p->sequence_parallel ? key->tp : 1) * e->job.model->hidden_size *
                    ot_dtype_bytes(graph->request.storage);
  OT_TRY(price_kinds(e, p));
  if (!e->own) return price_meeting(e, p);
  OT_TRY(price_tied(e, p));
  return price_frame(e, p);
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

// ---- cuts ----

// Matrix FLOPs of each block of the whole model, not of a rank's part: all ranks cut alike.
static ot_status block_costs(ot_estimator *e, const ot_candidate *c, const ot_run *run,
                             double **cost) {
  ot_candidate one = *c;
  one.micro_batch_size = 1;
  one.cp = 1;
  const ot_graph_request request = graph_request(e, &one, run, true);
  ot_graph *graph;
  OT_TRY(find_graph(e, &request, &graph));
  double *const of_kind = ot_arena_array(e->arena, e->num_kinds, sizeof *of_kind);
  for (int k = 0; k < e->num_kinds; k++) {
    of_kind[k] = ot_stages_block_cost(graph, k, &run->parallel, e->arena);
  }
  *cost = ot_arena_array(e->arena, e->num_blocks, sizeof **cost);
  for (int i = 0; i < e->num_blocks; i++) (*cost)[i] = of_kind[e->kind_of[i]];
  return OT_OK;
}

// Other software gives each chunk as many layers, and the embedding and the head to the first and
// the last; where layers do not come out even, both count as one (Megatron-DeepSpeed;
// Megatron-core's account_for_embedding_in_pipeline_split).
static void even_costs(const ot_estimator *e, int chunks, double *cost) {
  const int layers = e->num_blocks - 2;
  const double ends = layers % chunks == 0 ? 0x1p-20 : 1;
  for (int i = 0; i < e->num_blocks; i++) cost[i] = i == 0 || i == layers + 1 ? ends : 1;
}

ot_status ot_cut_find(ot_estimator *e, const ot_candidate *c, const ot_prices *prices,
                      const ot_stages **out) {
  for (int64_t i = 0; i < e->num_cuts; i++) {
    const ot_cut *const made = e->cuts[i];
    *out = &made->stages;
    if (made->kind == c->pipeline && made->recompute == c->recompute && made->pp == c->pp &&
        made->vpp == c->vpp) {
      return OT_OK;
    }
  }
  ot_cut *const made = ot_arena_array(e->arena, 1, sizeof *made);
  *made = (ot_cut){.kind = c->pipeline, .recompute = c->recompute, .pp = c->pp, .vpp = c->vpp};
  double *cost;
  ot_run_parallel parallel = prices->run.parallel;
  parallel.pipeline = c->pipeline;
  parallel.vpp = c->vpp;
  OT_TRY(block_costs(e, c, &prices->run, &cost));
  if (!e->own) even_costs(e, c->pp * ot_pipeline_chunks(c->pipeline, c->pp, c->vpp), cost);
  OT_TRY(ot_stages_cut(e->num_blocks, cost, &parallel, e->arena, &made->stages));
  e->cuts = ot_arena_grow(e->arena, e->cuts, e->num_cuts, &e->cuts_capacity, sizeof(ot_cut *));
  e->cuts[e->num_cuts++] = made;
  *out = &made->stages;
  return OT_OK;
}
