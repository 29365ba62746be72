// SPDX-License-Identifier: Apache-2.0
// The regions of an arena in the order in which build.c and step_memory.c place them, as sizes
// only. What a parameter takes is the recipe's; with the recipe that this program trains in, the
// sum is that of the schedule, to the byte.
#include "plan/bucket_plan.h"
#include "plan/memory.h"
#include "schedule/layout.h"
#include "schedule/segment.h"
#include "schedule/step_plan.h"

typedef struct bill {
  const ot_play_request *request;
  const ot_prices *prices;
  const ot_estimator *estimator;
  int stage;
  ot_memory_estimate *out;
  int64_t top, end;  // as ot_region_map: where the next region goes, and where the last one ends
} bill;

// A region; returns what it takes.
static void add(bill *b, int64_t *class, int64_t bytes) {
  if (b->top + bytes > b->end) b->end = b->top + bytes;
  b->top += ot_align(bytes);
  *class += ot_align(bytes);
}

// `count` buffers of `bytes` in one region.
static void add_ring(bill *b, int64_t *class, int64_t bytes, int count) {
  if (count > 0) add(b, class, (count - 1) * ot_align(bytes) + bytes);
}

static int kind_of(const bill *b, int block) { return b->estimator->kind_of[block]; }

static const ot_block_price *price_of(const bill *b, int block) {
  return &b->prices->kind[kind_of(b, block)];
}

static bool runs(const bill *b, int block) {
  return b->request->stages->rank_of[ot_stages_chunk(b->request->stages, block)] == b->stage;
}

static bool has_head(const bill *b) { return runs(b, b->estimator->num_blocks - 1); }

// The head's stage holds a copy of the embedding that it is tied to.
static bool holds(const bill *b, int block) {
  return runs(b, block) || (block == 0 && b->prices->tied && has_head(b));
}

static int64_t bytes_of(double bytes_each, int64_t elements) {
  return (int64_t)(bytes_each * (double)elements);
}

// ---- what stays ----

static void add_weights(bill *b) {
  const double each = b->estimator->job.recipe.weight_bytes;
  for (int i = 0; i < b->estimator->num_blocks; i++) {
    if (!holds(b, i)) continue;
    const ot_bucket *const bucket = b->prices->phases.blocks[kind_of(b, i)].bucket;
    const bool cut = b->prices->phases.gathers;
    add(b, &b->out->weights, bytes_of(each, cut ? bucket->piece_elements : bucket->elements));
  }
}

static void add_states(bill *b) {
  const ot_step_phases *const phases = &b->prices->phases;
  const ot_recipe *const recipe = &b->estimator->job.recipe;
  for (int i = 0; i < b->estimator->num_blocks; i++) {
    if (!holds(b, i)) continue;
    const ot_bucket *const bucket = phases->blocks[kind_of(b, i)].bucket;
    const int64_t state = phases->shards ? bucket->piece_elements : bucket->elements;
    const bool cut = phases->each_micro_batch && phases->shards;
    add(b, &b->out->gradients,
        bytes_of(recipe->gradient_bytes, cut ? bucket->piece_elements : bucket->elements));
    add(b, &b->out->optimizer, bytes_of(recipe->moment_bytes / 2, state));
    add(b, &b->out->optimizer, bytes_of(recipe->moment_bytes / 2, state));
    if (recipe->master_bytes > 0) {
      add(b, &b->out->optimizer, bytes_of(recipe->master_bytes, state));
    }
  }
  if (!b->prices->tied || !has_head(b) || !runs(b, 0)) return;
  const ot_bucket *const owner = phases->blocks[0].bucket;
  add(b, &b->out->gradients,
      bytes_of(recipe->gradient_bytes,
               phases->each_micro_batch ? owner->piece_elements : owner->elements));
}

static int64_t constant_bytes(const ot_graph *graph) {
  int64_t bytes = 0;
  for (int i = 0; i < graph->num_constants; i++) {
    bytes += ot_align(ot_type_bytes(&graph->constants[i].type));
  }
  return bytes;
}

static void add_tables(bill *b) {
  const ot_step_phases *const phases = &b->prices->phases;
  const int64_t slots = (int64_t)b->estimator->num_parts * phases->schedule.slots_per_part;
  int64_t *const buffers = &b->out->buffers;
  add(b, buffers, OT_STEP_SCALARS * 8);
  add(b, buffers, (int64_t)b->estimator->num_blocks * OT_BLOCK_STATISTICS * 8);
  add(b, buffers, slots * 8);
  add(b, buffers, slots * 16);
  add(b, buffers, constant_bytes(phases->graph));
}

// ---- what a step uses ----

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t scratch_of(const ot_segment *segment) {
  return segment && segment->num_tasks > 0 ? segment->scratch_bytes : 0;
}

// Of the lanes: kernels, and what travels.
static void find_scratch(const bill *b, int64_t *scratch, int64_t *staging) {
  const ot_step_phases *const phases = &b->prices->phases;
  *scratch = b->prices->frame_scratch_bytes;
  *staging = 0;
  for (int i = 0; i < b->estimator->num_blocks; i++) {
    if (!holds(b, i)) continue;
    const ot_block_phases *const block = &phases->blocks[kind_of(b, i)];
    const ot_segment *const works[] = {block->forward[0],  block->forward[1],  block->recompute,
                                       block->backward[0], block->backward[1], block->weight[0],
                                       block->weight[1],   block->norm,        block->update};
    const ot_segment *const moves[] = {block->reduce[0][0], block->reduce[0][1],
                                       block->reduce[1][0], block->reduce[1][1],
                                       block->gather,       block->spread};
    for (int k = 0; k < OT_COUNT(works); k++) {
      const bool update = k >= OT_COUNT(works) - 2;
      if (runs(b, i) || update) *scratch = larger(*scratch, scratch_of(works[k]));
    }
    for (int k = 0; k < OT_COUNT(moves); k++) *staging = larger(*staging, scratch_of(moves[k]));
  }
  if (!b->prices->tied || (!runs(b, 0) && !has_head(b))) return;
  for (int i = 0; i < 4 && has_head(b); i++) {
    *staging = larger(*staging, scratch_of(phases->tied_reduce[i / 2][i % 2]));
  }
  int64_t *const tie = b->prices->tied_apart ? staging : scratch;
  *tie = larger(*tie, scratch_of(phases->tie));
}

static void add_messages(bill *b) {
  if (b->request->walk->num_ranks < 2) return;
  for (int i = 0; i < 2 * b->request->walk->send_buffers; i++) {
    add(b, &b->out->buffers, b->prices->hidden_bytes);
  }
}

// Rings of buckets, one for each size.
static void add_buckets(bill *b, ot_arena *arena) {
  const ot_step_phases *const phases = &b->prices->phases;
  const ot_recipe *const recipe = &b->estimator->job.recipe;
  ot_bucket_plan plan;
  if (!phases->gathers && !phases->each_micro_batch) return;
  ot_bucket_plan_build(b->request, b->stage, arena, &plan);
  const int n = b->estimator->num_blocks;
  int64_t *const made = ot_arena_array(arena, 2 * (int64_t)b->estimator->num_kinds, sizeof *made);
  int num_made = 0;
  for (int i = 0; i < n; i++) {
    if (!holds(b, i)) continue;
    const int64_t elements = price_of(b, i)->elements;
    int k = 0;
    while (k < num_made && made[k] != elements) k++;
    if (k < num_made) continue;
    made[num_made++] = elements;
    if (phases->gathers) {
      add_ring(b, &b->out->gathered, bytes_of(recipe->gather_bytes, elements),
               ot_bucket_places(b->request, &plan.gathers, elements));
    }
    if (phases->each_micro_batch) {
      add_ring(b, &b->out->gradients, bytes_of(recipe->gradient_bytes, elements),
               ot_bucket_places(b->request, &plan.sums, elements));
    }
  }
  if (!phases->each_micro_batch || !b->prices->tied || !has_head(b)) return;
  const int64_t elements = price_of(b, 0)->elements;
  add_ring(b, &b->out->gradients, bytes_of(recipe->gradient_bytes, elements),
           ot_bucket_places(b->request, &plan.tied_sums, elements));
}

static void add_block(bill *b, int block) {
  static const ot_step_ring rings[] = {OT_RING_SHORT, OT_RING_LONG, OT_RING_WEIGHT};
  const ot_stages *const stages = b->request->stages;
  const ot_walk *const walk = b->request->walk;
  const ot_storage *const storage = b->prices->phases.blocks[kind_of(b, block)].storage;
  const int chunk = ot_stages_chunk(stages, block);
  const bool first = block == stages->first_block[chunk];
  const bool last = block == stages->first_block[chunk + 1] - 1;
  const ot_step_ring in = first                                 ? OT_RING_INPUT
                          : price_of(b, block)->weights_read_in ? OT_RING_LONG
                                                                : OT_RING_SHORT;
  int64_t *const class = &b->out->activations;
  const int64_t hidden = b->prices->hidden_bytes;
  if (storage->program->input >= 0) add_ring(b, class, hidden, walk->ring[in][chunk]);
  for (int i = 0; i < OT_SLOT_CLASSES; i++) {
    if (storage->slot_bytes[i] == 0) continue;
    add_ring(b, class, storage->slot_bytes[i], walk->ring[rings[i]][chunk]);
  }
  if (storage->program->d_output >= 0 && (last || walk->split)) {
    add_ring(b, class, hidden, walk->ring[last ? OT_RING_D_OUTPUT : OT_RING_WEIGHT][chunk]);
  }
}

void ot_memory_own_build(const ot_play_request *request, int stage, ot_arena *arena,
                         ot_memory_estimate *out) {
  bill b = {.request = request,
            .prices = request->prices,
            .estimator = request->estimator,
            .stage = stage,
            .out = out};
  int64_t scratch, staging;
  add_weights(&b);
  add_states(&b);
  add_tables(&b);
  find_scratch(&b, &scratch, &staging);
  add(&b, &out->buffers,
      ot_segment_batch_bytes(request->prices->phases.graph) * request->walk->micro_batches);
  add(&b, &out->buffers, scratch);
  add(&b, &out->buffers, staging);
  add_messages(&b);
  add_buckets(&b, arena);
  for (int i = 0; i < request->estimator->num_blocks; i++) {
    if (runs(&b, i)) add_block(&b, i);
  }
  for (int i = 0; i < 2 && !request->walk->split; i++) {
    add(&b, &out->activations, request->prices->hidden_bytes);
  }
  out->peak = b.end;
}
