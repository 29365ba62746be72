// SPDX-License-Identifier: Apache-2.0
// Ranks that share the cores of one measured machine. Other ranks use a core that one rank leaves
// idle, so kernels slow down by less than the number of ranks per core if ranks wait for each
// other; and ranks that move data use the cores that compute. At any moment, all that runs shares
// the cores equally. Pure.
#pragma once

#include "schedule/timeline.h"
#include "simulate/simulate.h"

// As ot_schedules_simulate. If the cluster's cores are known and at some moments fewer than what
// runs, the step takes longer by that (egalitarian processor sharing, Kleinrock 1967): kernels are
// stretched, all by the same factor, until the step takes as long. Replays the step up to seven
// times. `stretch`: slowdown factor of kernels in the timelines; 0: from the cluster's
// threads_per_core.
ot_status ot_schedules_simulate_shared(const ot_pipeline_replay *replay,
                                       const ot_simulation *simulation, ot_arena *arena,
                                       ot_timeline *timelines, double *stretch);
