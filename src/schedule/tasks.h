// SPDX-License-Identifier: Apache-2.0
// Writing step-level tasks: those that stand in no program (optimizer, reductions, gathers, sends).
// Private to schedule/.
#pragma once

#include "graph/graph.h"
#include "schedule/schedule.h"

// A segment with room for `max_tasks`.
void ot_tasks_begin(ot_segment *segment, const char *name, ot_phase phase, int max_tasks,
                    ot_arena *arena);

// A task without operands, of the kind that goes with `op`.
ot_task ot_task_of(const ot_graph *graph, ot_op_kind op);

// A vector of `n` elements at `offset` bytes of `base`.
ot_operand ot_operand_at(ot_base base, int64_t offset, ot_tensor_type type);
ot_operand ot_operand_vector(ot_base base, ot_dtype dtype, int64_t first, int64_t n);

// Appends `task` with its workspace, which stands at `scratch` bytes of OT_BASE_SCRATCH and is the
// only one in use there.
void ot_tasks_append(ot_segment *segment, ot_task *task, int64_t scratch);

// Appends zeroes of [n] float64.
void ot_tasks_zero(const ot_graph *graph, ot_base base, int64_t offset, int64_t n,
                   ot_segment *segment);

// Sets the group of a communication. The group must have two members at least.
void ot_task_set_group(ot_task *task, const ot_schedule *schedule, ot_group_kind kind);

// Appends an all_reduce of [n] elements in place.
void ot_tasks_all_reduce(const ot_graph *graph, const ot_schedule *schedule, ot_group_kind kind,
                         ot_operand operand, ot_segment *segment);

// What crosses a cut of the pipeline.
typedef struct ot_message {
  const ot_graph *graph;
  ot_op_kind op;  // send or receive
  ot_base base;   // what of the block at the cut: output or d_input leave, input or d_output come
  int peer;       // stage
  int tag;
  int64_t elements;  // of the storage type
} ot_message;

// The segment of one message.
void ot_tasks_message(const ot_message *message, const ot_schedule *schedule, ot_arena *arena,
                      ot_segment *segment);

// The segment that copies `bytes` of the storage type from one base to another: a stack that goes
// on to the next chunk.
ot_segment ot_tasks_hand_over(const ot_graph *graph, ot_base from, ot_base to, int64_t bytes,
                              ot_arena *arena);
