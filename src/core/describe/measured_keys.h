// SPDX-License-Identifier: Apache-2.0
// The part of a cluster file that `orthant bench` measures: kernels, collectives, and measurements
// for display.
#pragma once

#include "base/arena.h"
#include "base/schema.h"
#include "describe/cluster_check.h"

// The keys of ot_measured_machine; a map without keys: not measured.
extern const ot_schema ot_measured_schema;

// Gives a measured GPU the nominal rates of `sheet` in bf16 and of its memory, with the measured
// ones as efficiencies, so that prices stay the same; nothing if one is above its nominal rate.
void ot_measured_relate(ot_cluster *cluster, const ot_device_kind *sheet);

// Checks that figures that belong together are there, and that no product was faster than the peak
// of the device.
ot_status ot_measured_check(const ot_cluster_source *source);

// Whether timings of the same call vary widely, as on a busy machine, or a formula misses them.
bool ot_measured_is_doubtful(const ot_cluster *cluster);

// One sentence on unreliable measurements: timings of the same call that vary widely, as on a busy
// machine, or a formula that misses them. Null: none.
const char *ot_measured_warning(const ot_cluster *cluster, ot_arena *arena);
