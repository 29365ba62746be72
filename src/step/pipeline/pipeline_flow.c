// SPDX-License-Identifier: Apache-2.0
// Runs the stages in turn, each as far as possible; adds send buffers until all complete.
#include "pipeline/pipeline_flow.h"

#include <string.h>

enum { FORWARD, BACKWARD, DIRECTIONS };

typedef struct builder {
  const ot_pipeline_schedule *order;
  ot_pipeline_flow *flow;
  int *position;         // [num_ranks] actions completed
  bool *sent, *awaited;  // [num_messages]
  int32_t **sends;       // [num_ranks * DIRECTIONS] messages sent, in order
  int *num_sends;        // [num_ranks * DIRECTIONS]
} builder;

// ---- messages ----

// Index of the message into (chunk, micro_batch).
static int32_t message_into(const ot_pipeline_schedule *o, int chunk, int micro_batch,
                            int direction) {
  return (int32_t)(((int64_t)chunk * o->micro_batches + micro_batch) * DIRECTIONS + direction);
}

ot_flow_message ot_pipeline_flow_message(const ot_pipeline_flow *flow, int32_t message) {
  const int cell = message / DIRECTIONS, into = cell / flow->micro_batches;
  const bool backward = message % DIRECTIONS == BACKWARD;
  return (ot_flow_message){.from = backward ? into + 1 : into - 1,
                           .into = into,
                           .micro_batch = cell % flow->micro_batches,
                           .backward = backward,
                           .boundary = backward ? into + 1 : into};
}

static bool crosses(const ot_pipeline_schedule *o, int chunk, int other) {
  return other >= 0 && other < o->num_chunks && o->rank_of[chunk] != o->rank_of[other];
}

static int direction_of(const ot_action *a) {
  return a->kind == OT_ACTION_FORWARD ? FORWARD : BACKWARD;
}

// Message that action `index` of the rank reads, or -1.
static int32_t read_by(const ot_pipeline_schedule *o, int rank, int index) {
  if (index >= o->num_actions[rank]) return -1;
  const ot_action *const a = &o->actions[rank][index];
  const int from = direction_of(a) == FORWARD ? a->chunk - 1 : a->chunk + 1;
  if (a->kind == OT_ACTION_WEIGHT || !crosses(o, a->chunk, from)) return -1;
  return message_into(o, a->chunk, a->micro_batch, direction_of(a));
}

static int32_t made_by(const ot_pipeline_schedule *o, const ot_action *a) {
  const int to = direction_of(a) == FORWARD ? a->chunk + 1 : a->chunk - 1;
  if (a->kind == OT_ACTION_WEIGHT || !crosses(o, a->chunk, to)) return -1;
  return message_into(o, to, a->micro_batch, direction_of(a));
}

// ---- action list ----

static void begin_receive(builder *b, int32_t message) {
  if (message >= 0) b->awaited[message] = true;
}

// Action `index` of the rank, the next one or, of a pair, the one after it.
static ot_flow_action action_at(const builder *b, int rank, int index) {
  const ot_pipeline_schedule *const o = b->order;
  const int buffers = b->flow->send_buffers;
  const ot_action *const a = &o->actions[rank][index];
  const int list = rank * DIRECTIONS + direction_of(a), sent = b->num_sends[list];
  const int32_t out = made_by(o, a);
  return (ot_flow_action){.rank = rank,
                          .chunk = a->chunk,
                          .micro_batch = a->micro_batch,
                          .in = read_by(o, rank, index),
                          .out = out,
                          .buffer = out < 0 ? -1 : sent % buffers,
                          .reuse = out < 0 || sent < buffers ? -1 : b->sends[list][sent - buffers],
                          .posts = read_by(o, rank, index + 2),
                          .paired = a->paired,
                          .work = ot_action_work(a->kind)};
}

static bool is_ready(const builder *b, const ot_flow_action *a) {
  return (a->in < 0 || b->sent[a->in]) && (a->reuse < 0 || b->awaited[a->reuse]);
}

// Appends the next action of the rank; false if it must wait. Those of a pair follow each other.
static bool advance(builder *b, int rank) {
  const int index = b->position[rank];
  if (index >= b->order->num_actions[rank]) return false;
  const ot_flow_action made = action_at(b, rank, index);
  if (!is_ready(b, &made)) return false;
  if (made.paired) {
    const ot_flow_action with = action_at(b, rank, index + 1);
    if (!is_ready(b, &with)) return false;
  }
  if (made.out >= 0) {
    const int list = rank * DIRECTIONS + direction_of(&b->order->actions[rank][index]);
    b->sends[list][b->num_sends[list]++] = made.out;
    b->sent[made.out] = true;
  }
  begin_receive(b, made.posts);
  b->flow->of_rank[rank][index] = (int32_t)b->flow->num_actions;
  b->flow->actions[b->flow->num_actions++] = made;
  b->position[rank]++;
  return true;
}

// Lists all actions with that many send buffers; false on deadlock.
static bool list_actions(builder *b, int send_buffers, int64_t all) {
  const int ranks = b->order->num_ranks;
  b->flow->send_buffers = send_buffers;
  b->flow->num_actions = 0;
  memset(b->position, 0, (size_t)ranks * sizeof *b->position);
  memset(b->num_sends, 0, (size_t)ranks * DIRECTIONS * sizeof *b->num_sends);
  memset(b->sent, 0, (size_t)b->flow->num_messages * sizeof *b->sent);
  memset(b->awaited, 0, (size_t)b->flow->num_messages * sizeof *b->awaited);
  for (int i = 0; i < 2 * ranks; i++) begin_receive(b, b->flow->first_posts[i]);
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < ranks; rank++) {
      while (advance(b, rank)) moved = true;
    }
  }
  return b->flow->num_actions == all;
}

// Allocates the list and temporaries; returns the number of all actions.
static int64_t create(builder *b, ot_arena *arena, ot_arena *scratch) {
  const ot_pipeline_schedule *const o = b->order;
  ot_pipeline_flow *const flow = b->flow;
  int64_t all = 0;
  flow->of_rank = ot_arena_array(arena, o->num_ranks, sizeof *flow->of_rank);
  flow->num_of_rank = ot_arena_array(arena, o->num_ranks, sizeof *flow->num_of_rank);
  flow->first_posts = ot_arena_array(arena, 2 * (int64_t)o->num_ranks, sizeof(int32_t));
  b->sends = ot_arena_array(scratch, (int64_t)o->num_ranks * DIRECTIONS, sizeof(int32_t *));
  for (int rank = 0; rank < o->num_ranks; rank++) {
    const int count = flow->num_of_rank[rank] = o->num_actions[rank];
    flow->of_rank[rank] = ot_arena_array(arena, count + 1, sizeof **flow->of_rank);
    for (int i = 0; i < DIRECTIONS; i++) {
      b->sends[rank * DIRECTIONS + i] = ot_arena_array(scratch, count + 1, sizeof(int32_t));
    }
    for (int i = 0; i < 2; i++) flow->first_posts[2 * rank + i] = read_by(o, rank, i);
    all += count;
  }
  flow->actions = ot_arena_array(arena, all + 1, sizeof *flow->actions);
  b->position = ot_arena_array(scratch, o->num_ranks, sizeof(int));
  b->num_sends = ot_arena_array(scratch, (int64_t)o->num_ranks * DIRECTIONS, sizeof(int));
  b->sent = ot_arena_array(scratch, flow->num_messages, sizeof(bool));
  b->awaited = ot_arena_array(scratch, flow->num_messages, sizeof(bool));
  return all;
}

// ---- saved activations ----

static void find_places(const ot_pipeline_schedule *o, ot_arena *arena, ot_pipeline_flow *flow) {
  const int64_t cells = (int64_t)o->num_chunks * o->micro_batches;
  for (int i = 0; i < (o->split ? OT_WORKS : OT_WORK_WEIGHT); i++) {
    flow->place[i] = ot_arena_array(arena, cells, sizeof(int32_t));
  }
  if (!o->split) flow->place[OT_WORK_WEIGHT] = flow->place[OT_WORK_BACKWARD];
  for (int rank = 0; rank < o->num_ranks; rank++) {
    for (int i = 0; i < o->num_actions[rank]; i++) {
      const ot_action *const a = &o->actions[rank][i];
      const int64_t cell = (int64_t)a->chunk * o->micro_batches + a->micro_batch;
      flow->place[ot_action_work(a->kind)][cell] = i;
    }
  }
}

static int place_of(const ot_pipeline_flow *flow, ot_work work, int chunk, int micro_batch) {
  return flow->place[work][(int64_t)chunk * flow->micro_batches + micro_batch];
}

// Index of the action from which the input of the chunk is kept, forward or backward.
static int entered(const ot_pipeline_flow *flow, ot_work work, int chunk, int micro_batch) {
  const int from = work == OT_WORK_FORWARD ? chunk - 1 : chunk + 1;
  const int here = place_of(flow, work, chunk, micro_batch);
  if (from < 0 || from >= flow->num_chunks) return here;
  if (flow->rank_of[from] == flow->rank_of[chunk]) return place_of(flow, work, from, micro_batch);
  return here > 0 ? here - 1 : 0;
}

static int kept_from(const ot_pipeline_flow *flow, ot_saved_kind kind, int chunk, int micro_batch) {
  switch (kind) {
    case OT_SAVED_SHORT:
    case OT_SAVED_LONG:
      return place_of(flow, OT_WORK_FORWARD, chunk, micro_batch);
    case OT_SAVED_WEIGHT:
      return place_of(flow, OT_WORK_BACKWARD, chunk, micro_batch);
    case OT_SAVED_INPUT:
      return entered(flow, OT_WORK_FORWARD, chunk, micro_batch);
    case OT_SAVED_D_OUTPUT:
      return entered(flow, OT_WORK_BACKWARD, chunk, micro_batch);
    case OT_SAVED_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

static int kept_to(const ot_pipeline_flow *flow, ot_saved_kind kind, int chunk, int micro_batch) {
  const ot_work last = kind == OT_SAVED_SHORT ? OT_WORK_BACKWARD : OT_WORK_WEIGHT;
  return place_of(flow, last, chunk, micro_batch);
}

ot_saved_span ot_pipeline_flow_saved(const ot_pipeline_flow *flow, ot_saved_kind kind, int chunk,
                                     int micro_batch) {
  return (ot_saved_span){kept_from(flow, kind, chunk, micro_batch),
                         kept_to(flow, kind, chunk, micro_batch)};
}

static int most_at_once(const ot_pipeline_flow *flow, ot_saved_kind kind, int chunk) {
  int most = 0, over = 0;
  for (int i = 0; i < flow->micro_batches; i++) {
    const int first = kept_from(flow, kind, chunk, i);
    while (kept_to(flow, kind, chunk, over) < first) over++;
    if (i + 1 - over > most) most = i + 1 - over;
  }
  return most;
}

// ---- neighbours ----

static void count_neighbours(ot_arena *arena, ot_pipeline_flow *flow) {
  flow->turns = ot_arena_array(arena, flow->num_chunks, sizeof(int));
  flow->repeats = ot_arena_array(arena, flow->num_chunks, sizeof(int));
  for (int rank = 0; rank < flow->num_ranks; rank++) {
    for (int i = 1; i < flow->num_of_rank[rank]; i++) {
      const ot_flow_action *const a = &flow->actions[flow->of_rank[rank][i]];
      const ot_flow_action *const before = &flow->actions[flow->of_rank[rank][i - 1]];
      if (before->chunk != a->chunk) continue;
      if (a->work == OT_WORK_WEIGHT || before->work == OT_WORK_WEIGHT) continue;
      (a->work == before->work ? flow->repeats : flow->turns)[a->chunk]++;
    }
  }
}

static void count_before_last(ot_arena *arena, ot_pipeline_flow *flow) {
  const ot_work ends = flow->split ? OT_WORK_WEIGHT : OT_WORK_BACKWARD;
  flow->before_last = ot_arena_array(arena, flow->num_chunks, sizeof(int));
  for (int rank = 0; rank < flow->num_ranks; rank++) {
    for (int i = 0; i < flow->num_of_rank[rank]; i++) {
      const ot_flow_action *const a = &flow->actions[flow->of_rank[rank][i]];
      if (a->work != ends) continue;
      if (a->micro_batch == flow->micro_batches - 1) break;
      flow->before_last[a->chunk]++;
    }
  }
}

// ---- build ----

int64_t ot_pipeline_flow_bytes(const ot_pipeline_schedule *order) {
  enum { ROUNDED = 16, ARRAYS = 16, OF_A_CHUNK = OT_SAVED_KINDS + 3, OF_A_RANK = 6 };
  const int64_t ranks = order->num_ranks, chunks = order->num_chunks;
  int64_t actions = 0;
  for (int rank = 0; rank < order->num_ranks; rank++) actions += order->num_actions[rank];
  const int64_t numbers =
      actions + OT_WORKS * chunks * order->micro_batches + OF_A_CHUNK * chunks + OF_A_RANK * ranks;
  const int64_t bytes = (actions + 1) * (int64_t)sizeof(ot_flow_action) +
                        numbers * (int64_t)sizeof(int32_t) + ROUNDED * (ARRAYS + ranks);
  return (bytes + ROUNDED - 1) / ROUNDED * ROUNDED;
}

void ot_pipeline_flow_build(const ot_pipeline_schedule *order, ot_arena *arena, ot_arena *scratch,
                            ot_pipeline_flow *out) {
  enum { LEAST_SEND_BUFFERS = 2 };
  *out = (ot_pipeline_flow){
      .num_ranks = order->num_ranks,
      .num_chunks = order->num_chunks,
      .micro_batches = order->micro_batches,
      .rank_of = order->rank_of,
      .split = order->split,
      .num_messages = (int64_t)order->num_chunks * order->micro_batches * DIRECTIONS};
  builder b = {.order = order, .flow = out};
  const int64_t all = create(&b, arena, scratch);
  // With one buffer per message no action waits for a buffer; the schedule has passed its check.
  int send_buffers = LEAST_SEND_BUFFERS;
  while (!list_actions(&b, send_buffers, all)) {
    OT_ASSERT(send_buffers <= out->num_messages);
    send_buffers++;
  }
  find_places(order, arena, out);
  count_neighbours(arena, out);
  count_before_last(arena, out);
  for (int kind = 0; kind < OT_SAVED_KINDS; kind++) {
    out->most[kind] = ot_arena_array(arena, order->num_chunks, sizeof(int));
    for (int c = 0; c < order->num_chunks; c++) {
      out->most[kind][c] = most_at_once(out, (ot_saved_kind)kind, c);
    }
  }
}
