// SPDX-License-Identifier: Apache-2.0
// The names of checkpoints in a run's checkpoints/.
#pragma once

#include "base/arena.h"

// "DIRECTORY/step-00000100".
char *ot_checkpoint_path(ot_arena *arena, const char *directory, int64_t step);

// "step-00000100" -> 100; -1 for any other name.
int64_t ot_checkpoint_step_of_name(const char *name);
