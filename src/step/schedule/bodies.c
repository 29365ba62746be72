// SPDX-License-Identifier: Apache-2.0
// A body is the run of tasks after its repeat; bodies do not nest.
#include "schedule/bodies.h"

#include "ops/catalog.h"
#include "ops/repeat.h"

int ot_segment_repeat_of(const ot_segment *segment, int task) {
  for (int i = task - 1; i >= 0; i--) {
    if (segment->tasks[i].kind != OT_TASK_REPEAT) continue;
    return task - i <= segment->tasks[i].attributes.repeated ? i : -1;
  }
  return -1;
}

int ot_segment_collective_index(const ot_segment *segment, int task) {
  const int repeat = ot_segment_repeat_of(segment, task);
  const ot_group_kind group = segment->tasks[task].attributes.group;
  int turn = 0;
  for (int i = repeat + 1; repeat >= 0 && i < task; i++) {
    const ot_task *const before = &segment->tasks[i];
    turn += before->kind == OT_TASK_COLLECTIVE && before->attributes.group == group;
  }
  return repeat < 0 ? -1 : turn;
}

// ---- check ----

static bool is_count(const ot_operand *operand) {
  return operand->base != OT_BASE_NONE && operand->type.dtype == OT_I32 &&
         ot_type_elements(&operand->type) == 1;
}

static ot_status check_repeat(const ot_segment *segment, int index) {
  const ot_task *const task = &segment->tasks[index];
  const int repeated = task->attributes.repeated;
  OT_CHECK(repeated >= 1 && repeated < segment->num_tasks - index, OT_BUG,
           "schedule: %s, task %d repeats %d tasks, but only %d follow it", segment->name, index,
           repeated, segment->num_tasks - index - 1);
  for (int i = index + 1; i <= index + repeated; i++) {
    const ot_task_kind kind = segment->tasks[i].kind;
    OT_CHECK(kind == OT_TASK_COMPUTE || kind == OT_TASK_COLLECTIVE, OT_BUG,
             "schedule: %s, task %d repeats task %d (%s), not allowed in a body", segment->name,
             index, i, ot_task_name(&segment->tasks[i]));
  }
  OT_CHECK(is_count(&task->in[OT_REPEAT_COUNT]) && is_count(&task->out[OT_REPEAT_INDEX]), OT_BUG,
           "schedule: %s, task %d repeats without an iteration count", segment->name, index);
  return OT_OK;
}

// Kernels copy an input that is not in place; repeats and collectives do not.
static ot_status check_sharing(const ot_segment *segment, int index) {
  const ot_task *const task = &segment->tasks[index];
  const ot_op_info *const info = ot_op_info_of(task->op);
  if (task->kind == OT_TASK_COMPUTE) return OT_OK;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    const bool goes_on = (info->in_place & info->optional_inputs) >> i & 1u;
    if (!goes_on || task->in[i].base == OT_BASE_NONE || task->out[i].base == OT_BASE_NONE) continue;
    OT_CHECK(task->in[i].base == task->out[i].base && task->in[i].offset == task->out[i].offset,
             OT_BUG,
             "schedule: %s, task %d (%s) needs operand %d in place, but reads %s+%lld and "
             "writes %s+%lld: another tensor uses one of them",
             segment->name, index, info->name, i, ot_base_name(task->in[i].base),
             (long long)task->in[i].offset, ot_base_name(task->out[i].base),
             (long long)task->out[i].offset);
  }
  return OT_OK;
}

ot_status ot_segment_check_bodies(const ot_segment *segment) {
  for (int i = 0; i < segment->num_tasks; i++) {
    if (segment->tasks[i].kind == OT_TASK_REPEAT) OT_TRY(check_repeat(segment, i));
    OT_TRY(check_sharing(segment, i));
  }
  return OT_OK;
}
