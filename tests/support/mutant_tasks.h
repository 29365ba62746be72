// SPDX-License-Identifier: Apache-2.0
// Edits tasks of a schedule in place.
#pragma once

#include "schedule/schedule.h"

// Selects tasks: segments of these phases (bits; 0: all), one op, one group (-1: any).
typedef struct task_kind {
  unsigned phases;
  ot_op_kind op;
  int group;
} task_kind;

enum {
  FORWARD_PHASES = 1 << OT_PHASE_FORWARD | 1 << OT_PHASE_RECOMPUTE,
  BACKWARD_PHASES = 1 << OT_PHASE_BACKWARD | 1 << OT_PHASE_INPUT | 1 << OT_PHASE_WEIGHT,
  REDUCE_PHASE = 1 << OT_PHASE_REDUCE,
  UPDATE_PHASE = 1 << OT_PHASE_UPDATE,
};

typedef void (*task_edit)(const ot_schedule *schedule, ot_task *task);

void tasks_edit(ot_schedule *schedule, task_kind kind, task_edit edit);
void tasks_drop(ot_schedule *schedule, task_kind kind);
// Runs each selected task twice.
void tasks_repeat(ot_schedule *schedule, ot_arena *arena, task_kind kind);
// Replaces a communication by a copy of this rank's own data.
void tasks_keep_local(ot_schedule *schedule, task_kind kind);
// Replaces the result of a communication by zeros.
void tasks_bring_nothing(ot_schedule *schedule, task_kind kind);
// Replaces a communication by kernel `op`, which reads `in` (null: nothing) and writes output 0.
void tasks_make_kernel(const ot_schedule *schedule, ot_task *task, ot_op_kind op,
                       const ot_operand *in);

// Allocates separate memory for OT_BASE_RESULT of the instructions that `wanted` accepts: the
// instruction of micro-batch m uses the 8 bytes at 8 m. Returns the offset of the first in the
// arena.
int64_t tasks_bind_memory(ot_schedule *schedule, ot_arena *arena,
                          bool (*wanted)(const ot_entry *entry));

// Offset of that memory in a schedule that contains it.
int64_t tasks_memory(const ot_schedule *schedule);

// The program of a step; without instructions if the schedule has no steps (audits evaluate).
ot_order *tasks_step(ot_schedule *schedule);
