// SPDX-License-Identifier: Apache-2.0
// The streams of a GPU on which the lanes run, and the events by which they wait for each other.
// Threads only queue work; what they wait for among themselves (lanes.h) is that an event they need
// has been recorded. So no stream ever waits for work that is queued later, and none can deadlock.
//
// Each lane has a stream; in the pipeline lane each segment has its own, so that messages of one
// kind do not wait for those of another. A CPU runs work when it is queued: all lanes share a
// stream and there are no events.
#pragma once

#include "comm/comm.h"
#include "device/device.h"
#include "schedule/schedule.h"

typedef struct ot_streams {
  const ot_schedule *schedule;
  ot_comm *comm;
  bool queued;                // a device that runs work later
  ot_stream *lane[OT_LANES];  // null: pipeline, and lanes that no order uses
  void *context[OT_LANES];    // of kernels (ot_kernel_context_create)
  ot_event *call[OT_LANES];   // of the collective in flight
  ot_event *fork;             // of the compute lane where the tensor lane starts
  ot_stream **message;        // [num_segments] null: a segment without messages
  int **first;                // [num_orders][num_entries] number of the entry's first event, or -1
  ot_event **event;           // [num_events] one of each entry that another stream waits for, and
                              // one of each message; shared by the orders
  int num_events;
} ot_streams;

// Keeps `schedule` and `comm` (null: one rank) and allocates tables in `arena`. The device must be
// bound. After a failure, destroy is allowed.
ot_status ot_streams_create(const ot_schedule *schedule, ot_device *device, ot_comm *comm,
                            ot_arena *arena, ot_streams *streams);
void ot_streams_destroy(ot_streams *streams);

// The stream of an entry's tasks; collectives on the tensor lane have their own.
ot_stream *ot_streams_of(const ot_streams *streams, const ot_entry *entry);

// The entry's stream waits for all that the entry waits for.
ot_status ot_streams_enter(const ot_streams *streams, int order, int entry);
// The entry's work is queued: records its event.
ot_status ot_streams_leave(const ot_streams *streams, int order, int entry);
// The event of message `task` of an entry of the pipeline lane.
ot_event *ot_streams_message(const ot_streams *streams, int order, int entry, int task);

// The tensor lane waits for the compute lane, or the compute lane for the call in flight.
ot_status ot_streams_fork(const ot_streams *streams);
ot_status ot_streams_join(const ot_streams *streams);

// Waits for the work of the compute lane. Blocks.
ot_status ot_streams_wait(const ot_streams *streams);
// Waits for all work on all streams; returns the first failure. Blocks.
ot_status ot_streams_synchronize(const ot_streams *streams);
