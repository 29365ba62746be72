// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine and the libraries that runs on them open, for `orthant doctor`.
#pragma once

#include "base/tree.h"

// A map: whether this build has CUDA, the driver, the GPUs, and for each library its path and
// version or what is wrong. What to do about it is appended to `warnings` (a list). In `arena`.
ot_node *ot_gpu_report(ot_arena *arena, ot_node *warnings);
