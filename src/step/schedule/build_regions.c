// SPDX-License-Identifier: Apache-2.0
// Assigns addresses to the regions of step_regions.h, and records each bucket's range in them.
#include "ops/decode.h"
#include "schedule/block_view.h"
#include "schedule/builder_state.h"
#include "schedule/layout.h"
#include "schedule/segment.h"
#include "schedule/step_plan.h"
#include "schedule/update.h"

// ---- names ----

// Names of full and sharded buckets.
static const char *const names[OT_REGION_KINDS][2] = {
    [OT_REGION_WEIGHTS] = {"weights", "piece"},
    [OT_REGION_GRADIENTS] = {"gradients", "gradient_piece"},
    [OT_REGION_MOMENT_1] = {"moment_1", "moment_1"},
    [OT_REGION_MOMENT_2] = {"moment_2", "moment_2"},
    [OT_REGION_MASTER] = {"master", "master"},
    [OT_REGION_TIED_GRADIENTS] = {"tied_gradients", "tied_piece"},
    [OT_REGION_CONSTANTS] = {"constants"},
    [OT_REGION_STATISTICS] = {"statistics"},
    [OT_REGION_UPDATES] = {"updates"},
    [OT_REGION_SQUARES] = {"squares"},
    [OT_REGION_EXPERT_SUMS] = {"expert_sums"},
    [OT_REGION_SCALARS] = {"scalars"},
    [OT_REGION_BATCH] = {"batch"},
    [OT_REGION_SCRATCH] = {"scratch"},
    [OT_REGION_STAGING] = {"staging"},
    [OT_REGION_SEND] = {"send"},
    [OT_REGION_SEND_GRADIENT] = {"send_gradient"},
    [OT_REGION_GATHERED] = {"gathered"},
    [OT_REGION_GRADIENT_PART] = {"gradient_part"},
    [OT_REGION_TIED_PART] = {"gradient_part.tied"},
    [OT_REGION_INPUT] = {"input"},
    [OT_REGION_SLOT_SHORT] = {"slot"},
    [OT_REGION_SLOT_LONG] = {"slot_long"},
    [OT_REGION_SLOT_WEIGHT] = {"slot_weight"},
    [OT_REGION_D_OUTPUT] = {"gradient", "gradient"},
    [OT_REGION_PING_PONG] = {"gradient"},
};

static bool holds_piece(const ot_build *b, const ot_region_need *need) {
  switch (need->kind) {
    case OT_REGION_WEIGHTS:
      return b->buckets[need->block].gathers;
    case OT_REGION_GRADIENTS:
      return b->buckets[need->block].each_micro_batch && b->memory[need->block].shards;
    case OT_REGION_TIED_GRADIENTS:
      return b->buckets[need->block].each_micro_batch;
    default:
      return false;
  }
}

// Counted regions are named by their number, regions of a block by the block.
static const char *name_of(const ot_build *b, const ot_region_need *need) {
  const char *const name = names[need->kind][holds_piece(b, need)];
  switch (need->kind) {
    case OT_REGION_TIED_GRADIENTS:
    case OT_REGION_TIED_PART:
      return name;
    case OT_REGION_SEND:
    case OT_REGION_SEND_GRADIENT:
    case OT_REGION_PING_PONG:
      return ot_arena_format(b->arena, "%s.%d", name, need->block);
    default:
      if (need->block < 0) return name;
      return ot_arena_format(b->arena, "%s.%s", name, b->shape->blocks[need->block].name);
  }
}

static ot_placed *placed_at(const ot_build *b, const ot_region_need *need) {
  return &b->placed[need->kind][need->block < 0 ? 0 : need->block];
}

// ---- persistent regions ----

static void add_persistent(void *to, const ot_region_need *need) {
  ot_build *const b = to;
  placed_at(b, need)->offset =
      ot_region_persistent(&b->map, need->class, need->bytes, name_of(b, need));
}

static ot_bucket_range range_of(const ot_build *b, ot_region_kind kind, int block, bool piece) {
  const ot_bucket *const bucket = &b->schedule->buckets[block];
  return (ot_bucket_range){.offset = ot_build_at(b, kind, block, 0),
                           .first = piece ? bucket->shard_first : 0,
                           .count = piece ? bucket->shard_elements : bucket->elements};
}

static void list_weights(ot_build *b, int block) {
  const int64_t size = ot_dtype_bytes(b->shape->request.storage);
  ot_bucket *const bucket = &b->schedule->buckets[block];
  const bool piece = b->buckets[block].gathers;
  bucket->copy[OT_BUCKET_WEIGHT] = range_of(b, OT_REGION_WEIGHTS, block, piece);
  const int64_t offset = bucket->copy[OT_BUCKET_WEIGHT].offset;
  b->pieces[block] = piece ? offset : offset + bucket->shard_first * size;
  if (!piece) b->weights[block] = offset;
}

static void list_gradients(ot_build *b, int block) {
  const int64_t size = ot_dtype_bytes(b->schedule->gradients);
  ot_bucket *const bucket = &b->schedule->buckets[block];
  ot_bucket_range *const range = &bucket->copy[OT_BUCKET_GRADIENT];
  const bool shards = b->memory[block].shards;
  *range = range_of(b, OT_REGION_GRADIENTS, block, shards);
  if (shards && b->buckets[block].each_micro_batch) {
    b->gradient_pieces[block] = range->offset;
    return;
  }
  b->gradients[block] = range->offset;
  b->gradient_pieces[block] = range->offset + bucket->shard_first * size;
  range->offset += range->first * size;
}

static void list_states(ot_build *b, int block) {
  ot_bucket *const bucket = &b->schedule->buckets[block];
  const bool shards = b->memory[block].shards;
  bucket->copy[OT_BUCKET_MOMENT_1] = range_of(b, OT_REGION_MOMENT_1, block, shards);
  bucket->copy[OT_BUCKET_MOMENT_2] = range_of(b, OT_REGION_MOMENT_2, block, shards);
  if (!shards) bucket->copy[OT_BUCKET_MOMENT_2].count = b->memory[block].second_moments;
  if (b->shape->request.storage == b->shape->request.compute) return;
  bucket->copy[OT_BUCKET_MASTER] = range_of(b, OT_REGION_MASTER, block, shards);
}

// A tied use has its own accumulator if its owner is on this rank, too.
static void list_tied(ot_build *b) {
  if (b->tied_user < 0) return;
  const int64_t apart = ot_build_at(b, OT_REGION_TIED_GRADIENTS, b->tied_block, 0);
  b->tied_gradients = b->gradients[b->tied_block];
  b->tied_piece = b->gradient_pieces[b->tied_block];
  if (apart < 0) return;
  const ot_bucket *const owner = &b->schedule->buckets[b->tied_block];
  b->tied_piece = apart;
  if (b->buckets[b->tied_block].each_micro_batch) return;
  b->tied_gradients = apart;
  b->tied_piece += owner->shard_first * ot_dtype_bytes(b->schedule->gradients);
}

static bool is_shard(ot_group_kind group) {
  return group == OT_GROUP_SHARD || group == OT_GROUP_EXPERT_SHARD;
}

static void need(ot_build *b, ot_bucket *bucket, ot_group_kind group, int64_t first,
                 int64_t count) {
  if (group == OT_GROUP_KINDS || ot_build_group_size(b, group) < 2) return;
  bucket->sums[bucket->num_sums++] =
      (ot_bucket_reduction){.group = group,
                            .first = first,
                            .count = count,
                            .each_micro_batch = b->accumulates_sharded && is_shard(group)};
}

// Reductions of each gradient, from the placements alone: micro-batches differ over dp and cp,
// parts state where tp has copies, and a tied parameter has uses on two stages.
static void list_sums(ot_build *b, int block) {
  ot_bucket *const bucket = &b->schedule->buckets[block];
  const ot_block *const shape = &b->shape->blocks[block];
  const int parts = ot_update_parts(b->shape, block);
  bucket->sums = ot_arena_array(b->arena, 4 + 2 * parts, sizeof *bucket->sums);
  if (b->runs[block]) {
    need(b, bucket, ot_view_kind(shape, OT_GROUP_SHARD), 0, bucket->elements);
    need(b, bucket, ot_view_kind(shape, OT_GROUP_CONTEXT_SUM), 0, bucket->elements);
    need(b, bucket, ot_view_kind(shape, OT_GROUP_REPLICATE), 0, bucket->elements);
  }
  for (int i = 0; i < shape->num_parameters; i++) {
    const int index = shape->first_parameter + i;
    const ot_parameter *const p = &b->shape->parameters[index];
    for (int k = 0; b->runs[block] && k < p->num_parts; k++) {
      const ot_parameter_part *const part = &p->parts[k];
      if (part->sum_group < 0) continue;
      need(b, bucket, (ot_group_kind)part->sum_group, p->offset + part->first_row * p->cols,
           part->rows * p->cols);
    }
    if (ot_update_is_tied_to(b->shape, p)) {
      need(b, bucket, OT_GROUP_TIED, p->offset, ot_parameter_elements(p));
    }
  }
}

static void describe_block(ot_build *b, int block) {
  const ot_block *const shape = &b->shape->blocks[block];
  const ot_group *const group = ot_view_group(b->schedule, shape, OT_GROUP_SHARD);
  const int pieces = ot_view_size(b->schedule, shape, OT_GROUP_SHARD);
  ot_bucket *const made = &b->schedule->buckets[block];
  made->elements = ot_bucket_elements(b->shape, block, pieces);
  made->shard_elements = made->elements / pieces;
  made->shard_first = pieces > 1 ? group->index * made->shard_elements : 0;
  made->counted = b->runs[block];
  b->buckets[block] = (ot_block_buckets){.elements = made->elements,
                                         .gathers = ot_build_shards_weights(b, block),
                                         .each_micro_batch = ot_build_reduces_each(b, block)};
  b->memory[block] = (ot_block_memory){
      .shard_elements = made->shard_elements,
      .second_moments = ot_update_second_moments(b->shape, block, b->request->run, made->elements),
      .shards = ot_build_shards_states(b, block)};
}

static ot_region_request request_of(const ot_build *b, const ot_outline_request *blocks) {
  const ot_graph_request *const r = &b->shape->request;
  const double storage = (double)ot_dtype_bytes(r->storage);
  const double state = (double)ot_dtype_bytes(r->compute);
  const double moment = (double)ot_dtype_bytes(ot_graph_moment_type(r));
  const ot_block_memory **const memory =
      ot_arena_array(b->arena, b->shape->num_blocks, sizeof *memory);
  for (int i = 0; i < b->shape->num_blocks; i++) memory[i] = &b->memory[i];
  return (ot_region_request){
      .blocks = blocks,
      .memory = memory,
      .bytes = {.weight = storage,
                .gathered = storage,
                .gradient = (double)ot_dtype_bytes(b->schedule->gradients),
                .moment_1 = moment,
                .moment_2 = moment,
                .master = r->storage != r->compute ? state : 0},
      .train = b->request->graphs[OT_MODE_TRAIN] != NULL,
      .experts = r->model->moe.num_experts > 0,
      .norm_slots = (int64_t)b->schedule->num_parts * b->schedule->slots_per_part,
      .constant_bytes = ot_build_constant_bytes(b->shape)};
}

// ---- tables ----

int64_t ot_build_constant_bytes(const ot_graph *graph) {
  int64_t bytes = 0;
  for (int i = 0; i < graph->num_constants; i++) {
    bytes += ot_align(ot_type_bytes(&graph->constants[i].type));
  }
  return bytes;
}

static int64_t cache_bytes(const ot_graph *graph) {
  const ot_graph_request *const r = &graph->request;
  const ot_mla *const mla = &r->model->mla;
  const int64_t heads = 2 * graph->share.kv_heads * r->model->head_dim;
  const int64_t width = mla->kv_rank > 0 ? mla->kv_rank + mla->rope_dim : heads;
  return r->cache.pages * OT_PAGE_SLOTS * width * ot_dtype_bytes(r->storage);
}

static void place_caches(ot_build *b) {
  const ot_graph *const decode = b->request->graphs[OT_MODE_DECODE];
  const ot_graph *const cached = decode ? decode : b->request->graphs[OT_MODE_PREFILL];
  for (int i = 0; cached && i < cached->num_blocks; i++) {
    const ot_block *const block = &cached->blocks[i];
    if (!b->runs[i] || block->layer < 0 || block->experts) continue;
    b->caches[i] = ot_region_persistent(&b->map, OT_MEMORY_BUFFERS, cache_bytes(cached),
                                        ot_arena_format(b->arena, "cache.%d", block->layer));
  }
}

static ot_placed *nowhere(const ot_build *b, int count) {
  ot_placed *const placed = ot_arena_array(b->arena, count + 1, sizeof *placed);
  for (int i = 0; i < count + 1; i++) placed[i].offset = -1;
  return placed;
}

void ot_build_place_persistent(ot_build *b) {
  const int n = b->shape->num_blocks;
  for (int kind = 0; kind < OT_REGION_KINDS; kind++) b->placed[kind] = nowhere(b, n);
  b->buckets = ot_arena_array(b->arena, n, sizeof *b->buckets);
  b->memory = ot_arena_array(b->arena, n, sizeof *b->memory);
  for (int i = 0; i < n; i++) {
    if (b->held[i]) describe_block(b, i);
  }
  const ot_outline_request blocks = ot_step_outline_request(b, b->buckets, n);
  const ot_region_request request = request_of(b, &blocks);
  place_caches(b);
  ot_regions_persistent(&request, b->arena, add_persistent, b);
  for (int i = 0; i < n; i++) {
    if (!b->held[i]) continue;
    list_weights(b, i);
    if (!request.train) continue;
    list_gradients(b, i);
    list_states(b, i);
    list_sums(b, i);
  }
  if (request.train) list_tied(b);
}

// ---- regions of steps ----

// Buckets of equal size share buffers.
static void share(const ot_build *b, const ot_region_need *need) {
  for (int i = 0; i < b->shape->num_blocks; i++) {
    if (!b->held[i] || b->buckets[i].elements != b->buckets[need->block].elements) continue;
    b->placed[need->kind][i] = *placed_at(b, need);
  }
}

static void add_step(void *to, const ot_region_need *need) {
  ot_build *const b = to;
  const int64_t stride = ot_align(need->bytes) + ot_align(b->schedule->guard_bytes);
  const int64_t bytes = (need->count - 1) * stride + need->bytes;
  *placed_at(b, need) = (ot_placed){
      .offset = ot_region_transient(&b->map, need->class, OT_ORDER_STEP, bytes, name_of(b, need)),
      .stride = stride,
      .kept = need->kept};
  if (need->kind == OT_REGION_GATHERED || need->kind == OT_REGION_GRADIENT_PART) share(b, need);
}

void ot_build_place_step(ot_build *b, const ot_step_needs *needs) {
  int most = 0;
  for (int i = 0; i < b->shape->num_blocks; i++) {
    const int program = needs->graph->blocks[i].program;
    ot_block_memory_describe(&needs->graph->programs[program], &needs->storage[i], &b->memory[i]);
  }
  for (int i = 0; i < needs->num_steps; i++) {
    const int buffers = needs->steps[i].flow->send_buffers;
    if (buffers > most) most = buffers;
  }
  b->placed[OT_REGION_SEND] = nowhere(b, most);
  b->placed[OT_REGION_SEND_GRADIENT] = nowhere(b, most);
  ot_region_request request = request_of(b, needs->blocks);
  request.steps = needs->steps;
  request.num_steps = needs->num_steps;
  request.hidden_bytes = ot_build_hidden_bytes(needs->graph);
  request.batch_bytes = ot_segment_batch_bytes(needs->graph);
  request.scratch_bytes = needs->scratch_bytes;
  request.staging_bytes = needs->staging_bytes;
  ot_region_begin_order(&b->map);
  ot_regions_step(&request, b->arena, add_step, b);
}
