// SPDX-License-Identifier: Apache-2.0
// Operand pointers are the entry's base offsets plus the arena.
#include "execute/launch.h"

#include "workspace/workspace.h"

// A call and its operands.
typedef struct prepared {
  ot_tensor in[OT_MAX_INPUTS], out[OT_MAX_OUTPUTS];
} prepared;

static ot_tensor tensor_at(const ot_launch *launch, const ot_operand *operand) {
  if (operand->base == OT_BASE_NONE) return (ot_tensor){0};
  const int64_t base = launch->entry->base[operand->base];
  OT_ASSERT(base >= 0);
  return (ot_tensor){.data = launch->memory + base + operand->offset, .type = operand->type};
}

static ot_kernel_call prepare(const ot_launch *launch, const ot_task *task, prepared *p) {
  for (int i = 0; i < OT_MAX_INPUTS; i++) p->in[i] = tensor_at(launch, &task->in[i]);
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) p->out[i] = tensor_at(launch, &task->out[i]);
  char *const scratch = launch->memory + launch->entry->base[OT_BASE_SCRATCH];
  return (ot_kernel_call){.attributes = &task->attributes,
                          .in = p->in,
                          .out = p->out,
                          .workspace = task->workspace_bytes > 0 ? scratch + task->workspace : NULL,
                          .context = launch->context};
}

static void run_joined(const ot_launch *launch) {
  prepared operands[OT_JOINED_MOST];
  ot_kernel_call calls[OT_JOINED_MOST];
  const int count = launch->bound->count;
  OT_ASSERT(count <= OT_JOINED_MOST);
  for (int i = 0; i < count; i++) calls[i] = prepare(launch, &launch->tasks[i], &operands[i]);
  launch->bound->joined(calls, count);
}

static void run_one(const ot_launch *launch) {
  prepared operands;
  const ot_kernel_call call = prepare(launch, launch->tasks, &operands);
  launch->bound->kernel(&call);
}

void ot_launch_run(const ot_launch *launch) {
  ot_progress_begin(launch->progress, launch->entry, launch->tasks);
  if (launch->bound->count > 1) {
    run_joined(launch);
  } else {
    run_one(launch);
  }
  ot_progress_end(launch->progress);
}
