// SPDX-License-Identifier: Apache-2.0
// Uses first, then places.
#include "plan/bucket_plan.h"

#include "schedule/rings.h"

typedef struct planner {
  const ot_play_request *request;
  ot_arena *arena;
  ot_bucket_plan *plan;
  int *held;      // [num_blocks] gather that holds the block's weights, -1
  int *local;     // [num_blocks] number of the block among the stage's
  int *sum;       // [local blocks * micro_batches] sum that it adds up in, -1
  int *tied_sum;  // [micro_batches]
} planner;

static const ot_block_price *price_of(const ot_play_request *r, int block) {
  return &r->prices->kind[r->prices->blocks->kind_of[block]];
}

// ---- uses ----

static int gather_for(planner *p, int item, int block) {
  ot_bucket_list *const list = &p->plan->gathers;
  const ot_play_request *const r = p->request;
  const bool reshard = ot_estimator_reshards(r->estimator, r->prices->blocks->place_of[block]);
  const int held = p->held[block];
  if (held >= 0 && !(reshard && list->uses[held].last < item - 1)) {
    list->uses[held].last = item;
    return held;
  }
  list->uses[list->count] =
      (ot_bucket_use){.block = block, .first = item, .last = item, .previous = -1};
  p->held[block] = list->count;
  return list->count++;
}

// `found` is the sum that the item's block and micro-batch add up in, or -1.
static int sum_for(ot_bucket_list *list, int *found, int item, ot_bucket_use what) {
  if (*found >= 0) {
    list->uses[*found].last = item;
    return *found;
  }
  what.issue = what.first = what.last = item;
  what.previous = -1;
  list->uses[list->count] = what;
  return *found = list->count++;
}

static void add_item(planner *p, const ot_walk_action *a, int block) {
  const ot_prices *const prices = p->request->prices;
  const ot_block_price *const price = price_of(p->request, block);
  ot_bucket_plan *const plan = p->plan;
  const int item = plan->num_items++;
  const bool head = block == prices->blocks->num_blocks - 1;
  plan->gather[item] = plan->tied_gather[item] = plan->sum[item] = plan->tied_sum[item] = -1;
  if (price->gathers && price->reads[a->work]) plan->gather[item] = gather_for(p, item, block);
  if (prices->kind[0].gathers && price->reads_tied[a->work]) {
    plan->tied_gather[item] = gather_for(p, item, 0);
  }
  if (!price->each_micro_batch) return;
  if (a->work == OT_WORK_FORWARD && !price->writes_in_forward) return;
  const ot_bucket_use own = {.block = block, .micro_batch = a->micro_batch};
  const ot_bucket_use tied = {.block = 0, .micro_batch = a->micro_batch};
  const int at = p->local[block] * p->request->walk->micro_batches + a->micro_batch;
  plan->sum[item] = sum_for(&plan->sums, &p->sum[at], item, own);
  if (head && prices->tied) {
    plan->tied_sum[item] = sum_for(&plan->tied_sums, &p->tied_sum[a->micro_batch], item, tied);
  }
}

static void add_action(planner *p, const ot_walk_action *a) {
  const ot_stages *const stages = p->request->stages;
  const int first = stages->first_block[a->chunk], end = stages->first_block[a->chunk + 1];
  for (int i = 0; i < end - first; i++) {
    add_item(p, a, a->work == OT_WORK_FORWARD ? first + i : end - 1 - i);
  }
}

// ---- places ----

static int64_t elements_of(const ot_play_request *r, const ot_bucket_use *use) {
  return price_of(r, use->block)->elements;
}

static void assign(const planner *p, const ot_bucket_list *list, int least) {
  ot_ring_use *const ring = ot_arena_array(p->arena, list->count + 1, sizeof *ring);
  int *const index = ot_arena_array(p->arena, list->count + 1, sizeof(int));
  bool *const done = ot_arena_array(p->arena, list->count + 1, sizeof(bool));
  for (int i = 0; i < list->count; i++) {
    if (done[i]) continue;
    const int64_t elements = elements_of(p->request, &list->uses[i]);
    int members = 0;
    for (int k = i; k < list->count; k++) {
      if (elements_of(p->request, &list->uses[k]) != elements) continue;
      done[k] = true;
      index[members] = k;
      ring[members++] = (ot_ring_use){.first = list->uses[k].issue, .last = list->uses[k].last};
    }
    ot_ring_assign(ring, members, least, p->arena);
    for (int k = 0; k < members; k++) {
      list->uses[index[k]].place = ring[k].place;
      list->uses[index[k]].previous = ring[k].previous < 0 ? -1 : index[ring[k].previous];
    }
  }
}

int ot_bucket_places(const ot_play_request *request, const ot_bucket_list *list, int64_t elements) {
  int places = 0;
  for (int i = 0; i < list->count; i++) {
    const bool fits = elements_of(request, &list->uses[i]) == elements;
    if (fits && list->uses[i].place >= places) places = list->uses[i].place + 1;
  }
  return places;
}

// ---- the whole ----

// Numbers the blocks of the stage; returns how many.
static int number_blocks(const ot_play_request *r, int stage, int *local) {
  int count = 0;
  for (int c = 0; c < r->stages->num_chunks; c++) {
    if (r->stages->rank_of[c] != stage) continue;
    for (int i = r->stages->first_block[c]; i < r->stages->first_block[c + 1]; i++) {
      local[i] = count++;
    }
  }
  return count;
}

static int *nothing(ot_arena *arena, int count) {
  int *const array = ot_arena_array(arena, count, sizeof(int));
  for (int i = 0; i < count; i++) array[i] = -1;
  return array;
}

void ot_bucket_plan_build(const ot_play_request *request, int stage, ot_arena *arena,
                          ot_bucket_plan *out) {
  const ot_prices *const prices = request->prices;
  *out = request->plans ? request->plans[stage] : (ot_bucket_plan){0};
  if (request->plans) return;
  if (!prices->gathers && !prices->each_micro_batch) return;
  planner p = {.request = request, .arena = arena, .plan = out};
  p.local = ot_arena_array(arena, prices->blocks->num_blocks, sizeof(int));
  const int cells = number_blocks(request, stage, p.local) * request->walk->micro_batches;
  const int items = cells * (request->walk->split ? 3 : 2);
  p.held = nothing(arena, prices->blocks->num_blocks);
  if (prices->each_micro_batch) {
    p.sum = nothing(arena, cells);
    p.tied_sum = nothing(arena, request->walk->micro_batches);
  }
  out->gather = nothing(arena, items + 1);
  out->tied_gather = nothing(arena, items + 1);
  out->sum = nothing(arena, items + 1);
  out->tied_sum = nothing(arena, items + 1);
  out->gathers.uses = ot_arena_array(arena, 2 * (int64_t)items + 1, sizeof(ot_bucket_use));
  out->sums.uses = ot_arena_array(arena, items + 1, sizeof(ot_bucket_use));
  out->tied_sums.uses = ot_arena_array(arena, items + 1, sizeof(ot_bucket_use));
  for (int i = 0; i < request->walk->num_of_rank[stage]; i++) {
    add_action(&p, &request->walk->actions[request->walk->of_rank[stage][i]]);
  }
  const int ahead = ot_estimator_prefetch(request->estimator);
  ot_bucket_use *const gathers = out->gathers.uses;
  for (int i = 0; i < out->gathers.count; i++) {
    gathers[i].issue = gathers[i >= ahead ? i - ahead : 0].first;
  }
  assign(&p, &out->gathers, 1);
  assign(&p, &out->sums, 2);
  assign(&p, &out->tied_sums, 2);
}
