// SPDX-License-Identifier: Apache-2.0
// Ranks that share the cores of one measured machine. A core that one rank leaves idle, others use,
// so kernels slow down by less than the number of ranks a core where ranks wait for each other; and
// ranks that move data do so on the cores that compute. What holds in any case: the cores cannot do
// more than their number of seconds of work a second. Pure.
#pragma once

#include "schedule/timeline.h"
#include "simulate/simulate.h"

// As ot_schedules_simulate. Where the cluster's cores are known and all the work of all ranks,
// spread evenly over them, takes longer than the step, kernels are stretched until the step takes
// as long (Graham 1966: list scheduling is near that bound when ranks seldom wait). Replays the
// step up to six times. `stretch` is by how much kernels are stretched in the timelines; 0 where it
// is as the cluster's crowding says.
ot_status ot_schedules_simulate_shared(const ot_pipeline_replay *replay,
                                       const ot_simulation *simulation, ot_arena *arena,
                                       ot_timeline *timelines, double *stretch);
