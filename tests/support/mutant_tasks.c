// SPDX-License-Identifier: Apache-2.0
// Instructions share segments, so a change affects all instructions that run the segment.
#include "support/mutant_tasks.h"

#include <string.h>

#include "base/text.h"
#include "ops/operands.h"

enum { LINE_BYTES = 64, MEMORY_WORDS = 64 };

static bool fits(const ot_segment *segment, const ot_task *task, task_kind kind) {
  if (kind.phases != 0 && !((kind.phases >> segment->phase) & 1u)) return false;
  return task->op == kind.op && (kind.group < 0 || (int)task->attributes.group == kind.group);
}

void tasks_edit(ot_schedule *schedule, task_kind kind, task_edit edit) {
  for (int i = 0; i < schedule->num_segments; i++) {
    ot_segment *const segment = &schedule->segments[i];
    for (int t = 0; t < segment->num_tasks; t++) {
      if (fits(segment, &segment->tasks[t], kind)) edit(schedule, &segment->tasks[t]);
    }
  }
}

static void drop(ot_segment *segment, int at) {
  segment->num_tasks--;
  for (int i = at; i < segment->num_tasks; i++) segment->tasks[i] = segment->tasks[i + 1];
  for (int i = at; i < segment->num_tasks; i++) {
    int *const wait = &segment->tasks[i].wait;
    if (*wait >= at) *wait = *wait == at ? -1 : *wait - 1;
  }
}

void tasks_drop(ot_schedule *schedule, task_kind kind) {
  for (int i = 0; i < schedule->num_segments; i++) {
    ot_segment *const segment = &schedule->segments[i];
    for (int t = segment->num_tasks - 1; t >= 0; t--) {
      if (fits(segment, &segment->tasks[t], kind)) drop(segment, t);
    }
  }
}

static void repeat(ot_segment *segment, int at) {
  for (int i = segment->num_tasks++; i > at; i--) segment->tasks[i] = segment->tasks[i - 1];
  for (int i = at + 1; i < segment->num_tasks; i++) {
    if (segment->tasks[i].wait >= at) segment->tasks[i].wait++;
  }
  segment->tasks[at + 1].wait = segment->tasks[at].wait;
}

void tasks_repeat(ot_schedule *schedule, ot_arena *arena, task_kind kind) {
  for (int i = 0; i < schedule->num_segments; i++) {
    ot_segment *const segment = &schedule->segments[i];
    ot_task *const tasks = ot_arena_array(arena, 2 * segment->num_tasks + 1, sizeof *tasks);
    memcpy(tasks, segment->tasks, (size_t)segment->num_tasks * sizeof *tasks);
    segment->tasks = tasks;
    for (int t = segment->num_tasks - 1; t >= 0; t--) {
      if (fits(segment, &segment->tasks[t], kind)) repeat(segment, t);
    }
  }
}

// ---- communication that does not happen ----

static void make_copy(const ot_schedule *schedule, ot_task *task) {
  const ot_tensor_type *const out = &task->out[0].type;
  const bool adds = task->op == OT_OP_REDUCE_SCATTER && task->attributes.accumulate;
  ot_operand own = task->in[0];
  if (task->op == OT_OP_REDUCE_SCATTER) {
    own.offset +=
        task->attributes.group_index * ot_type_elements(out) * ot_dtype_bytes(own.type.dtype);
  }
  const ot_dtype dtype = own.type.dtype;
  own.type = *out;
  own.type.dtype = dtype;
  task->kind = OT_TASK_COMPUTE;
  task->lane = OT_LANE_COMPUTE;
  task->op = adds ? OT_OP_ADD : OT_OP_CAST;
  task->attributes = (ot_op_attributes){.threads = schedule->threads, .compute = out->dtype};
  task->workspace_bytes = 0;
  task->in[0] = adds ? task->out[0] : own;
  if (adds) task->in[1] = own;
}

void tasks_keep_local(ot_schedule *schedule, task_kind kind) {
  for (int i = 0; i < schedule->num_segments; i++) {
    ot_segment *const segment = &schedule->segments[i];
    for (int t = 0; t < segment->num_tasks; t++) {
      if (!fits(segment, &segment->tasks[t], kind)) continue;
      make_copy(schedule, &segment->tasks[t]);
      for (int k = t + 1; k < segment->num_tasks; k++) {
        if (segment->tasks[k].wait == t) segment->tasks[k].wait = -1;
      }
    }
  }
}

void tasks_make_kernel(const ot_schedule *schedule, ot_task *task, ot_op_kind op,
                       const ot_operand *in) {
  const ot_operand out = task->out[0];
  const int wait = task->wait;
  *task = (ot_task){.kind = OT_TASK_COMPUTE,
                    .lane = OT_LANE_COMPUTE,
                    .op = op,
                    .attributes = {.threads = schedule->threads, .compute = schedule->compute},
                    .wait = wait};
  for (int i = 0; i < OT_MAX_INPUTS; i++) task->in[i] = (ot_operand){.base = OT_BASE_NONE};
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) task->out[i] = (ot_operand){.base = OT_BASE_NONE};
  if (in) task->in[0] = *in;
  task->out[0] = out;
}

static void clear(const ot_schedule *schedule, ot_task *task) {
  tasks_make_kernel(schedule, task, OT_OP_ZERO, NULL);
}

void tasks_bring_nothing(ot_schedule *schedule, task_kind kind) {
  tasks_edit(schedule, kind, clear);
}

// ---- memory ----

ot_order *tasks_step(ot_schedule *schedule) {
  static ot_order none;
  const int order = ot_schedule_find_order(schedule, OT_ORDER_STEP, 0);
  return order >= 0 ? &schedule->orders[order] : &none;
}

int64_t tasks_bind_memory(ot_schedule *schedule, ot_arena *arena,
                          bool (*wanted)(const ot_entry *entry)) {
  const int n = schedule->num_regions;
  ot_region *const regions = ot_arena_array(arena, n + 1, sizeof *regions);
  memcpy(regions, schedule->regions, (size_t)n * sizeof *regions);
  const int64_t offset = (schedule->arena_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
  regions[n] = (ot_region){.name = "mutant",
                           .class = OT_MEMORY_BUFFERS,
                           .persistent = true,
                           .offset = offset,
                           .bytes = MEMORY_WORDS * (int64_t)sizeof(double)};
  schedule->regions = regions;
  schedule->num_regions++;
  schedule->arena_bytes = offset + regions[n].bytes;
  const ot_order *const order = tasks_step(schedule);
  for (int i = 0; i < order->num_entries; i++) {
    ot_entry *const entry = &order->entries[i];
    if (wanted(entry)) entry->base[OT_BASE_RESULT] = offset + 8 * (int64_t)entry->micro_batch;
  }
  return offset;
}

int64_t tasks_memory(const ot_schedule *schedule) {
  return ot_schedule_region(schedule, "mutant")->offset;
}
