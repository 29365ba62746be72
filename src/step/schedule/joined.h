// SPDX-License-Identifier: Apache-2.0
// Tasks that one launch runs: small tensors cost less together. A launch is a task and those behind
// it that join it; it is as if they ran one after the other.
#pragma once

#include "schedule/schedule.h"

// Whether a back end can run `task` and `before`, the task before it, in one launch: both are calls
// of an op that takes several, with operands of the same dtypes.
bool ot_task_may_join(const ot_task *before, const ot_task *task);

// The number of tasks of the launch that begins at `task`, at least 1.
int ot_segment_launch(const ot_segment *segment, int task);

// OT_BUG, naming segment and task, for a task that joins one that it may not, or a launch of more
// tasks than the back end takes.
ot_status ot_segment_check_joined(const ot_segment *segment);
