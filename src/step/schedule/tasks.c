// SPDX-License-Identifier: Apache-2.0
// Builds step-level tasks.
#include "schedule/tasks.h"

#include "ops/collective.h"
#include "ops/operands.h"
#include "schedule/joined.h"
#include "schedule/segment.h"
#include "workspace/workspace.h"

void ot_tasks_begin(ot_segment *segment, const char *name, ot_phase phase, int max_tasks,
                    ot_arena *arena) {
  *segment = (ot_segment){
      .name = name, .phase = phase, .tasks = ot_arena_array(arena, max_tasks + 1, sizeof(ot_task))};
}

ot_task ot_task_of(const ot_graph *graph, ot_op_kind op) {
  ot_task task = {.kind = ot_task_kind_of(op),
                  .op = op,
                  .wait = -1,
                  .attributes = {.threads = graph->request.threads,
                                 .backend = graph->request.backend,
                                 .compute = graph->request.compute}};
  for (int i = 0; i < OT_MAX_INPUTS; i++) task.in[i].value = -1;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) task.out[i].value = -1;
  return task;
}

ot_operand ot_operand_at(ot_base base, int64_t offset, ot_tensor_type type) {
  return (ot_operand){.base = base, .value = -1, .offset = offset, .type = type};
}

ot_operand ot_operand_vector(ot_base base, ot_dtype dtype, int64_t first, int64_t n) {
  return ot_operand_at(base, first * ot_dtype_bytes(dtype), ot_type_vector(dtype, n));
}

// Whether `task` runs in the launch of the last task of `segment`.
static bool joins_last(const ot_segment *segment, const ot_task *task) {
  const int most = ot_op_joined(task->op, task->attributes.backend);
  int count = 0;
  for (int i = segment->num_tasks - 1; i >= 0; i--) {
    count++;
    if (!segment->tasks[i].joins) break;
  }
  if (count == 0 || count >= most) return false;
  return ot_task_may_join(&segment->tasks[segment->num_tasks - 1], task);
}

void ot_tasks_append(ot_segment *segment, ot_task *task, int64_t scratch) {
  const ot_op_types types = ot_task_types(task);
  task->joins = joins_last(segment, task);
  if (task->joins) {
    const ot_task *const last = &segment->tasks[segment->num_tasks - 1];
    scratch = last->workspace + last->workspace_bytes;
  }
  task->workspace = scratch;
  task->workspace_bytes = ot_op_workspace(task->op, &task->attributes, &types);
  const int64_t end = scratch + task->workspace_bytes;
  if (end > segment->scratch_bytes) segment->scratch_bytes = end;
  segment->tasks[segment->num_tasks++] = *task;
}

void ot_tasks_zero(const ot_graph *graph, ot_base base, int64_t offset, int64_t n,
                   ot_segment *segment) {
  ot_task task = ot_task_of(graph, OT_OP_ZERO);
  task.out[0] = ot_operand_at(base, offset, ot_type_vector(OT_F64, n));
  ot_tasks_append(segment, &task, 0);
}

void ot_task_set_group(ot_task *task, const ot_schedule *schedule, ot_group_kind kind) {
  const ot_group *const group = &schedule->group[kind];
  OT_ASSERT(group->size >= 2);
  task->attributes.group = kind;
  task->attributes.group_size = group->size;
  task->attributes.group_index = group->index;
}

void ot_tasks_all_reduce(const ot_graph *graph, const ot_schedule *schedule, ot_group_kind kind,
                         ot_operand operand, ot_segment *segment) {
  ot_task task = ot_task_of(graph, OT_OP_ALL_REDUCE);
  ot_task_set_group(&task, schedule, kind);
  task.in[0] = operand;
  task.out[0] = operand;
  ot_tasks_append(segment, &task, 0);
}

void ot_tasks_message(const ot_message *message, const ot_schedule *schedule, ot_arena *arena,
                      ot_segment *segment) {
  const bool sends = message->op == OT_OP_SEND;
  ot_task task = ot_task_of(message->graph, message->op);
  ot_task_set_group(&task, schedule, message->group);
  task.attributes.peer = message->peer;
  task.attributes.tag = message->tag;
  const ot_dtype storage = message->graph->request.storage;
  const ot_operand operand = ot_operand_vector(message->base, storage, 0, message->elements);
  if (sends) {
    task.in[0] = operand;
  } else {
    task.out[0] = operand;
  }
  ot_tasks_begin(segment, sends ? "send" : "receive", sends ? OT_PHASE_SEND : OT_PHASE_RECEIVE, 1,
                 arena);
  ot_tasks_append(segment, &task, 0);
}

ot_segment ot_tasks_copy_stack(const ot_graph *graph, ot_base from, ot_base to, int64_t bytes,
                               ot_arena *arena) {
  const ot_dtype storage = graph->request.storage;
  const int64_t elements = bytes / ot_dtype_bytes(storage);
  ot_segment segment;
  ot_task task = ot_task_of(graph, OT_OP_CAST);
  task.in[0] = ot_operand_vector(from, storage, 0, elements);
  task.out[0] = ot_operand_vector(to, storage, 0, elements);
  ot_tasks_begin(&segment, "hand_over", OT_PHASE_SEND, 1, arena);
  ot_tasks_append(&segment, &task, 0);
  return segment;
}
