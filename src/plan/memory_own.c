// SPDX-License-Identifier: Apache-2.0
// The regions of an arena in the order in which build.c and step_memory.c place them, as sizes
// only. What a parameter takes is the recipe's; with the recipe that this program trains in, the
// sum is that of the schedule, to the byte.
#include "base/extremes.h"
#include "plan/memory.h"
#include "schedule/layout.h"
#include "schedule/step_outline.h"

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

static const ot_block_price *price_of(const bill *b, int block) {
  return &b->prices->kind[b->prices->blocks->kind_of[block]];
}

static int num_blocks(const bill *b) { return b->prices->blocks->num_blocks; }

static bool runs(const bill *b, int block) { return b->request->cut->stage_of[block] == b->stage; }

static bool has_head(const bill *b) { return runs(b, num_blocks(b) - 1); }

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
  for (int i = 0; i < num_blocks(b); i++) {
    if (!holds(b, i)) continue;
    const ot_block_price *const price = price_of(b, i);
    add(b, &b->out->weights,
        bytes_of(each, price->buckets.gathers ? price->piece_elements : price->buckets.elements));
  }
}

static void add_states(bill *b) {
  const ot_recipe *const recipe = &b->estimator->job.recipe;
  for (int i = 0; i < num_blocks(b); i++) {
    if (!holds(b, i)) continue;
    const ot_block_price *const bucket = price_of(b, i);
    const int64_t state = bucket->shards ? bucket->piece_elements : bucket->buckets.elements;
    const bool cut = bucket->buckets.each_micro_batch && bucket->shards;
    add(b, &b->out->gradients,
        bytes_of(recipe->gradient_bytes, cut ? bucket->piece_elements : bucket->buckets.elements));
    add(b, &b->out->optimizer, bytes_of(recipe->moment_bytes / 2, state));
    add(b, &b->out->optimizer, bytes_of(recipe->moment_bytes / 2, state));
    if (recipe->master_bytes > 0) {
      add(b, &b->out->optimizer, bytes_of(recipe->master_bytes, state));
    }
  }
  if (!b->prices->tied || !has_head(b) || !runs(b, 0)) return;
  const ot_block_price *const owner = price_of(b, 0);
  add(b, &b->out->gradients,
      bytes_of(recipe->gradient_bytes,
               owner->buckets.each_micro_batch ? owner->piece_elements : owner->buckets.elements));
}

static void add_tables(bill *b) {
  int64_t *const buffers = &b->out->buffers;
  add(b, buffers, OT_STEP_SCALARS * 8);
  add(b, buffers, (int64_t)num_blocks(b) * OT_BLOCK_STATISTICS * 8);
  if (b->estimator->job.model->moe.num_experts > 0) {
    add(b, buffers, (int64_t)num_blocks(b) * OT_EXPERT_SUMS * 8);
  }
  add(b, buffers, b->prices->norm_slots * 8);
  add(b, buffers, b->prices->norm_slots * 16);
  add(b, buffers, b->prices->constant_bytes);
}

// ---- what a step uses ----

// Of the lanes: kernels, and what travels.
static void find_scratch(const bill *b, int64_t *scratch, int64_t *staging) {
  const ot_prices *const prices = b->prices;
  *scratch = prices->frame_scratch;
  *staging = 0;
  for (int i = 0; i < num_blocks(b); i++) {
    if (!holds(b, i)) continue;
    if (runs(b, i)) *scratch = ot_larger_whole(*scratch, price_of(b, i)->work_scratch);
    *scratch = ot_larger_whole(*scratch, price_of(b, i)->update_scratch);
    *staging = ot_larger_whole(*staging, price_of(b, i)->staging);
  }
  if (!prices->tied || (!runs(b, 0) && !has_head(b))) return;
  if (has_head(b)) *staging = ot_larger_whole(*staging, prices->tied_staging);
  *scratch = ot_larger_whole(*scratch, prices->tie_scratch);
  *staging = ot_larger_whole(*staging, prices->tie_staging);
}

// The largest message that the stage sends, 0 for none.
static int64_t message_bytes(const bill *b, bool backward) {
  const ot_stages *const stages = b->request->stages;
  int64_t most = 0;
  for (int c = 0; c < stages->num_chunks; c++) {
    if (!ot_stages_chunk_sends(stages, c, b->stage, backward)) continue;
    const ot_block_price *const cut = price_of(b, stages->first_block[backward ? c : c + 1]);
    most = ot_larger_whole(most, (int64_t)ot_price_edge_bytes(b->prices, cut));
  }
  return most;
}

static void add_messages(bill *b) {
  const int64_t sent = message_bytes(b, false), back = message_bytes(b, true);
  for (int i = 0; i < b->request->walk->flow.send_buffers; i++) {
    if (sent > 0) add(b, &b->out->buffers, sent);
    if (back > 0) add(b, &b->out->buffers, back);
  }
}

// Sizes that have a ring.
typedef struct size_list {
  int count;
  int64_t *made;  // [count]
} size_list;

static bool is_new(size_list *list, int64_t elements) {
  for (int i = 0; i < list->count; i++) {
    if (list->made[i] == elements) return false;
  }
  list->made[list->count++] = elements;
  return true;
}

// Rings of buckets, one for each size.
static void add_buckets(bill *b, ot_arena *arena) {
  const ot_recipe *const recipe = &b->estimator->job.recipe;
  if (!b->request->outlines) return;
  const ot_step_outline *const outline = &b->request->outlines[b->stage];
  size_list gathered = {.made = ot_arena_array(arena, b->prices->blocks->num_kinds, 8)};
  size_list summed = {.made = ot_arena_array(arena, b->prices->blocks->num_kinds, 8)};
  for (int i = 0; i < num_blocks(b); i++) {
    const ot_block_price *const price = price_of(b, i);
    if (!holds(b, i)) continue;
    if (price->buckets.gathers && is_new(&gathered, price->buckets.elements)) {
      add_ring(b, &b->out->gathered, bytes_of(recipe->gather_bytes, price->buckets.elements),
               ot_outline_places(&b->request->outline, &outline->gathers, price->buckets.elements));
    }
    if (price->buckets.each_micro_batch && is_new(&summed, price->buckets.elements)) {
      add_ring(b, &b->out->gradients, bytes_of(recipe->gradient_bytes, price->buckets.elements),
               ot_outline_places(&b->request->outline, &outline->sums, price->buckets.elements));
    }
  }
  if (!price_of(b, 0)->buckets.each_micro_batch || !b->prices->tied || !has_head(b)) return;
  const int64_t elements = price_of(b, 0)->buckets.elements;
  add_ring(b, &b->out->gradients, bytes_of(recipe->gradient_bytes, elements),
           ot_outline_places(&b->request->outline, &outline->tied_sums, elements));
}

static void add_block(bill *b, int block) {
  static const ot_kept kinds[] = {OT_KEPT_SHORT, OT_KEPT_LONG, OT_KEPT_WEIGHT};
  const ot_stages *const stages = b->request->stages;
  const ot_pipeline_flow *const flow = &b->request->walk->flow;
  const ot_block_price *const price = price_of(b, block);
  const int chunk = b->request->cut->chunk_of[block];
  const bool first = block == stages->first_block[chunk];
  const bool last = block == stages->first_block[chunk + 1] - 1;
  const ot_kept in = first ? OT_KEPT_INPUT : price->weights_read_in ? OT_KEPT_LONG : OT_KEPT_SHORT;
  int64_t *const class = &b->out->activations;
  const int64_t hidden = b->prices->hidden_bytes;
  const int64_t stack = price_of(b, stages->first_block[chunk + 1] - 1)->stack_end;
  const int64_t enters = price->has_input + (first ? stack : 0);
  const int64_t returns = price->has_d_output + (last ? stack : 0);
  if (enters > 0) add_ring(b, class, enters * hidden, flow->most[in][chunk]);
  for (int i = 0; i < OT_SLOT_CLASSES; i++) {
    if (price->slot_bytes[i] == 0) continue;
    add_ring(b, class, price->slot_bytes[i], flow->most[kinds[i]][chunk]);
  }
  if (returns > 0 && (last || flow->split)) {
    add_ring(b, class, returns * hidden,
             flow->most[last ? OT_KEPT_D_OUTPUT : OT_KEPT_WEIGHT][chunk]);
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
  add(&b, &out->buffers, request->prices->batch_bytes * request->candidate->micro_batches);
  add(&b, &out->buffers, scratch);
  add(&b, &out->buffers, staging);
  add_messages(&b);
  add_buckets(&b, arena);
  for (int i = 0; i < num_blocks(&b); i++) {
    if (runs(&b, i)) add_block(&b, i);
  }
  const int n = num_blocks(&b);
  bool *const gives = ot_arena_array(arena, n, sizeof *gives);
  for (int i = 0; i < n; i++) gives[i] = price_of(&b, i)->has_d_output;
  for (int i = 0; i < 2 && !request->walk->flow.split; i++) {
    if (!ot_stages_uses_hand(request->stages, stage, i, gives)) continue;
    add(&b, &out->activations, request->prices->hidden_bytes);
  }
  out->peak = b.end;
}
