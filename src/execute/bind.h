// SPDX-License-Identifier: Apache-2.0
// What the executor looks up once: the kernel of every compute task, and of every communication
// that it is one which the communicator of this rank can carry out. After this, running a task
// cannot meet anything unknown.
#pragma once

#include "comm/comm.h"
#include "ops/kernel.h"
#include "schedule/schedule.h"

typedef struct ot_bound_task {
  ot_kernel kernel;  // compute
  const char *name;  // communication: "segment/op", for messages about what waits
} ot_bound_task;

// Binds the tasks of `schedule` [num_segments][num_tasks] in `arena`. `comm` is null on one rank.
// OT_ENVIRONMENT for an op without kernel, OT_RANKS for a communicator that lacks a group, OT_BUG
// for what no executor runs: messages beside the pipeline lane, repeats beside the compute lane or
// that schedule/bodies.h refuses, waits for what is not there.
ot_status ot_bind(const ot_schedule *schedule, const ot_comm *comm, ot_arena *arena,
                  ot_bound_task ***bound);

// The call of communication `task` of `entry`, with operands in `memory`.
ot_comm_call ot_bind_call(const ot_entry *entry, const ot_task *task, char *memory,
                          const char *name);
