// SPDX-License-Identifier: Apache-2.0
// Orthant itself: prices the schedules that it would run.
#include <string.h>

#include "base/extremes.h"
#include "describe/parallel_check.h"
#include "describe/pipeline_rules.h"
#include "estimate/framework.h"
#include "estimate/memory.h"
#include "estimate/phase_price.h"
#include "graph/local_shape.h"
#include "ops/catalog.h"
#include "workspace/workspace.h"

const ot_framework *ot_framework_of(const ot_engine *engine) {
  return engine == &ot_engine_orthant ? &ot_framework_scheduled : &ot_framework_described;
}

// ---- checks ----

static ot_status check_job(const ot_job *job) {
  (void)job;
  return OT_OK;
}

// Applies the training rules, and checks that blocks can be sharded this way.
static ot_status check_run(const ot_job *job, const ot_candidate *candidate, ot_run *run) {
  (void)candidate;
  const ot_run_parallel *const p = &run->parallel;
  const ot_graph_request request = {
      .model = &run->model,
      .mode = OT_MODE_TRAIN,
      .micro_batch_size = run->batch.micro_batch_size,
      .sequence_length = run->data.sequence_length,
      .split = {.tp = p->tp, .cp = p->cp, .context = p->context, .ep = p->ep, .etp = p->etp},
  };
  ot_local_shape share;
  OT_TRY(ot_parallel_check(run));
  OT_TRY(ot_local_shape_build(&request, &share));
  return ot_run_check_ranks(run, job->devices);
}

// ---- candidate and partition ----

static ot_candidate built(const ot_candidate *candidate) { return *candidate; }

// Matrix FLOPs of each block of the unsharded model: all ranks use the same partition.
static ot_status block_costs(ot_estimator *e, const ot_candidate *c, const ot_run *run,
                             ot_arena *scratch, double *cost) {
  const ot_block_list *const blocks = ot_estimator_blocks(e, c);
  ot_candidate one = *c;
  one.micro_batch_size = 1;  // costs are proportional to it
  const ot_graph_request request = ot_prices_graph(e, &one, run, true);
  ot_graph *graph;
  OT_TRY(ot_graph_find(e, &request, &graph));
  double *const of_kind = ot_arena_array(scratch, blocks->num_kinds, sizeof *of_kind);
  for (int k = 0; k < blocks->num_kinds; k++) {
    of_kind[k] = ot_stages_block_cost(graph, k, &run->parallel, scratch);
  }
  for (int i = 0; i < blocks->num_blocks; i++) cost[i] = of_kind[blocks->kind_of[i]];
  return OT_OK;
}

// The embedding goes to the first chunk, the head to the last; a layer may be two blocks.
static void split_as_given(ot_estimator *e, const ot_run *run, ot_stage_partition *out) {
  const ot_block_list *const blocks = out->blocks;
  const int chunks = e->job.num_chunks;
  int *const first = ot_arena_array(e->arena, chunks + 1, sizeof *first);
  int block = 0, place = 1;
  for (int c = 0; c + 1 < chunks; c++) {
    place += e->job.chunk_layers[c];
    while (blocks->place_of[block] < place) block++;
    first[c + 1] = block;
  }
  first[chunks] = blocks->num_blocks;
  out->stages = (ot_stages){.num_ranks = run->parallel.pp,
                            .num_chunks = chunks,
                            .first_block = first,
                            .rank_of = ot_stages_assign(&run->parallel, chunks, e->arena)};
}

// An earlier partition of the same costs into the same chunks, or null: kinds of recompute may cost
// alike.
static const ot_stage_partition *same_partition(const ot_estimator *e, const ot_candidate *c,
                                                const ot_stage_partition *wanted) {
  const size_t bytes = (size_t)wanted->blocks->num_blocks * sizeof *wanted->cost;
  const int chunks = c->pp * ot_pipeline_chunks(c->pipeline, c->pp, c->vpp);
  for (int64_t i = 0; i < e->num_cuts; i++) {
    const ot_stage_partition *const cut = e->cuts[i];
    const ot_stages *const stages = &cut->stages;
    if (!cut->cost || cut->blocks != wanted->blocks || stages->num_ranks != c->pp) continue;
    if (stages->num_chunks != chunks || memcmp(cut->cost, wanted->cost, bytes) != 0) continue;
    const int last = ot_pipeline_stage(c->pipeline, c->pp, chunks - 1);
    if (stages->rank_of[chunks - 1] == last) return cut;
  }
  return NULL;
}

static const int *keep(const ot_estimator *e, const int *numbers, int count) {
  int *const kept = ot_arena_array(e->arena, count, sizeof *kept);
  return memcpy(kept, numbers, (size_t)count * sizeof *kept);
}

static void keep_stages(const ot_estimator *e, ot_stages *stages) {
  stages->first_block = keep(e, stages->first_block, stages->num_chunks + 1);
  stages->rank_of = keep(e, stages->rank_of, stages->num_chunks);
}

static ot_status partition(ot_estimator *e, const ot_candidate *c, ot_run *run,
                           ot_stage_partition *out) {
  const int num_blocks = out->blocks->num_blocks;
  double *const cost = ot_arena_array(e->arena, num_blocks, sizeof *cost);
  if (c->pp == 1) run->parallel.vpp = 1;  // training has no stages then
  const int chunks = c->pp * ot_pipeline_chunks(c->pipeline, c->pp, run->parallel.vpp);
  if (c->pp > 1 && e->job.num_chunks == chunks) {
    split_as_given(e, run, out);
    return OT_OK;
  }
  ot_arena scratch = ot_arena_pool_begin(&e->scratch);
  OT_TRY(block_costs(e, c, run, &scratch, cost));
  out->cost = cost;
  const ot_stage_partition *const known = same_partition(e, c, out);
  if (known) {
    out->stages = known->stages;
    return OT_OK;
  }
  OT_TRY(ot_stages_partition(num_blocks, cost, &run->parallel, &scratch, &out->stages));
  keep_stages(e, &out->stages);
  return OT_OK;
}

// ---- work of a micro-batch ----

static ot_status price_recompute(const ot_estimator *e, const ot_prices *p,
                                 const ot_block_phases *from, ot_phase_price *out) {
  return ot_phase_price_build(e, p, from->recompute, out);
}

// The built blocks include experts.
static ot_status add_missing(const ot_estimator *e, const ot_prices *p, int kind,
                             ot_block_price *to) {
  (void)e;
  (void)p;
  (void)kind;
  (void)to;
  return OT_OK;
}

// ---- reductions, gathers, updates ----

static ot_status total_of(const ot_estimator *e, const ot_prices *p, const ot_segment *segment,
                          double *total_s, double *load_s) {
  ot_phase_price price;
  OT_TRY(ot_phase_price_build(e, p, segment, &price));
  *total_s = price.total_s;
  if (load_s) *load_s = price.load_s;
  return OT_OK;
}

static ot_status price_segments(const ot_estimator *e, const ot_prices *p,
                                const ot_block_phases *from, ot_block_price *to) {
  for (int i = 0; i < 4; i++) {
    OT_TRY(total_of(e, p, from->reduce[i / 2][i % 2], &to->reduce_s[i / 2][i % 2],
                    &to->reduce_load_s[i / 2][i % 2]));
  }
  OT_TRY(total_of(e, p, from->gather, &to->gather_s, &to->gather_load_s));
  OT_TRY(
      total_of(e, p, from->gather_gradient, &to->gradient_gather_s, &to->gradient_gather_load_s));
  OT_TRY(ot_phase_price_build(e, p, from->norm, &to->norm));
  return ot_phase_price_build(e, p, from->update, &to->update);
}

static int64_t scratch_of(const ot_segment *segment) {
  return segment && segment->num_tasks > 0 ? segment->scratch_bytes : 0;
}

// Largest shard of the tied table on any rank in elements: tp ranks differ by a row of the
// vocabulary, and shards in their overlap with the table.
static int64_t most_tied(const ot_step_phases *phases) {
  const ot_graph *const graph = phases->graph;
  const int64_t piece = phases->blocks[0].bucket->shard_elements;
  int64_t begin = 0, end = 0, most = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    if (graph->parameters[i].tied_to < 0) continue;
    const ot_parameter *const owner = &graph->parameters[graph->parameters[i].tied_to];
    begin = owner->offset;
    end = begin + graph->share.widest_vocab * owner->cols;
  }
  for (int64_t first = begin / piece * piece; first < end; first += piece) {
    const int64_t from = ot_larger_whole(first, begin), to = ot_smaller_whole(first + piece, end);
    most = ot_larger_whole(most, to - from);
  }
  return most;
}

// Scratch of the reduction of both uses on the rank with the largest shard.
static int64_t tie_bytes(const ot_step_phases *phases) {
  if (!phases->tie || phases->tie->num_tasks == 0) return 0;
  const ot_task *const task = &phases->tie->tasks[0];
  ot_op_types types = {.in = {task->in[0].type, task->in[1].type}, .out = {task->out[0].type}};
  types.in[0].dim[0] = types.out[0].dim[0] = most_tied(phases);
  if (ot_type_present(&types.in[1])) types.in[1].dim[0] = types.in[0].dim[0];
  return ot_op_workspace(task->op, &task->attributes, &types);
}

static ot_status price_tied(const ot_estimator *e, const ot_step_phases *phases, ot_prices *p) {
  for (int i = 0; i < 4; i++) {
    const ot_segment *const segment = phases->tied_reduce[i / 2][i % 2];
    OT_TRY(total_of(e, p, segment, &p->tied_reduce_s[i / 2][i % 2], NULL));
    p->tied_staging = ot_larger_whole(p->tied_staging, scratch_of(segment));
  }
  OT_TRY(total_of(e, p, phases->tie, &p->tie_s, NULL));
  *(p->tied_across_stages ? &p->tie_staging : &p->tie_scratch) = tie_bytes(phases);
  return ot_phase_price_build(e, p, phases->tied_update, &p->tied_update);
}

static ot_status price_frame(const ot_estimator *e, const ot_step_phases *phases, ot_arena *scratch,
                             ot_prices *p) {
  int parts = 0;
  const ot_block_list *const blocks = p->blocks;
  for (int i = 0; i < blocks->num_blocks; i++) parts += phases->blocks[blocks->kind_of[i]].parts;
  p->norm_slots = (int64_t)parts * phases->schedule.slots_per_part;
  ot_segment frame[2];
  ot_step_phases_frame(phases, blocks->num_blocks, parts, scratch, frame);
  p->frame_scratch = ot_larger_whole(frame[0].scratch_bytes, frame[1].scratch_bytes);
  OT_TRY(ot_phase_price_build(e, p, &frame[0], &p->begin));
  return ot_phase_price_build(e, p, &frame[1], &p->clip);
}

static ot_status price_sums(const ot_estimator *e, const ot_step_phases *phases, ot_arena *scratch,
                            ot_prices *p) {
  for (int i = 0; i < p->blocks->num_kinds; i++) {
    OT_TRY(price_segments(e, p, &phases->blocks[i], &p->kind[i]));
  }
  OT_TRY(price_tied(e, phases, p));
  return price_frame(e, phases, scratch, p);
}

// ---- bounds: the collectives of reduce.c and update.c ----

// Bytes of a moment, which is read and written in fp32.
enum { MOMENT_BYTES = 8 };

static ot_status collective_s(const ot_estimator *e, ot_op_kind op, ot_group_shape shape,
                              double bytes, ot_price *sum) {
  ot_price price;
  if (shape.size <= 1) return OT_OK;
  OT_TRY(ot_price_collective(&e->simulation, &(ot_collective){op, shape, bytes, 0}, &price));
  sum->device_s += price.device_s;
  sum->load_s += price.load_s;
  return OT_OK;
}

// Bytes per element in communication of format `bytes`; a run may choose narrower types.
static double narrow(const ot_estimator *e, double bytes) {
  return e->job.run || bytes < 4 ? 2 : 4;
}

// Groups that sum the gradients of a block: ranks of a shard, its copies, and those of cp
// (describe/groups.c).
typedef struct sum_groups {
  ot_group_shape shard, others, context;
} sum_groups;

static sum_groups dense_groups(const ot_candidate *c) {
  const int pieces = c->zero > 0 ? c->dp_shard : c->dp, inside = c->tp * c->cp;
  return (sum_groups){.shard = {.size = pieces, .stride = inside},
                      .others = {.size = c->dp / pieces, .stride = inside * pieces},
                      .context = {.size = c->cp, .stride = c->tp}};
}

static sum_groups expert_groups(const ot_candidate *c) {
  const int apart = c->ep * c->etp, inside = c->tp * c->cp, stage = inside * c->dp;
  const int domain = c->zero > 0 && c->dp_shard > 1 ? inside * c->dp_shard : stage;
  const int wide = apart > domain ? apart : domain;
  return (sum_groups){.shard = {.size = wide / apart, .stride = apart},
                      .others = {.size = stage / wide, .stride = wide},
                      .context = {.size = 1, .stride = 1}};
}

static ot_status bound_sums(const ot_estimator *e, const ot_candidate *c, bool experts, double n,
                            ot_sum_bound *out) {
  const sum_groups groups = experts ? expert_groups(c) : dense_groups(c);
  const ot_group_shape shard = groups.shard, others = groups.others, context = groups.context;
  const int pieces = shard.size;
  const double wire = n * narrow(e, e->job.recipe.reduce_bytes);
  const double weights = n * narrow(e, e->job.recipe.weight_bytes);
  const double kept = n * narrow(e, e->job.recipe.gradient_bytes);
  ot_price scatter = {0}, gather = {0}, rest = {0}, gradients = {0};
  OT_TRY(collective_s(e, OT_OP_REDUCE_SCATTER, shard, wire, &scatter));
  OT_TRY(collective_s(e, OT_OP_ALL_REDUCE, context, kept / pieces, &rest));
  OT_TRY(collective_s(e, OT_OP_ALL_REDUCE, others, kept / pieces, &rest));
  if (c->zero == 0) OT_TRY(collective_s(e, OT_OP_ALL_GATHER, shard, kept, &gradients));
  if (c->zero > 0) OT_TRY(collective_s(e, OT_OP_ALL_GATHER, shard, weights, &gather));
  out->gradient_gather_s = gradients.device_s;
  out->reduce_s = rest.device_s + scatter.device_s;
  out->reduce_load_s = rest.load_s + scatter.load_s;
  out->reduce_each_s = c->zero >= 2 ? scatter.device_s : 0;
  out->reduce_each_load_s = c->zero >= 2 ? scatter.load_s : 0;
  *(c->zero == 3 ? &out->gather_s : &out->end_s) += gather.device_s;
  if (c->zero == 3) out->gather_load_s = gather.load_s;
  const double updated = c->zero > 0 ? n / pieces : n;
  const double bytes = updated * MOMENT_BYTES * ot_job_moments(&e->job);
  out->end_s += ot_price_pass(&e->simulation, bytes).device_s;
  return OT_OK;
}

// ---- memory ----

static void count_memory(const ot_replay_request *request, ot_arena *arena,
                         ot_memory_estimate *out) {
  for (int i = 0; i < request->stages->num_ranks; i++) {
    ot_memory_own_build(request, i, arena, &out[i]);
  }
}

static void bound_slots(const ot_estimator *e, const ot_prices *prices, int kind,
                        int64_t *slot_bytes, int64_t *scratch_bytes) {
  (void)e;
  const ot_block_price *const price = &prices->kind[kind];
  for (int i = 0; i < OT_SLOT_CLASSES; i++) slot_bytes[i] = price->memory.slot_bytes[i];
  *scratch_bytes = price->work_scratch;
}

static double bound_shards(const ot_estimator *e, const ot_candidate *c, bool experts) {
  (void)e;
  const int shard = c->zero > 0 ? c->dp_shard : 1;
  return experts && shard > 1 ? expert_groups(c).shard.size : shard;
}

const ot_framework ot_framework_scheduled = {
    .check_job = check_job,
    .check_run = check_run,
    .built = built,
    .partition = partition,
    .price_recompute = price_recompute,
    .add_missing = add_missing,
    .price_sums = price_sums,
    .bound_sums = bound_sums,
    .count_memory = count_memory,
    .has_places = true,
    .bound_slots = bound_slots,
    .bound_shards = bound_shards,
};
