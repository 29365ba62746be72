// SPDX-License-Identifier: Apache-2.0
// Whether a GPU can run a schedule, found before its memory is allocated.
#pragma once

#include "schedule/schedule.h"

// Finds a change that fits into `bytes` of a rank, as a hint for the user in `arena`; null: none.
typedef struct ot_memory_advisor {
  const char *(*advise)(void *context, int64_t bytes, ot_arena *arena);
  void *context;
} ot_memory_advisor;

// The bytes that are left to libraries for each arena.
extern const int64_t ot_gpu_reserve_bytes;

typedef struct ot_gpu_need {
  int ordinal;
  int ranks;                          // that share it, >= 1
  const ot_memory_breakdown *memory;  // of the arena of each
  ot_memory_advisor advisor;          // without a function: a general hint
} ot_gpu_need;

// OT_ENVIRONMENT, with the memory by class, if the ranks need more than is free. `free_bytes`
// receives what is free; may be null. The planning half of a run calls it for dry runs.
ot_status ot_gpu_check_memory(const ot_gpu_need *need, ot_arena *arena, int64_t *free_bytes);

// OT_ENVIRONMENT if the kernels are for other GPUs than this one, or an op of `schedule` has none.
ot_status ot_gpu_check_kernels(int ordinal, const ot_schedule *schedule);

// How many of the `local_ranks` of a host share a GPU (see ot_comm_ordinal).
int ot_gpu_sharers(int local_ranks);

// "  weights  1.2 GB\n...", a line for each class that is not empty, in `arena`.
const char *ot_memory_table(const ot_memory_breakdown *memory, ot_arena *arena);
