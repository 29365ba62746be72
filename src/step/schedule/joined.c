// SPDX-License-Identifier: Apache-2.0
// Whether the operands of a launch are independent, schedule_check.c proves.
#include "schedule/joined.h"

#include "workspace/workspace.h"

static bool same_kind(const ot_operand *a, const ot_operand *b) {
  const bool absent = a->base == OT_BASE_NONE;
  return absent == (b->base == OT_BASE_NONE) && (absent || a->type.dtype == b->type.dtype);
}

static int most_joined(const ot_task *task) {
  return ot_op_joined(task->op, task->attributes.backend);
}

bool ot_task_may_join(const ot_task *before, const ot_task *task) {
  const ot_op_attributes *const a = &before->attributes, *const b = &task->attributes;
  if (task->op != before->op || most_joined(task) < 2 || task->wait >= 0) return false;
  if (a->compute != b->compute || a->accumulate != b->accumulate) return false;
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    if (!same_kind(&before->in[i], &task->in[i])) return false;
  }
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    if (!same_kind(&before->out[i], &task->out[i])) return false;
  }
  return true;
}

int ot_segment_launch(const ot_segment *segment, int task) {
  int end = task + 1;
  while (end < segment->num_tasks && segment->tasks[end].joins) end++;
  return end - task;
}

ot_status ot_segment_check_joined(const ot_segment *segment) {
  for (int i = 0, count = 0; i < segment->num_tasks; i++) {
    const ot_task *const task = &segment->tasks[i];
    count = task->joins ? count + 1 : 1;
    if (!task->joins) continue;
    OT_CHECK(i > 0 && ot_task_may_join(task - 1, task), OT_BUG,
             "schedule: %s, task %d (%s) joins a task that it cannot run with", segment->name, i,
             ot_task_name(task));
    OT_CHECK(count <= most_joined(task), OT_BUG,
             "schedule: %s, task %d (%s) is number %d of a launch, which takes %d", segment->name,
             i, ot_task_name(task), count, most_joined(task));
  }
  return OT_OK;
}
