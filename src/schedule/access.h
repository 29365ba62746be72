// SPDX-License-Identifier: Apache-2.0
// What an order reads and writes, byte range by byte range: the raw material of the check and of
// the memory guards. Each access names the tensor it means, so that two tensors at one address are
// told apart.
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
  int operand;  // of the task: its number among inputs or outputs; of a workspace -1
  int repeat;   // task whose body it is of, or which it counts rounds for; -1
  int micro_batch;
  int64_t begin, end;  // bytes in the arena, end exclusive
  uint64_t tensor;     // identity: equal for all accesses that mean the same tensor
} ot_access;

typedef struct ot_access_list {
  int64_t count;
  ot_access *accesses;  // [count] in program order; a task's reads before its writes. A body is
                        // there twice: what a round leaves for the next is seen, too
} ot_access_list;

void ot_access_list_build(const ot_schedule *schedule, int order, ot_arena *arena,
                          ot_access_list *list);

// True for memory that holds something meaningful before an order starts.
bool ot_base_is_defined(ot_base base);
