// SPDX-License-Identifier: Apache-2.0
// Which kernel each lane of an executor runs, for a thread that watches them.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "schedule/schedule.h"

typedef struct ot_lane_progress {
  _Atomic int64_t marks;            // counts begins and ends: odd while a kernel runs
  _Atomic(const ot_entry *) entry;  // of the last kernel that began
  _Atomic(const ot_task *) task;
} ot_lane_progress;

typedef struct ot_progress {
  ot_lane_progress lane[OT_LANES];
} ot_progress;

// The thread of the lane calls these around a kernel. Null: nothing.
static inline void ot_progress_begin(ot_lane_progress *lane, const ot_entry *entry,
                                     const ot_task *task) {
  if (!lane) return;
  atomic_store_explicit(&lane->entry, entry, memory_order_relaxed);
  atomic_store_explicit(&lane->task, task, memory_order_relaxed);
  atomic_fetch_add_explicit(&lane->marks, 1, memory_order_release);
}

static inline void ot_progress_end(ot_lane_progress *lane) {
  if (lane) atomic_fetch_add_explicit(&lane->marks, 1, memory_order_release);
}
