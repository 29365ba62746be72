// SPDX-License-Identifier: Apache-2.0
#include "execute/leave.h"

static bool is_by_data(const ot_segment *segment) {
  for (int i = 0; i < segment->num_tasks; i++) {
    const ot_task *const task = &segment->tasks[i];
    if (task->kind == OT_TASK_REPEAT || task->op == OT_OP_ALL_TO_ALL_V) return true;
  }
  return false;
}

void ot_leave_create(const ot_schedule *schedule, ot_leave *leave) {
  for (int i = 0; i < schedule->num_segments; i++) {
    leave->by_data = leave->by_data || is_by_data(&schedule->segments[i]);
  }
}

// The phases of which nothing can be undone, and of the sums that decide whether they do anything.
static bool is_end(ot_phase phase) {
  return phase == OT_PHASE_NORM || phase == OT_PHASE_CLIP || phase == OT_PHASE_UPDATE;
}

void ot_leave_begin(ot_leave *leave, const ot_order *order) {
  leave->may = leave->options.asks && order->kind == OT_ORDER_STEP;
  leave->left = false;
  leave->end = 0;
  while (leave->may && !is_end(order->entries[leave->end].phase)) leave->end++;
}

static bool writes_integers(const ot_task *task) {
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    const ot_operand *const out = &task->out[i];
    if (out->base == OT_BASE_NONE) continue;
    if (out->type.dtype == OT_I32 || out->type.dtype == OT_I64) return true;
  }
  return false;
}

bool ot_leave_skips(ot_leave *leave, const ot_entry *entry, const ot_task *task) {
  if (!leave->options.asks || entry->lane != OT_LANE_COMPUTE) return false;
  if (!leave->may) {
    leave->options.asks(leave->options.context);
    return false;
  }
  if (is_end(entry->phase)) return leave->left && entry->phase == OT_PHASE_NORM;
  if (!leave->left) leave->left = leave->options.asks(leave->options.context);
  if (!leave->left || !leave->by_data) return leave->left;
  const bool forward = entry->phase == OT_PHASE_BEGIN || entry->phase == OT_PHASE_FORWARD;
  return !forward && !writes_integers(task);
}

ot_lane_progress *ot_leave_progress(const ot_leave *leave, ot_lane lane) {
  return leave->options.progress ? &leave->options.progress->lane[lane] : NULL;
}

bool ot_leave_discards(const ot_leave *leave, int entry) {
  return leave->left && entry < leave->end && !leave->by_data;
}

bool ot_leave_spoils(ot_leave *leave, const ot_entry *entry) {
  return leave->may && leave->left && entry->phase == OT_PHASE_CLIP;
}
