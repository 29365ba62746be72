// SPDX-License-Identifier: Apache-2.0
#include "support/comm_place.h"

#include <stdlib.h>
#include <string.h>

#include "support/comm_suite.h"

enum { KINDS = OT_COMM_ALL_TO_ALL_V + 1, MOST_ROUTES = OT_GROUP_KINDS * KINDS + 8 };

// The GPU of a rank. A rank is a thread.
typedef struct place {
  int ordinal;
  ot_device *device;  // null: calls stay on the host
  ot_stream *stream;
  ot_event *event;
} place;
static _Thread_local place here;

// ---- routes ----

static int add_groups(const ot_comm *comm, ot_comm_route *routes) {
  int count = 0;
  for (int group = 0; group < OT_GROUP_KINDS; group++) {
    if (ot_comm_group_size(comm, (ot_group_kind)group) < 2) continue;
    for (int kind = 0; kind < KINDS; kind++) {
      if (kind == OT_COMM_SEND || kind == OT_COMM_RECEIVE) continue;
      routes[count++] = (ot_comm_route){(ot_group_kind)group, (ot_comm_kind)kind, 0, 0};
    }
  }
  return count;
}

ot_status comm_join(ot_comm *comm) {
  ot_comm_route routes[MOST_ROUTES];
  if (!here.device) return OT_OK;
  const int size = ot_comm_size(comm), rank = ot_comm_rank(comm);
  int count = add_groups(comm, routes);
  for (int tag = 0; tag < 2 && size > 1; tag++) {
    const int next = (rank + 1) % size, last = (rank + size - 1) % size;
    routes[count++] = (ot_comm_route){OT_GROUP_WORLD, OT_COMM_SEND, next, tag};
    routes[count++] = (ot_comm_route){OT_GROUP_WORLD, OT_COMM_RECEIVE, last, tag};
  }
  return ot_comm_use_device(comm, here.ordinal, routes, count);
}

void comm_place_on_host(void) {
  ot_event_destroy(&here.event);
  ot_stream_destroy(&here.stream);
  ot_device_destroy(&here.device);
}

static ot_status place_on_gpu(ot_comm *comm) {
  here.ordinal = ot_comm_ordinal(comm, ot_device_count(OT_BACKEND_CUDA));
  OT_TRY(ot_device_create(OT_BACKEND_CUDA, here.ordinal, &here.device));
  OT_TRY(ot_stream_create(here.device, &here.stream));
  OT_TRY(ot_event_create(here.device, &here.event));
  return comm_join(comm);
}

ot_status comm_place_on_gpu(ot_comm *comm) {
  const ot_status status = place_on_gpu(comm);
  if (status != OT_OK) comm_place_on_host();
  return status;
}

// ---- calls ----

// A range of host memory that a call uses, and its copy.
typedef struct range {
  char *begin, *end;
  void *copy;
} range;

static int64_t bytes_sent(const ot_comm_call *call, int64_t whole, int size) {
  const bool blocks = call->kind == OT_COMM_REDUCE_SCATTER || call->kind == OT_COMM_ALL_TO_ALL;
  if (call->kind == OT_COMM_ALL_TO_ALL_V) return call->sends.rows * whole;
  return call->kind == OT_COMM_RECEIVE ? 0 : blocks ? size * whole : whole;
}

static int64_t bytes_received(const ot_comm_call *call, int64_t whole, int size) {
  const bool blocks = call->kind == OT_COMM_ALL_GATHER || call->kind == OT_COMM_ALL_TO_ALL;
  if (call->kind == OT_COMM_ALL_TO_ALL_V) return call->receives.rows * whole;
  if (call->kind == OT_COMM_REDUCE_SCATTER) {
    return call->count * ot_dtype_bytes(call->narrow ? OT_BF16 : call->sum);
  }
  return call->kind == OT_COMM_SEND ? 0 : blocks ? size * whole : whole;
}

static range range_at(const void *memory, int64_t bytes) {
  char *const begin = (char *)memory;
  return (range){.begin = begin, .end = begin ? begin + bytes : begin};
}

// Overlapping ranges become one.
static void join_ranges(range *a, range *b) {
  if (a->begin == a->end || b->begin == b->end || a->end <= b->begin || b->end <= a->begin) return;
  if (b->begin < a->begin) a->begin = b->begin;
  if (b->end > a->end) a->end = b->end;
  *b = *a;
}

static ot_status copy_in(range *r) {
  const int64_t bytes = r->end - r->begin;
  OT_TRY(ot_device_allocate(here.device, bytes, &r->copy));
  return ot_device_write(here.device, r->copy, 0, r->begin, bytes);
}

static ot_status copy_out(range *r) {
  const int64_t bytes = r->end - r->begin;
  const ot_status status = ot_device_read(here.device, r->copy, 0, r->begin, bytes);
  ot_device_release(here.device, &r->copy, bytes);
  return status;
}

static ot_status run_queued(ot_comm *comm, const ot_comm_call *call) {
  OT_TRY(ot_comm_run(comm, call));
  return ot_comm_synchronize(comm, call->stream);
}

static ot_status run_on_gpu(ot_comm *comm, const ot_comm_call *call) {
  const int size = ot_comm_group_size(comm, call->group);
  const int64_t whole = call->count * ot_dtype_bytes(call->dtype);
  ot_comm_call there = *call;
  range sent = range_at(call->send, bytes_sent(call, whole, size));
  range received = range_at(call->receive, bytes_received(call, whole, size));
  join_ranges(&sent, &received);
  const bool shared = sent.begin == received.begin && sent.begin != sent.end;
  OT_TRY(copy_in(&received));
  if (shared) {
    sent.copy = received.copy;
  } else {
    OT_TRY(copy_in(&sent));
  }
  there.stream = here.stream;
  there.event = here.event;
  const int64_t workspace_bytes = ot_comm_workspace(&there, size);
  OT_TRY(ot_device_allocate(here.device, workspace_bytes, &there.workspace));
  if (call->send) there.send = (char *)sent.copy + ((const char *)call->send - sent.begin);
  if (call->receive)
    there.receive = (char *)received.copy + ((char *)call->receive - received.begin);
  OT_TRY(run_queued(comm, &there));
  ot_device_release(here.device, &there.workspace, workspace_bytes);
  if (!shared) ot_device_release(here.device, &sent.copy, sent.end - sent.begin);
  return copy_out(&received);
}

ot_status comm_run(ot_comm *comm, const ot_comm_call *call) {
  return here.device ? run_on_gpu(comm, call) : ot_comm_run(comm, call);
}
