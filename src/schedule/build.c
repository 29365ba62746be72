// SPDX-License-Identifier: Apache-2.0
// Regions, then segments and orders. Orders of the step are written by order_step.c, those without
// a backward by order_forward.c.
#include "schedule/build.h"

#include "schedule/builder_state.h"
#include "schedule/layout.h"
#include "schedule/segment.h"
#include "schedule/update.h"

// ---- persistent regions ----

static int64_t bucket(ot_build *b, ot_memory_class class, const char *what, int block,
                      int64_t bytes) {
  const char *const name = ot_arena_format(b->arena, "%s.%s", what, b->shape->blocks[block].name);
  return ot_region_persistent(&b->map, class, bytes, name);
}

static void place_buckets(ot_build *b) {
  const ot_graph *const train = b->request->graphs[OT_MODE_TRAIN];
  const int64_t wide = ot_dtype_bytes(b->shape->request.compute);
  const int64_t narrow = ot_dtype_bytes(b->shape->request.storage);
  const bool master = wide != narrow;
  const int n = b->shape->num_blocks;
  for (int i = 0; i < n; i++) {
    const ot_block *const block = &b->shape->blocks[i];
    b->weights[i] = bucket(b, OT_MEMORY_WEIGHTS, "weights", i, block->weight_elements * narrow);
  }
  for (int i = 0; train && i < n; i++) {
    const ot_block *const block = &b->shape->blocks[i];
    const int64_t bytes = block->weight_elements * wide;
    b->gradients[i] =
        bucket(b, OT_MEMORY_GRADIENTS, "gradients", i, block->gradient_elements * wide);
    b->moment_1[i] = bucket(b, OT_MEMORY_OPTIMIZER, "moment_1", i, bytes);
    b->moment_2[i] = bucket(b, OT_MEMORY_OPTIMIZER, "moment_2", i, bytes);
    b->master[i] = master ? bucket(b, OT_MEMORY_OPTIMIZER, "master", i, bytes) : -1;
  }
}

static int64_t buffer(ot_build *b, const char *name, int64_t bytes) {
  return ot_region_persistent(&b->map, OT_MEMORY_BUFFERS, bytes, name);
}

static int64_t constant_bytes(const ot_graph *graph) {
  int64_t bytes = 0;
  for (int i = 0; i < graph->num_constants; i++) {
    bytes += ot_align(ot_type_bytes(&graph->constants[i].type));
  }
  return bytes;
}

static int64_t cache_bytes(const ot_graph *graph) {
  const ot_graph_request *const r = &graph->request;
  return r->micro_batch_size * r->cache_positions * 2 * r->model->num_kv_heads *
         r->model->head_dim * ot_dtype_bytes(r->storage);
}

static void place_buffers(ot_build *b) {
  const int n = b->shape->num_blocks;
  const ot_graph *const decode = b->request->graphs[OT_MODE_DECODE];
  const ot_graph *const cached = decode ? decode : b->request->graphs[OT_MODE_PREFILL];
  b->scalars = buffer(b, "scalars", OT_STEP_SCALARS * 8);
  b->statistics = buffer(b, "statistics", (int64_t)n * OT_BLOCK_STATISTICS * 8);
  b->squares = buffer(b, "squares", (int64_t)b->schedule->num_parts * 8);
  b->updates = buffer(b, "updates", (int64_t)b->schedule->num_parts * 16);
  b->constants = buffer(b, "constants", constant_bytes(b->shape));
  for (int i = 0; i < n; i++) b->caches[i] = -1;
  for (int i = 1; cached && i <= (int)cached->request.model->num_layers; i++) {
    b->caches[i] = buffer(b, ot_arena_format(b->arena, "cache.%d", i - 1), cache_bytes(cached));
  }
}

// ---- segments ----

int ot_build_add_segment(ot_build *b, const ot_segment *segment) {
  ot_schedule *const schedule = b->schedule;
  for (int i = 0; i < schedule->num_segments; i++) {
    if (schedule->segments[i].hash == segment->hash) return i;
  }
  schedule->segments = ot_arena_grow(b->arena, schedule->segments, schedule->num_segments,
                                     &b->segments_capacity, sizeof *schedule->segments);
  schedule->segments[schedule->num_segments] = *segment;
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
  entry->base[OT_BASE_SCALAR] = b->scalars;
  entry->base[OT_BASE_CONSTANT] = b->constants;
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
  entry->base[OT_BASE_STATISTIC] = b->statistics + (int64_t)block * OT_BLOCK_STATISTICS * 8;
  const ot_block *const shape = &b->shape->blocks[block];
  for (int i = 0; i < shape->num_parameters; i++) {
    const int tied_to = b->shape->parameters[shape->first_parameter + i].tied_to;
    if (tied_to >= 0) {
      entry->base[OT_BASE_TIED] = b->weights[b->shape->parameters[tied_to].block];
    }
  }
  if (b->request->graphs[OT_MODE_TRAIN]) entry->base[OT_BASE_GRADIENT] = b->gradients[block];
}

// ---- the whole ----

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

static void begin(ot_build *b) {
  ot_schedule *const schedule = b->schedule;
  *schedule = (ot_schedule){.threads = b->shape->request.threads,
                            .compute = b->shape->request.compute,
                            .num_blocks = b->shape->num_blocks,
                            .num_parts = ot_update_first_part(b->shape, b->shape->num_blocks),
                            .guard_bytes = b->request->guard_bytes};
  b->map = (ot_region_map){.schedule = schedule, .arena = b->arena};
  b->weights = offsets(b);
  b->gradients = offsets(b);
  b->moment_1 = offsets(b);
  b->moment_2 = offsets(b);
  b->master = offsets(b);
  b->caches = offsets(b);
}

// Weights of different modes must lie at the same places for them to share an arena.
static ot_status check_same_weights(const ot_graph *a, const ot_graph *b) {
  if (!b) return OT_OK;
  const int common = a->num_parameters < b->num_parameters ? a->num_parameters : b->num_parameters;
  for (int i = 0; i < common; i++) {
    const ot_parameter *const x = &a->parameters[i];
    const ot_parameter *const y = &b->parameters[i];
    OT_CHECK(
        x->block == y->block && x->offset == y->offset && x->rows == y->rows && x->cols == y->cols,
        OT_BUG, "schedule: parameter %s lies elsewhere in another mode", x->name);
  }
  OT_CHECK(constant_bytes(a) == constant_bytes(b), OT_BUG,
           "schedule: tables of two modes differ in size");
  return OT_OK;
}

// Prefill has no head, so it says where weights lie only when it is alone.
static const ot_graph *first_graph(const ot_schedule_request *request) {
  for (int mode = 0; mode < OT_MODES; mode++) {
    if (request->graphs[mode] && mode != OT_MODE_PREFILL) return request->graphs[mode];
  }
  return request->graphs[OT_MODE_PREFILL];
}

ot_status ot_schedule_build(const ot_schedule_request *request, ot_arena *arena,
                            ot_schedule *schedule) {
  ot_build b = {.request = request, .arena = arena, .schedule = schedule};
  b.shape = first_graph(request);
  OT_ASSERT(b.shape != NULL);
  for (int mode = 0; mode < OT_MODES; mode++) {
    OT_TRY(check_same_weights(b.shape, request->graphs[mode]));
  }
  begin(&b);
  place_buckets(&b);
  place_buffers(&b);
  add_setup(&b);
  for (int mode = 0; mode < OT_MODES; mode++) {
    const ot_graph *const graph = request->graphs[mode];
    if (!graph) continue;
    if (mode == OT_MODE_TRAIN) {
      ot_build_step_orders(&b);
    } else {
      ot_build_forward_order(&b, ot_order_of_mode((ot_mode)mode), graph);
    }
  }
  schedule->bill.peak_bytes = schedule->arena_bytes;
  return OT_OK;
}
