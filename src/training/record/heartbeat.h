// SPDX-License-Identifier: Apache-2.0
// Signs of life of a run, for its supervisor: the leading rank touches a file of the run directory
// while it computes; files that it writes count, too.
#pragma once

#include <stdint.h>

#include "base/status.h"

#define OT_HEARTBEAT_FILE ".heartbeat"

typedef struct ot_heartbeat ot_heartbeat;

// Opens the file in the run directory `output` and touches it.
ot_status ot_heartbeat_create(const char *output, ot_heartbeat **out);
void ot_heartbeat_destroy(ot_heartbeat **heartbeat);
// Touches the file, at most twice a second; null: nothing. A failure is not reported. Cheap.
void ot_heartbeat_beat(ot_heartbeat *heartbeat);

// A number that changes with each sign of life of the run in `output`; 0 before the first.
uint64_t ot_heartbeat_look(const char *output);
// The same of the file alone: whether the run computes steps.
uint64_t ot_heartbeat_look_steps(const char *output);
