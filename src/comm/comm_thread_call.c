// SPDX-License-Identifier: Apache-2.0
// How calls of ranks that are threads meet, and how the data moves: straight from the memory of one
// rank to that of another. The last rank to come to a small call does the work of all, so that the
// others are woken once, with everything done; parts of larger calls are done by several threads.
#include <string.h>

#include "comm/comm_sum.h"
#include "comm/comm_thread.h"

static void set_phase(ot_comm_request *request, int phase) {
  __atomic_store_n(&request->phase, phase, __ATOMIC_RELEASE);
}

// ---- data ----

static void copy(void *into, const void *from, int64_t bytes) {
  if (bytes > 0 && into != from) memcpy(into, from, (size_t)bytes);
}

static void run_sum(const ot_thread_slot *slot, const ot_comm_call *call, int size, int index) {
  const bool scatters = call->kind == OT_COMM_REDUCE_SCATTER;
  const int64_t block = scatters ? call->count : ot_comm_block(call->count, size);
  const ot_comm_sum job = {
      .sources = slot->sends,
      .num_sources = size,
      .source_offset = index * block,
      .targets = scatters ? slot->receives + index : slot->receives,
      .num_targets = scatters ? 1 : size,
      .target_offset = scatters ? 0 : index * block,
      .count = scatters ? block : ot_comm_block_count(call->count, size, index),
      .dtype = call->dtype,
      .sum = call->sum,
      .target = !scatters      ? call->dtype
                : call->narrow ? OT_BF16
                               : call->sum,
      .round = call->sum_on_wire,
      .accumulate = call->accumulate,
  };
  if (job.count > 0) ot_comm_sum_run(&job);
}

// Rows that come to member `index`. False, with the two numbers, when some member sends another
// number than is expected: then the call cannot be done.
static bool run_exchange(const ot_thread_slot *slot, const ot_comm_call *call, int size, int index,
                         ot_comm_uneven *uneven) {
  for (int j = 0; j < size; j++) {
    const ot_comm_call *const sender = &slot->requests[j]->call;
    const int64_t sent = ot_comm_rows_of(&sender->sends, index);
    const int64_t expected = ot_comm_rows_of(&call->receives, j);
    *uneven = (ot_comm_uneven){.from = j, .to = index, .sent = sent, .expected = expected};
    if (sent != expected) return false;
    ot_comm_copy_rows(sender, j, call, index);
  }
  return true;
}

// Everything that belongs to member `index`: no two members' parts touch the same element. False
// as for run_exchange.
static bool run_collective(const ot_thread_slot *slot, const ot_comm_call *call, int size,
                           int index, ot_comm_uneven *uneven) {
  const int64_t bytes = call->count * ot_dtype_bytes(call->dtype);
  char *const receive = slot->receives[index];
  switch (call->kind) {
    case OT_COMM_ALL_GATHER:
      for (int j = 0; j < size; j++) copy(receive + j * bytes, slot->sends[j], bytes);
      break;
    case OT_COMM_REDUCE_SCATTER:
    case OT_COMM_ALL_REDUCE:
      run_sum(slot, call, size, index);
      break;
    case OT_COMM_ALL_TO_ALL:
      for (int j = 0; j < size; j++) {
        copy(receive + j * bytes, (const char *)slot->sends[j] + index * bytes, bytes);
      }
      break;
    case OT_COMM_SHIFT:
      copy(receive, slot->sends[(index + size - 1) % size], bytes);
      break;
    case OT_COMM_EXCHANGE:
      return run_exchange(slot, call, size, index, uneven);
    case OT_COMM_BARRIER:
      break;
    case OT_COMM_SEND:
    case OT_COMM_RECEIVE:
    case OT_COMM_KINDS:
      OT_UNREACHABLE();
  }
  return true;
}

static bool run_data(ot_comm_request *request, ot_comm_uneven *uneven) {
  const ot_comm_call *const call = &request->call;
  const ot_thread_part *const part = ot_thread_part_of(request);
  if (call->kind == OT_COMM_RECEIVE) {
    copy(call->receive, part->partner->call.send, call->count * ot_dtype_bytes(call->dtype));
    return true;
  }
  return run_collective(part->slot, call, part->group->size, part->index, uneven);
}

// Bytes that a member's part of a collective call touches.
static int64_t part_bytes(const ot_comm_call *call, int size) {
  const int64_t bytes = call->count * ot_dtype_bytes(call->dtype);
  if (call->kind == OT_COMM_ALL_REDUCE || call->kind == OT_COMM_SHIFT) return bytes;
  if (call->kind != OT_COMM_EXCHANGE) return bytes * size;
  int64_t rows = 0;
  for (int i = 0; i < size; i++) rows += ot_comm_rows_of(&call->receives, i);
  return rows * bytes;
}

// ---- lists of requests, linked by `next` ----

static void append(ot_comm_request **list, ot_comm_request *request) {
  while (*list) list = &(*list)->next;
  *list = request;
  request->next = NULL;
}

static void remove_from(ot_comm_request **list, const ot_comm_request *request) {
  while (*list && *list != request) list = &(*list)->next;
  if (*list) *list = request->next;
}

// ---- parts ----

static void offer(ot_thread_world *world, ot_comm_request *request) {
  ot_thread_part *const part = ot_thread_part_of(request);
  set_phase(request, OT_PART_READY);
  append(&part->end->ready, request);
  world->ready++;
  if (part->waited) {
    ot_thread_wake(part->end);
  } else if (!request->awaited) {
    pthread_cond_signal(&part->end->work);
  }
}

static void take_part(ot_thread_world *world, ot_comm_request *request) {
  remove_from(&ot_thread_part_of(request)->end->ready, request);
  world->ready--;
  world->running++;
  set_phase(request, OT_PART_RUNNING);
}

// The request of the call that is ready, own before others'.
static ot_comm_request *find_ready(ot_comm_request *request) {
  const ot_thread_part *const part = ot_thread_part_of(request);
  if (request->phase == OT_PART_READY) return request;
  if (part->partner && part->partner->phase == OT_PART_READY) return part->partner;
  if (!part->slot || part->slot->arrived < part->group->size) return NULL;
  for (int i = 0; i < part->group->size; i++) {
    if (part->slot->requests[i]->phase == OT_PART_READY) return part->slot->requests[i];
  }
  return NULL;
}

ot_comm_request *ot_thread_take(ot_comm_request *request) {
  ot_comm_request *const ready = find_ready(request);
  if (ready) take_part(ot_thread_part_of(request)->end->world, ready);
  return ready;
}

// Gives the request back to its owner, who may use its memory for other things at once.
static void complete(ot_comm_request *request) {
  ot_thread_part *const part = ot_thread_part_of(request);
  ot_thread_end *const end = part->end;
  end->open--;
  if (part->waited) ot_thread_forget_waited(request);
  set_phase(request, OT_PART_DONE);
  ot_thread_wake(end);
}

static void offer_all(ot_thread_world *world, ot_thread_slot *slot, int size) {
  for (int i = 0; i < size; i++) offer(world, slot->requests[i]);
}

static void say_shape(ot_comm_text *out, const ot_thread_part *part, const ot_comm_call *call) {
  ot_comm_say(out, "rank %d does %s of %lld %s in '%s'", part->end->comm.rank,
              ot_comm_kind_name(call->kind), (long long)call->count, ot_dtype_name(call->dtype),
              call->name ? call->name : "");
}

// The two requests, which should be of one call, differ.
static void fail_mismatch(ot_thread_world *world, ot_comm_request *a, ot_comm_request *b) {
  char why[1024];
  ot_comm_text out = {why, sizeof why, 0};
  ot_comm_say(&out, "ranks differ in call %lld of group %s: ", (long long)a->sequence,
              ot_group_name(a->call.group));
  say_shape(&out, ot_thread_part_of(a), &a->call);
  ot_comm_say(&out, ", ");
  say_shape(&out, ot_thread_part_of(b), &b->call);
  ot_thread_fail_world(world, why);
}

static void fail_uneven(ot_thread_world *world, ot_comm_request *request,
                        const ot_comm_uneven *uneven) {
  char why[1024];
  ot_comm_text out = {why, sizeof why, 0};
  ot_comm_say_uneven(&out, &ot_thread_part_of(request)->end->comm, request, uneven);
  ot_thread_fail_world(world, why);
}

static bool same_call(const ot_comm_call *a, const ot_comm_call *b) {
  if (a->kind != b->kind || a->count != b->count) return false;
  if (a->kind == OT_COMM_BARRIER) return true;
  if (a->dtype != b->dtype) return false;
  return !ot_comm_is_reduction(a->kind) || (a->sum == b->sum && a->sum_on_wire == b->sum_on_wire);
}

// Puts `request` into its slot. True when it was the last to come and all fit together.
static bool arrive(ot_thread_slot *slot, ot_comm_request *request) {
  ot_thread_part *const part = ot_thread_part_of(request);
  for (int i = 0; i < part->group->size; i++) {
    ot_comm_request *const other = slot->requests[i];
    if (!other) continue;
    if (!same_call(&other->call, &request->call)) {
      fail_mismatch(part->end->world, other, request);
      return false;
    }
    break;
  }
  part->slot = slot;
  slot->requests[part->index] = request;
  slot->sends[part->index] = request->call.send;
  slot->receives[part->index] = request->call.receive;
  slot->arrived++;
  slot->bytes += part->bytes;
  return slot->arrived == part->group->size;
}

// The request of the call number `sequence` in `list`, or null.
static ot_comm_request *find_sequence(ot_comm_request *list, int64_t sequence) {
  while (list && list->sequence != sequence) list = list->next;
  return list;
}

// The slot is free for the call THREAD_SLOTS later, which members may have started already. Slots
// get free in any order, so that call may stand behind others in a backlog.
static void reuse_slot(ot_thread_world *world, ot_thread_group *group, ot_thread_slot *slot) {
  slot->sequence += OT_THREAD_SLOTS;
  slot->arrived = slot->finished = 0;
  slot->bytes = 0;
  memset(slot->requests, 0, (size_t)group->size * sizeof *slot->requests);
  for (int i = 0; i < group->size && !world->failed; i++) {
    ot_comm_request *const next = find_sequence(group->members[i].backlog, slot->sequence);
    if (!next) continue;
    remove_from(&group->members[i].backlog, next);
    if (arrive(slot, next)) offer_all(world, slot, group->size);
  }
}

static void finish_collective(ot_thread_world *world, ot_thread_group *group,
                              ot_thread_slot *slot) {
  slot->finished++;
  if (slot->finished < group->size) return;
  for (int i = 0; i < group->size; i++) complete(slot->requests[i]);
  reuse_slot(world, group, slot);
}

void ot_thread_run_part(ot_thread_world *world, ot_comm_request *request) {
  ot_comm_uneven uneven;
  pthread_mutex_unlock(&world->lock);
  const bool even = run_data(request, &uneven);
  pthread_mutex_lock(&world->lock);
  world->running--;
  set_phase(request, OT_PART_FINISHED);
  ot_thread_part *const part = ot_thread_part_of(request);
  if (!even) {
    fail_uneven(world, request, &uneven);
  } else if (part->slot) {
    finish_collective(world, part->group, part->slot);
  } else {
    complete(part->partner);
    complete(request);
  }
  if (!world->failed || world->running > 0) return;
  for (int i = 0; i < world->ranks; i++) ot_thread_wake(&world->ends[i]);
}

// ---- starting ----

// All parts of a small call by the one thread that came last.
static void run_all(ot_thread_world *world, ot_thread_group *group, ot_thread_slot *slot) {
  world->running += group->size;
  for (int i = 0; i < group->size; i++) set_phase(slot->requests[i], OT_PART_RUNNING);
  pthread_mutex_unlock(&world->lock);
  ot_comm_uneven uneven;
  bool even = true;
  for (int i = 0; i < group->size && even; i++) {
    even = run_collective(slot, &slot->requests[i]->call, group->size, i, &uneven);
  }
  pthread_mutex_lock(&world->lock);
  world->running -= group->size;
  if (!even) {
    fail_uneven(world, slot->requests[0], &uneven);
    return;
  }
  slot->finished = group->size - 1;
  finish_collective(world, group, slot);
}

static void start_collective(ot_thread_end *end, ot_comm_request *request) {
  const ot_thread_part *const part = ot_thread_part_of(request);
  ot_thread_group *const group = part->group;
  ot_thread_member *const member = &group->members[part->index];
  request->sequence = ++member->started;
  ot_thread_slot *const slot = &group->slots[request->sequence % OT_THREAD_SLOTS];
  if (slot->sequence != request->sequence) {
    append(&member->backlog, request);
  } else if (arrive(slot, request)) {
    if (slot->bytes <= OT_THREAD_SMALL) {
      run_all(end->world, group, slot);
    } else {
      offer_all(end->world, slot, group->size);
    }
  }
}

// The first request of `list` that is the other end of `request`.
static ot_comm_request *find_partner(ot_comm_request *list, ot_comm_request *request) {
  const int index = ot_thread_part_of(request)->index;
  for (; list; list = list->next) {
    const bool between =
        list->call.peer == index && ot_thread_part_of(list)->index == request->call.peer;
    if (between && list->call.tag == request->call.tag) return list;
  }
  return NULL;
}

static void join_message(ot_thread_world *world, ot_comm_request *send, ot_comm_request *receive) {
  if (send->call.count != receive->call.count || send->call.dtype != receive->call.dtype) {
    fail_mismatch(world, send, receive);
    return;
  }
  ot_thread_part_of(send)->partner = receive;
  ot_thread_part_of(receive)->partner = send;
  set_phase(send, OT_PART_FINISHED);
  if (send->call.count * ot_dtype_bytes(send->call.dtype) <= OT_THREAD_SMALL) {
    world->running++;
    set_phase(receive, OT_PART_RUNNING);
    ot_thread_run_part(world, receive);
  } else {
    offer(world, receive);
    ot_thread_wake(ot_thread_part_of(send)->end);
  }
}

static void start_message(ot_thread_end *end, ot_comm_request *request) {
  const ot_thread_part *const part = ot_thread_part_of(request);
  ot_thread_group *const group = part->group;
  const bool sends = request->call.kind == OT_COMM_SEND;
  const int from = sends ? part->index : request->call.peer;
  const int to = sends ? request->call.peer : part->index;
  request->sequence = ++(sends ? group->sent : group->received)[from * group->size + to];
  ot_thread_member *const receiver = &group->members[to];
  ot_comm_request **const others = sends ? &receiver->receives : &receiver->sends;
  ot_comm_request *const partner = find_partner(*others, request);
  if (!partner) {
    append(sends ? &receiver->sends : &receiver->receives, request);
    return;
  }
  remove_from(others, partner);
  join_message(end->world, sends ? request : partner, sends ? partner : request);
}

void ot_thread_start(ot_comm *comm, ot_comm_request *request) {
  ot_thread_end *const end = (ot_thread_end *)comm;
  ot_thread_world *const world = end->world;
  ot_thread_part *const part = ot_thread_part_of(request);
  part->end = end;
  part->group = end->groups[request->call.group];
  part->index = comm->groups[request->call.group].index;
  part->bytes = part_bytes(&request->call, part->group->size);
  pthread_mutex_lock(&world->lock);
  end->open++;
  ot_thread_update_stuck(end);
  if (world->failed) {
    // Its wait says why.
  } else if (ot_comm_is_message(request->call.kind)) {
    start_message(end, request);
  } else {
    start_collective(end, request);
  }
  pthread_mutex_unlock(&world->lock);
}

bool ot_thread_done(ot_comm *comm, ot_comm_request *request) {
  (void)comm;
  return ot_thread_phase(request) == OT_PART_DONE;
}

bool ot_thread_is_absent(const void *context, int index) {
  ot_comm_request *const request = (ot_comm_request *)context;
  const ot_thread_part *const part = ot_thread_part_of(request);
  if (!ot_comm_is_message(request->call.kind)) {
    return part->group->members[index].started < request->sequence;
  }
  return index == request->call.peer && !part->partner;
}

void *ot_thread_engine(void *context) {
  ot_thread_end *const end = context;
  ot_thread_world *const world = end->world;
  pthread_mutex_lock(&world->lock);
  while (!world->stopping) {
    ot_comm_request *const part = end->ready;
    if (part) {
      take_part(world, part);
      ot_thread_run_part(world, part);
    } else {
      pthread_cond_wait(&end->work, &world->lock);
    }
  }
  pthread_mutex_unlock(&world->lock);
  return NULL;
}
