// SPDX-License-Identifier: Apache-2.0
// Resolves what the executor needs before the first step: the kernel of every compute task, and for
// every communication task the check that this rank's communicator can run it. Afterwards, running
// a task cannot hit an unknown op or call.
#pragma once

#include "comm/comm.h"
#include "device/device.h"
#include "ops/kernel.h"
#include "schedule/schedule.h"

typedef struct ot_bound_task {
  ot_kernel kernel;         // compute
  ot_joined_kernel joined;  // of the launch that begins here, if it has several tasks
  int count;                // of its tasks; 0: the task runs in the launch of an earlier one
  const char *name;         // communication: "segment/op", for timeout messages
} ot_bound_task;

// Binds the tasks of `schedule` [num_segments][num_tasks] in `arena`. `comm` is null on one rank.
// OT_ENVIRONMENT for an op without a kernel, OT_RANKS for a communicator that lacks a group, OT_BUG
// for a schedule that cannot be executed: point-to-point messages off the pipeline lane, repeats
// off the compute lane or rejected by schedule/bodies.h, waits for entries that do not exist.
ot_status ot_bind(const ot_schedule *schedule, const ot_comm *comm, ot_arena *arena,
                  ot_bound_task ***bound);

// OT_ENVIRONMENT if this build has no kernels for the bound device, `info`, or none for an op.
ot_status ot_bind_check_kernels(const ot_schedule *schedule, const ot_device_info *info);

// The two tables of splits of an all-to-all-v, `home` and `here` (expert_exchange.h); null: `task`
// is another op.
const ot_operand *ot_bind_splits(const ot_task *task);
// Copies the runs of `splits`, which `ranks` ranks have in `memory` of the device, to the host at
// `to`, where `splits` then has them.
ot_status ot_bind_read_splits(ot_device *device, char *memory, int ranks, int32_t *to,
                              ot_comm_splits *splits);
// The largest number of elements that the two tables of an all-to-all-v have.
int64_t ot_bind_most_splits(const ot_schedule *schedule);

// The kinds of calls of `schedule`, each once, in `arena`; returns how many.
int ot_bind_routes(const ot_schedule *schedule, ot_arena *arena, ot_comm_route **routes);

// The call of communication `task` of `entry`, with its operands in `memory`.
ot_comm_call ot_bind_call(const ot_entry *entry, const ot_task *task, char *memory,
                          const char *name);
