// SPDX-License-Identifier: Apache-2.0
// Sends and receives of the pipeline lane. They run concurrently; each is completed when something
// waits for it, at the latest at the end of the run. Only the thread that walks the order calls
// this.
#pragma once

#include "comm/comm.h"
#include "execute/recorder.h"

typedef struct ot_message_slot {
  ot_comm_request request;
  int entry;
  int64_t span;
  bool done;
} ot_message_slot;

typedef struct ot_mailbox {
  ot_comm *comm;
  ot_recorder *recorder;
  int count, capacity, open;  // started in this run; size of slots; all before `open` are done
  int failed;                 // entry of the message that failed first, or -1
  ot_message_slot *slots;     // [capacity]
} ot_mailbox;

// Allocates slots for the messages of any order of `schedule` in `arena`. Keeps `comm` and
// `recorder`.
void ot_mailbox_create(const ot_schedule *schedule, ot_comm *comm, ot_recorder *recorder,
                       ot_arena *arena, ot_mailbox *box);

// Starts a run.
void ot_mailbox_begin(ot_mailbox *box);

// Starts task `task` of `entry`. Does not block.
void ot_mailbox_start(ot_mailbox *box, int entry, int task, const ot_comm_call *call);

// Waits for all messages of `entry`. Blocks.
ot_status ot_mailbox_wait(ot_mailbox *box, int entry);

// Completes finished messages, so that their trace spans end on time. Does not block.
void ot_mailbox_poll(ot_mailbox *box);

// Waits for all messages, failed or not; returns the first failure. Blocks.
ot_status ot_mailbox_finish(ot_mailbox *box);
