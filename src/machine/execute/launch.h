// SPDX-License-Identifier: Apache-2.0
// Runs the kernel of a task, or that of the tasks of a launch (schedule/joined.h).
#pragma once

#include "execute/bind.h"
#include "execute/progress.h"

typedef struct ot_launch {
  const ot_entry *entry;
  const ot_task *tasks;  // [bound->count] consecutive ones of the entry's segment
  const ot_bound_task *bound;
  char *memory;                // of the arena
  void *context;               // of the lane's kernels
  ot_lane_progress *progress;  // is marked; or null
} ot_launch;

void ot_launch_run(const ot_launch *launch);
