// SPDX-License-Identifier: Apache-2.0
// Threads for the lanes other than compute. The calling thread (the compute lane) walks the order
// and queues entries; each lane's thread runs its entries in order. A lane with no work, or one
// that waits for another lane, sleeps and tells the communicator so. The thread that wakes it
// reports the wake-up before it may sleep itself, so a rank with work never looks idle.
#pragma once

#include "comm/comm.h"
#include "schedule/schedule.h"

typedef struct ot_lanes ot_lanes;

// Runs an entry on the thread of `lane`.
typedef ot_status (*ot_lane_run)(void *context, ot_lane lane, int entry);

typedef struct ot_lanes_options {
  int64_t capacity[OT_LANES];  // entries queued in one run; a lane without entries gets no thread
  ot_comm *comm;               // null: one rank
  ot_lane_run run;
  void *context;  // of `run`
} ot_lanes_options;

// Adds the capacities that runs of `schedule` need; false if none.
bool ot_lanes_count(const ot_schedule *schedule, ot_lanes_options *options);

// Starts the threads. Keeps `comm` and the context until destroy.
ot_status ot_lanes_create(const ot_lanes_options *options, ot_lanes **lanes);
// No work may be in flight.
void ot_lanes_destroy(ot_lanes **lanes);

// Starts a run: nothing done, nothing failed.
void ot_lanes_begin(ot_lanes *lanes);

// Hands `entry` to the thread of `lane`. Does not block.
void ot_lanes_push(ot_lanes *lanes, ot_lane lane, int entry);

// Waits, on the thread of lane `self`, until `lane` has done `entry` and all before it. Returns the
// first failure of any lane, with its message. Blocks.
ot_status ot_lanes_wait(ot_lanes *lanes, ot_lane self, ot_lane lane, int entry);

// The calling thread failed with `status`: drops the entries that have not started. Does not block.
void ot_lanes_drop(ot_lanes *lanes, ot_status status);

// Waits until all lanes are idle; returns the first failure with its message. Blocks.
ot_status ot_lanes_finish(ot_lanes *lanes);
