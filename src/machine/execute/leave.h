// SPDX-License-Identifier: Apache-2.0
// Leaving a step that is under way, without an agreement of the ranks on where. A rank that leaves
// runs no more kernels, but all communication, so the others never wait in vain; then it makes its
// squared gradient norms NaN. Their sum over all ranks is NaN, and no rank updates anything
// (ops/optimizer.h). A rank that has reached its gradient norms no longer leaves.
//
// Where sizes of messages depend on data (all-to-all-v, loops over them), forward passes still run,
// because routing reads their results; backward, kernels that write integers still run.
#pragma once

#include "execute/execute.h"
#include "execute/progress.h"

typedef struct ot_leave {
  ot_executor_leave options;  // asks null: never
  bool by_data;               // sizes of messages depend on data
  bool may;                   // in this run
  int end;                    // in this run, the first entry after which nothing can be undone
  _Atomic bool left;          // in this run
} ot_leave;

// Keeps `by_data` of `schedule`.
void ot_leave_create(const ot_schedule *schedule, ot_leave *leave);
void ot_leave_begin(ot_leave *leave, const ot_order *order);
// Before a kernel: whether it is skipped. Only on the calling thread, for entries of its lane.
bool ot_leave_skips(ot_leave *leave, const ot_entry *entry, const ot_task *task);
// The progress of the kernel on `lane`; or null.
ot_lane_progress *ot_leave_progress(const ot_leave *leave, ot_lane lane);
// On any lane: whether nobody on this rank reads the result of a communication of entry `entry`.
bool ot_leave_discards(const ot_leave *leave, int entry);
// Before an entry of the compute lane: whether gradient norms must now become NaN.
bool ot_leave_spoils(ot_leave *leave, const ot_entry *entry);
