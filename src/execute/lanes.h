// SPDX-License-Identifier: Apache-2.0
// Threads for the lanes beside compute. The thread that walks the order (it stands for the compute
// lane) pushes entries; the lane's own thread takes them in order and runs them. Who has nothing to
// do, or must wait for another lane, sleeps; the communicator is told so, and is told that a
// sleeper goes on by the one who wakes it, before that one may sleep itself: at no moment does a
// rank look idle that has work.
#pragma once

#include "comm/comm.h"
#include "schedule/schedule.h"

typedef struct ot_lanes ot_lanes;

// Runs an entry on the thread of `lane`.
typedef ot_status (*ot_lane_run)(void *context, ot_lane lane, int entry);

typedef struct ot_lanes_options {
  int64_t capacity[OT_LANES];  // entries pushed in one run; a lane with none gets no thread
  ot_comm *comm;               // null: one rank
  ot_lane_run run;
  void *context;  // of `run`
} ot_lanes_options;

// Starts the threads. Keeps `comm` and the context until destroy.
ot_status ot_lanes_create(const ot_lanes_options *options, ot_lanes **lanes);
// Nothing may be under way.
void ot_lanes_destroy(ot_lanes **lanes);

// A run begins: nothing is done and nothing has failed.
void ot_lanes_begin(ot_lanes *lanes);

// Hands `entry` to the thread of `lane`. Does not block.
void ot_lanes_push(ot_lanes *lanes, ot_lane lane, int entry);

// Waits, on the thread of lane `self`, until `lane` has done `entry` and all before it. Returns the
// failure of the lane that failed first, when one has, with its message. Blocks.
ot_status ot_lanes_wait(ot_lanes *lanes, ot_lane self, ot_lane lane, int entry);

// The walker has failed with `status`: entries that were not begun are dropped. Does not block.
void ot_lanes_drop(ot_lanes *lanes, ot_status status);

// Waits until no lane runs anything; returns the first failure with its message. Blocks.
ot_status ot_lanes_finish(ot_lanes *lanes);
