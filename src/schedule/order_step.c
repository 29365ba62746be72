// SPDX-License-Identifier: Apache-2.0
// The training step of a rank that holds every block: micro-batch by micro-batch, forward through
// the blocks and back, then tied sums, the norm, clipping and the optimizer. With one stage every
// pipeline order is this one.
#include "schedule/builder_state.h"
#include "schedule/layout.h"
#include "schedule/segment.h"
#include "schedule/update.h"

// Segments of one block; -1 where a phase has no tasks.
typedef struct block_segments {
  int forward[2];  // [first micro-batch, later]
  int recompute;
  int backward[2];  // B, or I when split
  int weight[2];    // W when split
  int norm, update;
} block_segments;

typedef struct step_builder {
  ot_build *b;
  const ot_graph *graph;
  ot_storage *storage;       // [num_blocks]
  block_segments *segments;  // [num_blocks]
  int64_t scratch_bytes;
  // Arena offsets of the step's regions.
  int64_t batch, batch_bytes, scratch;
  int64_t *slot;      // [num_blocks]
  int64_t *boundary;  // [num_blocks] activation that enters the block
  int64_t hand[2];    // gradients on their way back
} step_builder;

// ---- segments ----

static ot_recompute policy_of(const step_builder *s, int block) {
  const int layer = s->graph->blocks[block].layer;
  return layer < 0 ? OT_RECOMPUTE_NONE : ot_run_recompute(s->b->request->run, layer);
}

// Storage of a block: that of an earlier block with the same program and policy, or its own.
static void build_storage(step_builder *s, int block) {
  const ot_block *const blocks = s->graph->blocks;
  for (int i = 0; i < block; i++) {
    if (blocks[i].program != blocks[block].program || policy_of(s, i) != policy_of(s, block)) {
      continue;
    }
    s->storage[block] = s->storage[i];
    return;
  }
  const ot_storage_request request = {.program = &s->graph->programs[blocks[block].program],
                                      .recompute = policy_of(s, block),
                                      .split = s->b->request->split_backward,
                                      .guard_bytes = s->b->request->guard_bytes};
  ot_storage_build(&request, s->b->arena, &s->storage[block]);
}

static int add(step_builder *s, const ot_segment *segment) {
  if (segment->num_tasks == 0) return -1;
  if (segment->scratch_bytes > s->scratch_bytes) s->scratch_bytes = segment->scratch_bytes;
  return ot_build_add_segment(s->b, segment);
}

static int phase_segment(step_builder *s, int block, ot_phase phase, bool first) {
  const ot_segment_request request = {.graph = s->graph,
                                      .storage = &s->storage[block],
                                      .block = block,
                                      .phase = phase,
                                      .first = first};
  ot_segment segment;
  ot_segment_build(&request, s->b->arena, &segment);
  return add(s, &segment);
}

static void build_segments(step_builder *s, int block) {
  const bool split = s->b->request->split_backward;
  const ot_phase back = split ? OT_PHASE_INPUT : OT_PHASE_BACKWARD;
  block_segments *const made = &s->segments[block];
  made->recompute = phase_segment(s, block, OT_PHASE_RECOMPUTE, false);
  for (int later = 0; later < 2; later++) {
    made->forward[later] = phase_segment(s, block, OT_PHASE_FORWARD, later == 0);
    made->backward[later] = phase_segment(s, block, back, later == 0);
    made->weight[later] = split ? phase_segment(s, block, OT_PHASE_WEIGHT, later == 0) : -1;
  }
  ot_segment segment;
  ot_update_norm(s->graph, block, s->b->arena, &segment);
  made->norm = add(s, &segment);
  ot_update_apply(s->graph, s->b->request->run, block, s->b->arena, &segment);
  made->update = add(s, &segment);
}

// ---- regions ----

static int64_t transient(step_builder *s, ot_memory_class class, int64_t bytes, const char *name) {
  return ot_region_transient(&s->b->map, class, OT_ORDER_STEP, bytes, name);
}

static int64_t hidden_bytes(const ot_graph *graph) {
  const ot_graph_request *const r = &graph->request;
  return r->micro_batch_size * r->sequence_length * r->model->hidden_size *
         ot_dtype_bytes(r->storage);
}

// Scratch, whose last bytes a kernel need not touch, comes before what is always written whole, so
// that the highest byte touched is the planned peak.
static void place_regions(step_builder *s, int max_micro_batches) {
  ot_build *const b = s->b;
  const int64_t hidden = hidden_bytes(s->graph);
  ot_region_begin_order(&b->map);
  s->batch_bytes = ot_segment_batch_bytes(s->graph);
  s->batch = transient(s, OT_MEMORY_BUFFERS, s->batch_bytes * max_micro_batches, "batch");
  s->scratch = transient(s, OT_MEMORY_BUFFERS, s->scratch_bytes, "scratch");
  for (int i = 0; i < s->graph->num_blocks; i++) {
    const char *const name = s->graph->blocks[i].name;
    s->boundary[i] = i == 0 ? -1
                            : transient(s, OT_MEMORY_ACTIVATIONS, hidden,
                                        ot_arena_format(b->arena, "input.%s", name));
    s->slot[i] = transient(s, OT_MEMORY_ACTIVATIONS, s->storage[i].slot_bytes,
                           ot_arena_format(b->arena, "slot.%s", name));
  }
  s->hand[0] = transient(s, OT_MEMORY_ACTIVATIONS, hidden, "gradient.0");
  s->hand[1] = transient(s, OT_MEMORY_ACTIVATIONS, hidden, "gradient.1");
}

// ---- entries ----

static void add_phase(step_builder *s, ot_order *order, int segment, int block, int micro_batch) {
  if (segment < 0) return;
  const int n = s->graph->num_blocks;
  ot_entry *const entry = ot_build_add_entry(s->b, order, segment, block);
  ot_build_bind_block(s->b, entry);
  entry->micro_batch = micro_batch;
  entry->base[OT_BASE_BATCH] = s->batch + micro_batch * s->batch_bytes;
  entry->base[OT_BASE_SLOT] = s->slot[block];
  entry->base[OT_BASE_INPUT] = s->boundary[block];
  entry->base[OT_BASE_OUTPUT] = block + 1 < n ? s->boundary[block + 1] : -1;
  entry->base[OT_BASE_D_OUTPUT] = block + 1 < n ? s->hand[(block + 1) % 2] : -1;
  entry->base[OT_BASE_D_INPUT] = block > 0 ? s->hand[block % 2] : -1;
  entry->base[OT_BASE_SCRATCH] = s->scratch;
}

static void add_micro_batch(step_builder *s, ot_order *order, int micro_batch) {
  const int later = micro_batch > 0 ? 1 : 0;
  for (int i = 0; i < s->graph->num_blocks; i++) {
    add_phase(s, order, s->segments[i].forward[later], i, micro_batch);
  }
  for (int i = s->graph->num_blocks - 1; i >= 0; i--) {
    const block_segments *const made = &s->segments[i];
    add_phase(s, order, made->recompute, i, micro_batch);
    add_phase(s, order, made->backward[later], i, micro_batch);
    add_phase(s, order, made->weight[later], i, micro_batch);
  }
}

// Step-level work on one block, or on all (block -1).
static ot_entry *add_step(step_builder *s, ot_order *order, int segment, int block) {
  ot_build *const b = s->b;
  ot_entry *const entry = ot_build_add_entry(b, order, segment, block);
  const int first = block < 0 ? 0 : ot_update_first_part(s->graph, block);
  entry->base[OT_BASE_SQUARES] = b->squares + first * 8;
  entry->base[OT_BASE_UPDATES] = b->updates + first * 16;
  entry->base[OT_BASE_SCRATCH] = s->scratch;
  entry->base[OT_BASE_STATISTIC] = b->statistics;
  if (block < 0) return entry;
  entry->base[OT_BASE_WEIGHT] = b->weights[block];
  entry->base[OT_BASE_GRADIENT] = b->gradients[block];
  entry->base[OT_BASE_MOMENT_1] = b->moment_1[block];
  entry->base[OT_BASE_MOMENT_2] = b->moment_2[block];
  entry->base[OT_BASE_MASTER] = b->master[block];
  return entry;
}

static void add_tied(step_builder *s, ot_order *order) {
  for (int i = 0; i < s->graph->num_parameters; i++) {
    const ot_parameter *const use = &s->graph->parameters[i];
    if (use->tied_to < 0) continue;
    ot_segment segment;
    ot_update_tie(s->graph, use->block, s->b->arena, &segment);
    const int owner = s->graph->parameters[use->tied_to].block;
    ot_entry *const entry = add_step(s, order, add(s, &segment), owner);
    entry->base[OT_BASE_TIED_GRADIENT] = s->b->gradients[use->block];
  }
}

static void add_update(step_builder *s, ot_order *order) {
  const int n = s->graph->num_blocks;
  ot_segment clip;
  ot_update_clip(s->graph, s->b->request->run->optimizer.clip, s->b->arena, &clip);
  add_tied(s, order);
  for (int i = 0; i < n; i++) {
    if (s->segments[i].norm >= 0) add_step(s, order, s->segments[i].norm, i);
  }
  add_step(s, order, add(s, &clip), -1);
  for (int i = 0; i < n; i++) {
    if (s->segments[i].update >= 0) add_step(s, order, s->segments[i].update, i);
  }
}

void ot_build_step_orders(ot_build *b) {
  const ot_graph *const graph = b->request->graphs[OT_MODE_TRAIN];
  const int n = graph->num_blocks;
  step_builder s = {.b = b, .graph = graph};
  s.storage = ot_arena_array(b->arena, n, sizeof *s.storage);
  s.segments = ot_arena_array(b->arena, n, sizeof *s.segments);
  s.slot = ot_arena_array(b->arena, n, sizeof(int64_t));
  s.boundary = ot_arena_array(b->arena, n, sizeof(int64_t));
  for (int i = 0; i < n; i++) build_storage(&s, i);
  for (int i = 0; i < n; i++) build_segments(&s, i);
  int max_micro_batches = 1;
  for (int i = 0; i < b->request->num_micro_batches; i++) {
    const int count = b->request->micro_batches[i];
    if (count > max_micro_batches) max_micro_batches = count;
  }
  place_regions(&s, max_micro_batches);

  ot_segment zero;
  ot_update_begin(graph, b->arena, &zero);
  const int begin = ot_build_add_segment(b, &zero);
  for (int i = 0; i < b->request->num_micro_batches; i++) {
    ot_order *const order = ot_build_add_order(b, OT_ORDER_STEP, b->request->micro_batches[i]);
    add_step(&s, order, begin, -1);
    for (int m = 0; m < order->micro_batches; m++) add_micro_batch(&s, order, m);
    add_update(&s, order);
  }
}
