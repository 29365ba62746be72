// SPDX-License-Identifier: Apache-2.0
// Places regions, then builds segments and orders: order_step.c for training steps, order_forward.c
// for modes without a backward.
#include "schedule/build.h"

#include <assert.h>
#include <string.h>

#include "describe/groups.h"
#include "schedule/block_view.h"
#include "schedule/builder_state.h"
#include "schedule/layout.h"
#include "schedule/segment.h"
#include "schedule/update.h"

int64_t ot_build_hidden_bytes(const ot_graph *graph) {
  const ot_graph_request *const r = &graph->request;
  const ot_split *const split = &r->split;
  const int64_t parts = (int64_t)(split->tp > 1 ? split->tp : 1) * (split->cp > 1 ? split->cp : 1);
  return r->micro_batch_size * r->sequence_length / parts * r->model->hidden_size *
         ot_dtype_bytes(r->storage);
}

static const ot_program *program_of(const ot_graph *graph, int block) {
  return &graph->programs[graph->blocks[block].program];
}

int64_t ot_build_input_bytes(const ot_graph *graph, int block) {
  return program_of(graph, block)->input < 0 ? 0 : ot_build_hidden_bytes(graph);
}

int64_t ot_build_stack_bytes(const ot_graph *graph, int block) {
  return ot_program_stack_size(program_of(graph, block)) * ot_build_hidden_bytes(graph);
}

int64_t ot_build_edge_bytes(const ot_graph *graph, int block) {
  return ot_build_input_bytes(graph, block) + ot_build_stack_bytes(graph, block);
}

int64_t ot_build_stack_end_bytes(const ot_graph *graph, int block) {
  return ot_program_stack_end(program_of(graph, block)) * ot_build_hidden_bytes(graph);
}

int64_t ot_build_output_bytes(const ot_graph *graph, int block) {
  return program_of(graph, block)->output < 0 ? 0 : ot_build_hidden_bytes(graph);
}

// ---- segments ----

int ot_build_add_segment(ot_build *b, const ot_segment *segment) {
  ot_schedule *const schedule = b->schedule;
  const uint64_t hash = b->apart ? 0 : ot_segment_hash(segment);
  for (int i = 0; i < schedule->num_segments && !b->apart; i++) {
    if (schedule->segments[i].hash == hash) return i;
  }
  schedule->segments = ot_arena_grow(b->arena, schedule->segments, schedule->num_segments,
                                     &b->segments_capacity, sizeof *schedule->segments);
  schedule->segments[schedule->num_segments] = *segment;
  schedule->segments[schedule->num_segments].hash = hash;
  return schedule->num_segments++;
}

ot_entry *ot_build_add_entry(ot_build *b, ot_order *order, int segment, int block) {
  order->entries = ot_arena_grow(b->arena, order->entries, order->num_entries, &b->entries_capacity,
                                 sizeof *order->entries);
  ot_entry *const entry = &order->entries[order->num_entries++];
  *entry = (ot_entry){.phase = b->schedule->segments[segment].phase,
                      .lane = OT_LANE_COMPUTE,
                      .segment = segment,
                      .block = block,
                      .micro_batch = -1};
  for (int i = 0; i < OT_BASES; i++) entry->base[i] = -1;
  for (int i = 0; i < OT_LANES; i++) entry->wait[i] = -1;
  entry->base[OT_BASE_SCALAR] = ot_build_at(b, OT_REGION_SCALARS, 0, 0);
  entry->base[OT_BASE_CONSTANT] = ot_build_at(b, OT_REGION_CONSTANTS, 0, 0);
  return entry;
}

ot_order *ot_build_add_order(ot_build *b, ot_order_kind kind, int micro_batches) {
  ot_schedule *const schedule = b->schedule;
  schedule->orders = ot_arena_grow(b->arena, schedule->orders, schedule->num_orders,
                                   &b->orders_capacity, sizeof *schedule->orders);
  ot_order *const order = &schedule->orders[schedule->num_orders++];
  *order = (ot_order){.kind = kind, .micro_batches = micro_batches};
  b->entries_capacity = 0;
  return order;
}

void ot_build_bind_block(const ot_build *b, ot_entry *entry) {
  const int block = entry->block;
  entry->base[OT_BASE_WEIGHT] = b->weights[block];
  entry->base[OT_BASE_CACHE] = b->caches[block];
  entry->base[OT_BASE_STATISTIC] =
      ot_build_at(b, OT_REGION_STATISTICS, 0, 0) + (int64_t)block * OT_BLOCK_STATISTICS * 8;
  const int64_t experts = ot_build_at(b, OT_REGION_EXPERT_SUMS, 0, 0);
  if (experts >= 0) entry->base[OT_BASE_EXPERTS] = experts + (int64_t)block * OT_EXPERT_SUMS * 8;
  entry->base[OT_BASE_GRADIENT] = b->gradients[block];
  if (block != b->tied_user) return;
  entry->base[OT_BASE_TIED] = b->weights[b->tied_block];
  entry->base[OT_BASE_TIED_GRADIENT] = b->tied_gradients;
}

// ---- setup ----

static void add_setup(ot_build *b) {
  ot_segment segment;
  ot_update_setup(b->shape, b->arena, &segment);
  if (segment.num_tasks == 0) return;
  ot_order *const order = ot_build_add_order(b, OT_ORDER_SETUP, 0);
  ot_build_add_entry(b, order, ot_build_add_segment(b, &segment), -1);
}

static int64_t *offsets(ot_build *b) {
  int64_t *const array = ot_arena_array(b->arena, b->shape->num_blocks, sizeof *array);
  for (int i = 0; i < b->shape->num_blocks; i++) array[i] = -1;
  return array;
}

// ---- groups and stages of this rank ----

int ot_build_group_size(const ot_build *b, ot_group_kind kind) {
  return b->schedule->group[kind].size > 1 ? b->schedule->group[kind].size : 1;
}

bool ot_build_shards_states(const ot_build *b, int block) {
  return b->shards_any_states &&
         ot_view_size(b->schedule, &b->shape->blocks[block], OT_GROUP_SHARD) > 1;
}

bool ot_build_shards_weights(const ot_build *b, int block) {
  return ot_build_shards_states(b, block) && b->request->run->parallel.zero == 3;
}

bool ot_build_reduces_each(const ot_build *b, int block) {
  return b->accumulates_sharded &&
         ot_view_size(b->schedule, &b->shape->blocks[block], OT_GROUP_SHARD) > 1;
}

static bool is_inside_stage(ot_group_kind kind) {
  const unsigned inside = 1u << OT_GROUP_WORLD | 1u << OT_GROUP_TENSOR | 1u << OT_GROUP_TENSOR_SUM |
                          1u << OT_GROUP_KV_SUM | 1u << OT_GROUP_EXPERT |
                          1u << OT_GROUP_EXPERT_SUM | 1u << OT_GROUP_SEQUENCE;
  return (inside >> kind & 1u) != 0;
}

static void find_stage(ot_build *b) {
  static const int one_rank[] = {0};
  const ot_mesh *const mesh = b->request->mesh;
  b->stage = 0;
  b->stage_ranks = one_rank;
  if (!mesh) return;
  int *const ranks = ot_arena_array(b->arena, mesh->degree[OT_AXIS_PP], sizeof(int));
  ot_mesh_group(mesh, b->request->rank, OT_AXIS_PP, ranks);
  b->stage_ranks = ranks;
  b->stage = ot_mesh_coordinate(mesh, b->request->rank, OT_AXIS_PP);
}

static void find_groups(ot_build *b) {
  const ot_mesh *const mesh = b->request->mesh;
  b->schedule->ranks = 1;
  find_stage(b);
  if (!mesh) return;
  const ot_model *const model = b->shape->request.model;
  b->schedule->rank = b->request->rank;
  b->schedule->ranks = mesh->ranks;
  int *const found = ot_arena_array(b->arena, mesh->ranks, sizeof(int));
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
    if (kind == OT_GROUP_TIED && !model->tie_word_embeddings) continue;
    if (b->serves && !is_inside_stage((ot_group_kind)kind)) continue;
    const int size =
        ot_group_ranks(mesh, (ot_group_kind)kind, model->num_kv_heads, b->request->rank, found);
    if (size < 2) continue;
    int *const ranks = ot_arena_array(b->arena, size, sizeof(int));
    memcpy(ranks, found, (size_t)size * sizeof(int));
    b->schedule->group[kind] = (ot_group){
        .size = size, .index = ot_group_index(ranks, size, b->request->rank), .ranks = ranks};
  }
}

static void find_stages(ot_build *b) {
  static const int one_rank[] = {0};
  const int n = b->shape->num_blocks;
  if (b->request->stages) {
    b->stages = *b->request->stages;
  } else {
    int *const first = ot_arena_array(b->arena, 2, sizeof(int));
    first[1] = n;
    b->stages =
        (ot_stages){.num_ranks = 1, .num_chunks = 1, .first_block = first, .rank_of = one_rank};
  }
  for (int chunk = 0; chunk < b->stages.num_chunks; chunk++) {
    const bool mine = b->stages.rank_of[chunk] == b->stage;
    for (int i = b->stages.first_block[chunk]; i < b->stages.first_block[chunk + 1]; i++) {
      if (i < n) b->runs[i] = b->held[i] = mine;
    }
  }
}

static void find_tied(ot_build *b) {
  const ot_stages *const stages = &b->stages;
  if (stages->rank_of[stages->num_chunks - 1] == stages->rank_of[0]) {
    b->schedule->group[OT_GROUP_TIED] = (ot_group){0};
  }
  b->tied_block = b->tied_user = -1;
  b->tied_gradients = b->tied_piece = -1;
  for (int i = 0; i < b->shape->num_parameters; i++) {
    const ot_parameter *const use = &b->shape->parameters[i];
    if (use->tied_to < 0 || !b->runs[use->block]) continue;
    b->tied_user = use->block;
    b->tied_block = b->shape->parameters[use->tied_to].block;
    b->held[b->tied_block] = true;
  }
}

static void begin_schedule(ot_build *b) {
  ot_schedule *const schedule = b->schedule;
  const int n = b->shape->num_blocks;
  *schedule = (ot_schedule){.threads = b->shape->request.threads,
                            .backend = b->shape->request.backend,
                            .compute = b->shape->request.compute,
                            .gradients = ot_graph_gradient_type(&b->shape->request),
                            .num_blocks = n,
                            .num_parts = ot_update_first_part(b->shape, n),
                            .guard_bytes = b->request->guard_bytes};
  b->map = (ot_region_map){.schedule = schedule, .arena = b->arena};
  b->serves = b->request->graphs[OT_MODE_PREFILL] || b->request->graphs[OT_MODE_DECODE];
  b->runs = ot_arena_array(b->arena, n, sizeof(bool));
  b->held = ot_arena_array(b->arena, n, sizeof(bool));
  schedule->buckets = ot_arena_array(b->arena, n, sizeof *schedule->buckets);
  find_groups(b);
  find_stages(b);
  find_tied(b);
  const ot_run *const run = b->request->run;
  const int shard = b->request->mesh ? b->request->mesh->degree[OT_AXIS_DP_SHARD] : 1;
  b->shards_any_states = run && run->parallel.zero >= 1 && shard > 1;
  b->accumulates_sharded = run && run->parallel.accumulate == OT_ACCUMULATE_SHARDED;
  const int dense =
      ot_build_group_size(b, OT_GROUP_TENSOR) * ot_build_group_size(b, OT_GROUP_SHARD);
  const int experts =
      ot_build_group_size(b, OT_GROUP_EXPERT) * ot_build_group_size(b, OT_GROUP_EXPERT_SHARD);
  schedule->slots_per_part = dense > experts ? dense : experts;
  const ot_segment nothing = {.name = "wait", .phase = OT_PHASE_SEND};
  if (b->request->mesh && b->request->mesh->degree[OT_AXIS_PP] > 1)
    b->nothing = ot_build_add_segment(b, &nothing);
  b->weights = offsets(b);
  b->pieces = offsets(b);
  b->gradients = offsets(b);
  b->gradient_pieces = offsets(b);
  b->caches = offsets(b);
}

static const ot_graph *first_graph(const ot_schedule_request *request) {
  int mode = 0;
  while (mode < OT_MODES - 1 && !request->graphs[mode]) mode++;
  return request->graphs[mode];
}

void ot_build_begin(ot_build *b) {
  b->shape = first_graph(b->request);
  OT_ASSERT(b->shape != NULL);
  begin_schedule(b);
  ot_build_place_persistent(b);
}

// Modes share an arena, so their weights must have the same offsets.
static ot_status check_same_weights(const ot_graph *a, const ot_graph *b) {
  if (!b) return OT_OK;
  const int common = a->num_parameters < b->num_parameters ? a->num_parameters : b->num_parameters;
  for (int i = 0; i < common; i++) {
    const ot_parameter *const x = &a->parameters[i];
    const ot_parameter *const y = &b->parameters[i];
    OT_CHECK(
        x->block == y->block && x->offset == y->offset && x->rows == y->rows && x->cols == y->cols,
        OT_BUG, "schedule: parameter %s has another offset in another mode", x->name);
  }
  OT_CHECK(ot_build_constant_bytes(a) == ot_build_constant_bytes(b), OT_BUG,
           "schedule: tables of two modes differ in size");
  return OT_OK;
}

ot_order_kind ot_order_of_mode(ot_mode mode) {
  static const ot_order_kind kinds[] = {
      [OT_MODE_TRAIN] = OT_ORDER_STEP,          [OT_MODE_EVALUATE] = OT_ORDER_EVALUATE,
      [OT_MODE_SCORE] = OT_ORDER_SCORE,         [OT_MODE_LOGITS] = OT_ORDER_LOGITS,
      [OT_MODE_PREFILL] = OT_ORDER_PREFILL,     [OT_MODE_PREFILL_2] = OT_ORDER_PREFILL_2,
      [OT_MODE_PREFILL_4] = OT_ORDER_PREFILL_4, [OT_MODE_PREFILL_8] = OT_ORDER_PREFILL_8,
      [OT_MODE_DECODE] = OT_ORDER_DECODE,       [OT_MODE_DECODE_2] = OT_ORDER_DECODE_2,
      [OT_MODE_DECODE_4] = OT_ORDER_DECODE_4,   [OT_MODE_DECODE_8] = OT_ORDER_DECODE_8,
  };
  static_assert(sizeof kinds / sizeof kinds[0] == OT_MODES, "one order for each mode");
  return kinds[mode];
}

ot_status ot_schedule_build(const ot_schedule_request *request, ot_arena *arena,
                            ot_schedule *schedule) {
  ot_build b = {.request = request, .arena = arena, .schedule = schedule};
  for (int mode = 0; mode < OT_MODES; mode++) {
    OT_TRY(check_same_weights(first_graph(request), request->graphs[mode]));
  }
  ot_build_begin(&b);
  add_setup(&b);
  for (int mode = 0; mode < OT_MODES; mode++) {
    const ot_graph *const graph = request->graphs[mode];
    if (!graph) continue;
    if (mode == OT_MODE_TRAIN) {
      OT_TRY(ot_build_step_orders(&b));
      if (ot_run_generators(request->run) > 0) ot_build_publish_order(&b);
    } else {
      ot_build_forward_order(&b, ot_order_of_mode((ot_mode)mode), graph);
    }
  }
  schedule->memory.peak_bytes = schedule->arena_bytes;
  return OT_OK;
}
