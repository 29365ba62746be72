// SPDX-License-Identifier: Apache-2.0
// Builds step-level tasks outside of programs: optimizer, reductions, gathers, sends. Private to
// schedule/.
#pragma once

#include "graph/graph.h"
#include "schedule/schedule.h"

// Starts a segment with capacity for `max_tasks`.
void ot_tasks_begin(ot_segment *segment, const char *name, ot_phase phase, int max_tasks,
                    ot_arena *arena);

// A task without operands, of the kind that `op` implies.
ot_task ot_task_of(const ot_graph *graph, ot_op_kind op);

// A vector of `n` elements at `offset` bytes of `base`.
ot_operand ot_operand_at(ot_base base, int64_t offset, ot_tensor_type type);
ot_operand ot_operand_vector(ot_base base, ot_dtype dtype, int64_t first, int64_t n);

// Appends `task`; where the back end can, one launch runs it with the last one. Its workspace is at
// `scratch` bytes of OT_BASE_SCRATCH and the only one in use, or behind that of the task it joins.
void ot_tasks_append(ot_segment *segment, ot_task *task, int64_t scratch);

// Appends a task that zeroes [n] float64.
void ot_tasks_zero(const ot_graph *graph, ot_base base, int64_t offset, int64_t n,
                   ot_segment *segment);

// Sets the group of a collective. The group must have at least two members.
void ot_task_set_group(ot_task *task, const ot_schedule *schedule, ot_group_kind kind);

// Appends an all_reduce of [n] elements in place.
void ot_tasks_all_reduce(const ot_graph *graph, const ot_schedule *schedule, ot_group_kind kind,
                         ot_operand operand, ot_segment *segment);

// A message between pipeline stages.
typedef struct ot_message {
  const ot_graph *graph;
  ot_op_kind op;  // send or receive
  ot_base base;   // send: output or d_input; receive: input or d_output
  ot_group_kind group;
  int peer;  // index in the group
  int tag;
  int64_t elements;  // in the storage dtype
} ot_message;

// The segment of one message.
void ot_tasks_message(const ot_message *message, const ot_schedule *schedule, ot_arena *arena,
                      ot_segment *segment);

// Returns a segment that copies `bytes` of the storage dtype from one base to another: a stack
// passed to the next chunk.
ot_segment ot_tasks_copy_stack(const ot_graph *graph, ot_base from, ot_base to, int64_t bytes,
                               ot_arena *arena);
