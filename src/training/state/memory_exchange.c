// SPDX-License-Identifier: Apache-2.0
// Copies travel between hosts in pieces, from mapped file to mapped file: no further memory is
// needed, and a slow link delays no message of a step for long.
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "state/memory_parts.h"

enum { PIECE_BYTES = 4 << 20, TAG = 1 };

static ot_comm_call call_of(ot_comm_kind kind, int peer, void *memory, int64_t bytes) {
  return (ot_comm_call){.kind = kind,
                        .group = OT_GROUP_WORLD,
                        .peer = peer,
                        .tag = TAG,
                        .send = memory,
                        .receive = memory,
                        .count = bytes / (int64_t)sizeof(int64_t),
                        .dtype = OT_I64,
                        .name = "a copy in memory"};
}

// A file under way: all after its head in pieces, then its head.
typedef struct transfer {
  ot_comm_kind kind;
  int peer;
  ot_memory_slot slot;
  int64_t at;  // bytes [OT_MEMORY_HEAD_BYTES, at) are done; then the head
  int64_t head[OT_MEMORY_HEAD_BYTES / sizeof(int64_t)];
  ot_comm_request request;
  bool started, done;
} transfer;

static void begin(transfer *t, ot_comm_kind kind, int peer, const ot_memory_slot *slot) {
  *t = (transfer){.kind = kind, .peer = peer, .slot = *slot, .at = OT_MEMORY_HEAD_BYTES};
  if (kind == OT_COMM_SEND)
    memcpy(t->head, slot->map, sizeof t->head);
  else
    ot_memory_slot_clear(&t->slot);
}

static int64_t piece_of(const transfer *t) {
  const int64_t left = t->slot.bytes - t->at;
  return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static void start_piece(transfer *t, ot_comm *comm) {
  if (t->done) return;
  const int64_t bytes = piece_of(t);
  const ot_comm_call call = bytes > 0 ? call_of(t->kind, t->peer, t->slot.map + t->at, bytes)
                                      : call_of(t->kind, t->peer, t->head, sizeof t->head);
  ot_comm_start(comm, &call, &t->request);
  t->started = true;
}

static ot_status finish_piece(transfer *t, ot_comm *comm) {
  if (!t->started) return OT_OK;
  t->started = false;
  const int64_t bytes = piece_of(t);
  OT_TRY(ot_comm_wait(comm, &t->request));
  t->at += bytes;
  if (bytes > 0) return OT_OK;
  t->done = true;
  if (t->kind == OT_COMM_SEND) return OT_OK;
  ot_memory_head head;
  memcpy(&head, t->head, sizeof head);
  ot_memory_slot_put(&t->slot, &head);
  return OT_OK;
}

// All at the same time, piece by piece.
static ot_status run(transfer *list, int count, ot_comm *comm) {
  bool more = true;
  while (more) {
    ot_status status = OT_OK;
    more = false;
    for (int i = 0; i < count; i++) start_piece(&list[i], comm);
    for (int i = 0; i < count; i++) {
      const ot_status one = finish_piece(&list[i], comm);
      if (status == OT_OK) status = one;
      more |= !list[i].done;
    }
    if (status != OT_OK) return status;
  }
  return OT_OK;
}

ot_status ot_memory_send(ot_memory_copies *c, const ot_memory_slot *slot, int to) {
  transfer t;
  begin(&t, OT_COMM_SEND, to, slot);
  return run(&t, 1, ot_world_comm(c->request.world));
}

ot_status ot_memory_receive(ot_memory_copies *c, ot_memory_slot *slot, int from) {
  transfer t;
  begin(&t, OT_COMM_RECEIVE, from, slot);
  return run(&t, 1, ot_world_comm(c->request.world));
}

ot_status ot_memory_exchange(ot_memory_copies *c, int index) {
  int count = 0;
  if (c->partner < 0) return OT_OK;
  transfer *const list = calloc((size_t)c->num_replicas + 1, sizeof *list);
  OT_CHECK(list, OT_ENVIRONMENT, "out of memory for copies in memory");
  begin(&list[count++], OT_COMM_SEND, c->partner, &c->slot[index]);
  for (int i = 0; i < c->num_replicas; i++)
    begin(&list[count++], OT_COMM_RECEIVE, c->replicas[i].rank, &c->replicas[i].slot[index]);
  const ot_status status = run(list, count, ot_world_comm(c->request.world));
  free(list);
  return status;
}

// ---- agreement ----

ot_status ot_memory_all(ot_memory_copies *c, bool held, bool *all) {
  double missing = held ? 0 : 1;
  OT_TRY(ot_world_allreduce(c->request.world, &missing, 1));
  *all = missing == 0;
  return OT_OK;
}

ot_status ot_memory_share_text(ot_memory_copies *c, char *text, int64_t bytes) {
  char shared[OT_WORLD_TEXT] = "";
  int64_t *const has = ot_arena_array(&c->arena, c->size, sizeof *has);
  OT_TRY(ot_world_allgather(c->request.world, text[0] != '\0', has));
  for (int rank = 0; rank < c->size; rank++) {
    if (!has[rank]) continue;
    ot_text_format(shared, sizeof shared, "%s", text);
    OT_TRY(ot_world_broadcast_from(c->request.world, rank, shared));
    ot_text_format(text, bytes, "%s", shared);
    return OT_OK;
  }
  return OT_OK;
}
