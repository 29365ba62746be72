// SPDX-License-Identifier: Apache-2.0
// The state of an executor. Private to execute/: execute.c runs orders, arena_access.c gives the
// host access to the arena.
#pragma once

#include "base/failure.h"
#include "device/device.h"
#include "execute/bind.h"
#include "execute/execute.h"
#include "execute/guard.h"
#include "execute/lanes.h"
#include "execute/leave.h"
#include "execute/mailbox.h"
#include "execute/pieces.h"
#include "execute/recorder.h"
#include "execute/streams.h"
#include "host/cores.h"
#include "host/heap.h"

// The collective in flight on the tensor lane.
typedef struct ot_tensor_call {
  bool under_way;
  int entry, task;
  int64_t span;
  ot_comm_request request;
} ot_tensor_call;

struct ot_executor {
  const ot_schedule *schedule;
  ot_executor_options options;
  ot_device *device;
  ot_streams streams;
  ot_pieces pieces;  // without tables: none is captured
  char *memory;      // [schedule->arena_bytes]
  int32_t *splits;   // of the all-to-all-v in flight, if the arena is not host memory
  ot_heap heap;      // all other memory
  ot_bound_task **bound;
  ot_lanes *lanes;  // null if no order needs it
  ot_mailbox mailbox;
  ot_tensor_call tensor;
  ot_guard *guard;  // with options.poison
  ot_recorder recorder;
  ot_timeline timeline;
  int order;        // the running one
  int64_t scalars;  // offset in the arena
  ot_executor_transfers *transfers;
  ot_failure *copies;       // the first failure of host access since the last run
  ot_executor_pause pause;  // call null: none
  bool paused;              // in this run
  ot_leave leave;
  ot_core_binding cores;
};
