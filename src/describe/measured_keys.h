// SPDX-License-Identifier: Apache-2.0
// The part of a cluster file that `orthant bench` measures: kernels, collectives, and what people
// want to see of a machine.
#pragma once

#include "base/arena.h"
#include "base/schema.h"
#include "describe/cluster.h"

// Of ot_measured_machine; without any key: nothing was measured.
extern const ot_schema ot_measured_schema;

// Names are there, ranks and threads are at least 1, rates are not negative.
ot_status ot_measured_check(const ot_cluster *cluster);

// One sentence on what of the measurements is not to be trusted: timings of the same call that lie
// far apart, as on a machine with other work, or a formula that misses them. Null: nothing.
const char *ot_measured_doubt(const ot_cluster *cluster, ot_arena *arena);
