// SPDX-License-Identifier: Apache-2.0
// Plays all stages with a number of buffers; enough of them are as good as endless ones, with which
// the check of the order has played it through.
#include "pipeline/order_buffers.h"

// A message into (chunk, micro_batch), forwards or backwards; chunk -1: none.
typedef struct message {
  int chunk, micro_batch;
} message;

enum { FORWARD, BACKWARD, DIRECTIONS };

typedef struct sender {
  message *sent;  // in their order
  int count;
} sender;

typedef struct play {
  const ot_pipeline_order *order;
  int buffers;
  int *position;                // [num_ranks] actions done
  int *sent[DIRECTIONS];        // [num_chunks] micro-batches whose message into the chunk is sent
  int *awaited[DIRECTIONS];     // [num_chunks] those whose receive is started
  sender *senders[DIRECTIONS];  // [num_ranks]
} play;

static int direction_of(const ot_action *action) {
  return action->kind == OT_ACTION_FORWARD ? FORWARD : BACKWARD;
}

static bool crosses(const play *p, int chunk, int other) {
  const ot_pipeline_order *const order = p->order;
  return other >= 0 && other < order->num_chunks && order->rank_of[chunk] != order->rank_of[other];
}

// The message that the action reads.
static message read_by(const play *p, const ot_action *action) {
  const int from = direction_of(action) == FORWARD ? action->chunk - 1 : action->chunk + 1;
  const bool reads = action->kind != OT_ACTION_WEIGHT && crosses(p, action->chunk, from);
  return (message){reads ? action->chunk : -1, action->micro_batch};
}

// The message that it makes.
static message made_by(const play *p, const ot_action *action) {
  const int to = direction_of(action) == FORWARD ? action->chunk + 1 : action->chunk - 1;
  const bool makes = action->kind != OT_ACTION_WEIGHT && crosses(p, action->chunk, to);
  return (message){makes ? to : -1, action->micro_batch};
}

static void start_receive(const play *p, int rank, int index) {
  if (index >= p->order->num_actions[rank]) return;
  const ot_action *const action = &p->order->actions[rank][index];
  const message m = read_by(p, action);
  int *const awaited = p->awaited[direction_of(action)];
  if (m.chunk >= 0 && awaited[m.chunk] <= m.micro_batch) awaited[m.chunk] = m.micro_batch + 1;
}

// True when the buffer that the next message of the stage would take is free.
static bool has_buffer(const play *p, int rank, int direction) {
  const sender *const s = &p->senders[direction][rank];
  if (s->count < p->buffers) return true;
  const message *const before = &s->sent[s->count - p->buffers];
  return p->awaited[direction][before->chunk] > before->micro_batch;
}

// Runs the next action of the stage; false when it must wait.
static bool advance(const play *p, int rank) {
  const int index = p->position[rank];
  if (index >= p->order->num_actions[rank]) return false;
  const ot_action *const action = &p->order->actions[rank][index];
  const int direction = direction_of(action);
  start_receive(p, rank, index);
  start_receive(p, rank, index + 1);
  const message in = read_by(p, action), out = made_by(p, action);
  if (in.chunk >= 0 && p->sent[direction][in.chunk] <= in.micro_batch) return false;
  if (out.chunk >= 0) {
    if (!has_buffer(p, rank, direction)) return false;
    sender *const s = &p->senders[direction][rank];
    s->sent[s->count++] = out;
    p->sent[direction][out.chunk] = out.micro_batch + 1;
  }
  p->position[rank]++;
  return true;
}

static bool ends(const ot_pipeline_order *order, int buffers, ot_arena *arena) {
  play p = {.order = order, .buffers = buffers};
  p.position = ot_arena_array(arena, order->num_ranks, sizeof(int));
  for (int d = 0; d < DIRECTIONS; d++) {
    p.sent[d] = ot_arena_array(arena, order->num_chunks, sizeof(int));
    p.awaited[d] = ot_arena_array(arena, order->num_chunks, sizeof(int));
    p.senders[d] = ot_arena_array(arena, order->num_ranks, sizeof(sender));
    for (int rank = 0; rank < order->num_ranks; rank++) {
      p.senders[d][rank].sent =
          ot_arena_array(arena, order->num_actions[rank] + 1, sizeof(message));
    }
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < order->num_ranks; rank++) {
      while (advance(&p, rank)) moved = true;
    }
  }
  for (int rank = 0; rank < order->num_ranks; rank++) {
    if (p.position[rank] < order->num_actions[rank]) return false;
  }
  return true;
}

int ot_order_send_buffers(const ot_pipeline_order *order, int least, ot_arena *arena) {
  int buffers = least;
  while (order->num_ranks > 1 && !ends(order, buffers, arena)) buffers++;
  return buffers;
}
