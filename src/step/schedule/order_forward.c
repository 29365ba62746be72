// SPDX-License-Identifier: Apache-2.0
// Orders without a backward: one micro-batch through all blocks of this rank, with two ping-pong
// activation buffers. With pipeline parallelism each chunk receives its input and sends its output;
// ZeRO 3 gathers buckets on demand.
#include "schedule/builder_state.h"
#include "schedule/frame.h"
#include "schedule/layout.h"
#include "schedule/reduce.h"
#include "schedule/segment.h"
#include "schedule/step_plan.h"
#include "schedule/tasks.h"

typedef struct forward_builder {
  ot_build *b;
  const ot_graph *graph;
  ot_order_kind kind;
  ot_order *order;
  ot_outline_request buckets;
  ot_step_outline plan;
  int *segments;  // [num_blocks]
  int64_t batch, result, scratch;
  int64_t hand[2];
  int64_t stack;      // one activation, then the stack; -1: none
  int64_t *gathered;  // [num_gathers] offset per use
  int *gather_entry;  // [num_gathers]
  int gathers;        // number issued so far
  int compute;        // last entry of the compute lane
} forward_builder;

static ot_segment forward_segment(ot_build *b, const ot_graph *graph, int block) {
  ot_storage storage;
  const ot_storage_request request = {.program = &graph->programs[graph->blocks[block].program],
                                      .recompute = {.mode = OT_RECOMPUTE_NONE},
                                      .guard_bytes = b->request->guard_bytes};
  ot_storage_build(&request, b->arena, &storage);
  const ot_segment_request lowered = {
      .graph = graph, .storage = &storage, .block = block, .phase = OT_PHASE_FORWARD};
  ot_segment segment;
  ot_segment_build(&lowered, b->arena, &segment);
  return segment;
}

// ---- regions ----

static int64_t region(forward_builder *f, ot_memory_class class, int64_t bytes, const char *name) {
  return ot_region_transient(&f->b->map, class, f->kind, bytes, name);
}

// Buckets of equal size share a buffer pool.
static void place_gathered(forward_builder *f) {
  const ot_build *const b = f->b;
  const ot_bucket_list *const gathers = &f->plan.gathers;
  const int64_t size = ot_dtype_bytes(f->graph->request.storage);
  f->gathered = ot_arena_array(b->arena, gathers->count + 1, sizeof(int64_t));
  f->gather_entry = ot_arena_array(b->arena, gathers->count + 1, sizeof(int));
  for (int i = 0; i < gathers->count; i++) f->gathered[i] = -1;
  for (int i = 0; i < gathers->count; i++) {
    if (f->gathered[i] >= 0) continue;
    const int64_t elements = b->schedule->buckets[gathers->uses[i].block].elements;
    const int64_t stride = ot_align(elements * size) + ot_align(b->schedule->guard_bytes);
    const int places = ot_outline_places(&f->buckets, gathers, elements);
    const int64_t ring = region(
        f, OT_MEMORY_GATHERED, (places - 1) * stride + elements * size,
        ot_arena_format(b->arena, "gathered.%s", f->graph->blocks[gathers->uses[i].block].name));
    for (int k = i; k < gathers->count; k++) {
      if (b->schedule->buckets[gathers->uses[k].block].elements != elements) continue;
      f->gathered[k] = ring + gathers->uses[k].place * stride;
    }
  }
}

// Size of the largest stack after a block of this rank.
static int64_t most_stack(const forward_builder *f) {
  int64_t most = 0;
  for (int i = 0; i < f->plan.num_items; i++) {
    const int64_t bytes = ot_build_stack_end_bytes(f->graph, f->plan.items[i].block);
    if (bytes > most) most = bytes;
  }
  return most;
}

static void place_regions(forward_builder *f, int64_t scratch_bytes) {
  const ot_graph *const graph = f->graph;
  const int64_t hidden = ot_build_hidden_bytes(graph);
  const int64_t stack = most_stack(f);
  ot_region_begin_order(&f->b->map);
  f->batch = region(f, OT_MEMORY_BUFFERS, ot_segment_batch_bytes(graph), "batch");
  f->result = region(f, OT_MEMORY_BUFFERS, ot_segment_result_bytes(graph), "result");
  place_gathered(f);
  f->hand[0] = region(f, OT_MEMORY_ACTIVATIONS, hidden, "activation.0");
  f->hand[1] = region(f, OT_MEMORY_ACTIVATIONS, hidden, "activation.1");
  f->stack = stack > 0 ? region(f, OT_MEMORY_ACTIVATIONS, hidden + stack, "stack") : -1;
  f->scratch = region(f, OT_MEMORY_BUFFERS, scratch_bytes, "scratch");
}

// ---- entries ----

static ot_entry *add_entry(forward_builder *f, int segment, int block, ot_lane lane) {
  ot_entry *const entry = ot_build_add_entry(f->b, f->order, segment, block);
  entry->lane = lane;
  entry->base[OT_BASE_SCRATCH] = f->scratch;
  if (lane == OT_LANE_COMPUTE) {
    f->compute = f->order->num_entries - 1;
  } else {
    entry->wait[OT_LANE_COMPUTE] = f->compute;
  }
  return entry;
}

static void add_gathers(forward_builder *f, int item) {
  ot_build *const b = f->b;
  for (; f->gathers < f->plan.gathers.count; f->gathers++) {
    const ot_bucket_use *const use = &f->plan.gathers.uses[f->gathers];
    if (use->issue != item) return;
    const ot_reduce_request request = {
        .graph = f->graph, .schedule = b->schedule, .block = use->block};
    ot_segment segment;
    ot_reduce_gather_weight(&request, b->arena, &segment);
    ot_entry *const entry =
        add_entry(f, ot_build_add_segment(b, &segment), use->block, OT_LANE_GATHER);
    entry->base[OT_BASE_WEIGHT_PIECE] = b->pieces[use->block];
    entry->base[OT_BASE_WEIGHT] = f->gathered[f->gathers];
    f->gather_entry[f->gathers] = f->order->num_entries - 1;
  }
}

// Adds the message before or after `block`, at the edge of its chunk; returns its entry.
static int add_message(forward_builder *f, ot_op_kind op, int block, int64_t at) {
  ot_build *const b = f->b;
  const int chunk = ot_stages_chunk(&b->stages, block);
  const int stage = b->stages.rank_of[op == OT_OP_SEND ? chunk + 1 : chunk - 1];
  const int64_t bytes = ot_build_edge_bytes(f->graph, op == OT_OP_SEND ? block + 1 : block);
  const ot_base plain = op == OT_OP_SEND ? OT_BASE_OUTPUT : OT_BASE_INPUT;
  const ot_message message = {
      .graph = f->graph,
      .op = op,
      .base = f->stack < 0 ? plain : OT_BASE_STACK,
      .group = b->serves ? OT_GROUP_WORLD : OT_GROUP_STAGES,
      .peer = b->serves ? b->stage_ranks[stage] : stage,
      .elements = bytes / ot_dtype_bytes(f->graph->request.storage),
  };
  ot_segment segment;
  ot_tasks_message(&message, b->schedule, b->arena, &segment);
  ot_entry *const entry = add_entry(f, ot_build_add_segment(b, &segment), block, OT_LANE_PIPELINE);
  entry->micro_batch = 0;
  entry->base[message.base] = at;
  return f->order->num_entries - 1;
}

static void bind_gathered(forward_builder *f, const ot_step_item *item, ot_entry *entry) {
  if (item->gather >= 0) {
    entry->base[OT_BASE_WEIGHT] = f->gathered[item->gather];
    entry->wait[OT_LANE_GATHER] = f->gather_entry[item->gather];
  }
  if (item->tied_gather < 0) return;
  entry->base[OT_BASE_TIED] = f->gathered[item->tied_gather];
  if (f->gather_entry[item->tied_gather] > entry->wait[OT_LANE_GATHER]) {
    entry->wait[OT_LANE_GATHER] = f->gather_entry[item->tied_gather];
  }
}

static bool is_mine(const forward_builder *f, int chunk) {
  const ot_stages *const stages = &f->b->stages;
  return chunk >= 0 && chunk < stages->num_chunks && stages->rank_of[chunk] == f->b->stage;
}

// Offset of the message at the pipeline boundary before `block`: contiguous with the stack.
static int64_t edge_at(const forward_builder *f, int block) {
  if (f->stack < 0) return f->hand[block % 2];
  const int64_t hidden = ot_build_hidden_bytes(f->graph);
  return f->stack + (ot_build_input_bytes(f->graph, block) > 0 ? 0 : hidden);
}

// Copies the output of `block`, at the end of its chunk, before the stack.
static void bring_home(forward_builder *f, int block) {
  const int64_t bytes = ot_build_output_bytes(f->graph, block);
  if (f->stack < 0 || bytes == 0) return;
  const ot_segment segment =
      ot_tasks_copy_stack(f->graph, OT_BASE_OUTPUT, OT_BASE_STACK, bytes, f->b->arena);
  ot_entry *const entry =
      add_entry(f, ot_build_add_segment(f->b, &segment), block, OT_LANE_COMPUTE);
  entry->micro_batch = 0;
  entry->base[OT_BASE_OUTPUT] = f->hand[(block + 1) % 2];
  entry->base[OT_BASE_STACK] = f->stack;
}

static void add_item(forward_builder *f, int index) {
  const ot_step_item *const item = &f->plan.items[index];
  const ot_stages *const stages = &f->b->stages;
  const int block = item->block;
  const bool first = block == stages->first_block[item->chunk];
  const bool last = block == stages->first_block[item->chunk + 1] - 1;
  const bool receives = first && item->chunk > 0 && !is_mine(f, item->chunk - 1);
  add_gathers(f, index);
  const int awaited = receives ? add_message(f, OT_OP_RECEIVE, block, edge_at(f, block)) : -1;
  ot_entry *const entry = add_entry(f, f->segments[block], block, OT_LANE_COMPUTE);
  ot_build_bind_block(f->b, entry);
  bind_gathered(f, item, entry);
  entry->micro_batch = 0;
  entry->wait[OT_LANE_PIPELINE] = awaited;
  entry->base[OT_BASE_BATCH] = f->batch;
  entry->base[OT_BASE_RESULT] = f->result;
  const int64_t in = receives ? edge_at(f, block) : f->hand[block % 2];
  entry->base[OT_BASE_INPUT] = block > 0 ? in : -1;
  entry->base[OT_BASE_OUTPUT] = f->hand[(block + 1) % 2];
  if (f->stack >= 0) entry->base[OT_BASE_STACK] = f->stack + ot_build_hidden_bytes(f->graph);
  if (!last || item->chunk + 1 == stages->num_chunks || is_mine(f, item->chunk + 1)) return;
  bring_home(f, block);
  const int sent = add_message(f, OT_OP_SEND, block, edge_at(f, block + 1));
  // The next chunk of this rank reuses the buffers.
  ot_entry *const wait = add_entry(f, f->b->nothing, -1, OT_LANE_COMPUTE);
  wait->wait[OT_LANE_PIPELINE] = sent;
}

void ot_build_forward_order(ot_build *b, ot_order_kind kind, const ot_graph *graph) {
  forward_builder f = {.b = b, .graph = graph, .kind = kind, .compute = -1};
  int64_t scratch_bytes = 0;
  f.segments = ot_arena_array(b->arena, graph->num_blocks, sizeof(int));
  ot_block_buckets *const buckets = ot_arena_array(b->arena, graph->num_blocks, sizeof *buckets);
  for (int i = 0; i < graph->num_blocks; i++) {
    buckets[i].elements = b->schedule->buckets[i].elements;
    buckets[i].gathers = ot_build_shards_weights(b, i);
    if (!b->runs[i]) continue;
    const ot_segment segment = forward_segment(b, graph, i);
    buckets[i].reads[OT_WORK_FORWARD] = ot_segment_reads(&segment, OT_BASE_WEIGHT);
    buckets[i].reads_tied[OT_WORK_FORWARD] = ot_segment_reads(&segment, OT_BASE_TIED);
    f.segments[i] = ot_build_add_segment(b, &segment);
    if (segment.scratch_bytes > scratch_bytes) scratch_bytes = segment.scratch_bytes;
  }
  f.buckets = ot_step_outline_request(b, buckets, graph->num_blocks);
  ot_step_outline_forward(&f.buckets, b->arena, &f.plan);
  place_regions(&f, scratch_bytes);
  f.order = ot_build_add_order(b, kind, 1);
  ot_segment begin;
  ot_frame_begin_forward(graph, b->arena, &begin);
  if (begin.num_tasks > 0) {
    ot_entry *const entry = add_entry(&f, ot_build_add_segment(b, &begin), -1, OT_LANE_COMPUTE);
    entry->base[OT_BASE_EXPERTS] = ot_build_at(b, OT_REGION_EXPERT_SUMS, 0, 0);
  }
  for (int i = 0; i < f.plan.num_items; i++) add_item(&f, i);
}
