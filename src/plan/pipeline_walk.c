// SPDX-License-Identifier: Apache-2.0
// Pipeline orders as one list that can be played front to back, with messages numbered and buffers
// taken in turn as order_step.c does: a receive begins when the action before the last one before
// its reader is done, and an action waits until the message before leaves the buffer that it takes.
#include <assert.h>

#include "describe/pipeline_rules.h"
#include "pipeline/order_buffers.h"
#include "plan/estimator.h"
#include "schedule/step_plan.h"

static_assert((int)OT_WALK_RINGS == (int)OT_RINGS, "one count for each ring");

enum { FORWARD, BACKWARD, DIRECTIONS, LEAST_SEND_BUFFERS = 2 };

typedef struct walker {
  const ot_pipeline_order *order;
  ot_walk *walk;
  int *position;         // [num_ranks] actions done
  bool *sent, *awaited;  // [num_messages]
  int32_t **sends;       // [num_ranks * DIRECTIONS] messages in their order
  int *num_sends;        // [num_ranks * DIRECTIONS]
  int *place[OT_WORKS];  // [num_chunks * micro_batches] index of the action in its rank's list
} walker;

// ---- messages ----

static int32_t message_into(const ot_pipeline_order *o, int chunk, int micro_batch, int direction) {
  return (int32_t)(((int64_t)chunk * o->micro_batches + micro_batch) * DIRECTIONS + direction);
}

static bool crosses(const ot_pipeline_order *o, int chunk, int other) {
  return other >= 0 && other < o->num_chunks && o->rank_of[chunk] != o->rank_of[other];
}

static int direction_of(const ot_action *a) {
  return a->kind == OT_ACTION_FORWARD ? FORWARD : BACKWARD;
}

static int32_t read_by(const ot_pipeline_order *o, int rank, int index) {
  if (index >= o->num_actions[rank]) return -1;
  const ot_action *const a = &o->actions[rank][index];
  const int from = direction_of(a) == FORWARD ? a->chunk - 1 : a->chunk + 1;
  if (a->kind == OT_ACTION_WEIGHT || !crosses(o, a->chunk, from)) return -1;
  return message_into(o, a->chunk, a->micro_batch, direction_of(a));
}

static int32_t made_by(const ot_pipeline_order *o, const ot_action *a) {
  const int to = direction_of(a) == FORWARD ? a->chunk + 1 : a->chunk - 1;
  if (a->kind == OT_ACTION_WEIGHT || !crosses(o, a->chunk, to)) return -1;
  return message_into(o, to, a->micro_batch, direction_of(a));
}

// ---- the list ----

static ot_work work_of(ot_action_kind kind) {
  if (kind == OT_ACTION_FORWARD) return OT_WORK_FORWARD;
  return kind == OT_ACTION_WEIGHT ? OT_WORK_WEIGHT : OT_WORK_BACKWARD;
}

static void await(walker *w, int32_t message) {
  if (message >= 0) w->awaited[message] = true;
}

// Appends the next action of the rank; false when it must wait.
static bool advance(walker *w, int rank) {
  const ot_pipeline_order *const o = w->order;
  const int index = w->position[rank];
  if (index >= o->num_actions[rank]) return false;
  const ot_action *const a = &o->actions[rank][index];
  const int list = rank * DIRECTIONS + direction_of(a);
  const int before = w->num_sends[list] - w->walk->send_buffers;
  ot_walk_action made = {.rank = rank,
                         .chunk = a->chunk,
                         .micro_batch = a->micro_batch,
                         .in = read_by(o, rank, index),
                         .out = made_by(o, a),
                         .reuse = -1,
                         .posts = read_by(o, rank, index + 2),
                         .work = work_of(a->kind)};
  if (made.out >= 0 && before >= 0) made.reuse = w->sends[list][before];
  if (made.in >= 0 && !w->sent[made.in]) return false;
  if (made.reuse >= 0 && !w->awaited[made.reuse]) return false;
  if (made.out >= 0) {
    w->sends[list][w->num_sends[list]++] = made.out;
    w->sent[made.out] = true;
  }
  await(w, made.posts);
  w->walk->of_rank[rank][index] = (int32_t)w->walk->num_actions;
  w->walk->actions[w->walk->num_actions++] = made;
  w->position[rank]++;
  return true;
}

static void create(walker *w, ot_arena *scratch) {
  const ot_pipeline_order *const o = w->order;
  w->position = ot_arena_array(scratch, o->num_ranks, sizeof(int));
  w->sent = ot_arena_array(scratch, w->walk->num_messages, sizeof(bool));
  w->awaited = ot_arena_array(scratch, w->walk->num_messages, sizeof(bool));
  w->sends = ot_arena_array(scratch, (int64_t)o->num_ranks * DIRECTIONS, sizeof(int32_t *));
  w->num_sends = ot_arena_array(scratch, (int64_t)o->num_ranks * DIRECTIONS, sizeof(int));
  for (int i = 0; i < o->num_ranks * DIRECTIONS; i++) {
    w->sends[i] = ot_arena_array(scratch, o->num_actions[i / DIRECTIONS] + 1, sizeof(int32_t));
  }
  for (int rank = 0; rank < o->num_ranks; rank++) {
    for (int i = 0; i < 2; i++) {
      w->walk->first_posts[2 * rank + i] = read_by(o, rank, i);
      await(w, read_by(o, rank, i));
    }
  }
}

static void list_actions(walker *w) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < w->order->num_ranks; rank++) {
      while (advance(w, rank)) moved = true;
    }
  }
}

// ---- what is kept ----

static void find_places(walker *w, ot_arena *scratch) {
  const ot_pipeline_order *const o = w->order;
  const int64_t cells = (int64_t)o->num_chunks * o->micro_batches;
  for (int i = 0; i < OT_WORKS; i++) w->place[i] = ot_arena_array(scratch, cells, sizeof(int));
  for (int rank = 0; rank < o->num_ranks; rank++) {
    for (int i = 0; i < o->num_actions[rank]; i++) {
      const ot_action *const a = &o->actions[rank][i];
      w->place[work_of(a->kind)][(int64_t)a->chunk * o->micro_batches + a->micro_batch] = i;
    }
  }
}

static int place_of(const walker *w, ot_work work, int chunk, int micro_batch) {
  const bool apart = w->order->split || work != OT_WORK_WEIGHT;
  const ot_work found = apart ? work : OT_WORK_BACKWARD;
  return w->place[found][(int64_t)chunk * w->order->micro_batches + micro_batch];
}

// From when on what enters the chunk is held, forwards or backwards: as plan_micro_batch of
// step_plan.c.
static int entered(const walker *w, ot_work work, int chunk, int micro_batch) {
  const ot_pipeline_order *const o = w->order;
  const int from = work == OT_WORK_FORWARD ? chunk - 1 : chunk + 1;
  const int here = place_of(w, work, chunk, micro_batch);
  if (from < 0 || from >= o->num_chunks) return here;
  if (!crosses(o, chunk, from)) return place_of(w, work, from, micro_batch);
  return here > 0 ? here - 1 : 0;
}

// The most uses [first, last] of a chunk at once; both ascend with the micro-batch.
static int most_at_once(const walker *w, ot_step_ring ring, int chunk) {
  int most = 0, over = 0;
  for (int i = 0; i < w->order->micro_batches; i++) {
    int first;
    switch (ring) {
      case OT_RING_WEIGHT:
        first = place_of(w, OT_WORK_BACKWARD, chunk, i);
        break;
      case OT_RING_INPUT:
        first = entered(w, OT_WORK_FORWARD, chunk, i);
        break;
      case OT_RING_D_OUTPUT:
        first = entered(w, OT_WORK_BACKWARD, chunk, i);
        break;
      default:
        first = place_of(w, OT_WORK_FORWARD, chunk, i);
    }
    const ot_work last = ring == OT_RING_SHORT ? OT_WORK_BACKWARD : OT_WORK_WEIGHT;
    while (place_of(w, last, chunk, over) < first) over++;
    if (i + 1 - over > most) most = i + 1 - over;
  }
  return most;
}

static void count_rings(walker *w, ot_arena *arena) {
  for (int r = 0; r < OT_WALK_RINGS; r++) {
    w->walk->ring[r] = ot_arena_array(arena, w->order->num_chunks, sizeof(int));
    for (int c = 0; c < w->order->num_chunks; c++) {
      w->walk->ring[r][c] = most_at_once(w, (ot_step_ring)r, c);
    }
  }
}

// ---- what stays ----

static void count_pairs(const walker *w, ot_arena *arena, ot_arena *scratch) {
  ot_walk *const walk = w->walk;
  const ot_walk_action **const before =
      ot_arena_array(scratch, walk->num_ranks, sizeof(ot_walk_action *));
  walk->turns = ot_arena_array(arena, walk->num_chunks, sizeof(int));
  walk->repeats = ot_arena_array(arena, walk->num_chunks, sizeof(int));
  for (int64_t i = 0; i < walk->num_actions; i++) {
    const ot_walk_action *const a = &walk->actions[i], *const last = before[a->rank];
    before[a->rank] = a;
    if (!last || last->chunk != a->chunk) continue;
    if (a->work == OT_WORK_WEIGHT || last->work == OT_WORK_WEIGHT) continue;
    (a->work == last->work ? walk->repeats : walk->turns)[a->chunk]++;
  }
}

// ---- the whole ----

static ot_status build(const ot_pipeline_request *request, ot_arena *arena, ot_arena *scratch,
                       ot_walk *walk) {
  ot_pipeline_order order;
  OT_TRY(ot_pipeline_order_build(request, scratch, &order));
  *walk = (ot_walk){.kind = request->kind,
                    .num_ranks = order.num_ranks,
                    .num_chunks = order.num_chunks,
                    .micro_batches = order.micro_batches,
                    .split = order.split,
                    .rank_of = request->rank_of,
                    .send_buffers = ot_order_send_buffers(&order, LEAST_SEND_BUFFERS, scratch),
                    .num_messages = (int64_t)order.num_chunks * order.micro_batches * DIRECTIONS};
  int64_t actions = 0;
  walk->of_rank = ot_arena_array(arena, order.num_ranks, sizeof *walk->of_rank);
  walk->num_of_rank = ot_arena_array(arena, order.num_ranks, sizeof *walk->num_of_rank);
  for (int rank = 0; rank < order.num_ranks; rank++) {
    const int count = walk->num_of_rank[rank] = order.num_actions[rank];
    walk->of_rank[rank] = ot_arena_array(arena, count + 1, sizeof **walk->of_rank);
    actions += count;
  }
  walk->actions = ot_arena_array(arena, actions + 1, sizeof *walk->actions);
  walk->first_posts = ot_arena_array(arena, 2 * (int64_t)order.num_ranks, sizeof(int32_t));
  walker w = {.order = &order, .walk = walk};
  create(&w, scratch);
  list_actions(&w);
  OT_CHECK(walk->num_actions == actions, OT_BUG, "plan: %s over %d stages stops after %lld actions",
           ot_pipeline_name(walk->kind), walk->num_ranks, (long long)walk->num_actions);
  find_places(&w, scratch);
  count_rings(&w, arena);
  count_pairs(&w, arena, scratch);
  return OT_OK;
}

ot_status ot_walk_find(ot_estimator *e, const ot_candidate *candidate, const ot_stages *stages,
                       const ot_walk **out) {
  for (int64_t i = 0; i < e->num_walks; i++) {
    const ot_walk *const made = e->walks[i];
    *out = made;
    if (made->kind == candidate->pipeline && made->num_ranks == stages->num_ranks &&
        made->num_chunks == stages->num_chunks && made->micro_batches == candidate->micro_batches) {
      return OT_OK;
    }
  }
  ot_walk *const made = ot_arena_array(e->arena, 1, sizeof *made);
  const ot_pipeline_request request = {.kind = candidate->pipeline,
                                       .num_ranks = stages->num_ranks,
                                       .num_chunks = stages->num_chunks,
                                       .micro_batches = (int)candidate->micro_batches,
                                       .rank_of = stages->rank_of};
  ot_arena scratch = ot_arena_pool_begin(&e->pool);
  OT_TRY(build(&request, e->arena, &scratch, made));
  e->walks = ot_arena_grow(e->arena, e->walks, e->num_walks, &e->walks_capacity, sizeof(ot_walk *));
  e->walks[e->num_walks++] = made;
  *out = made;
  return OT_OK;
}
