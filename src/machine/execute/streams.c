// SPDX-License-Identifier: Apache-2.0
// Streams are made when an executor is, one for each lane and each segment of messages; events, for
// the order that needs most.
#include "execute/streams.h"

#include "base/backend_rules.h"
#include "base/failure.h"
#include "kernels/kernels.h"

// ---- create ----

static ot_status create_lane(ot_streams *streams, ot_device *device, ot_lane lane) {
  OT_TRY(ot_stream_create(device, &streams->lane[lane]));
  OT_TRY(ot_event_create(device, &streams->call[lane]));
  if (lane == OT_LANE_TENSOR) return OT_OK;
  return ot_kernel_context_create(streams->schedule->backend, ot_stream_native(streams->lane[lane]),
                                  &streams->context[lane]);
}

static bool uses_lane(const ot_schedule *schedule, const ot_order *order, ot_lane lane) {
  for (int i = 0; i < order->num_entries; i++) {
    const ot_segment *const segment = &schedule->segments[order->entries[i].segment];
    for (int k = 0; k < segment->num_tasks; k++) {
      if (ot_task_lane(&order->entries[i], &segment->tasks[k]) == lane) return true;
    }
  }
  return false;
}

// Streams of kernels have handles and a workspace of libraries, so none is made for nothing.
static ot_status create_used_lane(ot_streams *streams, ot_device *device, ot_lane lane) {
  const ot_schedule *const schedule = streams->schedule;
  for (int i = 0; i < schedule->num_orders; i++) {
    if (!uses_lane(schedule, &schedule->orders[i], lane)) continue;
    return create_lane(streams, device, lane);
  }
  return OT_OK;
}

static ot_status create_message_streams(ot_streams *streams, ot_device *device, ot_arena *arena) {
  const ot_schedule *const schedule = streams->schedule;
  streams->message = ot_arena_array(arena, schedule->num_segments + 1, sizeof(ot_stream *));
  for (int i = 0; i < schedule->num_segments; i++) {
    const ot_segment *const segment = &schedule->segments[i];
    const ot_task_kind first = segment->num_tasks > 0 ? segment->tasks[0].kind : OT_TASK_COMPUTE;
    if (first != OT_TASK_SEND && first != OT_TASK_RECEIVE) continue;
    OT_TRY(ot_stream_create(device, &streams->message[i]));
  }
  return OT_OK;
}

// Marks the entries for which an entry on another stream waits, and all messages.
static void find_events(const ot_schedule *schedule, const ot_order *order, int *events) {
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    const bool messages = entry->lane == OT_LANE_PIPELINE;
    if (messages) events[i] = schedule->segments[entry->segment].num_tasks;
    for (int lane = 0; lane < OT_LANES; lane++) {
      const int other = entry->wait[lane];
      const bool waits = other >= 0 && lane != OT_LANE_PIPELINE && (int)entry->lane != lane;
      if (waits) events[other] = 1;
    }
  }
}

// Turns the number of each entry's events into the number of its first one.
static int number_events(const ot_order *order, int *events) {
  int next = 0;
  for (int i = 0; i < order->num_entries; i++) {
    const int count = events[i];
    events[i] = count > 0 ? next : -1;
    next += count;
  }
  return next;
}

static ot_status create_events(ot_streams *streams, ot_device *device, ot_arena *arena) {
  const ot_schedule *const schedule = streams->schedule;
  streams->first = ot_arena_array(arena, schedule->num_orders + 1, sizeof(int *));
  int most = 0;
  for (int i = 0; i < schedule->num_orders; i++) {
    const ot_order *const order = &schedule->orders[i];
    streams->first[i] = ot_arena_array(arena, order->num_entries + 1, sizeof(int));
    find_events(schedule, order, streams->first[i]);
    const int count = number_events(order, streams->first[i]);
    if (count > most) most = count;
  }
  streams->event = ot_arena_array(arena, most + 1, sizeof(ot_event *));
  for (; streams->num_events < most; streams->num_events++) {
    OT_TRY(ot_event_create(device, &streams->event[streams->num_events]));
  }
  return OT_OK;
}

static ot_status create_queued(ot_streams *streams, ot_device *device, ot_arena *arena) {
  static const ot_lane lanes[] = {OT_LANE_TENSOR, OT_LANE_GATHER, OT_LANE_REDUCE};
  OT_TRY(ot_event_create(device, &streams->fork));
  for (int i = 0; i < OT_COUNT(lanes); i++) OT_TRY(create_used_lane(streams, device, lanes[i]));
  OT_TRY(create_message_streams(streams, device, arena));
  return create_events(streams, device, arena);
}

ot_status ot_streams_create(const ot_schedule *schedule, ot_device *device, ot_comm *comm,
                            ot_arena *arena, ot_streams *streams) {
  const bool queued = ot_backend_rules_of(schedule->backend)->queued;
  *streams = (ot_streams){.schedule = schedule, .comm = comm, .queued = queued};
  OT_TRY(create_lane(streams, device, OT_LANE_COMPUTE));
  return streams->queued ? create_queued(streams, device, arena) : OT_OK;
}

void ot_streams_destroy(ot_streams *streams) {
  if (!streams->schedule) return;
  for (int i = 0; i < OT_LANES; i++) {
    ot_kernel_context_destroy(streams->schedule->backend, &streams->context[i]);
    ot_event_destroy(&streams->call[i]);
    ot_stream_destroy(&streams->lane[i]);
  }
  for (int i = 0; streams->message && i < streams->schedule->num_segments; i++) {
    ot_stream_destroy(&streams->message[i]);
  }
  ot_event_destroy(&streams->fork);
  for (int i = 0; i < streams->num_events; i++) ot_event_destroy(&streams->event[i]);
  streams->schedule = NULL;
}

// ---- entries ----

ot_stream *ot_streams_of(const ot_streams *streams, const ot_entry *entry) {
  if (!streams->queued) return streams->lane[OT_LANE_COMPUTE];
  const bool messages = entry->lane == OT_LANE_PIPELINE;
  return messages ? streams->message[entry->segment] : streams->lane[entry->lane];
}

static ot_status wait_for(const ot_streams *streams, ot_stream *stream, int order, int entry) {
  const ot_entry *const other = &streams->schedule->orders[order].entries[entry];
  const bool messages = other->lane == OT_LANE_PIPELINE;
  const int count = messages ? streams->schedule->segments[other->segment].num_tasks : 1;
  const int first = streams->first[order][entry];
  for (int i = 0; i < count; i++) OT_TRY(ot_stream_wait(stream, streams->event[first + i]));
  return OT_OK;
}

ot_status ot_streams_enter(const ot_streams *streams, int order, int entry) {
  if (!streams->queued) return OT_OK;
  const ot_entry *const own = &streams->schedule->orders[order].entries[entry];
  ot_stream *const stream = ot_streams_of(streams, own);
  for (int lane = 0; lane < OT_LANES; lane++) {
    const bool ordered = (int)own->lane == lane && lane != OT_LANE_PIPELINE;
    if (own->wait[lane] < 0 || ordered) continue;
    OT_TRY(wait_for(streams, stream, order, own->wait[lane]));
  }
  return OT_OK;
}

ot_status ot_streams_leave(const ot_streams *streams, int order, int entry) {
  if (!streams->queued) return OT_OK;
  const ot_entry *const own = &streams->schedule->orders[order].entries[entry];
  const int first = streams->first[order][entry];
  if (first < 0 || own->lane == OT_LANE_PIPELINE) return OT_OK;
  return ot_event_record(streams->event[first], streams->lane[own->lane]);
}

ot_event *ot_streams_message(const ot_streams *streams, int order, int entry, int task) {
  return streams->event[streams->first[order][entry] + task];
}

// ---- the tensor lane ----

ot_status ot_streams_fork(const ot_streams *streams) {
  if (!streams->queued) return OT_OK;
  OT_TRY(ot_event_record(streams->fork, streams->lane[OT_LANE_COMPUTE]));
  return ot_stream_wait(streams->lane[OT_LANE_TENSOR], streams->fork);
}

ot_status ot_streams_join(const ot_streams *streams) {
  if (!streams->queued) return OT_OK;
  return ot_stream_wait(streams->lane[OT_LANE_COMPUTE], streams->call[OT_LANE_TENSOR]);
}

// ---- all of them ----

static ot_status wait_on(const ot_streams *streams, ot_stream *stream) {
  return streams->queued ? ot_comm_synchronize(streams->comm, stream)
                         : ot_stream_synchronize(stream);
}

ot_status ot_streams_wait(const ot_streams *streams) {
  return wait_on(streams, streams->lane[OT_LANE_COMPUTE]);
}

ot_status ot_streams_synchronize(const ot_streams *streams) {
  ot_failure first = {.status = OT_OK};
  for (int i = 0; i < OT_LANES; i++) {
    if (streams->lane[i]) ot_failure_take(&first, wait_on(streams, streams->lane[i]));
  }
  for (int i = 0; streams->message && i < streams->schedule->num_segments; i++) {
    if (!streams->message[i]) continue;
    ot_failure_take(&first, wait_on(streams, streams->message[i]));
  }
  return ot_failure_repeat(&first);
}
