// SPDX-License-Identifier: Apache-2.0
// Items first, then uses, then buffer slots.
#include "schedule/step_outline.h"

#include "schedule/buffer_pool.h"

typedef struct outliner {
  const ot_outline_request *request;
  ot_arena *arena;
  ot_step_outline *out;
  int *held;      // [num_blocks] gather that holds the block's weights, or -1
  int *local;     // [num_blocks] index of the block among the stage's blocks
  int *sum;       // [local blocks * micro_batches] reduction that it accumulates into, or -1
  int *tied_sum;  // [micro_batches]
} outliner;

static const ot_block_buckets *buckets_of(const ot_outline_request *r, int block) {
  return r->buckets[block];
}

static int *nothing(ot_arena *arena, int64_t count) {
  int *const array = ot_arena_array(arena, count + 1, sizeof(int));
  for (int64_t i = 0; i < count; i++) array[i] = -1;
  return array;
}

// ---- items ----

static void add_action(outliner *o, ot_work work, int chunk, int micro_batch, int action) {
  const int *const first = &o->request->stages->first_block[chunk];
  for (int i = 0; i < first[1] - first[0]; i++) {
    const int block = work == OT_WORK_FORWARD ? first[0] + i : first[1] - 1 - i;
    if (block >= o->request->num_blocks) return;
    o->out->items[o->out->num_items++] = (ot_step_item){.work = work,
                                                        .chunk = chunk,
                                                        .block = block,
                                                        .micro_batch = micro_batch,
                                                        .action = action,
                                                        .gather = -1,
                                                        .tied_gather = -1,
                                                        .sum = -1,
                                                        .tied_sum = -1};
  }
}

// Numbers the blocks of the stage; returns their count.
static int number_blocks(outliner *o) {
  const ot_stages *const stages = o->request->stages;
  int count = 0;
  o->local = ot_arena_array(o->arena, stages->first_block[stages->num_chunks], sizeof(int));
  for (int c = 0; c < stages->num_chunks; c++) {
    if (stages->rank_of[c] != o->request->stage) continue;
    for (int i = stages->first_block[c]; i < stages->first_block[c + 1]; i++) {
      o->local[i] = count++;
    }
  }
  return count;
}

// ---- gathers ----

// The gather that holds `block` for the item: an existing or a new one. A bucket that is released
// after use stays only from one item to the next.
static int gather_for(outliner *o, int item, int block) {
  ot_bucket_list *const list = &o->out->gathers;
  const int held = o->held[block];
  if (held >= 0 && !(o->request->reshards[block] && list->uses[held].last < item - 1)) {
    list->uses[held].last = item;
    return held;
  }
  list->uses[list->count] =
      (ot_bucket_use){.block = block, .first = item, .last = item, .previous = -1};
  o->held[block] = list->count;
  return list->count++;
}

static void add_gathers(outliner *o) {
  const ot_outline_request *const r = o->request;
  ot_bucket_list *const list = &o->out->gathers;
  bool any = false;
  for (int i = 0; i < r->num_blocks; i++) any = any || buckets_of(r, i)->gathers;
  if (!any) return;
  o->held = nothing(o->arena, r->num_blocks);
  list->uses = ot_arena_array(o->arena, 2 * (int64_t)o->out->num_items + 1, sizeof *list->uses);
  for (int i = 0; i < o->out->num_items; i++) {
    ot_step_item *const item = &o->out->items[i];
    const ot_block_buckets *const own = buckets_of(r, item->block);
    if (own->gathers && own->reads[item->work]) item->gather = gather_for(o, i, item->block);
    if (r->tied_block >= 0 && own->reads_tied[item->work] &&
        buckets_of(r, r->tied_block)->gathers) {
      item->tied_gather = gather_for(o, i, r->tied_block);
    }
  }
  for (int i = 0; i < list->count; i++) {
    list->uses[i].issue = list->uses[i >= r->prefetch ? i - r->prefetch : 0].first;
  }
}

// ---- gradients reduced after each micro-batch ----

// The bucket that accumulates a block and micro-batch: `found`, or a new one.
static int sum_for(ot_bucket_list *list, int *found, int item, int block, int micro_batch) {
  if (*found >= 0) {
    list->uses[*found].last = item;
    return *found;
  }
  list->uses[list->count] = (ot_bucket_use){.block = block,
                                            .micro_batch = micro_batch,
                                            .issue = item,
                                            .first = item,
                                            .last = item,
                                            .previous = -1};
  return *found = list->count++;
}

static void add_sums(outliner *o, int micro_batches) {
  const ot_outline_request *const r = o->request;
  ot_step_outline *const out = o->out;
  bool any = false;
  for (int i = 0; i < r->num_blocks; i++) any = any || buckets_of(r, i)->each_micro_batch;
  if (!any) return;
  o->sum = nothing(o->arena, (int64_t)number_blocks(o) * micro_batches);
  o->tied_sum = nothing(o->arena, micro_batches);
  out->sums.uses = ot_arena_array(o->arena, out->num_items + 1, sizeof *out->sums.uses);
  out->tied_sums.uses = ot_arena_array(o->arena, out->num_items + 1, sizeof *out->tied_sums.uses);
  for (int i = 0; i < out->num_items; i++) {
    ot_step_item *const item = &out->items[i];
    const ot_block_buckets *const own = buckets_of(r, item->block);
    if (!own->each_micro_batch) continue;
    if (item->work == OT_WORK_FORWARD && !own->writes_in_forward) continue;
    int *const found = &o->sum[o->local[item->block] * micro_batches + item->micro_batch];
    item->sum = sum_for(&out->sums, found, i, item->block, item->micro_batch);
    if (item->block != r->tied_user) continue;
    item->tied_sum = sum_for(&out->tied_sums, &o->tied_sum[item->micro_batch], i, r->tied_block,
                             item->micro_batch);
  }
}

// ---- buffer slots ----

static int64_t elements_of(const ot_outline_request *r, const ot_bucket_use *use) {
  return buckets_of(r, use->block)->elements;
}

// Assigns slots in the buffers of each size, at least `least`. Uses are sorted by `issue`.
static void assign(const outliner *o, const ot_bucket_list *list, int least) {
  ot_pool_use *const ring = ot_arena_array(o->arena, list->count + 1, sizeof *ring);
  int *const index = ot_arena_array(o->arena, list->count + 1, sizeof(int));
  bool *const done = ot_arena_array(o->arena, list->count + 1, sizeof(bool));
  for (int i = 0; i < list->count; i++) {
    if (done[i]) continue;
    const int64_t elements = elements_of(o->request, &list->uses[i]);
    int members = 0;
    for (int k = i; k < list->count; k++) {
      if (elements_of(o->request, &list->uses[k]) != elements) continue;
      done[k] = true;
      index[members] = k;
      ring[members++] = (ot_pool_use){.first = list->uses[k].issue, .last = list->uses[k].last};
    }
    ot_pool_assign(ring, members, least, o->arena);
    for (int k = 0; k < members; k++) {
      list->uses[index[k]].place = ring[k].place;
      list->uses[index[k]].previous = ring[k].previous < 0 ? -1 : index[ring[k].previous];
    }
  }
}

int ot_outline_places(const ot_outline_request *request, const ot_bucket_list *list,
                      int64_t elements) {
  int places = 0;
  for (int i = 0; i < list->count; i++) {
    const bool fits = elements_of(request, &list->uses[i]) == elements;
    if (fits && list->uses[i].place >= places) places = list->uses[i].place + 1;
  }
  return places;
}

// ---- the whole ----

void ot_step_outline_build(const ot_outline_request *request, const ot_pipeline_flow *flow,
                           ot_arena *arena, ot_step_outline *out) {
  enum { SUM_BUFFERS = 2 };  // one is written while the other is being reduced
  const int *const first = request->stages->first_block;
  const int stage = request->stage, actions = flow->num_of_rank[stage];
  outliner o = {.request = request, .arena = arena, .out = out};
  int64_t items = 0;
  *out = (ot_step_outline){.first_item = ot_arena_array(arena, actions + 1, sizeof(int))};
  for (int i = 0; i < actions; i++) {
    const int chunk = flow->actions[flow->of_rank[stage][i]].chunk;
    items += first[chunk + 1] - first[chunk];
  }
  out->items = ot_arena_array(arena, items + 1, sizeof *out->items);
  for (int i = 0; i < actions; i++) {
    const ot_flow_action *const a = &flow->actions[flow->of_rank[stage][i]];
    out->first_item[i] = out->num_items;
    add_action(&o, a->work, a->chunk, a->micro_batch, i);
  }
  out->first_item[actions] = out->num_items;
  add_gathers(&o);
  add_sums(&o, flow->micro_batches);
  assign(&o, &out->gathers, 1);
  assign(&o, &out->sums, SUM_BUFFERS);
  assign(&o, &out->tied_sums, SUM_BUFFERS);
}

void ot_step_outline_forward(const ot_outline_request *request, ot_arena *arena,
                             ot_step_outline *out) {
  const ot_stages *const stages = request->stages;
  outliner o = {.request = request, .arena = arena, .out = out};
  *out = (ot_step_outline){.items =
                               ot_arena_array(arena, request->num_blocks + 1, sizeof *out->items)};
  for (int chunk = 0, action = 0; chunk < stages->num_chunks; chunk++) {
    if (stages->rank_of[chunk] != request->stage) continue;
    add_action(&o, OT_WORK_FORWARD, chunk, 0, action++);
  }
  add_gathers(&o);
  assign(&o, &out->gathers, 1);
}
