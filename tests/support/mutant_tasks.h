// SPDX-License-Identifier: Apache-2.0
// Changes of the tasks of a schedule, in place.
#pragma once

#include "schedule/schedule.h"

// Which tasks: of segments of these phases (bits; 0: all), of one op, in a group (-1: any).
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
// Each is done twice.
void tasks_repeat(ot_schedule *schedule, ot_arena *arena, task_kind kind);
// A communication becomes a copy of what this rank has itself.
void tasks_keep_local(ot_schedule *schedule, task_kind kind);
// A communication leaves zeros.
void tasks_bring_nothing(ot_schedule *schedule, task_kind kind);
// A communication becomes kernel `op`, which reads `in` (null: nothing) and writes output 0.
void tasks_make_kernel(const ot_schedule *schedule, ot_task *task, ot_op_kind op,
                       const ot_operand *in);

// Memory of its own for OT_BASE_RESULT of the entries that `wanted` accepts: entry of micro-batch m
// finds its 8 bytes at 8 m. Returns the offset of the first in the arena.
int64_t tasks_bind_memory(ot_schedule *schedule, ot_arena *arena,
                          bool (*wanted)(const ot_entry *entry));

// Offset of that memory in a schedule that has it.
int64_t tasks_memory(const ot_schedule *schedule);

// One without entries where the schedule takes no steps (audits evaluate).
ot_order *tasks_step(ot_schedule *schedule);
