// SPDX-License-Identifier: Apache-2.0
// Reads and writes of an order as byte ranges: input of the schedule check and the memory guards.
// Each access identifies its tensor, so that two tensors at one address are distinguished.
#pragma once

#include "schedule/schedule.h"

typedef enum ot_access_kind {
  OT_ACCESS_READ,
  OT_ACCESS_WRITE,   // old contents do not matter
  OT_ACCESS_UPDATE,  // reads and writes
} ot_access_kind;

typedef struct ot_access {
  ot_access_kind kind;
  ot_base base;
  bool workspace;  // scratch of one task
  int entry, task;
  int operand;  // index among the task's inputs or outputs; workspace: -1
  int repeat;   // the repeat whose body or iteration count it belongs to, or -1
  int micro_batch;
  int64_t begin, end;  // bytes in the arena, end exclusive
  uint64_t tensor;     // identity: equal for all accesses to the same tensor
} ot_access;

typedef struct ot_access_list {
  int64_t count;
  ot_access *accesses;  // [count] in program order; a task's reads before its writes. A body is
                        // listed twice, to include dependences between iterations
} ot_access_list;

void ot_access_list_build(const ot_schedule *schedule, int order, ot_arena *arena,
                          ot_access_list *list);

// True for memory that is initialised before an order starts.
bool ot_base_is_defined(ot_base base);
